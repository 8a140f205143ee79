"""Common beginnings computed once on a GPU: the same numbers, and more tokens a second."""

from __future__ import annotations

import copy
import random
import time

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from transformers import PreTrainedModel

from agentgym_rl.config import TrainingConfig
from agentgym_rl.models import prefix_tree
from agentgym_rl.models.compilation import enable_compilation
from agentgym_rl.models.forward import (
    action_logprobs,
    enable_checkpointing,
    enable_prefix_sharing,
)
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.tree_attention import PackedTree
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.sft import negative_logprob
from agentgym_rl.types import Sample
from chat_families import family
from gpu_models import CUDA, random_qwen2
from prefix_samples import random_tree, sample_of

LENGTHS = [300, 40, 7, 129]
PATHS = [[0], [0, 1], [0, 1, 2], [0, 3]]
"""300 shared tokens, 40 more for two of three branches."""


def groups(num: int, *, prompt: int, reply: int, vocab_size: int) -> list[Sample]:
    """Return groups of eight samples with a prompt and half of the other tokens as actions."""
    rng = random.Random(0)
    samples = []
    for _ in range(num):
        shared = [rng.randrange(vocab_size) for _ in range(prompt)]
        for _ in range(8):
            own = [rng.randrange(vocab_size) for _ in range(reply)]
            mask = [0] * prompt + [int(place % 32 < 16) for place in range(reply)]
            samples.append(sample_of(shared + own, mask))
    return samples


def numbers(model: PreTrainedModel, samples: list[Sample]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return log-probabilities, and the gradient of their mean."""
    model.zero_grad()
    logprobs_A = action_logprobs(model, samples, temperature=1.0).logprobs_A
    logprobs_A.mean().backward()
    grads = {name: p.grad.float() for name, p in model.named_parameters() if p.grad is not None}
    return logprobs_A.detach(), grads


def distance(found: dict[str, Tensor], exact: dict[str, Tensor]) -> float:
    """Return how far gradients are from others, as a part of their length."""
    off = sum(float((grad - exact[name]).square().sum()) for name, grad in found.items())
    return (off / sum(float(grad.square().sum()) for grad in exact.values())) ** 0.5


@pytest.mark.parametrize("head_dim", [64, 96, 128])
@pytest.mark.parametrize("window", [None, 50])
def test_attention_and_its_gradients_are_those_of_one_stretch_at_a_time(
    head_dim: int, window: int | None
):
    generator = torch.Generator(CUDA).manual_seed(0)
    shapes = [(heads, sum(LENGTHS), head_dim) for heads in (8, 2, 2, 8)]
    query, key, value, grad = (
        torch.randn(shape, device=CUDA, dtype=torch.bfloat16, generator=generator)
        for shape in shapes
    )
    layout = PackedTree(LENGTHS, PATHS, CUDA)
    results = []
    for attend, dtype in ((layout.attend, torch.bfloat16), (layout._attend_each, torch.float32)):
        heads = [one.to(dtype).detach().requires_grad_() for one in (query, key, value)]
        out = attend(*heads, scale=head_dim**-0.5, window=window)
        results.append([out, *torch.autograd.grad(out, heads, grad.to(dtype))])
    for found, exact in zip(*results, strict=True):
        assert (found.float() - exact).norm() / exact.norm() < 1e-2


def test_float32_has_the_numbers_of_all_samples_in_full(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefix_tree, "LEAST_SHARED", 1)
    plain = random_qwen2(dtype=torch.float32)
    sharing = copy.deepcopy(plain)
    enable_prefix_sharing(sharing)
    for seed in range(4):
        expected_A, exact = numbers(plain, random_tree(seed))
        found_A, grads = numbers(sharing, random_tree(seed))
        assert torch.allclose(found_A, expected_A, atol=1e-4)
        assert distance(grads, exact) < 1e-4


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_bfloat16_is_as_near_to_float32_as_without_sharing(
    is_checkpointed: bool, is_compiled: bool
):
    samples = groups(2, prompt=200, reply=120, vocab_size=512)
    expected_A, exact = numbers(random_qwen2(dtype=torch.float32), samples)
    off = []
    for is_shared in (False, True):
        model = random_qwen2(dtype=torch.bfloat16)
        if is_checkpointed:
            enable_checkpointing(model)
        if is_compiled:
            enable_compilation(model)
        if is_shared:
            enable_prefix_sharing(model)
        logprobs_A, grads = numbers(model, samples)
        off.append((float((logprobs_A - expected_A).abs().mean()), distance(grads, exact)))
    (plain, plain_grad), (shared, shared_grad) = off
    assert shared < 1.2 * plain
    assert shared_grad < 1.2 * plain_grad


def test_other_trees_compile_nothing_again():
    model = random_qwen2()
    enable_compilation(model)
    enable_prefix_sharing(model)
    torch._dynamo.reset()
    counters.clear()
    counts = []
    for num in (2, 3, 4, 5):
        numbers(model, groups(num, prompt=60 + num, reply=40 * num, vocab_size=512))
        counts.append(counters["stats"]["unique_graphs"])
    assert counts[1] == counts[-1]
    assert not counters["graph_break"], "attention is part of a compiled layer"


def test_groups_of_eight_learn_faster():
    chat = family("qwen")
    model = random_qwen2(vocab_size=len(chat.tokenizer), hidden_size=1024, num_layers=12)
    samples = groups(8, prompt=512, reply=512, vocab_size=model.config.vocab_size)
    items = [TrainingSample(sample, (1.0,) * sample.num_action_tokens) for sample in samples]
    seconds = []
    for is_shared in (False, True):
        policy = Policy(copy.deepcopy(model), chat.tokenizer, chat.renderer)
        enable_compilation(policy.model)
        config = TrainingConfig(tokens_per_batch=32768, share_prefix=is_shared)
        learner = Learner(policy, config, temperature=1.0)
        for _ in range(3):
            learner.update(items, negative_logprob)
        torch.cuda.synchronize()
        started = time.monotonic()
        for _ in range(5):
            learner.update(items, negative_logprob)
        torch.cuda.synchronize()
        seconds.append((time.monotonic() - started) / 5)
    num_tokens = sum(item.length for item in items)
    rates = [num_tokens / one for one in seconds]
    print(f"tokens/s in full {rates[0]:,.0f}, shared {rates[1]:,.0f}: {rates[1] / rates[0]:.2f}x")
    assert rates[1] > 1.3 * rates[0]
