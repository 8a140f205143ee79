"""How `agentgym ui` ends while threads of it are still reading."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ui_servers import make_run

pytestmark = pytest.mark.slow

PROGRAM = "from agentgym_rl.cli.main import main; main()"


@pytest.mark.slow
def test_ctrl_c_right_after_the_start_ends_it_without_a_crash(tmp_path: Path):
    make_run(tmp_path / "one")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "ui", str(tmp_path), "--port", "0", "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert " at http" in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=60)[1], process.returncode) == ("", 0)
