"""Rules that the front end's source keeps: no HTML from text, nothing from elsewhere."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

STATIC = Path(str(files("agentgym_rl.ui"))) / "static"
SOURCES = sorted(file for file in STATIC.rglob("*") if file.suffix in {".js", ".html", ".css"})
HTML_FROM_TEXT = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser"
    r"|srcdoc|setHTML|\beval\(|new Function"
)
ELSEWHERE = re.compile(r"https?://(?!www\.w3\.org/2000/svg)|(?:src|href)=\"//|@import")
MAX_LINES = 300


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.name)
def test_text_never_becomes_html(file: Path):
    assert HTML_FROM_TEXT.findall(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.name)
def test_nothing_is_loaded_from_elsewhere(file: Path):
    assert ELSEWHERE.findall(file.read_text(encoding="utf-8")) == []


def test_files_keep_to_their_budget():
    lengths = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCES}
    assert len(lengths) > 20
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}
