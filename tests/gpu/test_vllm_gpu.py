"""A real vLLM server on a GPU: it says what the learner says, also after updates and a death."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from agentgym_rl.config import VllmEngineConfig
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.server import OwnServer
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import add_lora
from agentgym_rl.types import Sample
from chat_families import family
from engine_plays import play_all
from gpu_models import random_qwen2

PYTHON = os.environ.get("AGENTGYM_VLLM_PYTHON", "")
"""Of an environment of its own that has vLLM."""
if not PYTHON:
    pytest.importorskip("vllm")

BFLOAT16_DIFFERENCE = 0.02
"""Mean difference of log-probabilities that rounding explains."""


def random_policy() -> Policy:
    chat = family("qwen")
    model = random_qwen2(vocab_size=len(chat.tokenizer), num_layers=4)
    return Policy(model=model, tokenizer=chat.tokenizer, renderer=chat.renderer)


@contextlib.contextmanager
def running(policy: Policy, folder: Path) -> Iterator[VllmEngine]:
    config = VllmEngineConfig(python=PYTHON, memory_fraction=0.2, args=("--enforce-eager",))
    engine = VllmEngine(policy, config, folder=folder)
    try:
        yield engine
    finally:
        engine.close()


def difference(policy: Policy, samples: Sequence[Sample]) -> float:
    """Return the mean difference of the server's and the learner's log-probabilities."""
    with torch.inference_mode():
        learner_A = action_logprobs(policy.model, samples, temperature=1.0).logprobs_A.cpu()
    server = [
        logprob
        for sample in samples
        for logprob, masked in zip(sample.logprobs, sample.loss_mask, strict=True)
        if masked
    ]
    return float((learner_A - torch.tensor(server)).abs().mean())


def played(engine: VllmEngine) -> list[Sample]:
    return list(asyncio.run(play_all(engine, range(32), concurrency=32)).values())


@torch.no_grad()
def change(policy: Policy, *, part: str, size: float) -> None:
    for name, weight in policy.model.named_parameters():
        if part in name:
            weight.add_(torch.randn_like(weight) * size)


@pytest.mark.parametrize("has_lora", [False, True])
def test_it_agrees_with_the_learner_through_updates_sleep_and_death(tmp_path: Path, has_lora: bool):
    policy = random_policy()
    if has_lora:
        add_lora(policy.model, rank=8, alpha=16, seed=0)
    part = "lora_B" if has_lora else "proj.weight"
    with running(policy, tmp_path) as engine:
        first = played(engine)
        assert difference(policy, first) < BFLOAT16_DIFFERENCE
        engine.rest()
        change(policy, part=part, size=0.1)
        assert difference(policy, first) > 5 * BFLOAT16_DIFFERENCE  # the update is not nothing
        assert isinstance(engine.server, OwnServer)
        pid = engine.server.pid
        engine.publish(1)
        assert engine.server.pid == pid, "the weights were not updated in place"
        taken = engine.take_metrics()
        assert taken["cluster/restarts_engine"] == 0
        weights = policy.model.parameters()
        size = sum(weight.numel() * weight.element_size() for weight in weights)
        moved = taken["rollout/published_bytes"]
        assert 0 < moved < size if has_lora else moved == size, "not within the GPU"
        second = played(engine)
        assert {sample.version for sample in second} == {1}
        assert difference(policy, second) < BFLOAT16_DIFFERENCE
        engine.rest()
        assert difference(policy, played(engine)) < BFLOAT16_DIFFERENCE  # a reply wakes it
        os.kill(pid, signal.SIGKILL)
        assert difference(policy, played(engine)) < BFLOAT16_DIFFERENCE
        assert engine.server.pid != pid
