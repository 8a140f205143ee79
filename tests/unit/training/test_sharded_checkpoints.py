"""States of sharded learners: resumed at any number of ranks, and what a kill leaves."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from agentgym_rl.errors import LearnerDiedError, RunError
from agentgym_rl.models.loading import Policy, load_pretrained
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.training.checkpoint import CheckpointWriter, restore_checkpoint
from agentgym_rl.training.learner.group import LearnerGroup
from agentgym_rl.training.learner.sharded import rank
from agentgym_rl.training.learner.sharded.shard_files import write_shards
from agentgym_rl.training.sft import negative_logprob
from sharded_learners import (
    PPO,
    Case,
    check_same,
    demos,
    in_process,
    make_policy,
    make_steps,
    needs_of,
    on_ranks,
    weights_of,
)
from waiting import wait_for

DEADLINE_S = 60.0
ALONE = 0
"""Number of ranks: none, the learner is in the run's own process."""
OTHER_RANKS = ((2, 1), (2, 3), (ALONE, 2))


@pytest.mark.parametrize(
    ("num_ranks", "later"),
    [(2, ALONE), *(pytest.param(*ranks, marks=pytest.mark.long) for ranks in OTHER_RANKS)],
)
def test_a_state_is_resumed_at_another_number_of_ranks(num_ranks: int, later: int, tmp_path: Path):
    case, settings = Case(PPO), needs_of(PPO)
    whole, policy = make_policy(case), make_policy(case)
    unbroken = in_process(whole, case, **settings)
    expected = make_steps(unbroken, PPO, [1, 2, 3])

    def learner_on(num: int) -> LearnerGroup:
        own = replace(case, num_ranks=num)
        make = in_process if num == ALONE else on_ranks
        return make(policy, own, **settings)

    first = learner_on(num_ranks)
    found = make_steps(first, PPO, [1])
    write = first.save_state(tmp_path)
    second = learner_on(later)
    write()
    first.close()
    second.restore_state(tmp_path)
    found += make_steps(second, PPO, [2, 3])
    second.close()
    check_same(found, expected, policy, whole)


def test_a_disk_that_is_full_for_one_rank_is_named_and_ends_no_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write = dcp.HuggingFaceStorageWriter.write_data

    def write_all_but_one(self: dcp.HuggingFaceStorageWriter, plan: object, planner: object):
        if dist.get_rank() == 1:
            raise OSError("No space left on device")
        return write(self, plan, planner)

    monkeypatch.setattr(dcp.HuggingFaceStorageWriter, "write_data", write_all_but_one)
    policy, run = make_policy(Case()), RunFolder(tmp_path)
    learner, writer = on_ranks(policy, Case()), CheckpointWriter(run, keep=1)
    writer.save(policy, learner, step=1)
    with pytest.raises(RunError, match="No space left"):
        writer.wait()
    assert run.latest_checkpoint() is None
    learner.update(demos(2), negative_logprob)
    learner.close()


def test_a_rank_that_is_killed_while_it_writes_leaves_the_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def write_half(state: object, folder: Path, group: object) -> None:
        if folder.parent.name == ".writing-2" and dist.get_rank() == 1:
            (folder / "half.safetensors").write_bytes(b"half")
            wait_for((tmp_path / "saved").exists, DEADLINE_S)
            os.kill(os.getpid(), signal.SIGKILL)
        write_shards(state, folder, group)

    monkeypatch.setattr(rank, "write_shards", write_half)
    policy, run = make_policy(Case()), RunFolder(tmp_path)
    learner = on_ranks(policy, Case())
    writer = CheckpointWriter(run, keep=1)
    learner.update(demos(3), negative_logprob)
    writer.save(policy, learner, step=1)
    writer.wait()
    saved = weights_of(policy)
    learner.update(demos(3), negative_logprob)
    writer.save(policy, learner, step=2)
    (tmp_path / "saved").touch()
    with pytest.raises(LearnerDiedError, match="rank 1 ended before it had written"):
        writer.wait()
    learner.close()
    checkpoint = run.latest_checkpoint()
    assert checkpoint == run.checkpoint_path(1)
    assert sorted(file.name for file in checkpoint.iterdir()) == ["learner", "model", "state.json"]
    again = Policy(
        load_pretrained(checkpoint / "model", device="cpu").model, policy.tokenizer, policy.renderer
    )
    assert all(map(torch.equal, weights_of(again), saved))
    assert restore_checkpoint(run, in_process(again, Case())) == 1


@pytest.mark.long
def test_masters_of_bfloat16_weights_are_resumed_in_one_process_and_back(tmp_path: Path):
    case = Case()
    policy = make_policy(case, torch.bfloat16)
    sharded = on_ranks(policy, case)
    sharded.update(demos(3), negative_logprob)
    sharded.fetch_weights()
    folders = [tmp_path / name for name in ("sharded", "one", "again")]
    for folder in folders:
        folder.mkdir()
    sharded.save_state(folders[0])()
    sharded.close()
    learner = in_process(policy, case)
    learner.restore_state(folders[0])
    learner.save_state(folders[1])()
    again = on_ranks(policy, case)
    again.restore_state(folders[1])
    again.save_state(folders[2])()
    again.close()
    masters = []
    for folder in folders:
        reader = in_process(policy, case)
        reader.restore_state(folder)
        masters.append(reader.state()["optimizer"]["masters"])
    assert len(masters[0]) == len(weights_of(policy))
    assert all(map(torch.equal, masters[0], masters[1]))
    assert all(map(torch.equal, masters[0], masters[2]))
