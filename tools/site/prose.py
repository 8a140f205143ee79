"""Docstrings and help texts as Markdown."""

from __future__ import annotations

import re

_CODE = re.compile(r"(`[^`]*`)")
_PAGE = re.compile(r"\bdocs/([\w/-]+)\.md")


def prose(text: str) -> str:
    """Return a text on one line, with angle brackets as they are written and pages as links.

    The links are those of a page in `docs/reference/`.
    """
    parts = _CODE.split(" ".join(text.split()))
    return "".join(part if part.startswith("`") else _linked(part) for part in parts)


def _linked(text: str) -> str:
    return _PAGE.sub(r"[\1](../\1.md)", text.replace("<", "&lt;"))
