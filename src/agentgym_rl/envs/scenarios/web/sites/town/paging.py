"""Cuts lists into pages: `page_of`."""

from __future__ import annotations

from django.core.paginator import Page, Paginator
from django.http import HttpRequest


def page_of(request: HttpRequest, entries: object, size: int) -> Page:
    """Return the page of a list that the request asks for; the nearest one where there is none."""
    return Paginator(entries, size).get_page(request.GET.get("page"))  # type: ignore[arg-type]
