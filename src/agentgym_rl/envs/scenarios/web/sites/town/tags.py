"""Filters and tags that templates of all sites use."""

from __future__ import annotations

import tomllib
from datetime import date, datetime
from functools import cache
from pathlib import Path

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

register = template.Library()

_ICONS = tomllib.loads(Path(__file__).with_name("icons.toml").read_text(encoding="utf-8"))


@register.simple_tag
def icon(name: str) -> SafeString:
    """Return a small drawing that screen readers skip: what it stands for is said beside it."""
    return format_html(
        '<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">'
        '<path d="{}"/></svg>',
        _ICONS[name],
    )


@register.filter
def ago(moment: datetime) -> SafeString:
    """Return how long ago something was; older than a month, the day."""
    seconds = (timezone.now() - moment).total_seconds()
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        count = int(seconds // size)
        if count >= 1:
            text = f"{count} {unit}{'s' if count > 1 else ''} ago"
            if unit == "day" and count > 30:
                text = f"on {moment.day} {moment:%b %Y}"
            break
    else:
        text = "just now"
    return format_html('<time datetime="{}">{}</time>', moment.isoformat(), text)


@register.filter
def day(moment: date | datetime | None) -> str:
    """Return "14 Jun 2024"."""
    return f"{moment.day} {moment:%b %Y}" if moment else ""


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table")


@register.filter
def markdown(text: str) -> SafeString:
    """Return the HTML of a text in Markdown; HTML inside of it is shown as text."""
    return mark_safe(_markdown().render(text))


@register.filter
def thousands(number: int) -> str:
    """Return "12,345"."""
    return f"{number:,}"


@register.filter
def initial(name: str) -> str:
    """Return the letter of a round picture."""
    return name[:1].upper()


@register.filter
def hue(name: str) -> int:
    """Return a colour for a name, in degrees."""
    return sum(ord(letter) * 7 for letter in name) * 37 % 360


@register.filter
def get(mapping: dict[object, object], key: object) -> object:
    """Return a mapping's value, or nothing."""
    return mapping.get(key, "")


@register.filter
def words(text: str) -> list[str]:
    """Return the words of a text."""
    return text.split()


@register.filter
def domain(url: str) -> str:
    """Return the host of an address."""
    return url.partition("//")[2].partition("/")[0]
