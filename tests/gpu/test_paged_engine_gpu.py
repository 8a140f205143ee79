"""The engine on a GPU: graphs, kernels and compiled layers say what the CPU and the learner say."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
import torch

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.paged.engine import PagedEngine
from agentgym_rl.errors import EngineError
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import add_lora
from agentgym_rl.types import Sample, SamplingParams
from chat_families import ARCHITECTURES, family, small_policy
from engine_plays import play, play_all
from gpu_models import CUDA, random_qwen2

KEYS = list(range(16))


@pytest.fixture(autouse=True)
def forget_compiled_code() -> None:
    """torch keeps the code of a few models only: in one process there are seldom so many."""
    torch._dynamo.reset()


@contextlib.contextmanager
def running(
    policy: Policy, *, num_pages: int | None = 4000, **config: bool | int | float
) -> Iterator[PagedEngine]:
    config = {"compile": False} | config
    engine = PagedEngine(policy, NativeEngineConfig(**config), num_pages=num_pages, max_rows=128)
    try:
        yield engine
    finally:
        engine.close()


def bfloat16_policy() -> Policy:
    chat = family("qwen")
    model = random_qwen2(vocab_size=len(chat.tokenizer), num_layers=4)
    return Policy(model=model, tokenizer=chat.tokenizer, renderer=chat.renderer)


async def played(engine: PagedEngine | NativeEngine, vocab_size: int) -> dict[int, Sample]:
    plays = await asyncio.gather(*(play(engine, key, vocab_size=vocab_size) for key in KEYS))
    return {key: sample for key, (sample, _) in zip(KEYS, plays, strict=True)}


def assert_alike(got: dict[int, Sample], want: dict[int, Sample], *, tolerance: float) -> None:
    """A draw that falls between two tokens to the last bits may end one episode differently."""
    same = [key for key in want if got[key].token_ids == want[key].token_ids]
    assert len(same) >= len(want) - 1, f"of {len(want)} episodes only {same} are the same"
    for key in same:
        assert got[key].logprobs == pytest.approx(want[key].logprobs, abs=tolerance)


async def settle(engine: PagedEngine) -> None:
    """Wait until what was closed is freed; a session that holds a page stays open."""
    await engine.session(10**6).generate([5], SamplingParams(0.0, 1))


@pytest.mark.parametrize(
    ("architecture", "is_compiled"),
    [*[(name, False) for name in ARCHITECTURES], ("qwen3", True), ("gemma3", True)],
)
async def test_it_samples_in_float32_what_the_cpu_engine_samples(
    architecture: str, is_compiled: bool
):
    policy = small_policy(architecture)
    vocab_size = len(policy.tokenizer)
    native = NativeEngine(policy, NativeEngineConfig())
    want = await played(native, vocab_size)
    native.close()
    policy.model.to(CUDA)
    with running(policy, compile=is_compiled) as engine:
        for _ in range(2):  # recorded, then replayed
            assert_alike(await played(engine, vocab_size), want, tolerance=1e-3)


async def test_long_prompts_are_cut_and_idle_sessions_evicted_without_a_trace():
    policy = small_policy("qwen3")
    policy.model.to(CUDA)
    vocab_size = len(policy.tokenizer)
    with running(policy) as engine:
        want = await played(engine, vocab_size)
    with running(policy, num_pages=20, max_batch_tokens=64) as engine:
        assert_alike(await played(engine, vocab_size), want, tolerance=1e-3)
        await settle(engine)
        assert engine._pool.num_free == 20 - 1


@pytest.mark.parametrize("is_compiled", [False, True])
async def test_engine_and_learner_agree_on_logprobs_in_bfloat16(is_compiled: bool):
    policy = bfloat16_policy()
    with running(policy, compile=is_compiled) as engine:
        samples = list((await play_all(engine, range(64), concurrency=64)).values())
    with torch.inference_mode():
        learner = action_logprobs(policy.model, samples, temperature=1.0).logprobs_A.cpu()
    flat = zip(
        (logprob for sample in samples for logprob in sample.logprobs),
        (masked for sample in samples for masked in sample.loss_mask),
        strict=True,
    )
    sampler = torch.tensor([logprob for logprob, masked in flat if masked])
    difference = (learner - sampler).abs()
    assert difference.mean() < 5e-3, f"mean {difference.mean()}, most {difference.max()}"


@pytest.mark.parametrize("has_lora", [False, True])
async def test_updates_in_place_are_seen_through_recorded_graphs(has_lora: bool):
    policy = bfloat16_policy()
    if has_lora:
        pytest.importorskip("peft")
        add_lora(policy.model, rank=8, alpha=16, seed=0)
    prompt = list(range(5, 75))
    params = SamplingParams(1.0, 12)
    with running(policy, compile=True) as engine:
        before = await engine.session(1).generate(prompt, params)
        with torch.no_grad():
            for name, parameter in policy.model.named_parameters():
                if not has_lora:
                    parameter.mul_(1.2)
                elif ".lora_B" in name:
                    parameter.normal_(std=0.3, generator=torch.Generator(CUDA).manual_seed(0))
        engine.publish(1)
        after = await engine.session(1).generate(prompt, params)
    with running(policy, compile=True) as engine:
        anew = await engine.session(1).generate(prompt, params)
    assert before.logprobs != after.logprobs, "the graphs go on with the old weights"
    assert (after.token_ids, after.version) == (anew.token_ids, 1)
    assert after.logprobs == pytest.approx(anew.logprobs, abs=1e-2)


async def test_nothing_in_a_launch_waits_for_the_gpu():
    policy = bfloat16_policy()
    vocab_size = len(policy.tokenizer)
    with running(policy) as engine:
        for _ in range(3):  # records all sizes that are needed below
            want = await played(engine, vocab_size)
        torch.cuda.set_sync_debug_mode("error")
        try:
            got = await played(engine, vocab_size)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert got.keys() == want.keys()


async def test_the_cache_is_given_back_and_taken_again_for_the_next_reply():
    policy = bfloat16_policy()
    vocab_size = len(policy.tokenizer)
    with running(policy, num_pages=200_000) as engine:
        size = engine._num_pages * engine._runner._shape.page_bytes
        want = await played(engine, vocab_size)
        recorded = dict(engine._runner.graphs._graphs)
        held, _ = torch.cuda.mem_get_info()
        engine.rest()
        free, _ = torch.cuda.mem_get_info()
        assert free - held >= size
        assert_alike(await played(engine, vocab_size), want, tolerance=2e-2)
        # Passes of other sizes may have come; what was recorded before is still in use.
        assert recorded.items() <= engine._runner.graphs._graphs.items()
        assert torch.cuda.mem_get_info()[0] <= free - size


async def test_the_cache_comes_back_from_what_the_learner_has_finished_with():
    policy = bfloat16_policy()
    vocab_size = len(policy.tokenizer)
    with running(policy, num_pages=200_000) as engine:
        await played(engine, vocab_size)
        engine.rest()
        free, _ = torch.cuda.mem_get_info()
        size = engine._num_pages * engine._runner._shape.page_bytes
        learners = torch.empty(free - size // 2, dtype=torch.uint8, device="cuda")
        with pytest.raises(EngineError, match=r"lower engine\.cache_fraction"):
            await engine.session(1).generate([1, 2, 3], SamplingParams(1.0, 4))
        del learners  # torch keeps it for later
        await engine.session(2).generate([1, 2, 3], SamplingParams(1.0, 4))


async def test_hundreds_of_sessions_over_several_rounds():
    policy = bfloat16_policy()
    with running(policy, compile=True, num_pages=2000) as engine:
        samples = await play_all(engine, range(400), concurrency=400)
        assert len(samples) == 400
        await settle(engine)
        assert engine._pool.num_free == 2000 - 1
        assert sorted(engine._free_rows) == list(range(128))


async def test_the_cache_is_sized_from_free_memory():
    policy = bfloat16_policy()
    free, _ = torch.cuda.mem_get_info()
    with running(policy, num_pages=None, cache_fraction=0.02) as engine:
        size = engine._num_pages * engine._runner._shape.page_bytes
        assert 0.01 * free < size < 0.03 * free
        reply = await engine.session(0).generate([5, 6, 7], SamplingParams(1.0, 4))
        assert len(reply.token_ids) <= 4


async def test_passes_that_leave_tokens_out_draw_the_most_likely_of_one():
    policy = bfloat16_policy()
    prompt = list(range(5, 40))
    with running(policy) as engine:
        only_one = SamplingParams(1.0, 12, top_k=1)
        cut, plain, greedy = await asyncio.gather(
            engine.session(0).generate(prompt, only_one),
            engine.session(1).generate(prompt, SamplingParams(1.0, 12)),
            engine.session(2).generate(prompt, SamplingParams(0.0, 12)),
        )
    # Two tokens whose logits are equal in bfloat16 are both allowed.
    same = [a == b for a, b in zip(cut.token_ids, greedy.token_ids, strict=False)]
    assert same[0] or cut.logprobs[0] < 0
    assert max(cut.logprobs) <= 1e-6 and min(cut.logprobs) > -2.0
    assert len(plain.token_ids) > 0
