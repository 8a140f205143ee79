"""The texts of tokens, with the tokenizer that the run itself saved. No torch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from agentgym_rl.runs.folder import RunFolder

_PLACES = (
    "tokenizer",
    "model",
    "checkpoints/latest/model",
    "warm_start/model",
)


class TokenTexts:
    """Tokenizers by file, each read once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, int], Tokenizer] = {}

    def load(self, file: Path) -> Tokenizer:
        """Return the tokenizer of a file. Raises ValueError where it is none."""
        stat = file.stat()
        key = (str(file), stat.st_mtime_ns, stat.st_size)
        with self._lock:
            if key not in self._known:
                try:
                    self._known[key] = Tokenizer.from_file(str(file))
                except Exception as error:  # the library raises nothing more precise
                    raise ValueError(f"{file.name} is no tokenizer: {error}") from error
            return self._known[key]


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
