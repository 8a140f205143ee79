"""Engines in processes of their own: the tokens of one engine here, and processes that fail."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import multiprocessing
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from agentgym_rl.config import NativeEngineConfig, TinyModelConfig
from agentgym_rl.engines.channels.delivery import Delivery, Given, PolicySource
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.pool import remote
from agentgym_rl.engines.pool.native_channels import BroadcastChannel
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.engines.pool.remote import RemoteEngine
from agentgym_rl.errors import EngineError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import add_lora
from agentgym_rl.models.tiny import build_tiny_model, train_tokenizer
from agentgym_rl.types import Completion, Sample, SamplingParams
from engine_plays import LONG, PROMPT, SHORT, endless_policy, play_all, start
from engine_pools import (
    change_weights,
    engine_of,
    pid_of,
    running_pool,
    wait_until_replaced,
)
from waiting import wait_for

pytestmark = pytest.mark.slow  # engines are processes

KEYS = range(12)
Pool = EnginePool[RemoteEngine]


def played(engine: Pool | NativeEngine) -> dict[int, Sample]:
    return asyncio.run(play_all(engine, KEYS, concurrency=8))


def played_here(policy: Policy, version: int) -> dict[int, Sample]:
    """Play with an engine of this process."""
    engine = NativeEngine(policy, NativeEngineConfig())
    try:
        engine.publish(version)
        return played(engine)
    finally:
        engine.close()


def copy_of(policy: Policy) -> Policy:
    """Return a copy to learn with: an engine here joins the layers of its model."""
    return Policy(copy.deepcopy(policy.model), policy.tokenizer, policy.renderer)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return endless_policy()


@pytest.fixture(scope="module")
def shared_pool(policy: Policy) -> Iterator[Pool]:
    """A pool whose engines may be killed, because they are replaced."""
    with running_pool(policy) as pool:
        yield pool


@pytest.fixture
def pool(shared_pool: Pool, monkeypatch: pytest.MonkeyPatch) -> Pool:
    monkeypatch.setattr(remote, "_GRACE_S", 1.0)
    wait_for(lambda: all(place.is_serving for place in shared_pool._places))
    shared_pool.publish(0)
    shared_pool.take_metrics()
    return shared_pool


def test_engines_elsewhere_sample_the_tokens_of_one_here(policy: Policy, pool: Pool):
    num_tokens = 0
    for version in (1, 2):
        change_weights(policy, seed=version)
        pool.publish(version)
        found = played(pool)
        num_tokens += sum(sum(sample.loss_mask) for sample in found.values())
        assert found == played_here(copy_of(policy), version)
        assert {sample.version for sample in found.values()} == {version}
    metrics = pool.take_metrics()
    num_bytes = sum(weight.numel() * 4 for weight in policy.model.parameters())
    assert metrics.pop("rollout/published_bytes") == 2 * 2 * num_bytes
    tokens = [metrics.pop(f"cluster/tokens_engine_{number}") for number in range(2)]
    assert sum(tokens) == num_tokens and min(tokens) > 0
    assert metrics == {
        "cluster/episodes_lost": 0.0,
        "cluster/restarts_engine": 0.0,
        "cluster/time_lost_s": 0.0,
        "cluster/engines": 2.0,
    }


async def test_an_engine_that_is_killed_takes_its_sessions_and_is_replaced(
    policy: Policy, pool: Pool
):
    change_weights(policy, seed=3)
    pool.publish(3)
    old = engine_of(pool)
    sessions = [pool.session(key) for key in range(4)]
    replies = [await start(session, LONG) for session in sessions]
    await asyncio.sleep(0.05)
    os.kill(pid_of(old), signal.SIGKILL)
    ended = await asyncio.gather(*replies, return_exceptions=True)
    failed = [error for error in ended if isinstance(error, BaseException)]
    assert len(failed) == 2
    for session in sessions:
        session.close()
    assert all(isinstance(e, EngineError) and "killed by signal 9" in str(e) for e in failed)
    await asyncio.to_thread(wait_until_replaced, pool, old)
    found = await play_all(pool, KEYS, concurrency=8)
    assert found == await asyncio.to_thread(played_here, copy_of(policy), 3)
    metrics = pool.take_metrics()
    assert (metrics["cluster/restarts_engine"], metrics["cluster/engines"]) == (1.0, 2.0)
    assert metrics["cluster/tokens_engine_0"] > 0


async def test_replies_during_updates_are_of_one_version_also_if_an_engine_is_killed(
    policy: Policy, pool: Pool
):
    learned = {0: copy_of(policy)}
    replies: dict[int, Completion] = {}
    keys, asked, may_end = itertools.count(), SamplingParams(1.0, 6), asyncio.Event()

    async def ask() -> None:
        while not may_end.is_set():
            key = next(keys)
            session = pool.session(key)
            with contextlib.suppress(EngineError):  # of the engine that is killed
                replies[key] = await session.generate(PROMPT, asked)
            session.close()

    asking = [asyncio.create_task(ask()) for _ in range(4)]
    for version in (1, 2):
        pool.begin_update()
        killed, num_before = engine_of(pool, version % 2), len(replies)
        os.kill(pid_of(killed), signal.SIGKILL)
        for seed in range(5):  # an update in pieces, between which replies go on
            change_weights(policy, seed=10 * version + seed)
            await asyncio.sleep(0.05)
        async with asyncio.timeout(60):
            while len(replies) == num_before:
                await asyncio.sleep(0.01)
        learned[version] = copy_of(policy)
        await asyncio.to_thread(pool.publish, version)
        await asyncio.to_thread(wait_until_replaced, pool, killed, version % 2)
    may_end.set()
    await asyncio.gather(*asking)
    assert {reply.version for reply in replies.values()} == {0, 1, 2}
    for version, as_it_was in learned.items():
        engine = NativeEngine(as_it_was, NativeEngineConfig())
        engine.publish(version)
        own = {key: reply for key, reply in replies.items() if reply.version == version}
        for key, reply in random.Random(version).sample(sorted(own.items()), min(8, len(own))):
            assert await engine.session(key).generate(PROMPT, asked) == reply
        engine.close()


@pytest.mark.long
async def test_sessions_wait_for_engines_that_are_being_replaced(pool: Pool):
    for number in range(2):
        os.kill(pid_of(engine_of(pool, number)), signal.SIGKILL)
    wait_for(lambda: not any(place.is_serving for place in pool._places))
    session = pool.session(1)
    reply = await asyncio.wait_for(session.generate(PROMPT, SHORT), 60.0)
    assert len(reply.token_ids) == SHORT.max_tokens
    session.close()


async def test_an_engine_that_hangs_runs_into_a_deadline(pool: Pool):
    old = engine_of(pool)
    old._timeout_s = 0.5
    os.kill(pid_of(old), signal.SIGSTOP)
    started = time.monotonic()
    sessions = [pool.session(key) for key in range(4)]
    ended = await asyncio.gather(
        *(session.generate(PROMPT, SHORT) for session in sessions), return_exceptions=True
    )
    assert time.monotonic() - started < 30.0
    assert 1 <= [isinstance(error, EngineError) for error in ended].count(True) <= 3
    for session in sessions:
        session.close()
    await asyncio.to_thread(wait_until_replaced, pool, old)


@pytest.mark.long
def test_an_engine_that_hangs_does_not_hold_up_a_publication(
    policy: Policy, pool: Pool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("agentgym_rl.engines.pool.native_channels._GRACE_S", 1.0)
    channel = pool._channel
    assert isinstance(channel, BroadcastChannel)
    monkeypatch.setattr(channel, "_timeout_s", 2.0)
    channel.follow(PolicySource(policy))
    old = engine_of(pool)
    os.kill(pid_of(old), signal.SIGSTOP)
    change_weights(policy, seed=4)
    pool.publish(4)
    assert engine_of(pool, 1).is_alive
    wait_until_replaced(pool, old)
    assert played(pool) == played_here(copy_of(policy), 4)


@pytest.mark.long
async def test_a_reply_under_way_is_of_the_weights_that_it_began_with(policy: Policy, pool: Pool):
    before = await pool.session(9).generate(PROMPT, LONG)
    reply = await start(pool.session(9), LONG)
    await asyncio.sleep(0.05)
    change_weights(policy, seed=5)
    await asyncio.to_thread(pool.publish, 5)
    assert await reply == before
    after = await pool.session(9).generate(PROMPT, LONG)
    assert after.version == 5 and after.token_ids != before.token_ids


class Liar(PolicySource):
    """Reports a wrong checksum of its first delivery."""

    num_given = 0

    def give_weights(self, delivery: Delivery) -> Given:
        given = super().give_weights(delivery)
        self.num_given += 1
        is_lie = self.num_given == 1
        return Given(given.num_bytes, given.checksum + is_lie, given.error)


def test_weights_that_differ_from_the_learners_are_sent_again(policy: Policy, pool: Pool):
    source = Liar(policy)
    pool.follow(source)
    assert not pool.reads_policy
    pool.publish(6)
    assert source.num_given == 2, "a broadcast, then a file"
    pool.publish(7)
    assert source.num_given == 3
    pool.follow(PolicySource(policy))
    assert pool.take_metrics()["cluster/engines"] == 2.0


def test_an_adapter_goes_through_a_file(tmp_path: Path):
    policy = endless_policy()
    add_lora(policy.model, rank=4, alpha=8, seed=0)
    with running_pool(policy, num_engines=1) as pool:
        with torch.no_grad():
            for name, weight in policy.model.named_parameters():
                if "lora_B" in name:
                    weight.fill_(0.3)
        pool.publish(1)
        assert played(pool) == played_here(policy, 1)
        published = pool.take_metrics()["rollout/published_bytes"]
        adapter = [weight for weight in policy.model.parameters() if weight.requires_grad]
        assert published == sum(weight.numel() * 4 for weight in adapter)


def controller(link: Connection) -> None:
    """Have engines, one of which computes, until it is killed."""
    torch.set_num_threads(1)
    with running_pool(endless_policy()) as pool:

        async def ask() -> None:
            replies = [await start(pool.session(key), LONG) for key in range(2)]
            link.send([pid_of(engine_of(pool, number)) for number in range(2)])
            await asyncio.gather(*replies)
            await asyncio.sleep(600)

        asyncio.run(ask())


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_engines_end_with_a_controller_that_is_killed(pool: Pool):
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("forkserver").Process(target=controller, args=(theirs,))
    process.start()
    theirs.close()
    assert ours.poll(120)
    pids = ours.recv()
    assert all(map(is_running, pids))
    process.kill()
    process.join()
    wait_for(lambda: not any(map(is_running, pids)), timeout_s=30)


def test_an_engine_that_cannot_start_says_why(policy: Policy, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Policy, "save_apart", lambda policy, folder: folder.mkdir())
    reason = r"engine-0 ended: it exited \(1\).*not a model directory"
    match = pytest.raises(EngineError, match=re.compile(reason, re.DOTALL))
    with match, running_pool(policy, num_engines=1):
        pass


@pytest.mark.long
def test_a_hundred_megabytes_reach_two_engines_in_two_seconds():
    tokenizer = train_tokenizer(["go to the red ball"], vocab_size=300)
    config = TinyModelConfig(vocab_size=300, hidden_size=512, num_layers=8)
    model = build_tiny_model(config, tokenizer, seed=0).eval()
    policy = Policy(model, tokenizer, ChatRenderer(tokenizer))
    num_bytes = sum(weight.numel() * 4 for weight in model.parameters())
    assert num_bytes > 100e6
    with running_pool(policy) as pool:
        assert isinstance(pool._channel, BroadcastChannel)
        seconds = list[float]()
        while len(seconds) < 6 and min(seconds, default=2.0) >= 2.0:  # the machine may be busy
            started = time.monotonic()
            pool.publish(len(seconds))
            seconds.append(time.monotonic() - started)
        assert pool.take_metrics()["rollout/published_bytes"] == len(seconds) * 2 * num_bytes
    assert min(seconds) < 2.0, seconds
