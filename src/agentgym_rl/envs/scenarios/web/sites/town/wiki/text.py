"""Texts of articles as HTML: `linked`."""

from __future__ import annotations

import re
from urllib.parse import quote

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

_LINK = re.compile(r"\[\[([^\]|]+)(?:\|([^\]]+))?\]\]")


def address(title: str) -> str:
    """Return where an article is."""
    return f"/wiki/{quote(title.replace(' ', '_'), safe='(),')}"


def linked(text: str) -> SafeString:
    """Return a text with its links; everything else in it is text."""

    def link(match: re.Match[str]) -> str:
        title, shown = match[1], match[2] or match[1]
        return f'<a href="{address(title)}">{escape(shown)}</a>'

    parts = []
    last = 0
    for match in _LINK.finditer(text):
        parts += [escape(text[last : match.start()]), link(match)]
        last = match.end()
    parts.append(escape(text[last:]))
    return mark_safe("".join(parts))
