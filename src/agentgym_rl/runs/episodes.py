"""The episode store: Parquet parts in a run folder, one row per episode.

Its columns are in episode_columns.py. Parts written by earlier versions, which lack some of them,
are read as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agentgym_rl.errors import RunError
from agentgym_rl.frozen import FrozenDict
from agentgym_rl.runs.durable import put_in_place
from agentgym_rl.runs.episode_columns import ScoresOf, episodes_table
from agentgym_rl.runs.pictures import read_picture, write_pictures
from agentgym_rl.runs.regular_files import open_regular
from agentgym_rl.types import (
    Episode,
    Message,
    ReplyUsage,
    Round,
    Sample,
    Segment,
    SegmentKind,
    StopReason,
    Task,
)

_ROW_GROUP = 64
"""Episodes of a part that are read together, where one of them is asked for."""
_RENAMED_REASONS = {"cancelled": StopReason.TIMEOUT}
"""Stop reasons only older parts have -> the nearest failure."""

_DICTIONARIES = [
    "phase",
    "env",
    "split",
    "category",
    "level",
    "payload",
    "stop_reason",
    "error",
    "messages.list.element.role",
    "messages.list.element.content",
    "rounds.list.element.reply",
    "rounds.list.element.action",
    "rounds.list.element.observation",
    "rounds.list.element.metrics.key_value.key",
    "rounds.list.element.reward_parts.key_value.key",
    "samples.list.element.token_ids.list.element",
    "samples.list.element.segments.list.element.kind",
]
"""Columns that get a dictionary: their values recur. Log-probabilities do not, and take longer to
write with one."""


def write_episodes(
    folder: Path,
    groups: Sequence[Sequence[Episode]],
    *,
    phase: str,
    step: int,
    scores_of: ScoresOf | None = None,
) -> Path:
    """Write one part, `<phase>-<step>.parquet`; `phase` is "train" or "eval".

    `scores_of` gives what training made of a sample. A reader sees the whole part or none.
    """
    table, part = (
        episodes_table(groups, phase=phase, step=step, scores_of=scores_of),
        f"{phase}-{step:06d}",
    )
    write_pictures(folder, part, groups)
    return write_part(folder / f"{part}.parquet", table)


def write_part(path: Path, table: pa.Table) -> Path:
    """Write a table of episodes; a reader sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, names = path.with_name(f".{path.name}.writing"), table.column_names
    pq.write_table(
        table,
        temporary,
        compression="zstd",
        row_group_size=_ROW_GROUP,
        use_dictionary=[name for name in _DICTIONARIES if name.partition(".")[0] in names],
    )
    put_in_place(temporary, path)
    return path


def read_episodes(part: Path, *, with_pictures: bool = False) -> list[Episode]:
    """Return the episodes of one part in the order in which they were written."""
    groups = read_groups(part, with_pictures=with_pictures)
    return [episode for group in groups for episode in group]


def read_groups(part: Path, *, with_pictures: bool = False) -> list[list[Episode]]:
    """Return the episodes of one part by group, in the order in which they were written.

    Pictures are files of their own and are read only for whoever stores the episodes again.
    """
    groups: dict[int, list[Episode]] = {}
    try:
        with open_regular(part.resolve()) as file:
            rows = pq.ParquetFile(file).read().to_pylist()
        for row in rows:
            groups.setdefault(row["group"], []).append(
                _episode(row, part if with_pictures else None)
            )
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{part} holds no episodes: {type(error).__name__}: {error}") from error
    return list(groups.values())


def _episode(row: Mapping[str, Any], part: Path | None) -> Episode:  # Any: pyarrow knows no types
    # What `get` reads older parts lack; they count the first start of an episode as an attempt.
    usage, restarts = row.get("usage"), row.get("num_restarts")
    return Episode(
        task=Task(
            row["env"],
            row["split"],
            row["task_index"],
            category=row["category"],
            level=row["level"],
            seed=row["task_seed"],
            payload=json.loads(row.get("payload") or "{}"),
        ),
        sample_index=row["sample_index"],
        stop_reason=StopReason(_RENAMED_REASONS.get(row["stop_reason"], row["stop_reason"])),
        reward=row["reward"],
        success=row["success"],
        rounds=tuple(_round(item, part) for item in row["rounds"]),
        messages=tuple(Message(**item) for item in row["messages"]),
        samples=tuple(_sample(item) for item in row["samples"]),
        seconds=row["seconds"],
        num_restarts=restarts if restarts is not None else row["num_attempts"] - 1,
        error=row["error"],
        usage=None if usage is None else ReplyUsage(**usage),
        env_reward=row.get("env_reward"),
        num_replies_cut=row.get("num_replies_cut") or 0,
    )


def _round(item: Mapping[str, Any], part: Path | None) -> Round:  # Any: as above
    # A map is a list of pairs, or null where it is empty; older parts lack both.
    fields: dict[str, Any] = dict(item)
    if "attempt" in fields:  # the name in older parts
        fields["try_index"] = fields.pop("attempt")
    for name in ("metrics", "reward_parts"):
        fields[name] = FrozenDict(fields.get(name) or ())
    if fields.get("picture"):
        fields["picture"] = _picture(part, fields["picture"]) if part is not None else None
    if fields.get("acted_on"):
        fields["acted_on"] = tuple(fields["acted_on"])
    return Round(**fields)


def _picture(part: Path, name: str) -> bytes | None:
    """Return a stored picture; None where somebody has removed it."""
    try:
        return read_picture(part.parent, part.stem, name)
    except (OSError, ValueError):
        return None


def try_of(item: Mapping[str, Any]) -> int:  # Any: as above
    """Return the try of a stored round or sample; older parts call it an attempt, or lack it."""
    return item.get("try_index", item.get("attempt")) or 0


def _sample(item: Mapping[str, Any]) -> Sample:  # Any: as above
    return Sample(
        token_ids=tuple(item["token_ids"]),
        loss_mask=tuple(item["loss_mask"]),
        logprobs=tuple(item["logprobs"]),
        rewards=tuple(item["rewards"]),
        segments=tuple(
            Segment(
                SegmentKind(s["kind"]), s["start"], s["end"], s["round_index"], s.get("version")
            )
            for s in item["segments"]
        ),
        version=item["version"],
        try_index=try_of(item),
    )
