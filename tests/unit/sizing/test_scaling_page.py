"""The tables of docs/scaling.md are what the code says, and what was measured is near it."""

from __future__ import annotations

import re

from tools.scaling_tables import PAGE, page_with, tables


def test_the_tables_of_the_page_are_those_of_the_code():
    text = PAGE.read_text(encoding="utf-8")
    assert text == page_with(text, tables()), "run: python -m tools.scaling_tables"


def test_estimates_are_within_a_tenth_of_what_was_measured():
    found = tables()
    errors = re.findall(r"([+-][\d.]+)% \|\n", found["measured"] + found["cpu"])
    assert len(errors) >= 9 and max(abs(float(error)) for error in errors) < 10.0
