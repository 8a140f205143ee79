"""The texts of tokens, with the tokenizer that the run itself saved. No torch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.runs.regular_files import MEGABYTE, open_regular, read_regular

MAX_FILE_BYTES = 64 * MEGABYTE

_PLACES = (
    "tokenizer",
    "model",
    "checkpoints/latest/model",
    "warm_start/model",
)


def texts_by_file(file: Path, token_ids: Sequence[int]) -> list[str]:
    """Return the texts of tokens by the tokenizer of a file. Raises ValueError where it is not one.

    The one asked last stays loaded. For a process of decoders.py: a tokenizer may be made to unfold
    to any size.
    """
    found = open_regular(file, max_bytes=MAX_FILE_BYTES)
    with found:
        stat = os.fstat(found.fileno())
        return texts_of(_load(file, stat.st_mtime_ns, stat.st_size), token_ids)


@lru_cache(maxsize=1)
def _load(file: Path, changed_ns: int, num_bytes: int) -> Tokenizer:
    """Return the tokenizer of a file in one state."""
    try:
        return Tokenizer.from_buffer(read_regular(file, max_bytes=MAX_FILE_BYTES))
    except OSError:
        raise
    except Exception as error:  # the library raises nothing more precise
        raise ValueError(f"{file.name} is not a tokenizer: {error}") from error


def tokenizer_file(folder: RunFolder) -> Path | None:
    """Return where a run has its tokenizer; a warm start may use that of the run around it."""
    places = [folder.path / place for place in _PLACES]
    places += [folder.path.parent / place for place in _PLACES[:2]]
    for place in places:
        if (place / "tokenizer.json").is_file():
            return place / "tokenizer.json"
    return None


def texts_of(tokenizer: Tokenizer, token_ids: Sequence[int]) -> list[str]:
    """Return a text for each token, which one after another are the text of all.

    The bytes of one character may lie in several tokens: the last of them has it.
    """
    stream = DecodeStream(skip_special_tokens=False)
    texts: list[str] = []
    for token_id in token_ids:
        try:
            texts.append(stream.step(tokenizer, token_id) or "")
        except Exception:  # noqa: BLE001 - the library raises nothing more precise
            stream = DecodeStream(skip_special_tokens=False)
            texts.append(tokenizer.decode([token_id], skip_special_tokens=False))
    return texts


def bare_ids(token_ids: Sequence[int]) -> list[str]:
    """Return what is shown without a tokenizer."""
    return [f"<{token_id}>" for token_id in token_ids]
