"""Which addresses an episode may reach: the second guard of the network.

The first is the browser's resolver (host.py), for which no other host exists. This one looks at
what is asked for: everything but these origins is sent to a proxy that does not exist, redirects
included, and what pages load is looked at in the page too. Documents in folders, which no proxy
sees, are looked at one by one (tab.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urljoin, urlsplit

BLANK = "about:blank"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Origins:
    """Origins ("http://shop.test") and folders ("file:///srv/pages/") that may be read."""

    allowed: tuple[str, ...]

    def allows(self, url: str) -> bool:
        """Return whether a document may come from a URL."""
        if url == BLANK:
            return True
        try:
            parts = urlsplit(url)
            asked = (parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme))
        except ValueError:
            return False
        if parts.scheme == "file":
            return any(_is_within(parts.path, one) for one in self.allowed)
        return asked[0] in _PORTS and asked in map(_origin, self.allowed)

    def meant(self, written: str, here: str) -> str:
        """Return the URL that a text means on a page: `shop.test/cart` and `/cart` name one too."""
        urls = [written, f"http://{written}", f"https://{written}"]
        if written.startswith("/") and not written.startswith("//") and here.startswith("http"):
            urls = [urljoin(here, written)]
        return next((url for url in urls if self.allows(url)), written)

    @property
    def has_files(self) -> bool:
        """Whether there are folders among them, which are not behind the network."""
        return any(one.startswith("file:") for one in self.allowed)

    @property
    def proxy(self) -> dict[str, str] | None:
        """For a context: a proxy that does not exist, for everything but these origins.

        Chromium asks it for whatever else a page or a redirect leads to, so that this cannot be
        reached. Nothing passes through this process for it. None where there are folders.
        """
        if self.has_files:
            return None
        reached = [_origin(one) for one in self.allowed]
        names = [
            f"{scheme}://{f'[{host}]' if host and ':' in host else host}:{port}"
            for scheme, host, port in reached
        ]
        return {"server": "http://blocked.invalid:1", "bypass": ",".join(names)}

    @property
    def block_rules(self) -> list[dict[str, object]]:
        """For Chromium: what pages may load, in the order in which it looks."""
        allowed = [f"{one.rstrip('/')}/*" for one in self.allowed]
        return [
            *({"urlPattern": pattern, "block": False} for pattern in allowed),
            {"urlPattern": "*://*:*/*", "block": True},
        ]


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _is_within(path: str, folder: str) -> bool:
    if not folder.startswith("file://"):
        return False
    root = PurePosixPath(urlsplit(folder).path)
    asked = PurePosixPath(unquote(path))
    return ".." not in asked.parts and asked.is_relative_to(root)
