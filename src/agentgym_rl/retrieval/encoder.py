"""Sentence embeddings with any encoder of transformers, as E5 makes them: a prefix for the kind of
text, the mean over its tokens, length 1. Nothing else in retrieval uses torch.
"""

# Shape suffixes: B texts, T tokens, D dimensions of a vector.

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from agentgym_rl.errors import EnvError

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedTokenizerBase

_BATCH_TEXTS = 64


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """How texts become vectors. An index and its queries need the same settings."""

    model: str
    """A hub name or a directory."""
    query_prefix: str = "query: "
    passage_prefix: str = "passage: "
    max_tokens: int = 256


def check_encoder(model: str) -> None:
    """Raise EnvError for a model whose configuration cannot be loaded."""
    try:
        _read_config(model)
    except (OSError, ValueError) as error:
        raise _cannot_load(model, error) from error


class Encoder:
    """A loaded model, on the GPU if there is one. Threads take turns.

    Raises EnvError for a model that cannot be loaded.
    """

    def __init__(self, settings: EncoderSettings) -> None:
        # Late: torch is heavy, and only dense retrieval needs it.
        import torch
        from transformers import AutoModel, AutoTokenizer

        self.settings = settings
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = torch.float16 if self._device == "cuda" else torch.float32
        try:
            tokenizer = AutoTokenizer.from_pretrained(settings.model, trust_remote_code=False)
            model = AutoModel.from_pretrained(
                settings.model,
                config=_read_config(settings.model),
                dtype=dtype,
                trust_remote_code=False,
                use_safetensors=True,  # pickled weights can run code
            )
        except (OSError, ValueError) as error:
            raise _cannot_load(settings.model, error) from error
        self._tokenizer = cast("PreTrainedTokenizerBase", tokenizer)
        self._model = model.to(self._device).eval()
        self.num_dimensions = int(self._model.config.hidden_size)
        self._lock = threading.Lock()

    def encode_queries(self, queries: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector of length 1 for each query, in order."""
        return self._encode([self.settings.query_prefix + query for query in queries])

    def encode_passages(self, contents: Sequence[str]) -> NDArray[np.float32]:
        """Return one vector of length 1 for each passage, in order."""
        return self._encode([self.settings.passage_prefix + text for text in contents])

    def _encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        # Texts of similar length share a batch, so that little of it is padding.
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        vectors_BD = np.empty((len(texts), self.num_dimensions), dtype=np.float32)
        with self._lock:
            for start in range(0, len(texts), _BATCH_TEXTS):
                places = order[start : start + _BATCH_TEXTS]
                vectors_BD[places] = self._encode_batch([texts[place] for place in places])
        return vectors_BD

    def _encode_batch(self, texts: list[str]) -> NDArray[np.float32]:
        import torch  # late, as above

        tokens = self._tokenizer(
            texts,
            padding=True,
            truncation=True,
            max_length=self.settings.max_tokens,
            return_tensors="pt",
        ).to(self._device)
        with torch.inference_mode():
            hidden_BTD = self._model(**tokens).last_hidden_state.float()
            mask_BT1 = tokens["attention_mask"].unsqueeze(-1)
            sum_BD = (hidden_BTD * mask_BT1).sum(dim=1)
            mean_BD = sum_BD / mask_BT1.sum(dim=1).clamp(min=1)
            unit_BD = torch.nn.functional.normalize(mean_BD, dim=-1)
        return unit_BD.cpu().numpy()


def _read_config(model: str) -> PretrainedConfig:
    from transformers import AutoConfig  # late, as above

    config = AutoConfig.from_pretrained(model, trust_remote_code=False)
    config._attn_implementation = None  # it may name a kernel on the hub, which is code
    return config


def _cannot_load(model: str, error: Exception) -> EnvError:
    where = "" if Path(model).is_dir() else "there is no such directory, and as a hub name "
    reason = str(error).partition("\n")[0]
    return EnvError(f"cannot load the encoder {model!r}: {where}{reason}")
