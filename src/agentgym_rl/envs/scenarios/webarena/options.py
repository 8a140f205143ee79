"""The options of the environment, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from agentgym_rl.browser.layouts import LAYOUTS
from agentgym_rl.errors import did_you_mean

Version = Literal["verified", "original"]
TaskSet = Literal["paper", "all", "hard"]

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "map", "wikipedia")
"""As the tasks name them."""
FORMS = "forms"
NO_LOGIN = "none"


@dataclass(frozen=True, slots=True)
class ArenaOptions:
    """What `env.options` of a recipe can say. Raises ValueError for what cannot be."""

    version: Version = "verified"
    """Which tasks and evaluators: "verified" (to be reported) or "original" (as in papers)."""
    tasks: TaskSet = "paper"
    """"paper" has 372 tasks for training and 50 for testing that change no site; "all" has all 812
    for testing, and "hard" the 258 of the verified version's hard subset."""
    with_changes: bool = False
    """Whether tasks that change a site are trained on too: only where one episode runs at a time
    and somebody resets the sites."""
    shopping: str = ""
    """Address of the shop, e.g. "http://10.0.0.5:7770"."""
    shopping_admin: str = ""
    """Address of its back office, e.g. "http://10.0.0.5:7780/admin"."""
    reddit: str = ""
    """Address of the forum."""
    gitlab: str = ""
    """Address of the code hosting."""
    map: str = ""
    """Address of the map."""
    wikipedia: str = ""
    """Address of the encyclopedia."""
    homepage: str = ""
    """Address of WebArena's page of links; not needed."""
    also: str = ""
    """Other origins that the sites load from, such as the map's tiles; separated by spaces."""
    login: str = FORMS
    """How the sites are entered: "forms" logs in with WebArena's public accounts, "none" does
    not, and a folder holds states that WebArena's login script made (shopping_state.json ...)."""
    headers: str = ""
    """Headers of every request, one per line: "X-M2-Admin-Auto-Login: admin:admin1234"."""
    judge_url: str = ""
    """OpenAI-compatible endpoint of the judge, which 118 tasks of the original version need. Its
    key is read from OPENAI_API_KEY."""
    judge_model: str = ""
    """The judge's model."""
    python: str = ""
    """Python that has the package webarena-verified; empty for the one that runs this."""
    layout: str = "compact"
    """How pages are written: "compact", or "webarena" as in the benchmark's own environment."""
    full_page: bool = False
    """Whether what is not on the screen is shown as well."""
    max_chars: int = 6000
    """Of one observation; scrolling shows the rest."""

    def __post_init__(self) -> None:
        _choose("version", self.version, get_args(Version))
        _choose("tasks", self.tasks, get_args(TaskSet))
        _choose("layout", self.layout, tuple(LAYOUTS))
        if self.max_chars < 200:
            raise ValueError(f"max_chars must be at least 200, got {self.max_chars}")
        if self.with_changes and self.tasks != "paper":
            raise ValueError(f'with_changes is for tasks="paper"; {self.tasks!r} has them anyway')
        if bool(self.judge_url) != bool(self.judge_model):
            raise ValueError(
                f"judge_url and judge_model go together, got {self.judge_url!r} and "
                f"{self.judge_model!r}"
            )
        for name, address in self.addresses.items():
            _check_address(name, address)
        for origin in self.also.split():
            _check_address("also", origin)
        if self.login not in (FORMS, NO_LOGIN) and not Path(self.login).expanduser().is_dir():
            raise ValueError(
                f'login must be "{FORMS}", "{NO_LOGIN}" or a folder of states, got {self.login!r}'
            )
        for line in self.headers.splitlines():
            if ":" not in line:
                raise ValueError(f'headers must be lines of "Name: value", got {line!r}')

    @property
    def addresses(self) -> Mapping[str, str]:
        """Site -> address, of those that have one."""
        given = {
            "shopping": self.shopping,
            "shopping_admin": self.shopping_admin,
            "reddit": self.reddit,
            "gitlab": self.gitlab,
            "map": self.map,
            "wikipedia": self.wikipedia,
            "homepage": self.homepage,
        }
        return {name: address.rstrip("/") for name, address in given.items() if address}

    @property
    def header_pairs(self) -> tuple[tuple[str, str], ...]:
        """Name and value of each header."""
        pairs = [line.partition(":") for line in self.headers.splitlines()]
        return tuple((name.strip(), value.strip()) for name, _, value in pairs)


def origin_of(url: str) -> str:
    """Return the origin of a URL: "http://10.0.0.5:7770"."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _check_address(name: str, address: str) -> None:
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises ValueError where it is none
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError(f"{name} must be an address like http://10.0.0.5:7770, got {address!r}")


def _choose(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}{hint}")
