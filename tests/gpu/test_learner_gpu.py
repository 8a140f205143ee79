"""The learner on a GPU: the same updates as on the CPU, compiled or not, and a resumed one."""

from __future__ import annotations

import copy
import math
import warnings

import pytest
import torch
from torch._dynamo.utils import counters

from agentgym_rl.config import TrainingConfig
from agentgym_rl.models.compilation import enable_compilation
from agentgym_rl.models.forward import action_logprobs, enable_checkpointing
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import add_lora
from agentgym_rl.training.algorithms.base import CriticNeeds, Needs, TrainingSample
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.learner.reference import Reference
from agentgym_rl.training.sft import negative_logprob
from chat_families import family
from gpu_models import CUDA, random_qwen2, random_samples

LENGTHS = [120, 33, 257, 64, 90]
CONFIG = TrainingConfig(lr=1e-3, tokens_per_batch=256)


def policy_on(device: torch.device, dtype: torch.dtype = torch.float32) -> Policy:
    chat = family("qwen")
    model = random_qwen2(vocab_size=len(chat.tokenizer), dtype=dtype).to(device)
    return Policy(model=model, tokenizer=chat.tokenizer, renderer=chat.renderer)


def training_samples(policy: Policy) -> list[TrainingSample]:
    samples = random_samples(LENGTHS, vocab_size=policy.model.config.vocab_size)
    return [TrainingSample(sample, (1.0,) * sample.num_action_tokens) for sample in samples]


def losses(policy: Policy, *, num_updates: int = 5, needs: Needs | None = None) -> list[float]:
    learner = Learner(policy, CONFIG, temperature=1.0, needs=needs)
    samples = training_samples(policy)
    return [learner.update(samples, negative_logprob).loss for _ in range(num_updates)]


def test_updates_in_float32_are_those_of_the_cpu():
    on_cpu, on_gpu = losses(policy_on(torch.device("cpu"))), losses(policy_on(CUDA))
    assert on_cpu[-1] < on_cpu[0]
    assert all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(on_cpu, on_gpu, strict=True))


@pytest.mark.parametrize("rank", [0, 8])
@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_compiled_updates_in_bfloat16_are_those_of_the_plain_ones(is_checkpointed: bool, rank: int):
    if rank:
        pytest.importorskip("peft")
    found = []
    for is_compiled in (False, True):
        policy = policy_on(CUDA, torch.bfloat16)
        if is_checkpointed:
            enable_checkpointing(policy.model)
        if is_compiled:
            enable_compilation(policy.model)
        if rank:
            add_lora(policy.model, rank=rank, alpha=16, seed=0)
        found.append(losses(policy))
    assert found[0][-1] < found[0][0]
    assert all(math.isclose(a, b, rel_tol=2e-2) for a, b in zip(*found, strict=True))


def test_other_lengths_compile_nothing_again():
    policy = policy_on(CUDA, torch.bfloat16)
    enable_compilation(policy.model)
    torch._dynamo.reset()
    counters.clear()
    learner = Learner(policy, CONFIG, temperature=1.0)
    samples = training_samples(policy)
    learner.update(samples, negative_logprob)
    num_graphs = counters["stats"]["unique_graphs"]
    assert num_graphs > 0
    assert not counters["graph_break"], "attention is part of a compiled layer"
    for part in (samples[:1], samples[2:4], samples[1:]):
        learner.update(part, negative_logprob)
    assert counters["stats"]["unique_graphs"] == num_graphs


def test_an_update_waits_for_the_device_as_often_whatever_its_passes():
    policy = policy_on(CUDA, torch.bfloat16)
    samples = training_samples(policy)
    waits = []
    for tokens_per_batch in (257, 1024):
        config = TrainingConfig(lr=1e-3, tokens_per_batch=tokens_per_batch)
        learner = Learner(policy, config, temperature=1.0)
        learner.update(samples, negative_logprob)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                learner.update(samples, negative_logprob)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        waits.append(
            [str(wait.message) for wait in found if "a synchronizing" in str(wait.message)]
        )
    assert len(waits[0]) == len(waits[1]) <= 3, waits


def test_scores_reference_and_critic_work_there():
    policy = policy_on(CUDA, torch.bfloat16)
    needs = Needs(
        policy=True, reference=True, critic=CriticNeeds(trunk="own", lr=1e-4, bootstraps=False)
    )
    learner = Learner(policy, CONFIG, temperature=1.0, needs=needs)
    scored = learner.score_samples([item.sample for item in training_samples(policy)])
    assert all(item.scores.logprobs == item.scores.ref_logprobs for item in scored)
    assert all(item.scores.values is not None and not any(item.scores.values) for item in scored)


def test_a_restored_learner_goes_on_as_before(tmp_path):
    policy = policy_on(CUDA, torch.bfloat16)
    learner = Learner(policy, CONFIG, temperature=1.0)
    samples = training_samples(policy)
    learner.update(samples, negative_logprob)
    torch.save(learner.state(), tmp_path / "learner.pt")
    twin = Policy(copy.deepcopy(policy.model), policy.tokenizer, policy.renderer)
    other = Learner(twin, CONFIG, temperature=1.0)
    other.load_state(torch.load(tmp_path / "learner.pt", weights_only=True, map_location="cpu"))
    first, second = (one.update(samples, negative_logprob).loss for one in (learner, other))
    assert math.isclose(first, second, rel_tol=1e-3)
    assert all(p.is_cuda for p in twin.model.parameters())


def test_the_reference_scores_as_the_policy_did_and_leaves_the_gpu():
    policy = policy_on(CUDA, torch.bfloat16)
    samples = [item.sample for item in training_samples(policy)]
    with torch.no_grad():
        expected = action_logprobs(policy.model, samples, temperature=1.0).logprobs_A
    size = sum(weight.nbytes for weight in policy.model.parameters())
    before = torch.cuda.memory_allocated()
    reference = Reference(policy.model, temperature=1.0)
    assert torch.cuda.memory_allocated() - before < 0.1 * size
    for _ in range(2):
        assert torch.equal(reference.logprobs(samples), expected)
        assert torch.cuda.memory_allocated() - before > 0.9 * size
        reference.park()
        assert torch.cuda.memory_allocated() - before < 0.1 * size
    state = {name: weight.clone() for name, weight in reference.state().items()}
    with torch.no_grad():
        policy.model.get_input_embeddings().weight.mul_(1.5)
    reference.load_state(state)
    assert torch.equal(reference.logprobs(samples), expected)
