"""The tutorial on one GPU, with fewer steps and a model made on the spot."""

from __future__ import annotations

from pathlib import Path

import tutorials


def test_the_tutorial_on_one_gpu(tmp_path: Path):
    tutorials.play("tutorials/one-gpu.md", tmp_path, whole=False)
