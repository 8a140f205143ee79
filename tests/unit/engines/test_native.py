"""The native engine: the same replies whoever shares a batch, and nobody waits for another."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.native import engine as native
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.native.safe_rows import rung
from agentgym_rl.errors import EngineError
from agentgym_rl.models.attention import AttentionLayout, PackedSequences
from agentgym_rl.models.forward import action_logprobs, packed_logits
from agentgym_rl.models.loading import Policy
from agentgym_rl.types import Completion, SamplingParams
from chat_families import small_policy
from engine_plays import LONG, MAX_CONTEXT, PROMPT, SHORT, endless_policy, play, play_all, start


@pytest.fixture(scope="module")
def policy() -> Policy:
    return endless_policy()


@contextlib.contextmanager
def running(policy: Policy, **config: bool | int | float) -> Iterator[NativeEngine]:
    engine = NativeEngine(policy, NativeEngineConfig(**config))
    try:
        yield engine
    finally:
        engine.close()


def num_slots(engine: NativeEngine) -> int:
    """How many sessions the cache has made room for; it never shrinks."""
    return len(engine._cache.keys[0])


async def test_replies_are_bitwise_the_same_whatever_the_concurrency_and_order(policy: Policy):
    keys = list(range(64))
    with running(policy) as engine:
        together = await play_all(engine, keys, concurrency=64)
    with running(policy) as engine:
        alone = await play_all(engine, keys[:5], concurrency=1)
        some = await play_all(engine, keys[:14], concurrency=7)
    with running(policy) as engine:
        shuffled = await play_all(engine, keys, concurrency=64, shuffle_seed=1)
    assert shuffled == together
    assert alone == {key: together[key] for key in keys[:5]}
    assert some == {key: together[key] for key in keys[:14]}


async def test_replies_are_bitwise_the_same_in_passes_of_few_tokens(policy: Policy):
    # Passes of 64 tokens: prompts wait for the next pass, and many are longer than a whole one.
    keys = list(range(24))
    with running(policy) as engine:
        wide = await play_all(engine, keys, concurrency=24)
    with running(policy, max_batch_tokens=64) as engine:
        narrow = await play_all(engine, keys, concurrency=24)
    assert narrow == wide


async def test_sessions_of_the_same_history_are_computed_once_and_reply_as_if_alone(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
):
    num_rows: list[int] = []

    def counted(model: PreTrainedModel, ids_T: Tensor, *rest: Tensor, **layout: AttentionLayout):
        num_rows.append(len(ids_T))
        return packed_logits(model, ids_T, *rest, **layout)

    async def two_rounds(engine: NativeEngine, key: int) -> list[Completion]:
        session = engine.session(key)
        first = await session.generate(PROMPT, SamplingParams(1.0, 4))
        replies = [first, await session.generate(PROMPT, SamplingParams(1.0, 4))]
        session.close()
        return replies

    with running(policy) as engine:
        monkeypatch.setattr(native, "packed_logits", counted)
        together = await asyncio.gather(*(two_rounds(engine, key) for key in range(16)))
        assert num_rows[0] == rung(len(PROMPT))
    with running(policy) as engine:
        for key in range(16):
            assert await two_rounds(engine, key) == together[key]


async def test_sessions_that_keep_their_tokens_but_not_their_cache_are_computed_again(
    policy: Policy,
):
    with running(policy) as engine:
        old, new = engine.session(0), engine.session(0)
        await old.generate(PROMPT, SamplingParams(0.0, 2))
        engine.publish(1)
        first, second = await asyncio.gather(
            old.generate(PROMPT, SamplingParams(0.0, 2)),
            new.generate(old.context + PROMPT, SamplingParams(0.0, 2)),
        )
        assert first.token_ids == second.token_ids
        assert old.lineage == new.lineage


async def test_different_keys_draw_different_replies(policy: Policy):
    with running(policy) as engine:
        replies = await asyncio.gather(
            *(engine.session(key).generate(PROMPT, SamplingParams(1.0, 8)) for key in range(20))
        )
    assert len({reply.token_ids for reply in replies}) == 20


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "llama", "mistral", "gemma3"])
async def test_engine_and_learner_agree_on_logprobs(architecture: str, temperature: float):
    policy = small_policy(architecture)
    vocab_size = len(policy.tokenizer)
    with running(policy) as engine:
        played = await asyncio.gather(
            *(play(engine, key, temperature=temperature, vocab_size=vocab_size) for key in range(8))
        )
    samples = [sample for sample, _ in played]
    with torch.inference_mode():
        learner = action_logprobs(policy.model, samples, temperature=temperature).logprobs_A
    sampler = torch.tensor([logprob for _, cs in played for c in cs for logprob in c.logprobs])
    assert (learner - sampler).abs().max() < 1e-4


async def test_a_greedy_reply_has_the_most_likely_tokens(policy: Policy):
    with running(policy) as engine:
        reply = await engine.session(0).generate(PROMPT, SamplingParams(0.0, 12))
    ids_T = torch.tensor([*PROMPT, *reply.token_ids])
    positions_T = torch.arange(len(ids_T))
    with torch.inference_mode():
        logits_TV = packed_logits(
            policy.model,
            ids_T,
            positions_T,
            positions_T,
            layout=PackedSequences([len(ids_T)], ids_T.device),
        )
    assert tuple(logits_TV[len(PROMPT) - 1 : -1].argmax(dim=-1).tolist()) == reply.token_ids
    assert reply.logprobs == (0.0,) * 12


async def test_a_stop_token_or_the_limit_ends_a_reply(policy: Policy):
    stops = policy.renderer.stop_token_ids
    with running(policy) as engine:
        replies = await asyncio.gather(
            *(engine.session(key).generate(PROMPT, SamplingParams(30.0, 40)) for key in range(48))
        )
    assert {reply.is_stopped for reply in replies} == {True, False}
    for reply in replies:
        assert reply.is_stopped == (reply.token_ids[-1] in stops)
        assert not set(reply.token_ids[:-1]) & set(stops)
        assert len(reply.token_ids) == len(reply.logprobs)
        assert reply.is_stopped or len(reply.token_ids) == 40


@pytest.mark.parametrize("max_tokens", [1, 2, 9])
async def test_a_reply_has_at_most_max_tokens(policy: Policy, max_tokens: int):
    with running(policy) as engine:
        reply = await engine.session(0).generate(PROMPT, SamplingParams(0.0, max_tokens))
    assert len(reply.token_ids) == max_tokens


async def test_a_slow_consumer_holds_up_nobody(policy: Policy):
    others_are_done = asyncio.Event()

    async def slow(engine: NativeEngine) -> None:
        session = engine.session(100)
        await session.generate(PROMPT, SHORT)
        await asyncio.wait_for(others_are_done.wait(), timeout=30)
        await session.generate(PROMPT, SHORT)

    with running(policy) as engine:
        waiting = asyncio.create_task(slow(engine))
        await play_all(engine, list(range(12)), concurrency=12)
        others_are_done.set()
        await waiting


async def test_a_long_reply_holds_up_no_short_one(policy: Policy):
    with running(policy) as engine:
        long = await start(engine.session(0), LONG)
        for key in range(1, 6):
            await engine.session(key).generate(PROMPT, SHORT)
        assert not long.done()


async def test_closing_a_session_while_it_samples_frees_its_slot_and_fails_nobody_else(
    policy: Policy,
):
    with running(policy) as engine:
        expected = (await engine.session(1).generate(PROMPT, SHORT)).token_ids
        for _ in range(12):
            session = engine.session(0)
            task = await start(session, LONG)
            other = await start(engine.session(1), SHORT)
            session.close()
            session.close()
            with pytest.raises(EngineError, match="closed while its reply was being sampled"):
                await task
            assert (await other).token_ids == expected
        # 13 sessions are open, and never more than 14 were: without reuse it would take 25.
        assert num_slots(engine) == 16


async def test_a_context_that_is_full_fails_its_own_request_alone(policy: Policy):
    with running(policy) as engine:
        too_long = engine.session(0).generate([5] * MAX_CONTEXT, SHORT)
        growing = engine.session(1).generate([5] * (MAX_CONTEXT - 3), SamplingParams(0.0, 8))
        others = [engine.session(key).generate(PROMPT, SamplingParams(0.0, 9)) for key in (2, 3)]
        results = await asyncio.gather(too_long, growing, *others, return_exceptions=True)
        for result in results[:2]:
            assert isinstance(result, EngineError)
            assert f"leaves no room in the model's {MAX_CONTEXT}" in str(result)
        assert [len(result.token_ids) for result in results[2:]] == [9, 9]


async def test_a_context_may_be_filled_to_the_last_token(policy: Policy):
    with running(policy) as engine:
        reply = await engine.session(0).generate([5] * (MAX_CONTEXT - 3), SamplingParams(0.0, 3))
    assert len(reply.token_ids) == 3


async def test_a_failed_pass_does_not_end_the_engine(policy: Policy):
    with running(policy) as engine:
        with pytest.raises(EngineError, match="generation failed: IndexError"):
            await engine.session(0).generate([10**6], SHORT)
        assert len((await engine.session(1).generate(PROMPT, SHORT)).token_ids) == 2


async def test_a_reply_needs_a_context(policy: Policy):
    with running(policy) as engine, pytest.raises(AssertionError, match="needs a context"):
        await engine.session(0).generate([], SHORT)


async def test_publishing_right_after_a_reply_is_allowed(policy: Policy):
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # lets this thread in while the engine's is still busy
    try:
        with running(policy) as engine:
            for version in range(1, 60):
                session = engine.session(version)
                reply = await session.generate(PROMPT, SHORT)
                assert reply.version == version - 1
                engine.publish(version)
                session.close()
    finally:
        sys.setswitchinterval(interval)


async def test_replies_that_end_together_wake_the_event_loop_once(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
):
    loop, wake_ups = asyncio.get_running_loop(), list[str]()
    wake_up = loop.call_soon_threadsafe

    def count(callback: Callable[..., object], *args: object) -> asyncio.Handle:
        wake_ups.append(callback.__name__)
        return wake_up(callback, *args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", count)
    with running(policy) as engine:
        with engine._changed:  # the engine takes in nothing before all have asked
            tasks = [
                asyncio.create_task(engine.session(key).generate(PROMPT, SHORT)) for key in range(8)
            ]
            await asyncio.sleep(0)
        replies = await asyncio.gather(*tasks)
    assert [len(reply.token_ids) for reply in replies] == [SHORT.max_tokens] * 8
    assert len(wake_ups) == 1


async def test_a_reply_that_passes_its_deadline_is_an_error(policy: Policy):
    with running(policy, timeout_s=0.05) as engine:
        with pytest.raises(EngineError, match=r"no reply within engine\.timeout_s=0\.05"):
            await engine.session(0).generate(PROMPT, LONG)
        engine.publish(1)


async def test_a_cancelled_reply_leaves_the_engine_with_its_session(policy: Policy):
    with running(policy) as engine:
        for _ in range(12):
            session = engine.session(0)
            task = await start(session, LONG)
            await engine.session(1).generate(PROMPT, SHORT)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            session.close()
            engine.publish(1)
        assert len((await engine.session(2).generate(PROMPT, SHORT)).token_ids) == 2
        assert num_slots(engine) == 16


async def test_a_closed_engine_or_session_generates_no_more(policy: Policy):
    with running(policy) as engine:
        open_session, closed_session = engine.session(0), engine.session(1)
        closed_session.close()
        with pytest.raises(EngineError, match="closed session"):
            await closed_session.generate(PROMPT, SHORT)
        engine.close()
        engine.close()
        with pytest.raises(EngineError, match="the engine is closed"):
            await open_session.generate(PROMPT, SHORT)
        open_session.close()
