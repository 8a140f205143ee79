"""Models for benchmarks: the shapes of public ones with random weights, so that none is downloaded.

Speed does not depend on what the weights are. Random ones hardly ever sample a stop token, so that
every reply has its full length.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)

from agentgym_rl.errors import ConfigError
from agentgym_rl.models.attention import ATTENTION
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import DTYPES, Policy, load_pretrained
from agentgym_rl.models.tiny import train_tokenizer


def _llama(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, *, vocab: int = 49152
) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )


def _qwen2(
    hidden: int, inner: int, layers: int, heads: int, kv_heads: int, *, is_tied: bool = True
) -> Qwen2Config:
    return Qwen2Config(
        vocab_size=151936,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=32768,
        tie_word_embeddings=is_tied,
    )


def shapes() -> dict[str, PretrainedConfig]:
    """Return the configurations by name."""
    return {
        "tiny": _llama(64, 128, 2, 4, 2, vocab=1024),
        "smollm2-135m": _llama(576, 1536, 30, 9, 3),
        "smollm2-360m": _llama(960, 2560, 32, 15, 5),
        "qwen2.5-0.5b": _qwen2(896, 4864, 24, 14, 2),
        "qwen2.5-1.5b": _qwen2(1536, 8960, 28, 12, 2),
        "qwen2.5-7b": _qwen2(3584, 18944, 28, 28, 4, is_tied=False),
    }


def build_model(name: str, *, dtype: str, device: str, attention: str) -> PreTrainedModel:
    """Return a model of one of `shapes` with random weights."""
    config = shapes()[name]
    config.bos_token_id = config.eos_token_id = config.pad_token_id = None
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(
            config, dtype=DTYPES[dtype], attn_implementation=attention
        )
    return model.eval()


def bench_policy(name: str, *, dtype: str, device: str, texts: Iterable[str]) -> Policy:
    """Return the policy of a directory or of one of `shapes`, whose tokenizer reads `texts`."""
    if name not in shapes():
        if not Path(name).is_dir():
            raise ConfigError(
                f"{name!r} is neither a model directory nor one of {', '.join(shapes())}"
            )
        return load_pretrained(name, dtype=dtype, device=device)
    tokenizer = train_tokenizer(texts, vocab_size=1024)
    model = build_model(name, dtype=dtype, device=device, attention=ATTENTION)
    return Policy(model=model, tokenizer=tokenizer, renderer=ChatRenderer(tokenizer))
