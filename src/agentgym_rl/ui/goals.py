"""What each episode of a part is about and how it ended, in a line: its goal and its last action.

The goal is what the last line that begins with "Goal:", "Your task:", "Question:" or a word like
them says, of what the agent was told before its first reply; without such a line, its first line.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MAX_CHARS = 200
_LINE = (
    r"(?s)^(?:.*\n)?[ \t]*(?:Your |The )?(?:[Gg]oal|[Tt]ask|[Mm]ission|[Qq]uestion|[Oo]bjective)"
    r"(?:(?: is)?:| is)[ \t]*(?P<line>[^\n]+)"
)
_FIRST = r"^\s*(?P<line>[^\n]+)"

_Ints = npt.NDArray[np.int64]


def goal_of(text: str) -> str:
    """Return the goal that an observation states; "" where it is empty."""
    found = re.match(_LINE, text[:20_000]) or re.match(_FIRST, text[:20_000])
    return found["line"].strip()[:_MAX_CHARS] if found else ""


def goals(roles: pa.Array | None, texts: pa.Array | None, offsets: _Ints) -> pa.Array:
    """Return the goal of each episode, out of the messages of all of them."""
    if roles is None or texts is None or len(texts) == 0:
        return pa.nulls(len(offsets) - 1, pa.string())
    kinds = roles.dictionary_encode()
    is_reply = np.array([*(kind == "assistant" for kind in kinds.dictionary.to_pylist()), False])
    codes = np.asarray(kinds.indices.fill_null(-1), dtype=np.int64)
    replies = np.append(np.flatnonzero(is_reply[codes]), len(texts))
    first_reply = replies[np.searchsorted(replies, offsets[:-1])]
    told = np.minimum(first_reply, offsets[1:]) - 1
    # Tasks recur within a part: every text is looked at once.
    encoded = _picked(texts.cast(pa.string()), told, told >= offsets[:-1]).dictionary_encode()
    distinct = _call("utf8_slice_codeunits", encoded.dictionary, options=pc.SliceOptions(0, 20_000))
    lines = _call("coalesce", *(_line(distinct, pattern) for pattern in (_LINE, _FIRST)))
    return lines.take(encoded.indices)


def last_actions(actions: pa.Array | None, replies: pa.Array | None, offsets: _Ints) -> pa.Array:
    """Return the last action of each episode; of a reply without one its beginning."""
    if actions is None or replies is None or len(replies) == 0:
        return pa.nulls(len(offsets) - 1, pa.string())
    last, has_any = offsets[1:] - 1, offsets[1:] > offsets[:-1]
    found = [_picked(column.cast(pa.string()), last, has_any) for column in (actions, replies)]
    return _shortened(_call("coalesce", *found))


def _picked(values: pa.Array, places: _Ints, is_there: npt.NDArray[np.bool_]) -> pa.Array:
    return values.take(pa.array(places, mask=~is_there))


def _line(texts: pa.Array, pattern: str) -> pa.Array:
    found = _call("extract_regex", texts, options=pc.ExtractRegexOptions(pattern))
    line = _call("struct_field", found, options=pc.StructFieldOptions([0]))
    return _shortened(_call("utf8_trim_whitespace", line))


def _shortened(texts: pa.Array) -> pa.Array:
    return _call("utf8_slice_codeunits", texts, options=pc.SliceOptions(0, _MAX_CHARS))


def _call(name: str, *arguments: pa.Array, options: pc.FunctionOptions | None = None) -> pa.Array:
    """Call a function of Arrow that its module makes at run time, unseen by type checkers."""
    return pc.call_function(name, list(arguments), options)
