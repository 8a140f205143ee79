"""Drafts that were tried with a search engine and found wanting.

`screened_out.txt` has their keys, one per line, sorted. It is made by `screen.py` and read when the
questions are chosen, so that choosing needs no search engine and comes out the same with any.
"""

from __future__ import annotations

from pathlib import Path

SCREENED_OUT_FILE = Path(__file__).with_name("screened_out.txt")


def load_screened_out() -> frozenset[str]:
    """Return the keys of the drafts that no split may have."""
    return frozenset(SCREENED_OUT_FILE.read_text(encoding="ascii").split())


def save_screened_out(keys: frozenset[str]) -> None:
    """Write the list."""
    SCREENED_OUT_FILE.write_text("".join(f"{key}\n" for key in sorted(keys)), encoding="ascii")
