"""Folders that a killed run leaves: the next one removes them, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agentgym_rl.runs.scratch import Scratch

_KILLED = """
import os, signal, sys
from pathlib import Path
from agentgym_rl.runs.scratch import Scratch
scratch = Scratch("model-", Path(sys.argv[1]))
(scratch.path / "weights").write_text("large")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_leaves_is_removed_by_the_next(tmp_path: Path):
    command = [sys.executable, "-c", _KILLED, str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, env=env, check=False).returncode == -9
    (left,) = tmp_path.iterdir()
    living = Scratch("other-", tmp_path)
    foreign = tmp_path / "model-of-somebody"
    foreign.mkdir()
    (tmp_path / "model-link").symlink_to(living.path)
    first = Scratch("model-", tmp_path)
    assert not left.exists() and foreign.exists() and living.path.exists()
    second = Scratch("model-", tmp_path)
    assert first.path.exists() and second.path.exists(), "both are in use"
    for scratch in (first, second, living):
        scratch.remove()
        scratch.remove()
        assert not scratch.path.exists()
