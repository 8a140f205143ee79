"""Which of the sites a request is for (`SiteByHost`): its host says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, HttpResponseNotFound

_PACKAGE = __package__ or ""


@dataclass(frozen=True)
class Site:
    """What all pages of a site have in common."""

    name: str
    title: str
    tagline: str


SITES = {
    "forum.test": Site("forum", "Agora", "Talk about what you love"),
    "code.test": Site("code", "Codeyard", "Code, issues and reviews in one place"),
    "map.test": Site("map", "Wayfarer", "Find places and the way there"),
    "wiki.test": Site("wiki", "Lexica", "The open encyclopedia"),
}


class SiteByHost:
    """Sets the URLs of a request by its host, and `request.site` for templates."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        site = SITES.get(request.get_host().partition(":")[0])
        if site is None:
            return HttpResponseNotFound(f"No site has the host {request.get_host()}.")
        request.site = site
        request.urlconf = f"{_PACKAGE}.{site.name}.urls"
        return self._get_response(request)
