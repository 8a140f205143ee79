"""What a list of episodes can be narrowed to, as SQL over the index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentgym_rl.types import StopReason

Outcome = Literal["success", "failure", "failed"]
Sort = Literal[
    "step", "reward", "num_rounds", "num_tokens", "num_invalid", "num_repeats", "seconds"
]
Order = Literal["asc", "desc"]

_FAILURES = ", ".join(f"'{reason}'" for reason in StopReason if reason.is_failure)
_OUTCOMES: dict[Outcome, str] = {
    "success": "success",
    "failure": f"NOT success AND stop_reason NOT IN ({_FAILURES})",
    "failed": f"stop_reason IN ({_FAILURES})",
}


MAX_ROWS = 1000
"""Of one page."""

Word = Annotated[str, Field(max_length=1000)]
Number = Annotated[int, Field(ge=-(2**31), lt=2**31)]


class EpisodeFilter(BaseModel):
    """Conditions that all must hold; None: any."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    phase: Word | None = None
    step_min: Number | None = None
    step_max: Number | None = None
    env: Word | None = None
    category: Word | None = None
    outcome: Outcome | None = None
    stop_reason: Word | None = None
    rounds_min: Number | None = None
    rounds_max: Number | None = None
    invalid_min: Number | None = None
    repeats_min: Number | None = None
    group: Number | None = None
    task_index: int | None = Field(None, ge=-(2**63), lt=2**63)
    text: Word | None = None
    """Letters of either case do not matter."""


class EpisodePage(EpisodeFilter):
    """One page of what a filter leaves of a run."""

    run: Word
    sort: Sort = "step"
    order: Order = "desc"
    limit: int = Field(50, ge=0, le=MAX_ROWS)
    offset: int = Field(0, ge=0, lt=2**31)


def condition(wanted: EpisodeFilter, holding: Callable[[str], str]) -> tuple[str, list[object]]:
    """Return the filter in SQL, with its parameters; what users write is only in the parameters.

    `holding` gives the name of a table with the keys of the episodes in which a text occurs.
    """
    columns = ("phase", "env", "category", "stop_reason", "group", "task_index")
    # The names of these columns are the names of the fields.
    compared = {f'"{column}" = ?': getattr(wanted, column) for column in columns} | {
        "step >= ?": wanted.step_min,
        "step <= ?": wanted.step_max,
        "num_rounds >= ?": wanted.rounds_min,
        "num_rounds <= ?": wanted.rounds_max,
        "num_invalid >= ?": wanted.invalid_min,
        "num_repeats >= ?": wanted.repeats_min,
    }
    known = {term: value for term, value in compared.items() if value is not None}
    terms = list(known)
    if wanted.outcome is not None:
        terms.append(f"({_OUTCOMES[wanted.outcome]})")
    if wanted.text:
        terms.append(f"key IN (SELECT key FROM {holding(wanted.text)})")
    return " AND ".join(terms) or "TRUE", list(known.values())
