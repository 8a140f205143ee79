"""Folders on their way to a node that shares no folder with the others."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, bytes]
"""The contents of a folder's files by their paths inside it."""


def read_files(folder: Path) -> dict[str, bytes]:
    """Return all files of a folder."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def write_files(files: Files, folder: Path) -> None:
    """Write files below a folder, which need not exist."""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
