"""Whether two environment servers serve the same: which values differ, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.types import Task

_MAX_SHOWN_CHARS = 80


def spec_difference(one: EnvSpec, other: EnvSpec) -> str:
    """Return the values of a spec that differ, "name is 'a', not 'b'"; empty where none does."""
    return "; ".join(
        f"{field.name} is {_shown(found)}, not {_shown(wanted)}"
        for field in fields(EnvSpec)
        if (found := getattr(other, field.name)) != (wanted := getattr(one, field.name))
    )


def tasks_difference(split: str, one: Sequence[Task], other: Sequence[Task]) -> str:
    """Return how the tasks of a split differ; empty where they do not."""
    if len(one) != len(other):
        return f"split {split!r} has {len(other)} tasks, not {len(one)}"
    for wanted, found in zip(one, other, strict=True):
        names = [
            field.name
            for field in fields(Task)
            if getattr(found, field.name) != getattr(wanted, field.name)
        ]
        if names:
            return f"task {wanted.id} differs in {', '.join(names)}"
    return ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}..."
