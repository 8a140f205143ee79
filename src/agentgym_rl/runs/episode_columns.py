"""The columns of the episode store, and episodes as such columns.

Lists with an entry per token are most of a part, so they are built flat, not item by item.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from agentgym_rl.runs.pictures import picture_name
from agentgym_rl.types import Episode, Round, Sample

_NUMBERS = pa.map_(pa.string(), pa.float64())
"""Named numbers; null where there are none."""
_NAMED_NUMBERS = ("metrics", "reward_parts")
_ROUND = pa.struct(
    [
        ("reply", pa.string()),
        ("action", pa.string()),
        ("observation", pa.string()),
        ("reward", pa.float64()),
        ("valid_action", pa.bool_()),
        ("try_index", pa.int32()),
        ("generation_s", pa.float32()),
        ("environment_s", pa.float32()),
        ("metrics", _NUMBERS),
        ("reward_parts", _NUMBERS),
        ("picture", pa.string()),
        ("acted_on", pa.list_(pa.float32())),
    ]
)
_SEGMENT = pa.struct(
    [
        ("kind", pa.string()),
        ("start", pa.int32()),
        ("end", pa.int32()),
        ("round_index", pa.int32()),
        ("version", pa.int32()),
    ]
)
_SAMPLE = pa.struct(
    [
        ("token_ids", pa.list_(pa.int32())),
        ("loss_mask", pa.list_(pa.int8())),
        ("logprobs", pa.list_(pa.float32())),
        ("rewards", pa.list_(pa.float32())),
        ("segments", pa.list_(_SEGMENT)),
        ("version", pa.int32()),
        ("try_index", pa.int32()),
        ("learner_logprobs", pa.list_(pa.float32())),
        ("advantages", pa.list_(pa.float32())),
        ("entropies", pa.list_(pa.float32())),
    ]
)
_USAGE = pa.struct([("num_tokens", pa.int32()), ("mean_logprob", pa.float64())])
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
        ("payload", pa.string()),
        ("group", pa.int32()),
        ("sample_index", pa.int32()),
        ("stop_reason", pa.string()),
        ("success", pa.bool_()),
        ("reward", pa.float64()),
        ("env_reward", pa.float64()),
        ("num_rounds", pa.int32()),
        ("num_tokens", pa.int32()),
        ("num_sampled_tokens", pa.int32()),
        ("num_restarts", pa.int32()),
        ("num_replies_cut", pa.int32()),
        ("seconds", pa.float64()),
        ("error", pa.string()),
        ("messages", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("rounds", pa.list_(_ROUND)),
        ("usage", _USAGE),
        ("samples", pa.list_(_SAMPLE)),
    ]
)


Entries = Sequence[float] | npt.NDArray[np.float32]
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TokenScores:
    """What training made of a sample: one entry per sampled token; None: not computed."""

    learner_logprobs: Entries | None = None
    """Log-probabilities when the learner first saw the sample in this step."""
    advantages: Entries | None = None
    entropies: Entries | None = None
    """Of the distribution that each token was drawn from, as the learner sees it."""


ScoresOf = Callable[[Sample], TokenScores | None]


def episodes_table(
    groups: Sequence[Sequence[Episode]], *, phase: str, step: int, scores_of: ScoresOf | None
) -> pa.Table:
    """Return the episodes of a part, one row each, in order."""
    grouped = ((index, episode) for index, group in enumerate(groups) for episode in group)
    rows = [
        _row(episode, group=index, phase=phase, step=step)
        | {"rounds": [_round(item, row, place) for place, item in enumerate(episode.rounds)]}
        for row, (index, episode) in enumerate(grouped)
    ]
    light = pa.schema([field for field in SCHEMA if field.name != "samples"])
    table = pa.Table.from_pylist(rows, schema=light)
    samples = [episode.samples for group in groups for episode in group]
    flat = list(chain.from_iterable(samples))
    column = pa.ListArray.from_arrays(
        _offsets(samples), _samples_column(flat, scores_of), type=SCHEMA.field("samples").type
    )
    return table.append_column(SCHEMA.field("samples"), column)


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
        "payload": json.dumps(task.payload, ensure_ascii=False) if task.payload else None,
        "group": group,
        "sample_index": episode.sample_index,
        "stop_reason": str(episode.stop_reason),
        "success": episode.success,
        "reward": episode.reward,
        "env_reward": episode.env_reward,
        "num_rounds": len(episode.rounds),
        "num_tokens": sum(len(sample.token_ids) for sample in episode.samples),
        "num_sampled_tokens": episode.num_reply_tokens,
        "num_restarts": episode.num_restarts,
        "num_replies_cut": episode.num_replies_cut,
        "seconds": episode.seconds,
        "error": episode.error,
        "messages": [{"role": m.role, "content": m.content} for m in episode.messages],
        "usage": None if episode.usage is None else asdict(episode.usage),
    }


def _round(item: Round, row: int, place: int) -> dict[str, object]:
    columns = {field.name: getattr(item, field.name) for field in _ROUND}  # the names of its fields
    columns |= {name: list(columns[name].items()) or None for name in _NAMED_NUMBERS}
    return columns | {"picture": picture_name(row, place, item.picture)}


def _samples_column(samples: Sequence[Sample], scores_of: ScoresOf | None) -> pa.StructArray:
    nothing = TokenScores()
    scores = [(scores_of(sample) if scores_of else None) or nothing for sample in samples]
    masks = [np.frombuffer(bytes(s.loss_mask), dtype=np.bool_) for s in samples]
    columns = {
        "token_ids": _lists([s.token_ids for s in samples], np.int32),
        "loss_mask": _lists([s.loss_mask for s in samples], np.int8),
        "logprobs": _lists([s.logprobs for s in samples], np.float32),
        "rewards": _lists([s.rewards for s in samples], np.float32),
        "segments": _segments(samples),
        "version": pa.array([s.version for s in samples], pa.int32()),
        "try_index": pa.array([s.try_index for s in samples], pa.int32()),
        "learner_logprobs": _scored(samples, masks, [item.learner_logprobs for item in scores]),
        "advantages": _scored(samples, masks, [item.advantages for item in scores]),
        "entropies": _scored(samples, masks, [item.entropies for item in scores]),
    }
    return pa.StructArray.from_arrays(
        [columns[field.name] for field in _SAMPLE], fields=list(_SAMPLE)
    )


def _segments(samples: Sequence[Sample]) -> pa.ListArray:
    segments = list(chain.from_iterable(sample.segments for sample in samples))
    columns = [
        pa.array([getattr(segment, field.name) for segment in segments], field.type)
        for field in _SEGMENT  # whose names are those of a Segment's fields
    ]
    structs = pa.StructArray.from_arrays(columns, fields=list(_SEGMENT))
    return pa.ListArray.from_arrays(_offsets([sample.segments for sample in samples]), structs)


def _lists(entries: Sequence[tuple[float, ...]], dtype: npt.DTypeLike) -> pa.ListArray:
    return pa.ListArray.from_arrays(_offsets(entries), pa.array(_flat(entries, dtype)))


def _scored(
    samples: Sequence[Sample], masks: Sequence[_Mask], entries: Sequence[Entries | None]
) -> pa.ListArray:
    """Return lists aligned to tokens: null off the sampled ones, null where nothing is known."""
    known = [(mask, own) for mask, own in zip(masks, entries, strict=True) if own is not None]
    is_sampled = np.concatenate([np.zeros(0, np.bool_), *(mask for mask, _ in known)])
    values = np.zeros(len(is_sampled), dtype=np.float32)
    values[is_sampled] = _flat([own for _, own in known], np.float32)
    lengths = [
        0 if own is None else len(sample.token_ids)
        for sample, own in zip(samples, entries, strict=True)
    ]
    return pa.ListArray.from_arrays(
        pa.array(np.cumsum([0, *lengths], dtype=np.int32)),
        pa.array(values, mask=np.logical_not(is_sampled)),
        mask=pa.array([own is None for own in entries], pa.bool_()),
    )


def _flat(entries: Sequence[Entries], dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    parts = [np.asarray(entry, dtype=dtype) for entry in entries]
    return np.concatenate([np.zeros(0, dtype=dtype), *parts])


def _offsets(entries: Sequence[Sequence[object]]) -> pa.Array:
    return pa.array(np.cumsum([0, *map(len, entries)], dtype=np.int32))
