"""Checkpoints are written while the run goes on: what they hold, what fails, what a kill leaves."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from agentgym_rl.config import TrainingConfig
from agentgym_rl.errors import RunError
from agentgym_rl.models.loading import Policy, load_pretrained
from agentgym_rl.models.lora import add_lora
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.checkpoint import CheckpointWriter, restore_checkpoint
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.sft import negative_logprob, supervised_sample
from chat_families import small_policy
from episode_groups import make_groups

FORK = multiprocessing.get_context("fork")
DEADLINE_S = 60.0


class SlowLearner(Learner):
    """Writes its state when it is told to, or fails to."""

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy, TrainingConfig(lr=1e-2), temperature=1.0)
        self.may_write, self.error = threading.Event(), ""

    def save_state(self, folder: Path) -> Callable[[], None]:
        write = super().save_state(folder)

        def wait() -> None:
            assert self.may_write.wait(DEADLINE_S)
            if self.error:
                raise OSError(self.error)
            write()

        return wait


@pytest.fixture
def policy() -> Policy:
    return small_policy("qwen3")


@pytest.fixture
def learner(policy: Policy) -> Iterator[SlowLearner]:
    made = SlowLearner(policy)
    yield made
    made.may_write.set()


def learn(learner: Learner) -> None:
    samples = [s for group in make_groups() for episode in group.episodes for s in episode.samples]
    learner.update([supervised_sample(sample) for sample in samples[:3]], negative_logprob)


def weights_of(policy: Policy) -> list[torch.Tensor]:
    return [weight.detach().clone() for weight in policy.model.parameters()]


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(map(torch.equal, first, second))


@pytest.mark.parametrize("has_lora", [False, True])
def test_a_checkpoint_is_that_of_its_step_however_late_it_is_written(
    has_lora: bool, policy: Policy, tmp_path: Path
):
    if has_lora:
        add_lora(policy.model, rank=2, alpha=4, seed=0)
    learner, run = SlowLearner(policy), RunFolder(tmp_path)
    learn(learner)
    with CheckpointWriter(run, keep=2) as writer:
        policy.save(tmp_path / "expected")
        state = learner.state()["optimizer"]
        moments = [one.clone() for one in _tensors(state)]
        writer.save(policy, learner, step=1)
        assert run.latest_checkpoint() is None
        learn(learner)
        learner.may_write.set()
    checkpoint = run.checkpoint_path(1)
    assert run.latest_checkpoint() == checkpoint
    saved, expected = (
        load_pretrained(folder, device="cpu")
        for folder in (checkpoint / "model", tmp_path / "expected")
    )
    assert same(weights_of(saved), weights_of(expected))
    kept = torch.load(checkpoint / "learner.pt", weights_only=True)["optimizer"]
    assert same(list(_tensors(kept)), moments)
    assert not same(list(_tensors(learner.state()["optimizer"])), moments)


def _tensors(tree: object) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree
    for item in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _tensors(item)


def test_what_was_not_written_is_raised_by_the_next_save(
    policy: Policy, learner: SlowLearner, tmp_path: Path
):
    learner.error = "No space left on device"
    learner.may_write.set()
    writer = CheckpointWriter(RunFolder(tmp_path), keep=2)
    writer.save(policy, learner, step=1)
    with pytest.raises(RunError, match=r"where [\d.]+ GiB are free: No space left"):
        writer.save(policy, learner, step=2)
    assert not list((tmp_path / "checkpoints").iterdir()), "a half takes room and is never read"
    writer.wait()  # said once


@pytest.mark.parametrize(
    ("reason", "raised"),
    [(None, RunError), (asyncio.CancelledError(), RunError), (KeyError("first"), KeyError)],
)
def test_what_was_not_written_is_raised_at_the_end_unless_something_else_ended_the_run(
    reason: BaseException | None,
    raised: type[Exception],
    policy: Policy,
    learner: SlowLearner,
    tmp_path: Path,
):
    learner.error = "No space left on device"
    learner.may_write.set()
    with pytest.raises(raised), CheckpointWriter(RunFolder(tmp_path), keep=2) as writer:
        writer.save(policy, learner, step=1)
        if reason is not None:
            raise reason


def test_a_save_that_is_killed_half_way_leaves_the_older_one(tmp_path: Path):
    run = RunFolder(tmp_path)

    def save_and_die() -> None:
        policy = small_policy("qwen3")
        learner, writer = Learner(policy, TrainingConfig(), temperature=1.0), None
        writer = CheckpointWriter(run, keep=1)
        writer.save(policy, learner, step=1)
        writer.wait()

        def write_half() -> None:
            (run.checkpoints / ".writing-2" / "learner.pt").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)

        learner.save_state = lambda folder: write_half
        learn(learner)
        writer.save(policy, learner, step=2)
        writer.wait()

    process = FORK.Process(target=save_and_die)
    process.start()
    process.join(DEADLINE_S)
    assert process.exitcode == -signal.SIGKILL
    assert run.latest_checkpoint() == run.checkpoint_path(1)
    learner = Learner(small_policy("qwen3"), TrainingConfig(), temperature=1.0)
    assert restore_checkpoint(run, learner) == 1
