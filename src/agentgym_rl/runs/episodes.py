"""The episode store: Parquet parts in a run folder, one row an episode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agentgym_rl.errors import RunError
from agentgym_rl.types import (
    Episode,
    Message,
    Round,
    Sample,
    Segment,
    SegmentKind,
    StopReason,
    Task,
)

_ROUND = pa.struct(
    [
        ("reply", pa.string()),
        ("action", pa.string()),
        ("observation", pa.string()),
        ("reward", pa.float64()),
        ("valid_action", pa.bool_()),
        ("attempt", pa.int32()),
    ]
)
_SEGMENT = pa.struct(
    [("kind", pa.string()), ("start", pa.int32()), ("end", pa.int32()), ("round_index", pa.int32())]
)
_SAMPLE = pa.struct(
    [
        ("token_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.int8())),
        ("logprobs", pa.list_(pa.float32())),
        ("rewards", pa.list_(pa.float32())),
        ("segments", pa.list_(_SEGMENT)),
        ("version", pa.int32()),
        ("attempt", pa.int32()),
    ]
)
SCHEMA = pa.schema(
    [
        ("phase", pa.string()),
        ("step", pa.int32()),
        ("env", pa.string()),
        ("split", pa.string()),
        ("task_index", pa.int64()),
        ("task_seed", pa.int64()),
        ("category", pa.string()),
        ("level", pa.string()),
        ("group", pa.int32()),
        ("sample_index", pa.int32()),
        ("stop_reason", pa.string()),
        ("success", pa.bool_()),
        ("reward", pa.float64()),
        ("num_rounds", pa.int32()),
        ("num_attempts", pa.int32()),
        ("seconds", pa.float64()),
        ("error", pa.string()),
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("rounds", pa.list_(_ROUND)),
        ("samples", pa.list_(_SAMPLE)),
    ]
)


def write_episodes(
    folder: Path, groups: Sequence[Sequence[Episode]], *, phase: str, step: int
) -> Path:
    """Write one part, `<phase>-<step>.parquet`; `phase` is "train" or "eval"."""
    rows = [
        _row(episode, group=index, phase=phase, step=step)
        for index, group in enumerate(groups)
        for episode in group
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{phase}-{step:06d}.parquet"
    temporary = path.with_name(f".{path.name}.writing")
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), temporary, compression="zstd")
    temporary.replace(path)
    return path


def read_episodes(part: Path) -> list[Episode]:
    """Return the episodes of one part in the order in which they were written."""
    try:
        rows = pq.read_table(part).to_pylist()
        return [_episode(row) for row in rows]
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{part} holds no episodes: {type(error).__name__}: {error}") from error


def _episode(row: Mapping[str, Any]) -> Episode:  # Any: pyarrow does not know a table's types
    return Episode(
        task=Task(
            row["env"],
            row["split"],
            row["task_index"],
            category=row["category"],
            level=row["level"],
            seed=row["task_seed"],
        ),
        sample_index=row["sample_index"],
        stop_reason=StopReason(row["stop_reason"]),
        reward=row["reward"],
        success=row["success"],
        rounds=tuple(Round(**item) for item in row["rounds"]),
        messages=tuple(Message(**item) for item in row["messages"]),
        samples=tuple(_sample(item) for item in row["samples"]),
        seconds=row["seconds"],
        num_attempts=row["num_attempts"],
        error=row["error"],
    )


def _sample(item: Mapping[str, Any]) -> Sample:  # Any: as above
    return Sample(
        token_ids=tuple(item["token_ids"]),
        loss_mask=tuple(item["loss_mask"]),
        logprobs=tuple(item["logprobs"]),
        rewards=tuple(item["rewards"]),
        segments=tuple(
            Segment(SegmentKind(s["kind"]), s["start"], s["end"], s["round_index"])
            for s in item["segments"]
        ),
        version=item["version"],
        attempt=item.get("attempt", 0),  # parts written before agents had several lack it
    )


def _row(episode: Episode, *, group: int, phase: str, step: int) -> dict[str, object]:
    task = episode.task
    return {
        "phase": phase,
        "step": step,
        "env": task.env,
        "split": task.split,
        "task_index": task.index,
        "task_seed": task.seed,
        "category": task.category,
        "level": task.level,
        "group": group,
        "sample_index": episode.sample_index,
        "stop_reason": str(episode.stop_reason),
        "success": episode.success,
        "reward": episode.reward,
        "num_rounds": len(episode.rounds),
        "num_attempts": episode.num_attempts,
        "seconds": episode.seconds,
        "error": episode.error,
        "messages": [{"role": m.role, "content": m.content} for m in episode.messages],
        "rounds": [
            {
                "reply": r.reply,
                "action": r.action,
                "observation": r.observation,
                "reward": r.reward,
                "valid_action": r.valid_action,
                "attempt": r.attempt,
            }
            for r in episode.rounds
        ],
        "samples": [
            {
                "token_ids": s.token_ids,
                "loss_mask": s.loss_mask,
                "logprobs": s.logprobs,
                "rewards": s.rewards,
                "segments": [
                    {
                        "kind": str(g.kind),
                        "start": g.start,
                        "end": g.end,
                        "round_index": g.round_index,
                    }
                    for g in s.segments
                ],
                "version": s.version,
                "attempt": s.attempt,
            }
            for s in episode.samples
        ],
    }
