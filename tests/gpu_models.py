"""Models with random weights for the tests that need a GPU."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen2Config

from agentgym_rl.models.attention import ATTENTION
from agentgym_rl.types import Sample

CUDA = torch.device("cuda")


def random_qwen2(
    *,
    vocab_size: int = 512,
    hidden_size: int = 256,
    num_layers: int = 2,
    dtype: torch.dtype = torch.bfloat16,
) -> PreTrainedModel:
    """Return a Qwen2 with heads of 64, four of which share keys and values."""
    config = Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 64,
        num_key_value_heads=max(1, hidden_size // 256),
        max_position_embeddings=32768,
        initializer_range=0.05,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION, dtype=dtype)
    return model.eval().to(CUDA)


def random_samples(lengths: list[int], *, vocab_size: int) -> list[Sample]:
    """Return samples whose second half is action tokens."""
    generator = torch.Generator().manual_seed(sum(lengths))
    samples = []
    for length in lengths:
        ids = tuple(torch.randint(vocab_size, (length,), generator=generator).tolist())
        mask = tuple(int(place >= max(1, length // 2)) for place in range(length))
        logprobs = tuple(-1.0 if masked else 0.0 for masked in mask)
        zeros = (0.0,) * length
        samples.append(Sample(ids, mask, logprobs=logprobs, rewards=zeros, segments=(), version=0))
    return samples
