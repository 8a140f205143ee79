"""Numbers of rows that a pass may have, and that a row's results do not depend on the pass."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.native.safe_rows import SafeRows, rung, safe_head_rows, safe_layer_rows
from agentgym_rl.models.attention import ATTENTION
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import add_lora
from agentgym_rl.types import Sample
from chat_families import small_policy
from engine_plays import endless_policy, play_all

NUM_THREADS = sorted({1, 2, 3, os.cpu_count() or 1})
"""Three share rows unevenly, whatever the machine: there several multiples of 16 are not safe."""
OFTEN = {(128, 1), (128, 3)}


@contextlib.contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def llama(width: int, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        attn_implementation=ATTENTION,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(width)
        return LlamaForCausalLM(config).to(dtype).eval()


def test_the_numbers_tried_are_multiples_or_at_most_an_eighth_apart():
    numbers = (0, 1, 16, 17, 130, 256, 257, 600)
    assert [rung(number) for number in numbers] == [16, 16, 16, 32, 144, 256, 288, 640]
    assert [rung(number, step=64) for number in (1, 65, 1025)] == [64, 128, 1152]
    for number in range(128, 5000, 7):
        assert number <= rung(number) < 1.125 * number + 16


def rows_like(wrong: dict[int, float], size: int) -> Tensor:
    """Rows of which row i is row i % 13, off by what `wrong` says for this size."""
    return torch.arange(size)[:, None] % 13 + wrong.get(size, 0.0)


def test_a_pass_is_filled_up_to_a_number_that_agrees_with_the_reference():
    wrong = dict.fromkeys([16, 32, 48, 80], 1e-7)
    rows = SafeRows(lambda size: rows_like(wrong, size).double())
    assert rows.reference >= 256
    assert [rows.fit(number) for number in (1, 16, 33, 64, 65)] == [64, 64, 64, 64, 96]
    assert rows.least == 64


def test_passes_have_an_end_where_large_ones_are_computed_in_another_way():
    def compute(size: int) -> Tensor:
        return rows_like({}, size).double() + (1e-7 if size > 1024 else 0.0)

    with threads(2):
        rows = SafeRows(compute)
    assert rows.fit(1024) == 1024
    assert rows.fit(1025) is None


def test_a_number_whose_places_differ_is_no_reference():
    def compute(size: int) -> Tensor:
        rows = rows_like({}, size).double()
        rows[-1] += 1e-7 if size <= 512 else 0.0
        return rows

    with threads(2):
        assert SafeRows(compute).reference == 1024
    assert SafeRows(lambda size: torch.arange(size)).reference == 0
    assert SafeRows(lambda size: torch.arange(size)).fit(20) == 32


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama", "mistral", "gemma3"])
def test_every_family_can_be_checked(architecture: str):
    model = small_policy(architecture).model
    state = {name: weight.clone() for name, weight in model.state_dict().items()}
    assert safe_layer_rows(model).least
    assert safe_head_rows(model).least
    assert all(torch.equal(weight, state[name]) for name, weight in model.state_dict().items())


def test_a_fresh_adapter_is_checked_as_if_it_were_trained():
    model = llama(64)
    add_lora(model, rank=4, alpha=8, seed=0)
    plain = safe_layer_rows(llama(64))._compute(16)
    # Its zeros would hide what happens in the product before them.
    assert not torch.equal(safe_layer_rows(model)._compute(16), plain)
    assert not any(w.any() for name, w in model.named_parameters() if "lora_B" in name)


async def replies(policy: Policy, keys: list[int], **order: int) -> dict[int, Sample]:
    engine = NativeEngine(policy, NativeEngineConfig())
    try:
        assert engine.is_exact
        return await play_all(engine, keys, **order)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("width", "num_threads"),
    [
        pytest.param(width, number, marks=() if (width, number) in OFTEN else pytest.mark.long)
        for width in (128, 600)
        for number in NUM_THREADS
    ],
)
async def test_a_reply_is_the_same_to_the_last_bit_in_any_company(width: int, num_threads: int):
    tiny = endless_policy()
    policy = Policy(llama(width), tiny.tokenizer, tiny.renderer)
    keys = list(range(8))
    with threads(num_threads):
        alone = await replies(policy, keys[:2], concurrency=1)
        few = await replies(policy, keys, concurrency=3)
        all_at_once = await replies(policy, keys, concurrency=8, shuffle_seed=width)
    assert few == all_at_once
    assert alone == {key: few[key] for key in keys[:2]}


@pytest.mark.parametrize("num_threads", [2])
async def test_a_reply_in_bfloat16_is_the_same_in_any_company(num_threads: int):
    tiny = endless_policy()
    policy = Policy(llama(32, torch.bfloat16), tiny.tokenizer, tiny.renderer)
    keys = list(range(3))
    with threads(num_threads):
        alone = await replies(policy, keys[:1], concurrency=1)
        together = await replies(policy, keys, concurrency=3)
    assert alone == {0: together[0]}


@pytest.mark.parametrize("num_threads", NUM_THREADS)
@pytest.mark.parametrize("kind", ["layers", "head"])
def test_rows_are_the_same_for_all_numbers_that_fit(kind: str, num_threads: int):
    model = llama(256)
    with threads(num_threads):
        rows = (safe_layer_rows if kind == "layers" else safe_head_rows)(model)
        expected = rows._computed(rows.reference)
        for size in {rows.fit(number) for number in range(1, 400, 48)} - {None}:
            found = rows._computed(size)
            assert torch.equal(found[:13], expected[:13])
            assert torch.equal(found, found[torch.arange(size) % 13])
