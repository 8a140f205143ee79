"""Drafts that were tried with a search engine and found unsuitable.

`screened_out.txt` has their keys, one per line, sorted. `screen.py` writes it, and it is read when
questions are chosen, so that choosing needs no search engine and does not depend on one.
"""

from __future__ import annotations

from pathlib import Path

SCREENED_OUT_FILE = Path(__file__).with_name("screened_out.txt")


def load_screened_out() -> frozenset[str]:
    """Return the keys of the drafts that are in no split."""
    return frozenset(SCREENED_OUT_FILE.read_text(encoding="ascii").split())


def save_screened_out(keys: frozenset[str]) -> None:
    """Write the list."""
    SCREENED_OUT_FILE.write_text("".join(f"{key}\n" for key in sorted(keys)), encoding="ascii")
