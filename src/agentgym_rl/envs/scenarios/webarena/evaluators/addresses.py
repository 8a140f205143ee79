"""Whether an episode ended at an address that its task asks for."""

from __future__ import annotations

from collections import defaultdict
from urllib.parse import parse_qs, urlparse

_OR = " |OR| "
RULE = "GOLD in PRED"
"""The one rule that the tasks name: what is asked for is a part of what was reached."""


def ends_at(wanted: str, reached: str) -> bool:
    """Return whether an address is one of those wanted, separated by " |OR| ".

    One of their hosts with paths must occur in it, and of every parameter that any of them has,
    it must have one of the values.
    """
    path, parameters = _split(reached)
    paths, allowed = list[str](), defaultdict[str, set[str]](set)
    for one in wanted.split(_OR):
        wanted_path, wanted_parameters = _split(one)
        paths.append(wanted_path)
        for name, values in wanted_parameters.items():
            allowed[name] |= set(values)
    has_values = all(values & set(parameters.get(name, ())) for name, values in allowed.items())
    return has_values and any(one in path for one in paths)


def _split(url: str) -> tuple[str, dict[str, list[str]]]:
    parts = urlparse(url.rstrip("/"))
    return parts.netloc + parts.path, parse_qs(parts.query)
