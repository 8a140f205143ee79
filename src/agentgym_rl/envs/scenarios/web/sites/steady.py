"""The episode's clock and draws instead of the machine's: `make_steady`.

An episode must go the same way every time. Applications ask Django for the present time and for
random texts (keys of wish lists, sessions); both come from the current episode here. `make_steady`
is called before `django.setup()`, because modules take these functions over by name.
"""

from __future__ import annotations

import datetime
import importlib
import types
from collections.abc import Iterable

from django.utils import crypto, timezone

from agentgym_rl.envs.scenarios.web.projects import NOW
from agentgym_rl.envs.scenarios.web.sites.episodes import current

_draw_really = crypto.get_random_string
_ASKING = (
    "django.utils.timesince",
    "django.template.defaulttags",
    "django.contrib.humanize.templatetags.humanize",
    "django.db.models.fields",
)
"""Modules that ask `datetime` for the time, by themselves."""


def present() -> datetime.datetime:
    """Return the time of the current episode."""
    episode = current.get()
    return episode.now if episode is not None else NOW


def draw(length: int, allowed_chars: str = crypto.RANDOM_STRING_CHARS) -> str:
    """Return a random text, the same ones in every episode; they need not be secret there."""
    episode = current.get()
    if episode is None:
        return _draw_really(length, allowed_chars)
    return "".join(episode.draws.choices(allowed_chars, k=length))


def make_steady() -> None:
    """Take over Django's clock and random texts in this process."""
    timezone.now = present
    crypto.get_random_string = draw


def make_steady_where_asked(others: Iterable[str] = ()) -> None:
    """Take over `datetime` in the modules that ask it; called after `django.setup()`.

    `others` are those of a project's applications, which its settings list as ASK_FOR_TIME.
    """
    for name in (*_ASKING, *others):
        module = importlib.import_module(name)
        found = vars(module)["datetime"]
        vars(module)["datetime"] = _steady_module() if found is datetime else _SteadyDatetime


class _IsReal(type):
    """Lets values of the real class pass for values of ours."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__mro__[1])


class _SteadyDatetime(datetime.datetime, metaclass=_IsReal):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return present().astimezone(tz) if tz else present().replace(tzinfo=None)

    @classmethod
    def today(cls) -> datetime.datetime:
        return cls.now()


class _SteadyDate(datetime.date, metaclass=_IsReal):
    @classmethod
    def today(cls) -> datetime.date:
        return present().date()


def _steady_module() -> types.SimpleNamespace:
    names = {name: value for name, value in vars(datetime).items() if not name.startswith("_")}
    return types.SimpleNamespace(**names | {"datetime": _SteadyDatetime, "date": _SteadyDate})
