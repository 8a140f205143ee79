"""Supervised learning: what is learned from, what is left out, and that it is counted."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agentgym_rl.config import RunConfig, SFTConfig, TrainingConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.loading import Policy
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.algorithms.base import TrainingSample
from agentgym_rl.training.data.conversations import Conversation
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.learner.packing import split_by_tokens
from agentgym_rl.training.make import sft_trainer
from agentgym_rl.training.run_parts import RunParts
from agentgym_rl.training.sft import fitting_samples, negative_logprob
from agentgym_rl.types import Message
from chat_families import small_policy


def make_conversation(*texts: str, origin: str = "demos.jsonl, line 1") -> Conversation:
    roles = ("user", "assistant") * (len(texts) // 2)
    messages = tuple(Message(role, text) for role, text in zip(roles, texts, strict=True))
    return Conversation("counting/4", messages, tuple(r == "assistant" for r in roles), origin)


def samples_of(conversations: list[Conversation], policy: Policy) -> list[TrainingSample]:
    return [sample for _, sample in fitting_samples(conversations, policy, max_tokens=512)]


def make_config(**training: float) -> RunConfig:
    return RunConfig(
        algorithm=SFTConfig(batch_size=2),
        training=TrainingConfig(**{"steps": 3, "lr": 1e-2, **training}),
    )


SHORT = make_conversation("Go.", "add 1", "Count: 1.", "add 2")
LONG = make_conversation("Go. " * 60, "add 1", origin="demos.jsonl, line 7")


async def test_a_long_demonstration_is_left_out_whole_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    config = make_config()
    config = config.model_copy(
        update={"rollout": config.rollout.model_copy(update={"max_tokens": 128})}
    )
    run = RunFolder(tmp_path / "run")
    run.create("")
    with caplog.at_level(logging.WARNING):
        trainer = sft_trainer(RunParts(config, small_policy("qwen3"), run), [SHORT, LONG, SHORT])
    assert "demos.jsonl, line 7: demonstration of counting/4 left out" in caplog.text
    await trainer.train()
    lines = run.read_metrics()
    assert [line["train/demos_left_out"] for line in lines] == [1.0, 1.0, 1.0]
    assert lines[-1]["train/loss"] < lines[0]["train/loss"]
    assert "train/kl" not in lines[0]


def test_nothing_but_long_demonstrations_is_an_error():
    with pytest.raises(ConfigError, match="none of 1 demonstrations can be used"):
        fitting_samples([LONG], small_policy("qwen3"), max_tokens=64)


def test_demonstrations_are_packed_into_passes():
    samples = samples_of([SHORT] * 5, small_policy("qwen3"))
    length = samples[0].length
    passes = split_by_tokens(samples, lambda item: item.length, max_tokens=2 * length + 1)
    assert [len(items) for items in passes] == [2, 2, 1]


def test_the_loss_is_the_mean_over_the_tokens_of_flagged_replies():
    policy = small_policy("qwen3")
    flagged = replace(SHORT, is_learned=(False, False, False, True))
    samples = samples_of([flagged, SHORT], policy)
    losses = []
    for item in samples:
        stock = small_policy("qwen3").model
        stock.set_attn_implementation("sdpa")
        ids, mask = torch.tensor(item.sample.token_ids), torch.tensor(item.sample.loss_mask)
        with torch.no_grad():
            logprobs = stock(input_ids=ids[None]).logits[0, :-1].log_softmax(-1)
        chosen = logprobs.gather(1, ids[1:, None])[:, 0]
        losses += (-chosen[mask[1:].bool()]).tolist()
    reply_lengths = [len(policy.renderer.reply(text)) for text in ("add 2", "add 1", "add 2")]
    assert len(losses) == sum(reply_lengths)
    learner = Learner(policy, TrainingConfig(), temperature=1.0)
    loss = learner.update(samples, negative_logprob).loss
    assert loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
