"""Weights on their way: the checksum, groups that fail, and the two ends of a delivery."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor

from agentgym_rl.engines.channels import group
from agentgym_rl.engines.channels.checksum import WeightChecksum
from agentgym_rl.engines.channels.delivery import Given, PolicySource, WeightGiver, WeightTaker
from agentgym_rl.engines.channels.group import GroupPlan
from agentgym_rl.errors import EngineError
from engine_plays import endless_policy


def checksum(*weights: Tensor) -> int:
    found = WeightChecksum()
    for weight in weights:
        found.add(weight)
    return found.value


def numbers(size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(size)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [1, 7, 1024, 5000])
def test_a_checksum_changes_with_every_bit_and_place(size: int, dtype: torch.dtype):
    weight = numbers(size, dtype)
    assert checksum(weight) == checksum(weight.clone())
    for place in {0, size // 2, size - 1}:
        changed = weight.clone()
        changed.view(-1)[place] = changed.view(-1)[place] + 1
        assert checksum(changed) != checksum(weight)
    if size > 1:
        assert checksum(weight.flip(0)) != checksum(weight)
        assert checksum(weight.roll(1)) != checksum(weight)


def test_a_checksum_knows_the_order_and_the_number_of_weights():
    first, second = numbers(50), numbers(51)
    found = {
        checksum(),
        checksum(first),
        checksum(first, second),
        checksum(second, first),
        checksum(first, first),
        checksum(first, torch.zeros(3)),
    }
    assert len(found) == 6
    assert 0 <= checksum(first, second) < 1 << 64
    # by hand: 1.0 is the bytes 0, 0, 0x80, 0x3f, at places 1 to 4 of the rest, part number 2
    odd = 0x9E3779B1
    one = 0x80 * (3 * odd + 2) + 0x3F * (4 * odd + 2) + 1
    assert checksum(torch.ones(1)) == one % 2**64


def plan(tmp_path: Path, *, size: int = 2, timeout_s: float = 20.0) -> GroupPlan:
    return GroupPlan((tmp_path / "meeting").as_uri(), size, "gloo", timeout_s)


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


@pytest.mark.parametrize("bucket", [1000, 16 << 20])
def test_buckets_of_any_size_carry_all_weights(
    tmp_path: Path, thread: ThreadPoolExecutor, bucket: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(group._BUCKET_BYTES, "gloo", bucket)
    policy = endless_policy()
    copies = [copy.deepcopy(policy.model) for _ in range(2)]
    for model in copies:
        for weight in model.parameters():
            weight.data.zero_()
    takers = [WeightTaker(model) for model in copies]
    meeting, source = plan(tmp_path, size=3), PolicySource(policy)
    for _ in range(2):
        taken = [thread.submit(taker.take, meeting, rank + 1) for rank, taker in enumerate(takers)]
        given = source.give_weights(meeting)
        assert given.error == ""
        assert [each.result() for each in taken] == [given.checksum] * 2
        for model in copies:
            pairs = zip(model.parameters(), policy.model.parameters(), strict=True)
            assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
        with torch.no_grad():
            next(policy.model.parameters()).add_(1.0)


def test_a_peer_that_never_comes_is_reported(tmp_path: Path):
    given = PolicySource(endless_policy()).give_weights(plan(tmp_path, timeout_s=0.5))
    assert given.error
    with pytest.raises(EngineError, match="no new weights"):
        WeightTaker(endless_policy().model).take(plan(tmp_path / "x"), 1)  # no such folder


def test_a_peer_that_leaves_is_reported_and_all_weights_are_gathered(
    tmp_path: Path, thread: ThreadPoolExecutor
):
    policy = endless_policy()
    taker = WeightTaker(copy.deepcopy(policy.model))
    giver, meeting = WeightGiver(), plan(tmp_path)
    weights = list(policy.model.named_parameters())
    taken = thread.submit(taker.take, meeting, 1)
    assert giver.give(meeting, weights).checksum == taken.result()
    taker._open.leave()
    gathered = list[str]()

    def gather() -> Iterator[tuple[str, Tensor]]:
        for name, weight in weights:
            gathered.append(name)
            yield name, weight

    given = giver.give(meeting, gather())
    assert given.error
    assert gathered == [name for name, _ in weights]


def test_a_file_carries_them_too(tmp_path: Path):
    policy = endless_policy()
    model = copy.deepcopy(policy.model)
    with torch.no_grad():
        next(policy.model.parameters()).add_(1.0)
    given = PolicySource(policy).give_weights(tmp_path / "weights.safetensors")
    assert WeightTaker(model).take(tmp_path / "weights.safetensors", 1) == given.checksum
    lost = PolicySource(policy).give_weights(tmp_path / "nowhere" / "weights.safetensors")
    assert lost == Given(given.num_bytes, given.checksum, lost.error) and lost.error
    with pytest.raises(EngineError):
        WeightTaker(model).take(tmp_path / "nowhere", 1)
