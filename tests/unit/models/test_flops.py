"""Floating point operations, worked out by hand for models small enough to do so."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedModel

from agentgym_rl.models.flops import peak_flops, peak_flops_of, update_flops
from agentgym_rl.models.lora import add_lora

# Two layers, width 8, two heads of 4 with one head of keys and values, feed-forward 10, 32 words.
SHAPE = {
    "vocab_size": 32,
    "hidden_size": 8,
    "intermediate_size": 10,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 4,
}
# Query and output 8 x 8, key and value 8 x 4, three feed-forward matrices 8 x 10.
LAYER_WEIGHTS = 2 * 64 + 2 * 32 + 3 * 80


def llama() -> PreTrainedModel:
    return AutoModelForCausalLM.from_config(LlamaConfig(**SHAPE, tie_word_embeddings=True))


def test_trained_matrices_cost_six_and_pairs_of_tokens_twelve_times_the_width():
    flops = update_flops(llama())
    assert flops is not None
    assert flops.per_token == 6 * 2 * LAYER_WEIGHTS
    assert flops.per_action == 6 * 8 * 32
    # 3 tokens see 1 + 2 + 3, 5 tokens 15 of each other; both layers, 2 heads of 4.
    pairs = 12 * 8 * 2 * (6 + 15)
    assert flops.total([3, 5], num_actions=4) == 8 * flops.per_token + 4 * flops.per_action + pairs


def test_frozen_matrices_cost_four_and_adapters_are_counted():
    pytest.importorskip("peft")
    model = llama()
    add_lora(model, rank=2, alpha=4, targets=("q_proj",), seed=0)
    flops = update_flops(model)
    assert flops is not None
    # An adapter of rank 2 beside the 8 x 8 matrix: 2 x 8 and 8 x 2.
    assert flops.per_token == 2 * (4 * LAYER_WEIGHTS + 6 * 32)
    assert flops.per_action == 4 * 8 * 32


def test_a_window_limits_what_a_token_sees():
    model = AutoModelForCausalLM.from_config(MistralConfig(**SHAPE, sliding_window=2))
    flops = update_flops(model)
    assert flops is not None
    # 5 tokens see 1 + 2 + 2 + 2 + 2.
    without_attention = 5 * flops.per_token
    assert flops.total([5], num_actions=0) - without_attention == 12 * 8 * 2 * 9


def test_a_decoder_without_its_head_costs_nothing_there():
    flops = update_flops(llama().base_model)
    assert flops is not None
    assert (flops.per_token, flops.per_action) == (6 * 2 * LAYER_WEIGHTS, 0)


def test_a_gpu_is_known_by_its_name():
    assert peak_flops("NVIDIA H200") == 989.5e12
    assert peak_flops("NVIDIA H100 80GB HBM3") == 989.5e12
    assert peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peak_flops("NVIDIA A100-SXM4-80GB") == 312e12
    assert peak_flops("NVIDIA L40S") == 362e12
    assert peak_flops("Some Other Card") is None
    assert peak_flops_of(llama().to(torch.bfloat16)) is None
