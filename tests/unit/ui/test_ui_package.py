"""The page's files are part of what is installed."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from agentgym_rl.ui.app import STATIC

REPOSITORY = Path(__file__).parents[3]


def test_static_files_are_in_the_wheel(tmp_path: Path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    files = [file for file in STATIC.rglob("*") if file.is_file()]
    missing = [
        file.name
        for file in files
        if f"agentgym_rl/ui/static/{file.relative_to(STATIC).as_posix()}" not in packed
    ]
    assert files and missing == []
