"""Models of well-known shapes with random weights, for measurements that need no trained ones."""

from __future__ import annotations

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)

from agentgym_rl.models.attention import ATTENTION


def _smollm2(*, hidden: int, feed_forward: int, layers: int, heads: tuple[int, int]) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=49152,
        hidden_size=hidden,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )


def _qwen25(*, hidden: int, feed_forward: int, layers: int, heads: tuple[int, int]) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=151936,
        hidden_size=hidden,
        intermediate_size=feed_forward,
        num_hidden_layers=layers,
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        max_position_embeddings=32768,
        tie_word_embeddings=True,
    )


SIZES: dict[str, PretrainedConfig] = {
    "test": _smollm2(hidden=64, feed_forward=128, layers=2, heads=(2, 1)),
    "smollm2-135m": _smollm2(hidden=576, feed_forward=1536, layers=30, heads=(9, 3)),
    "qwen2.5-0.5b": _qwen25(hidden=896, feed_forward=4864, layers=24, heads=(14, 2)),
    "qwen2.5-1.5b": _qwen25(hidden=1536, feed_forward=8960, layers=28, heads=(12, 2)),
    "qwen2.5-3b": _qwen25(hidden=2048, feed_forward=11008, layers=36, heads=(16, 2)),
}


def random_model(
    size: str, *, dtype: torch.dtype, device: torch.device, attention: str = ATTENTION
) -> PreTrainedModel:
    """Return a new model of a named size, made where it will be."""
    with device:
        model = AutoModelForCausalLM.from_config(
            SIZES[size], dtype=dtype, attn_implementation=attention
        )
    return model.eval()
