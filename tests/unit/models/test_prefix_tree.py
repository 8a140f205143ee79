"""Common beginnings computed once: the tree by hand, and the numbers of every random tree."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from transformers import PreTrainedModel

import varlen_on_cpu
from agentgym_rl.config import parse_config
from agentgym_rl.errors import ConfigError
from agentgym_rl.models import attention, chunked_logprobs, compilation, prefix_tree
from agentgym_rl.models.attention import PackedSequences
from agentgym_rl.models.compilation import enable_compilation
from agentgym_rl.models.forward import (
    action_logprobs,
    enable_checkpointing,
    enable_prefix_sharing,
)
from agentgym_rl.models.lora import add_lora
from agentgym_rl.models.prefix_tree import PrefixTree, as_numbers, pack_tree
from agentgym_rl.models.tree_attention import PackedTree
from agentgym_rl.types import Sample
from chat_families import ARCHITECTURES, WINDOW, small_model
from prefix_samples import VOCAB_SIZE, random_tree, sample_of

CLOSE = 1e-5
"""How far a number may be from the one computed in full, as a part of the largest."""


@pytest.fixture
def _share_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share stretches of any length, so that short samples make deep trees."""
    monkeypatch.setattr(prefix_tree, "LEAST_SHARED", 1)


@pytest.mark.usefixtures("_share_all")
def test_a_tree_by_hand():
    samples = [
        sample_of([1, 2, 3, 4], [0, 0, 1, 1]),
        sample_of([1, 2, 3, 5], [0, 0, 1, 1]),
        sample_of([7, 8], [0, 1]),
        sample_of([1, 2], [0, 0]),
    ]
    tree = pack_tree(samples)
    # 1 2 | 3 | 4 | 5 | 7 8
    assert tree.ids_T.tolist() == [1, 2, 3, 4, 5, 7, 8]
    assert tree.positions_T.tolist() == [0, 1, 2, 3, 3, 0, 1]
    assert tree.lengths == (2, 1, 1, 1, 2) and tree.starts == (0, 2, 3, 3, 0)
    assert tree.paths == ((0,), (0, 1), (0, 1, 2), (0, 1, 3), (4,))
    # The tokens 3, 4, 5 and 8; 4 and 5 are both predicted at 3.
    assert tree.actions_U.tolist() == [2, 3, 4, 6]
    assert tree.predicted_U.tolist() == [1, 2, 2, 5]
    assert tree.which_A.tolist() == [0, 1, 0, 2, 3]


@pytest.mark.usefixtures("_share_all")
def test_costs_are_those_of_what_is_added():
    tree = PrefixTree()
    found = []
    for ids in ([1, 2, 3, 4], [1, 2, 5], [1, 2, 5], [1], [9, 9]):
        cost = tree.cost_of(as_numbers(ids))
        before = tree.num_tokens, tree.num_keys
        tree.add(as_numbers(ids))
        assert (tree.num_tokens - before[0], tree.num_keys - before[1]) == cost
        found.append(cost)
    # 4 tokens that see 4; 1 token that sees 3, and "1 2" apart from "3 4"; nothing; "1"; 2 tokens.
    assert found == [(4, 4), (1, 5), (0, 0), (0, 1), (2, 2)]
    tree_pass = tree.packed([[0]] * 5)
    keys = [sum(tree_pass.lengths[number] for number in path) for path in tree_pass.paths]
    assert (sum(tree_pass.lengths), sum(keys)) == (tree.num_tokens, tree.num_keys)


def test_few_common_tokens_are_not_worth_a_stretch():
    least, ids = prefix_tree.LEAST_SHARED, list(range(40))
    for num_shared, num_tokens in ((least - 1, 80), (least, 80 - least)):
        other = ids[:num_shared] + [99] * (40 - num_shared)
        samples = [sample_of(one, [0] * 39 + [1]) for one in (ids, other)]
        assert len(pack_tree(samples).ids_T) == num_tokens


def gradients(model: PreTrainedModel, samples: list[Sample]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return log-probabilities and entropies, and the gradient of a loss that all are in."""
    model.zero_grad()
    now = action_logprobs(model, samples, temperature=0.7)
    generator = torch.Generator().manual_seed(1)
    weights_A = torch.randn(len(now.logprobs_A), generator=generator).to(now.logprobs_A)
    (now.logprobs_A * weights_A + 0.1 * now.entropies_A).sum().backward()
    grads = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return torch.stack([now.logprobs_A, now.entropies_A]).detach(), grads


def check_same_numbers(plain: PreTrainedModel, seeds: range, *, close: float = CLOSE) -> None:
    """Compare a model with its twin that shares beginnings."""
    sharing = copy.deepcopy(plain)
    enable_prefix_sharing(sharing)
    for seed in seeds:
        samples = random_tree(seed)
        expected_2A, exact = gradients(plain, samples)
        found_2A, grads = gradients(sharing, samples)
        assert torch.allclose(found_2A, expected_2A, rtol=close, atol=close)
        assert grads.keys() == exact.keys()
        scale = max(float(grad.abs().max()) for grad in exact.values())
        for name, grad in grads.items():
            assert float((grad - exact[name]).abs().max()) < close * scale, (seed, name)


@pytest.mark.usefixtures("_share_all")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_tree_has_the_numbers_of_its_samples(architecture: str):
    check_same_numbers(small_model(architecture, vocab_size=VOCAB_SIZE), range(6))


@pytest.mark.usefixtures("_share_all")
def test_the_difference_is_rounding():
    model = small_model("qwen3", vocab_size=VOCAB_SIZE).double()
    # The loss is computed in float32, so gradients of its inputs are those of equal numbers.
    check_same_numbers(model, range(6), close=1e-6)
    lengths, paths = [20, 7, 5], [[0], [0, 1], [0, 2]]
    generator = torch.Generator().manual_seed(0)
    heads = [torch.randn(4, 32, 8, generator=generator, dtype=torch.float64) for _ in range(3)]
    for window in (None, 6):
        out = PackedTree(lengths, paths, heads[0].device).attend(*heads, scale=0.3, window=window)
        for branch in ([*range(27)], [*range(20), *range(27, 32)]):
            whole = PackedSequences([len(branch)], heads[0].device).attend(
                *(tensor[:, branch] for tensor in heads), scale=0.3, window=window
            )
            assert (out[:, branch] - whole).abs().max() < 1e-14


@pytest.mark.usefixtures("_share_all")
@pytest.mark.parametrize("way", ["checkpoints", "lora"])
def test_checkpoints_and_adapters_have_them_too(way: str):
    model = small_model("llama", vocab_size=VOCAB_SIZE)
    if way == "lora":
        add_lora(model, rank=4, alpha=8, seed=0)
    else:
        enable_checkpointing(model)
    check_same_numbers(model, range(2))


@pytest.mark.usefixtures("_share_all")
def test_the_kernel_of_a_gpu_is_asked_for_the_same(monkeypatch: pytest.MonkeyPatch):
    varlen_on_cpu.install()
    model = small_model("qwen2", vocab_size=VOCAB_SIZE)
    sharing = copy.deepcopy(model)
    enable_prefix_sharing(sharing)
    for seed in range(4):
        expected_2A, exact = gradients(model, random_tree(seed))
        with monkeypatch.context() as patch:
            patch.setattr(attention, "has_varlen_kernel", lambda *_: True)
            found_2A, grads = gradients(sharing, random_tree(seed))
        assert torch.allclose(found_2A, expected_2A, atol=CLOSE)
        for name, grad in grads.items():
            assert (grad - exact[name]).abs().max() < 1e-4, name


def test_gradients_of_shared_keys_are_summed_in_float32():
    # 300 stretches that see one token: sums of 1 in bfloat16 would stay at 256.
    num = 300
    layout = PackedTree(
        [1] * (num + 1), [[0], *([0, n] for n in range(1, num + 1))], torch.device("cpu")
    )
    key_HTD = torch.ones(1, num + 1, 8, dtype=torch.bfloat16, requires_grad=True)
    layout._keys(key_HTD).backward(torch.ones(1, 2 * num + 1, 8, dtype=torch.bfloat16))
    assert key_HTD.grad is not None
    assert key_HTD.grad[0, 0, 0] == num + 1  # 301 is rounded to 302 once
    assert bool((key_HTD.grad[0, 1:] == 1).all())


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.usefixtures("_share_all")
def test_a_compiled_layer_has_the_same_numbers_and_is_not_compiled_again(
    monkeypatch: pytest.MonkeyPatch,
):
    varlen_on_cpu.install()
    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(attention, "has_varlen_kernel", lambda *_: True)
    monkeypatch.setattr(chunked_logprobs, "is_compiling", lambda _: False)  # layers alone

    def without_compiler(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return torch.compile(function, dynamic=True, backend="aot_eager")

    monkeypatch.setattr(compilation, "compiled", cache(without_compiler))
    plain = small_model("qwen2", vocab_size=VOCAB_SIZE)
    sharing = copy.deepcopy(plain)
    enable_prefix_sharing(sharing)
    enable_compilation(sharing)
    counts = []
    for seed in range(5):
        _, exact = gradients(plain, random_tree(seed))
        _, grads = gradients(sharing, random_tree(seed))
        for name, grad in grads.items():
            assert (grad - exact[name]).abs().max() < 1e-4, name
        counts.append(counters["stats"]["unique_graphs"])
    assert 0 < counts[1] == counts[-1]
    assert not counters["graph_break"], "attention is part of a compiled layer"


def test_what_cannot_share_is_refused_with_what_to_set():
    with pytest.raises(ConfigError, match=r"training\.share_prefix=false, or"):
        parse_config(
            {},
            ["training.shards=2", "training.sequence_parallel=2", "training.share_prefix=true"],
            source="test",
        )
    model = small_model("qwen3", vocab_size=VOCAB_SIZE)
    model.config.layer_types = ["linear_attention", "full_attention"]
    with pytest.raises(ConfigError, match=r"linear_attention: set training\.share_prefix=false"):
        enable_prefix_sharing(model)
    model.config._attn_implementation = "sdpa"
    with pytest.raises(ConfigError, match=r"share_prefix=true .*'sdpa'"):
        enable_prefix_sharing(model)


def test_windows_are_shorter_than_the_samples_of_these_tests():
    assert max(len(sample.token_ids) for sample in random_tree(0)) > 2 * WINDOW
