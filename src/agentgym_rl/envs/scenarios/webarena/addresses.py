"""Names of sites in the task files, and the addresses that the user gave for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from agentgym_rl.envs.scenarios.webarena.options import origin_of

Sites = Sequence[tuple[str, str]]
"""("shopping", "http://10.0.0.5:7770") ..."""


def with_addresses(text: str, sites: Sites) -> str:
    """Return a text of a task with addresses in place of names such as __SHOPPING__."""
    for name, address in sites:
        text = text.replace(f"__{name.upper()}__", address)
    return text


def origins_of(urls: Iterable[str]) -> tuple[str, ...]:
    """Return the origins of addresses, each once."""
    return tuple(dict.fromkeys(origin_of(url) for url in urls))


def names_of(urls: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the hosts of addresses, each resolved as the machine resolves it, port kept."""
    hosts = (urlsplit(url).hostname for url in urls)
    return tuple(dict.fromkeys((host, host) for host in hosts if host))
