"""One stored episode as the UI shows it: its rounds, what each reply is made of, its tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from agentgym_rl.frozen import MAX_NUMBERS
from agentgym_rl.runs.episodes import try_of
from agentgym_rl.runs.regular_files import MEGABYTE, TooLargeError
from agentgym_rl.ui.answers import ApiError
from agentgym_rl.ui.decoders import Decoders
from agentgym_rl.ui.parts import BROKEN, STEM, open_part, row_group_bytes

Record = dict[str, Any]  # Any: what a column holds is known to the file alone

_MAX_PAYLOAD_CHARS = 200_000
_SAMPLE = "samples.list.element."
_ALIGNED = {
    "mask": "loss_mask",
    "logprob": "logprobs",
    "reward": "rewards",
    "learner_logprob": "learner_logprobs",
    "advantage": "advantages",
    "entropy": "entropies",
}
"""Lists of the token view by the names of the store's."""
_MAX_EPISODE_BYTES, _MAX_TOKENS_BYTES = 8 * MEGABYTE, 32 * MEGABYTE
"""Of one episode without and with its tokens, as Arrow has it; as Python's lists it is ten times
as much."""


def read_episode(
    folder: Path, episode: str, decoders: Decoders, *, with_tokens: bool = False
) -> Record:
    """Return the row of an episode, by the store's own names.

    Its tokens are left out unless asked for, since they are most of a part. Raises ApiError for an
    id that is none, and for a part that is gone or cannot be read.
    """
    stem, _, number = episode.rpartition(":")
    if not STEM.fullmatch(stem) or not (number.isascii() and number.isdigit()):
        raise ApiError(400, f'{episode!r} is not the id of an episode, such as "train-000012:3"')
    file = folder / f"{stem}.parquet"
    if file.is_symlink() or not file.is_file():
        raise ApiError(404, f"there is no part {stem!r} of episodes; it may have been removed")
    try:
        found = decoders.call(read_row, file, int(number[:18]), with_tokens=with_tokens)
    except BROKEN as error:
        reason = str(error).partition("\n")[0]
        raise ApiError(409, f"{file.name} cannot be read: {reason}") from error
    if found is None:
        raise ApiError(404, f"{file.name} has fewer episodes, so no {number}")
    return found


def read_row(file: Path, row: int, *, with_tokens: bool) -> Record | None:
    """Return a row of a part; None where there is none. Raises one of parts.BROKEN."""
    with open_part(file) as opened:
        metadata = opened.metadata
        if row >= metadata.num_rows:
            return None
        group = 0
        while row >= metadata.row_group(group).num_rows:
            row -= metadata.row_group(group).num_rows
            group += 1
        paths = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
        places = [i for i, path in enumerate(paths) if with_tokens or _is_light(path)]
        row_group_bytes(opened, group, places)
        columns = [paths[place] for place in places]
        table = opened.read_row_group(group, columns=columns, use_threads=False).slice(row, 1)
    limit = _MAX_TOKENS_BYTES if with_tokens else _MAX_EPISODE_BYTES
    if table.nbytes > limit:
        raise TooLargeError(table.nbytes, limit)
    table.validate(full=True)
    record: Record = table.to_pylist()[0]
    return record


def _is_light(path: str) -> bool:
    """Whether a column has few entries; of those with one per token only masks, for the length."""
    if not path.startswith(_SAMPLE):
        return True
    inner = path.removeprefix(_SAMPLE).partition(".")[0]
    return inner in ("version", "try_index", "attempt", "segments", "loss_mask")


@contextmanager
def reading(episode: str) -> Iterator[None]:
    """Turn whatever a record of odd types raises into a refusal."""
    try:
        yield
    except ApiError:
        raise
    except BROKEN as error:
        reason = f"{type(error).__name__}: {error}"
        raise ApiError(
            409, f"episode {episode} is not as episodes are stored ({reason})"
        ) from error


def view(record: Record) -> dict[str, object]:
    """Return the episode as the API gives it."""
    rounds, samples = record.get("rounds") or [], record.get("samples") or []
    plain = {
        name: value
        for name, value in record.items()
        if name not in ("rounds", "samples", "messages")
    }
    lengths = [len(sample.get("loss_mask") or ()) for sample in samples]
    plain.setdefault("num_tokens", sum(lengths))
    return plain | {
        "payload": _payload(record.get("payload")),
        "messages": _messages(record),
        "rounds": _rounds(rounds, samples, record.get("messages") or []),
        "samples": [
            {
                "index": place,
                "num_tokens": lengths[place],
                "try": try_of(sample),
                "version": sample.get("version"),
            }
            for place, sample in enumerate(samples)
        ],
    }


def _payload(text: str | None) -> str | None:
    """Return the task's own data for people to read: JSON with a line per value."""
    if not text:
        return None
    with suppress(ValueError, RecursionError):  # what is no JSON is shown as it is
        text = json.dumps(json.loads(text), ensure_ascii=False, indent=2)
    return text if len(text) <= _MAX_PAYLOAD_CHARS else f"{text[:_MAX_PAYLOAD_CHARS]} …"


def _numbers(pairs: Sequence[tuple[str, float]] | None) -> dict[str, float]:
    """Return the named numbers of a round, as many as a round may have."""
    return dict((pairs or ())[:MAX_NUMBERS])


def _messages(record: Record) -> list[dict[str, object]]:
    """Return the conversation; each reply with what it is for, where that is stored."""
    messages: list[dict[str, object]] = [dict(item) for item in record.get("messages") or []]
    kinds = iter(_kinds_of_replies(record.get("samples") or []))
    for message in messages:
        if message.get("role") == "assistant":
            kind, round_index = next(kinds, (None, None))
            message |= {"kind": kind, "round": round_index}
    return messages


def _kinds_of_replies(samples: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """Return the kind and round of each reply in the order of time: one that has a thought is an
    action."""
    found: list[tuple[str, int]] = []
    for sample in samples:
        mask, thought = sample.get("loss_mask") or [], False
        for segment in sample.get("segments") or []:
            kind, start = str(segment["kind"]), int(segment["start"])
            if kind in ("prompt", "observation") or not (start < len(mask) and mask[start]):
                thought = False
                continue
            if thought and kind == "action":
                found.pop()
            found.append(("action" if kind == "thought" else kind, int(segment["round_index"])))
            thought = kind == "thought"
    return found


def _rounds(
    rounds: Sequence[Mapping[str, Any]],
    samples: Sequence[Mapping[str, Any]],
    messages: Sequence[Mapping[str, Any]],
) -> list[dict[str, object]]:
    """Return the rounds, each with its parts: plans and the like first, then thought and action."""
    replies = [item["content"] for item in messages if item.get("role") == "assistant"]
    besides: dict[int, list[dict[str, object]]] = {}
    for text, (kind, index) in zip(replies, _kinds_of_replies(samples), strict=False):
        if kind != "action":
            besides.setdefault(index, []).append({"kind": kind, "text": text})
    listed: list[dict[str, object]] = []
    for index, item in enumerate(rounds):
        seconds = {name: item.get(f"{name}_s") for name in ("generation", "environment")}
        listed.append(
            {
                "index": index,
                "try": try_of(item),
                "reply": item["reply"],
                "action": item["action"],
                "observation": item["observation"],
                "reward": item["reward"],
                "valid_action": item["valid_action"],
                "metrics": _numbers(item.get("metrics")),
                "reward_parts": _numbers(item.get("reward_parts")),
                "picture": item.get("picture"),
                "acted_on": item.get("acted_on"),
                "seconds": {name: value for name, value in seconds.items() if value is not None},
                "parts": [*besides.get(index, []), *_split(item["reply"], item["action"])],
            }
        )
    return listed


def _split(reply: str, action: str | None) -> list[dict[str, object]]:
    """Return the thought and the action of a reply; a reply without an action is all thought."""
    place = reply.rfind(action) if action else -1
    if place < 0:
        return [{"kind": "thought" if action is None else "action", "text": reply}]
    parts: list[dict[str, object]] = []
    if reply[:place].strip():
        parts.append({"kind": "thought", "text": reply[:place]})
    return [*parts, {"kind": "action", "text": reply[place:]}]


def token_view(record: Record, sample: int) -> dict[str, object]:
    """Return the lists of one sample, aligned to its tokens; null where nothing was computed."""
    samples = record.get("samples") or []
    if not samples:
        raise ApiError(
            404, "no tokens are stored of this episode: an endpoint played it, or it failed at once"
        )
    if not 0 <= sample < len(samples):
        raise ApiError(404, f"the episode has {len(samples)} samples, so no {sample}")
    item = samples[sample]
    lists: dict[str, object] = {"ids": item["token_ids"]}
    lists |= {name: item.get(own) for name, own in _ALIGNED.items()}
    learner, engine = item.get("learner_logprobs"), item["logprobs"]
    lists["difference"] = None
    if learner is not None:
        lists["difference"] = [
            None if own is None or other is None else own - other
            for own, other in zip(learner, engine, strict=False)
        ]
    lists["segments"] = [
        {"kind": s["kind"], "start": s["start"], "end": s["end"], "round": s["round_index"]}
        for s in item["segments"] or ()
    ]
    return lists | {"version": item.get("version"), "try": try_of(item)}
