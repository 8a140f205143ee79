"""The paged engine, on the CPU with reference attention: what the CPU engine says, it says too."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence
from functools import cache

import pytest
import torch

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.paged.engine import PagedEngine
from agentgym_rl.engines.paged.pages import PAGE_SIZE, pages_for
from agentgym_rl.engines.paged.runner import Chunk, Sampled
from agentgym_rl.errors import EngineError
from agentgym_rl.models.loading import Policy
from agentgym_rl.types import Sample, SamplingParams
from case_shares import spread_over
from chat_families import ARCHITECTURES, small_policy
from engine_plays import LONG, MAX_CONTEXT, PROMPT, SHORT, endless_policy, play, play_all, start

KEYS = list(range(12))


@pytest.fixture(scope="module")
def policy() -> Policy:
    return endless_policy()


@pytest.fixture(scope="module")
def expected(policy: Policy) -> dict[int, Sample]:
    """What the CPU engine plays."""
    return asyncio.run(_play_native(policy))


async def _play_native(policy: Policy) -> dict[int, Sample]:
    engine = NativeEngine(policy, NativeEngineConfig())
    try:
        return await play_all(engine, KEYS, concurrency=len(KEYS))
    finally:
        engine.close()


@contextlib.contextmanager
def running(
    policy: Policy,
    *,
    num_pages: int | None = None,
    max_rows: int = 32,
    steps_per_launch: int = 4,
    **config: bool | int | float,
) -> Iterator[PagedEngine]:
    engine = PagedEngine(
        policy,
        NativeEngineConfig(**config),
        num_pages=num_pages,
        max_rows=max_rows,
        steps_per_launch=steps_per_launch,
    )
    try:
        yield engine
    finally:
        engine.close()


def assert_same(got: dict[int, Sample], expected: dict[int, Sample]) -> None:
    for key, sample in got.items():
        assert sample.token_ids == expected[key].token_ids
        assert sample.logprobs == pytest.approx(expected[key].logprobs, abs=1e-4)


def count_prompt_tokens(engine: PagedEngine) -> list[int]:
    """Return a list to which the engine will add the tokens of every prompt pass."""
    counts: list[int] = []
    prefill = engine._runner.prefill

    def counting(chunks: Sequence[Chunk], *, has_cuts: bool) -> Sampled:
        counts.append(sum(len(chunk.ids) for chunk in chunks))
        return prefill(chunks, has_cuts=has_cuts)

    engine._runner.prefill = counting
    return counts


@cache
def architecture_policy(architecture: str) -> Policy:
    return small_policy(architecture)


@pytest.mark.parametrize("architecture", spread_over(ARCHITECTURES, 2))
async def test_it_samples_what_the_cpu_engine_samples(architecture: str):
    policy = architecture_policy(architecture)
    native = NativeEngine(policy, NativeEngineConfig())
    vocab_size = len(policy.tokenizer)
    with running(policy) as engine:
        for temperature in (1.0, 0.7):
            plays = [
                await asyncio.gather(
                    *(
                        play(each, key, temperature=temperature, vocab_size=vocab_size)
                        for key in KEYS
                    )
                )
                for each in (native, engine)
            ]
            wanted, got = ({key: p[0] for key, p in zip(KEYS, ps, strict=True)} for ps in plays)
            assert_same(got, wanted)
    native.close()


@pytest.mark.parametrize(
    ("steps", "concurrency"), spread_over([(1, 1), (1, 12), (3, 1), (3, 12), (8, 1), (8, 12)], 2)
)
async def test_replies_depend_on_neither_steps_nor_company(
    policy: Policy, expected: dict[int, Sample], steps: int, concurrency: int
):
    with running(policy, steps_per_launch=steps) as engine:
        assert_same(await play_all(engine, KEYS, concurrency=concurrency), expected)


async def test_long_prompts_are_cut_over_several_passes(
    policy: Policy, expected: dict[int, Sample]
):
    with running(policy, max_batch_tokens=64) as engine:
        counts = count_prompt_tokens(engine)
        assert_same(await play_all(engine, KEYS, concurrency=12), expected)
        assert max(counts) == 64


async def test_more_requests_than_rows_wait_for_one(policy: Policy, expected: dict[int, Sample]):
    with running(policy, max_rows=3) as engine:
        assert_same(await play_all(engine, KEYS, concurrency=12, shuffle_seed=1), expected)


async def test_idle_sessions_lose_their_pages_and_are_computed_again(
    policy: Policy, expected: dict[int, Sample]
):
    # The longest context has 186 tokens: 12 pages. 14 hold one of them, and hardly another.
    with running(policy, num_pages=14) as engine:
        counts = count_prompt_tokens(engine)
        assert_same(await play_all(engine, KEYS, concurrency=12), expected)
    fresh = sum(len(s.token_ids) - s.num_action_tokens for s in expected.values())
    assert sum(counts) > fresh


async def test_between_rounds_only_new_tokens_are_computed(policy: Policy):
    with running(policy) as engine:
        counts = count_prompt_tokens(engine)
        session = engine.session(0)
        await session.generate([5] * 40, SamplingParams(0.0, 7))
        await session.generate([6] * 9, SamplingParams(0.0, 7))
    # The last token of a reply has no keys and values until the next round.
    assert counts == [40, 1 + 9]


async def test_a_group_computes_its_prompt_once(policy: Policy):
    prompt = [random.Random(0).randrange(270) for _ in range(3 * PAGE_SIZE + 4)]
    params = SamplingParams(1.0, 6)
    with running(policy) as engine:
        counts = count_prompt_tokens(engine)
        together = await asyncio.gather(
            *(engine.session(key).generate(prompt, params) for key in range(8))
        )
        assert sum(counts) == len(prompt) + 7 * 4
    for key, reply in enumerate(together):
        with running(policy) as engine:
            alone = await engine.session(key).generate(prompt, params)
        assert alone.token_ids == reply.token_ids
        assert alone.logprobs == pytest.approx(reply.logprobs, abs=1e-5)


async def test_all_pages_and_rows_come_back(policy: Policy):
    with running(policy, num_pages=200) as engine:
        await play_all(engine, KEYS, concurrency=12)
        closing = engine.session(50)
        task = await start(closing, LONG)
        await engine.session(51).generate(PROMPT, SHORT)
        closing.close()
        with pytest.raises(EngineError, match="closed while its reply was being sampled"):
            await task
        await engine.session(52).generate(PROMPT, SHORT)
        # Sessions 51 and 52 are open and hold a page each.
        assert engine._pool.num_free == 198
        assert sorted(engine._free_rows) == list(range(32))
        assert len(engine._holders) == 2


async def test_unused_pages_of_a_reply_are_given_back_when_it_ends(policy: Policy):
    with running(policy, num_pages=100) as engine:
        session = engine.session(0)
        await session.generate(PROMPT, SamplingParams(0.0, 30))
        assert len(session.held.pages) == pages_for(len(PROMPT) + 29)
        assert engine._pool.num_free == 100 - pages_for(len(PROMPT) + 29)


async def test_published_weights_are_seen_and_nothing_old_is_kept(policy: Policy):
    changed = endless_policy()
    prompt = PROMPT * 10
    with running(changed) as engine:
        lasting = engine.session(0)
        before = await lasting.generate(prompt, SamplingParams(0.0, 4))
        with torch.no_grad():
            for parameter in changed.model.parameters():
                parameter.mul_(1.3)
        engine.publish(3)
        after = await engine.session(1).generate(prompt, SamplingParams(1.0, 4))
        later = await lasting.generate(PROMPT, SamplingParams(1.0, 4))
    assert (before.version, after.version) == (0, 3)
    with running(changed) as engine:
        anew = await engine.session(1).generate(prompt, SamplingParams(1.0, 4))
        context = [*prompt, *before.token_ids, *PROMPT]
        anew_later = await engine.session(0).generate(context, SamplingParams(1.0, 4))
    assert after.token_ids == anew.token_ids
    assert after.logprobs == pytest.approx(anew.logprobs, abs=1e-5)
    assert later.token_ids == anew_later.token_ids
    assert later.logprobs == pytest.approx(anew_later.logprobs, abs=1e-5)


async def test_the_cache_is_given_back_and_taken_again_for_the_next_reply(policy: Policy):
    with running(policy) as engine:
        session = engine.session(0)
        first = await session.generate(PROMPT, SHORT)
        engine.rest()
        engine.rest()
        assert not engine._runner.memory.is_here
        second = await session.generate(PROMPT, SHORT)
        assert engine._runner.memory.is_here
        whole = [*PROMPT, *first.token_ids, *PROMPT]
        assert (await engine.session(2).generate(whole, SHORT)).token_ids == second.token_ids


async def test_giving_the_cache_back_while_a_reply_is_sampled_is_refused(policy: Policy):
    with running(policy) as engine:
        task = await start(engine.session(0), LONG)
        with pytest.raises(EngineError, match="given back while replies were being sampled"):
            engine.rest()
        task.cancel()


async def test_a_context_that_is_full_fails_its_own_request_alone(policy: Policy):
    with running(policy) as engine:
        too_long = engine.session(0).generate([5] * MAX_CONTEXT, SHORT)
        growing = engine.session(1).generate([5] * (MAX_CONTEXT - 3), SamplingParams(0.0, 8))
        fitting = engine.session(2).generate([5] * (MAX_CONTEXT - 3), SamplingParams(0.0, 3))
        other = engine.session(3).generate(PROMPT, SamplingParams(0.0, 9))
        results = await asyncio.gather(too_long, growing, fitting, other, return_exceptions=True)
        for result in results[:2]:
            assert isinstance(result, EngineError)
            assert f"leaves no room in the model's {MAX_CONTEXT}" in str(result)
        assert [len(result.token_ids) for result in results[2:]] == [3, 9]


@pytest.mark.parametrize("token", [10**6, -1])
async def test_a_token_outside_the_vocabulary_fails_its_own_request_alone(
    policy: Policy, token: int
):
    with running(policy) as engine:
        session = engine.session(1)
        bad = engine.session(0).generate([3, token], SHORT)
        good = session.generate(PROMPT, SHORT)
        results = await asyncio.gather(bad, good, return_exceptions=True)
        with pytest.raises(EngineError, match="not all in the model's vocabulary"):
            await session.generate([3, token, 4], SHORT)
    assert "not all in the model's vocabulary" in str(results[0])
    assert len(results[1].token_ids) == 2


async def test_a_reply_that_no_cache_could_hold_is_refused_with_the_remedy(policy: Policy):
    with running(policy, num_pages=4) as engine:
        with pytest.raises(EngineError, match=r"need 5 pages .* raise engine\.cache_fraction"):
            await engine.session(0).generate(PROMPT, SamplingParams(0.0, 61))
        assert len((await engine.session(1).generate(PROMPT, SHORT)).token_ids) == 2


async def test_broken_weights_fail_the_reply(policy: Policy):
    broken = endless_policy()
    with torch.no_grad():
        broken.model.get_input_embeddings().weight[7] = float("nan")
    with running(broken) as engine:
        bad = engine.session(0).generate([7, 7], SamplingParams(1.0, 9))
        with pytest.raises(EngineError, match="not finite"):
            await bad


async def test_a_failed_pass_does_not_end_the_engine(policy: Policy):
    with running(policy) as engine:
        prefill = engine._runner.prefill
        engine._runner.prefill = lambda chunks, has_cuts: [][0]
        with pytest.raises(EngineError, match="generation failed: IndexError"):
            await engine.session(0).generate(PROMPT, SHORT)
        engine._runner.prefill = prefill
        assert len((await engine.session(1).generate(PROMPT, SHORT)).token_ids) == 2


async def test_a_stop_token_or_the_limit_ends_a_reply(policy: Policy):
    stops = policy.stop_token_ids
    with running(policy) as engine:
        replies = await asyncio.gather(
            *(engine.session(key).generate(PROMPT, SamplingParams(30.0, 40)) for key in range(48))
        )
    assert {reply.is_stopped for reply in replies} == {True, False}
    for reply in replies:
        assert reply.is_stopped == (reply.token_ids[-1] in stops)
        assert not set(reply.token_ids[:-1]) & set(stops)
        assert reply.is_stopped or len(reply.token_ids) == 40


async def test_a_long_reply_holds_up_no_short_one(policy: Policy):
    with running(policy) as engine:
        long = await start(engine.session(0), LONG)
        for key in range(1, 6):
            await engine.session(key).generate(PROMPT, SHORT)
        assert not long.done()
        long.cancel()


async def test_cuts_are_those_of_the_cpu_engine_and_touch_nobody_else(policy: Policy):
    cut = [
        SamplingParams(1.5, 12, top_p=0.4),
        SamplingParams(1.5, 12, top_k=3),
        SamplingParams(1.5, 12, min_p=0.3),
        SamplingParams(1.5, 12),
        SamplingParams(0.0, 12, top_k=3),
    ]
    replies = []
    native = NativeEngine(policy, NativeEngineConfig())
    with running(policy) as engine:
        for each in (native, engine):
            replies.append(
                await asyncio.gather(
                    *(each.session(key).generate(PROMPT, p) for key, p in enumerate(cut))
                )
            )
        alone = await engine.session(3).generate(PROMPT, cut[3])
    native.close()
    for wanted, got in zip(*replies, strict=True):
        assert got.token_ids == wanted.token_ids
        assert got.logprobs == pytest.approx(wanted.logprobs, abs=1e-4)
    assert alone.token_ids == replies[1][3].token_ids
