"""Which stored episodes the UI may play again: a run folder is data, and anybody may have made it.

Its episodes name an environment and hold actions, and its recipe holds options. So only built-in
environments are opened, and those that whoever started the UI named; they must promise that replay
is safe (`EnvSpec.replay_is_safe`); and an option is taken only if its value cannot name a file or
an address.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping

from agentgym_rl.envs import registry
from agentgym_rl.envs.base import Environment
from agentgym_rl.errors import AgentGymError
from agentgym_rl.ui.answers import ApiError

_CHOICES = frozenset(
    {("sciworld", "simplifications"), ("searchqa", "reward"), ("searchqa", "on_wrong_answer")}
)
"""Options, by environment, whose texts are choices out of a fixed list, never a path."""
_RUNS_CODE = frozenset({("searchqa", "python")})
"""Flags under which an action may be a program; told before the environment is made for it."""
_CHOICE = re.compile(r"[A-Za-z0-9_, ]{0,500}")
MAX_ROUNDS = 2000
MAX_ACTION_CHARS = 100_000
"""Of one episode that is played again; no environment of ours has as many."""


def name_problem(name: str, extra: Collection[str]) -> str | None:
    """Return why episodes of an environment are not played again; imports nothing.

    `extra` are the classes that whoever started the UI named.
    """
    if name in registry.BUILTIN or name in extra:
        return None
    return (
        f"the state of {name!r} cannot be recomputed: stored actions are played again only in "
        "built-in environments, and in those that the UI is started with (--env module:Class)"
    )


def replayable_class(
    name: str, options: Mapping[str, object], extra: Collection[str]
) -> type[Environment]:
    """Return the class that plays stored actions again. Raises ApiError with the reason if none."""
    problem = name_problem(name, extra)
    if problem is not None:
        raise ApiError(409, problem)
    try:
        cls = registry.env_class(name)
        for option, value in options.items():
            if not _is_plain(cls, option, value):
                raise ApiError(
                    409,
                    f"the state cannot be recomputed: option {option!r} of this run could name a "
                    "file or an address or run code, which the UI does not do for a run folder",
                )
        cls = registry.configured(cls, options)
    except (AgentGymError, ValueError) as error:
        raise ApiError(409, f"the state cannot be recomputed: {error}") from error
    if not cls.spec.replay_is_safe:
        raise ApiError(
            409,
            f"the state of {name!r} cannot be recomputed: it does not promise that stored actions "
            "are safe to play again (EnvSpec.replay_is_safe)",
        )
    return cls


def check_actions(rounds: Collection[Mapping[str, object]]) -> None:
    """Refuse an episode that no environment here can have made. Raises ApiError."""
    longest = max((len(str(item.get("action") or "")) for item in rounds), default=0)
    if len(rounds) > MAX_ROUNDS or longest > MAX_ACTION_CHARS:
        raise ApiError(
            409,
            f"the state cannot be recomputed: the episode has {len(rounds)} rounds and actions of "
            f"up to {longest} characters; the limits are {MAX_ROUNDS} and {MAX_ACTION_CHARS}",
        )


def _is_plain(cls: type[Environment], option: str, value: object) -> bool:
    """Whether a value can name nothing: a flag, a number, the default, or one of a few choices."""
    if isinstance(value, bool | int | float):
        return not (value and (cls.spec.name, option) in _RUNS_CODE)
    parameter = inspect.signature(cls).parameters.get(option)
    if not isinstance(value, str) or parameter is None:
        return False
    is_choice = (cls.spec.name, option) in _CHOICES and bool(_CHOICE.fullmatch(value))
    return is_choice or value == parameter.default
