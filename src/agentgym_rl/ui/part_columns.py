"""What the index keeps of a part: one row an episode, and the texts that were said in it.

Everything is worked out by column, since a run has hundreds of thousands of episodes. A column
that a part lacks (it was written before there was one) is null, or is worked out from others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from agentgym_rl.runs.regular_files import MEGABYTE, TooLargeError
from agentgym_rl.ui.goals import goals, last_actions
from agentgym_rl.ui.parts import MAX_ROWS, read_tables

MAX_KEPT_BYTES = 64 * MEGABYTE
"""Of one part, most of it texts."""
_MAX_TEXTS = 1 << 34
"""Of one part; a text's key is its part's number times this, plus its place."""

_PLAIN = {
    "phase": pa.string(),
    "step": pa.int32(),
    "env": pa.string(),
    "split": pa.string(),
    "task_index": pa.int64(),
    "task_seed": pa.int64(),
    "category": pa.string(),
    "level": pa.string(),
    "group": pa.int32(),
    "sample_index": pa.int32(),
    "stop_reason": pa.string(),
    "success": pa.bool_(),
    "reward": pa.float64(),
    "num_rounds": pa.int32(),
    "num_tokens": pa.int32(),
    "num_sampled_tokens": pa.int32(),
    "seconds": pa.float64(),
    "error": pa.string(),
}
_DERIVED = {
    "num_invalid": pa.int32(),
    "num_repeats": pa.int32(),
    "generation_s": pa.float64(),
    "environment_s": pa.float64(),
    "goal": pa.string(),
    "last_action": pa.string(),
}
EPISODES = pa.schema(
    [("key", pa.int64()), ("part", pa.int32()), *_PLAIN.items(), *_DERIVED.items()]
)
TEXTS = pa.schema([("text_key", pa.int64()), ("text", pa.large_string())])
MENTIONS = pa.schema([("text_key", pa.int64()), ("key", pa.int64())])

_Ints = npt.NDArray[np.int64]
_N = TypeVar("_N", np.int64, np.float64)


@dataclass(frozen=True, slots=True)
class PartColumns:
    """The rows of one part for the three tables of the index."""

    episodes: pa.Table
    texts: pa.Table
    mentions: pa.Table

    @property
    def num_bytes(self) -> int:
        return self.episodes.nbytes + self.texts.nbytes + self.mentions.nbytes


def part_columns(file: Path, number: int) -> PartColumns:
    """Return what the index keeps of a part, which gets a number. Raises one of parts.BROKEN.

    An episode's key is its part's number times MAX_ROWS, plus its row.
    """
    kept: list[PartColumns] = []
    num_rows, num_texts, num_bytes = 0, 0, 0
    for table in read_tables(file, [*_PLAIN, "messages", "rounds"], instead="samples"):
        keys = np.arange(table.num_rows, dtype=np.int64) + number * MAX_ROWS + num_rows
        found = _columns(table, keys, number, first_text=number * _MAX_TEXTS + num_texts)
        num_rows += table.num_rows
        num_texts += found.texts.num_rows
        num_bytes += found.num_bytes
        if num_bytes > MAX_KEPT_BYTES:
            raise TooLargeError(num_bytes, MAX_KEPT_BYTES)
        kept.append(found)
    return PartColumns(
        pa.concat_tables([EPISODES.empty_table(), *(item.episodes for item in kept)]),
        pa.concat_tables([TEXTS.empty_table(), *(item.texts for item in kept)]),
        pa.concat_tables([MENTIONS.empty_table(), *(item.mentions for item in kept)]),
    )


def _columns(table: pa.Table, keys: _Ints, number: int, *, first_text: int) -> PartColumns:
    """Return what is kept of some rows, which have these keys."""
    if "num_tokens" not in table.column_names:
        table = _with_num_tokens(table)
    num = table.num_rows
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "key": pa.array(keys),
        "part": pa.array(np.full(num, number, dtype=np.int32)),
    }
    for name, kind in _PLAIN.items():
        columns[name] = _plain(table, name, kind)
    rounds = _list_of(table, "rounds")
    columns |= _derived(rounds, num)
    columns |= _words(_list_of(table, "messages"), rounds)
    episodes = pa.table(columns).select(EPISODES.names).cast(EPISODES)
    texts, mentions = _texts(table, rounds, keys, first_text)
    return PartColumns(episodes, texts, mentions)


def _plain(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, kind)
    column = table.column(name).cast(kind)
    if kind == pa.float64():  # a reward that is no number is none
        return _call("if_else", _call("is_finite", column), column, pa.scalar(None, kind))
    return column


def _with_num_tokens(table: pa.Table) -> pa.Table:
    """Return the table with the tokens of each episode counted."""
    samples = _list_of(table, "samples")
    masks = _field(samples.values, "loss_mask")
    if masks is None:
        return table
    lengths = np.diff(np.asarray(masks.offsets, dtype=np.int64))
    sampled = np.asarray(pc.fill_null(masks.values, 0), dtype=np.int64)
    per_sample = _sums(sampled, np.asarray(masks.offsets, dtype=np.int64))
    offsets = np.asarray(samples.offsets, dtype=np.int64)
    table = table.append_column("num_tokens", pa.array(_sums(lengths, offsets)))
    return table.append_column("num_sampled_tokens", pa.array(_sums(per_sample, offsets)))


def _list_of(table: pa.Table, name: str) -> pa.ListArray:
    """Return a column of lists in one piece, with empty lists where the part has none.

    Offsets count from 0, so that they fit what `values` holds.
    """
    column = table.column(name) if name in table.column_names else None
    if column is None or len(column) == 0 or pa.types.is_null(column.type):
        return pa.array([[] for _ in range(table.num_rows)], type=pa.list_(pa.struct([])))
    if column.null_count:
        column = pc.fill_null(column, [])
    joined = column.combine_chunks()
    lists = joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
    if not isinstance(lists, pa.ListArray):
        raise TypeError(f"column {name} holds {lists.type}, not lists")
    return pa.ListArray.from_arrays(
        _call("subtract", lists.offsets, lists.offsets[0]), lists.flatten()
    )


def _field(structs: pa.Array, name: str) -> pa.Array | None:
    """Return a field of structs; None where they have none."""
    if not isinstance(structs, pa.StructArray) or structs.type.get_field_index(name) < 0:
        return None
    return structs.field(name)


def _derived(rounds: pa.ListArray, num: int) -> dict[str, pa.Array]:
    """Return what follows from the rounds: invalid and repeated replies, seconds."""
    offsets = np.asarray(rounds.offsets, dtype=np.int64)
    valid = _field(rounds.values, "valid_action")
    replies = _field(rounds.values, "reply")
    derived: dict[str, pa.Array] = {
        "num_invalid": pa.nulls(num, pa.int32()),
        "num_repeats": pa.nulls(num, pa.int32()),
    }
    if valid is not None:
        invalid = ~np.asarray(pc.fill_null(valid, True).to_numpy(zero_copy_only=False), dtype=bool)
        derived["num_invalid"] = pa.array(_sums(invalid.astype(np.int64), offsets))
    if replies is not None:
        derived["num_repeats"] = pa.array(_repeats(replies, offsets))
    for name in ("generation_s", "environment_s"):
        seconds = _field(rounds.values, name)
        derived[name] = pa.nulls(num, pa.float64())
        if seconds is not None and seconds.null_count < len(seconds):
            spent = pc.fill_null(seconds.cast(pa.float64()), 0.0).to_numpy()
            derived[name] = pa.array(_sums(spent, offsets))
    return derived


def _words(messages: pa.ListArray, rounds: pa.ListArray) -> dict[str, pa.Array]:
    """Return what an episode is about and what it ended with, in few words."""
    said = [_field(messages.values, name) for name in ("role", "content")]
    done = [_field(rounds.values, name) for name in ("action", "reply")]
    return {
        "goal": goals(said[0], said[1], np.asarray(messages.offsets, dtype=np.int64)),
        "last_action": last_actions(done[0], done[1], np.asarray(rounds.offsets, dtype=np.int64)),
    }


def _repeats(replies: pa.Array, offsets: _Ints) -> _Ints:
    """Return how many replies of each episode it had given before."""
    lengths = np.diff(offsets)
    codes = _codes(pc.fill_null(replies, "").dictionary_encode())
    parents = np.repeat(np.arange(len(lengths)), lengths)
    width = int(codes.max(initial=0)) + 1
    distinct = np.unique(parents * width + codes) // width
    return lengths - np.bincount(distinct, minlength=len(lengths))


def _texts(
    table: pa.Table, rounds: pa.ListArray, keys: _Ints, first_text: int
) -> tuple[pa.Table, pa.Table]:
    """Return the distinct texts in lower case, and which episode has which.

    Prompts, observations and replies recur within a part, so this is far less than all of them.
    Texts get keys from `first_text` on.
    """
    messages = _list_of(table, "messages")
    pieces: list[pa.Array] = []
    owners: list[_Ints] = []
    for lists, name in ((messages, "content"), (rounds, "observation"), (rounds, "reply")):
        values = _field(lists.values, name)
        if values is not None:
            pieces.append(values.cast(pa.large_string()))
            owners.append(np.repeat(keys, np.diff(np.asarray(lists.offsets, dtype=np.int64))))
    errors = _plain(table, "error", pa.large_string())
    pieces.append(errors if isinstance(errors, pa.Array) else errors.combine_chunks())
    owners.append(keys)
    every = pc.fill_null(pa.chunked_array(pieces, type=pa.large_string()), "").combine_chunks()
    encoded = every.dictionary_encode()
    codes = _codes(encoded)
    rows = np.concatenate(owners) - (keys[0] if len(keys) else 0)
    codes, rows = np.divmod(np.unique(codes * MAX_ROWS + rows), MAX_ROWS)
    texts = _call("utf8_lower", encoded.dictionary)
    text_keys = np.arange(len(texts), dtype=np.int64) + first_text
    return (
        pa.table([pa.array(text_keys), texts], schema=TEXTS),
        pa.table([pa.array(text_keys[codes]), pa.array(keys[rows])], schema=MENTIONS),
    )


def _codes(encoded: pa.DictionaryArray) -> _Ints:
    return np.asarray(encoded.indices, dtype=np.int64)


def _call(name: str, *arguments: pa.Array | pa.ChunkedArray | pa.Scalar) -> pa.Array:
    """Call a function of Arrow that its module makes at run time, unseen by type checkers."""
    return pc.call_function(name, list(arguments))


def _sums(values: npt.NDArray[_N], offsets: _Ints) -> npt.NDArray[_N]:
    """Return the sum of each list; empty lists sum to 0."""
    cumulated = np.concatenate([np.zeros(1, dtype=values.dtype), np.cumsum(values)])
    return np.diff(cumulated[offsets])
