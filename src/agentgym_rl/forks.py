"""Processes forked from one that has imported everything and never touched a GPU.

They start at once, and one that takes another's place does, too.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing import forkserver, resource_tracker

FORKS = multiprocessing.get_context("forkserver")
_ASK_THE_DRIVER = "PYTORCH_NVML_BASED_CUDA_CHECK"


def import_before_forks(module: str) -> None:
    """Start the process that others are forked from, which imports a module; once is enough.

    Some libraries ask for a GPU when they are imported, transformers where FlashAttention 4 is
    installed. Torch then starts CUDA, which no forked process can use, unless it asks the driver.
    """
    os.environ.setdefault(_ASK_THE_DRIVER, "1")
    FORKS.set_forkserver_preload([module])
    # A Ctrl-C reaches it too, and would end it while it imports. What it forks ends with its line.
    resource_tracker.ensure_running()  # its start, else within the next, lets the signal pass
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
