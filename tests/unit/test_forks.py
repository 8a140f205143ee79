"""Processes forked from one that never touched a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import os, signal

from agentgym_rl.forks import FORKS, import_before_forks

def say(answers):
    is_blocked = signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    answers.put((os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK"), is_blocked))

if __name__ == "__main__":
    import_before_forks("json")
    answers = FORKS.Queue()
    process = FORKS.Process(target=say, args=(answers,))
    process.start()
    print(*answers.get(timeout=60), signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    process.join()
"""


@pytest.mark.parametrize("chosen", ["", "0"])
def test_forks_ask_the_driver_for_gpus_unless_told_otherwise_and_ctrl_c_spares_them(
    tmp_path: Path, chosen: str
):
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    variable = {"PYTORCH_NVML_BASED_CUDA_CHECK": chosen} if chosen else {}
    done = subprocess.run(
        [sys.executable, program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variable,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split("\n")[0] == f"{chosen or '1'} True set()", done.stderr
