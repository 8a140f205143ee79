"""The numbers of a decoder that decide its memory, from its config.json; no weights are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

_COUNTED = ("llama", "mistral", "qwen2", "qwen3")
"""Families whose weights can be counted from their settings. Others need the weights' own headers.
"""

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A decoder with gated feed-forward layers; sizes in numbers, not bytes."""

    hidden: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    is_tied: bool
    """Whether the embeddings are also the head."""
    max_context: int
    has_biases: bool = False
    """Of queries, keys and values."""
    has_head_norms: bool = False
    """Of queries and keys."""
    num_weights: int = 0
    """Of the whole model; 0 until they are counted."""
    is_dense: bool = True
    """False with experts: what a pass keeps of them is then a guess."""

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Of the keys; values have as many."""
        return self.kv_heads * self.head_dim

    @property
    def head_weights(self) -> int:
        """Of the output layer."""
        return self.vocab * self.hidden

    @property
    def root_weights(self) -> int:
        """Outside the layers: embeddings, head and last norm."""
        return self.head_weights * (1 if self.is_tied else 2) + self.hidden

    @property
    def layer_weights(self) -> int:
        return (self.num_weights - self.root_weights) // self.layers

    @property
    def trunk_weights(self) -> int:
        """Of the decoder without its head, which an own critic copies."""
        return self.num_weights - (0 if self.is_tied else self.head_weights)

    def adapter_weights(self, rank: int) -> int:
        """Of a LoRA adapter in all linear layers but the head: rank x (inputs + outputs) each."""
        attention = 2 * (self.hidden + self.query_width) + 2 * (self.hidden + self.kv_width)
        return self.layers * rank * (attention + 3 * (self.hidden + self.feed_forward))

    def cache_bytes(self, element: int) -> int:
        """Keys and values of one token, all layers."""
        return 2 * self.layers * self.kv_width * element


def counted(shape: ModelShape) -> ModelShape:
    """Return the shape with the weights of a model of one of the known families."""
    attention = 2 * shape.hidden * (shape.query_width + shape.kv_width)
    attention += (shape.query_width + 2 * shape.kv_width) * shape.has_biases
    norms = 2 * shape.hidden + 2 * shape.head_dim * shape.has_head_norms
    layer = attention + 3 * shape.hidden * shape.feed_forward + norms
    return replace(shape, num_weights=shape.root_weights + shape.layers * layer)


def shape_of_config(config: Mapping[str, object]) -> ModelShape:
    """Return the shape that a config.json describes, with its weights if its family is known.

    Raises ValueError where a number is missing.
    """
    inner = config.get("text_config")
    if isinstance(inner, Mapping):  # a model that also sees
        config = {"tie_word_embeddings": config.get("tie_word_embeddings", False), **inner}
    family = str(config.get("model_type", ""))
    hidden, heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    shape = ModelShape(
        hidden=hidden,
        feed_forward=_number(config, "intermediate_size"),
        layers=_number(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=_number(config, "num_key_value_heads", heads),
        head_dim=_number(config, "head_dim", hidden // heads),
        vocab=_number(config, "vocab_size"),
        is_tied=config.get("tie_word_embeddings") is True,
        max_context=_number(config, "max_position_embeddings"),
        has_biases=family == "qwen2" or config.get("attention_bias") is True,
        has_head_norms=family.startswith(("qwen3", "gemma3")),
        is_dense=not any(config.get(key) for key in _EXPERTS),
    )
    return counted(shape) if family in _COUNTED and shape.is_dense else shape


def _number(config: Mapping[str, object], key: str, default: int = 0) -> int:
    value = config.get(key) or default
    if not isinstance(value, int) or value < 1:
        raise ValueError(f"its config.json has no {key}")
    return value


def tiny_shape(*, vocab: int, hidden: int, layers: int, max_context: int) -> ModelShape:
    """Return the shape of the model that is made on the spot (models/tiny.py)."""
    is_wide = hidden >= 64 and hidden % 32 == 0
    heads = hidden // 32 if is_wide else 2
    return counted(
        ModelShape(
            hidden=hidden,
            feed_forward=3 * hidden,
            layers=layers,
            heads=heads,
            kv_heads=heads // 2 if heads % 2 == 0 else heads,
            head_dim=hidden // heads,
            vocab=vocab,
            is_tied=True,
            max_context=max_context,
            has_head_norms=True,
        )
    )


def _qwen25(hidden: int, feed_forward: int, layers: int, heads: tuple[int, int]) -> ModelShape:
    is_tied = hidden <= 2048
    return counted(
        ModelShape(
            hidden=hidden,
            feed_forward=feed_forward,
            layers=layers,
            heads=heads[0],
            kv_heads=heads[1],
            head_dim=hidden // heads[0],
            vocab=151936 if is_tied else 152064,
            is_tied=is_tied,
            max_context=32768,
            has_biases=True,
        )
    )


QWEN25 = {
    "0.5B": _qwen25(896, 4864, 24, (14, 2)),
    "1.5B": _qwen25(1536, 8960, 28, (12, 2)),
    "3B": _qwen25(2048, 11008, 36, (16, 2)),
    "7B": _qwen25(3584, 18944, 28, (28, 4)),
    "14B": _qwen25(5120, 13824, 48, (40, 8)),
    "32B": _qwen25(5120, 27648, 64, (40, 8)),
    "72B": _qwen25(8192, 29568, 80, (64, 8)),
}
"""Qwen2.5 and Qwen2.5-Coder, which the recipes name: sized without fetching anything."""

SMOLLM2_135M = counted(
    ModelShape(
        hidden=576,
        feed_forward=1536,
        layers=30,
        heads=9,
        kv_heads=3,
        head_dim=64,
        vocab=49152,
        is_tied=True,
        max_context=8192,
    )
)
