"""Processes forked from one that never touched a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
from agentgym_rl.forks import FORKS, import_before_forks
import asks_for_gpu

if __name__ == "__main__":
    import_before_forks("asks_for_gpu")
    answers = FORKS.Queue()
    FORKS.Process(target=asks_for_gpu.use_it, args=(answers,)).start()
    print(answers.get(timeout=60))
"""


def test_a_fork_of_a_process_whose_libraries_asked_for_a_gpu_uses_it(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    done = subprocess.run(
        [sys.executable, program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "(True, 2.0)", done.stderr
