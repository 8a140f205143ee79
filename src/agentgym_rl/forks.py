"""Processes forked from one that has imported everything and never touched a GPU.

They start at once, and one that takes another's place does, too.
"""

from __future__ import annotations

import multiprocessing
import os

FORKS = multiprocessing.get_context("forkserver")
_ASK_THE_DRIVER = "PYTORCH_NVML_BASED_CUDA_CHECK"


def import_before_forks(module: str) -> None:
    """Let the process that others are forked from import a module; no effect once it runs.

    Some libraries ask for a GPU when they are imported, transformers where FlashAttention 4 is
    installed. Torch then starts CUDA, which no forked process can use, unless it asks the driver.
    """
    os.environ.setdefault(_ASK_THE_DRIVER, "1")
    FORKS.set_forkserver_preload([module])
