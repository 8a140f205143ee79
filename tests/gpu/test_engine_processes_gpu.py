"""Engines in processes of their own on GPUs: they say what the learner says, after updates too.

One GPU is shared by learner and engine, whose weights go through the CPU's memory; with two, NCCL
carries them. Not run on several GPUs yet.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
import torch

from agentgym_rl.config import parse_config
from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.pool.local import local_pool
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import add_lora
from agentgym_rl.types import Sample
from chat_families import family
from commands import Command
from engine_plays import play_all
from gpu_models import random_qwen2
from training_runs import RECIPE, metrics_of, succeeded

BFLOAT16_DIFFERENCE = 0.02
"""Mean difference of log-probabilities that rounding explains."""

needs_two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def random_policy() -> Policy:
    chat = family("qwen")
    model = random_qwen2(vocab_size=len(chat.tokenizer), num_layers=4)
    return Policy(model=model, tokenizer=chat.tokenizer, renderer=chat.renderer)


def make_pool(policy: Policy, folder: Path, *overrides: str) -> Engine:
    settings = ("cluster.type=local", "model.device=cuda", "model.dtype=bfloat16")
    config = parse_config({}, (*settings, *overrides), source="test")
    return local_pool(policy, config, folder=folder)


def difference(policy: Policy, engine: Engine) -> float:
    """Return the mean difference of the engine's and the learner's log-probabilities."""
    samples: list[Sample] = list(asyncio.run(play_all(engine, range(32), concurrency=32)).values())
    with torch.inference_mode():
        learner_A = action_logprobs(policy.model, samples, temperature=1.0).logprobs_A.cpu()
    sampled = [
        logprob
        for sample in samples
        for logprob, masked in zip(sample.logprobs, sample.loss_mask, strict=True)
        if masked
    ]
    return float((learner_A - torch.tensor(sampled)).abs().mean())


@torch.no_grad()
def change(policy: Policy, *, part: str) -> None:
    for name, weight in policy.model.named_parameters():
        if part in name:
            weight.add_(torch.randn_like(weight) * 0.1)


def check_updates(policy: Policy, engine: Engine, *, part: str) -> None:
    try:
        for version in range(3):
            engine.publish(version)
            assert difference(policy, engine) < BFLOAT16_DIFFERENCE
            engine.rest()
            change(policy, part=part)
            assert engine.take_metrics()["cluster/restarts_engine"] == 0
        assert difference(policy, engine) > 5 * BFLOAT16_DIFFERENCE  # the change is not nothing
    finally:
        engine.close()


@pytest.mark.parametrize("has_lora", [False, True])
def test_an_engine_on_the_learners_gpu_takes_updates(tmp_path: Path, has_lora: bool):
    policy = random_policy()
    if has_lora:
        pytest.importorskip("peft")
        add_lora(policy.model, rank=8, alpha=16, seed=0)
    engine = make_pool(policy, tmp_path, "engine.cache_fraction=0.2")
    check_updates(policy, engine, part="lora_B" if has_lora else "proj.weight")


@needs_two
def test_engines_on_their_own_gpus_take_updates_by_nccl(tmp_path: Path):
    policy, number = random_policy(), torch.cuda.device_count() - 1
    engine = make_pool(policy, tmp_path, "cluster.shared=false", f"cluster.engines={number}")
    check_updates(policy, engine, part="proj.weight")


@pytest.mark.parametrize(
    "settings",
    [
        (),
        pytest.param(("training.shards=2", "cluster.engines=2"), marks=needs_two),
    ],
)
def test_a_whole_run_learns_from_engine_processes(tmp_path: Path, settings: tuple[str, ...]):
    recipe = tmp_path / "small.toml"
    recipe.write_text(RECIPE)
    words = ("model.device=cuda", "model.dtype=bfloat16", "cluster.type=local", *settings)
    run = tmp_path / "run"
    command = Command("train", recipe, *words, "training.steps=3", "--run-dir", run)
    assert succeeded(command.wait(timeout_s=280.0))
    for line in metrics_of(run):
        assert line["rollout/episodes_failed"] == 0
        assert line["train/logprob_diff"] < 0.1


@needs_two
def test_vllm_servers_of_a_pool_take_updates(tmp_path: Path):
    python = os.environ.get("AGENTGYM_VLLM_PYTHON", "")
    if not python:
        pytest.importorskip("vllm")
    words = ("engine.type=vllm", f"engine.python={python}", 'engine.args=["--enforce-eager"]')
    policy = random_policy()
    engine = make_pool(policy, tmp_path, *words, "cluster.shared=false")
    check_updates(policy, engine, part="proj.weight")


def test_a_vllm_server_on_the_learners_gpu_copies_the_weights(tmp_path: Path):
    python = os.environ.get("AGENTGYM_VLLM_PYTHON", "")
    if not python:
        pytest.importorskip("vllm")
    words = ("engine.type=vllm", f"engine.python={python}", 'engine.args=["--enforce-eager"]')
    policy = random_policy()
    engine = make_pool(policy, tmp_path, *words, "engine.memory_fraction=0.2")
    check_updates(policy, engine, part="proj.weight")
