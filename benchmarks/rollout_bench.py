"""`agentgym bench rollout`: how fast an engine generates, beside what the memory would allow.

Four measurements, in one table, each but the first a median of several:
- decode: milliseconds a token for so many rows at a given context in the mean, and the share of it
  that reading all weights, keys and values once would take (at the speed of a copy on this device);
- generate: tokens a second for prompts and replies of given lengths, with log-probabilities;
  `--baseline` has transformers' `generate` do the same, without, and once;
- episodes: TextCraft episodes of several rounds, and the engine alone on the same prompts and
  observations, with replies that are at most as long: what is lost in between are environments,
  tokenizer and event loop. With it, how far the engine's log-probabilities are from the learner's
  on the same weights, in the mean;
- between: the same episodes with replies that are there at once: what a round costs in Python,
  played in this process (`--workers 0`) and by that many rollout workers.

With the name of a size the weights are random, and replies have their full length. Real weights
are those of a directory (`agentgym convert` makes one). `--peer PYTHON` has vLLM generate the same
in process, without HTTP and seeds, in an environment of its own (rollout_vllm.py). The recipe's
own episodes are `--format react --reply-tokens 128 --rounds 10 --group 8`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import shlex
import statistics
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from bench_arguments import DEVICES, device, part, whole_from
from bench_episodes import (
    NEW_TOKENS,
    SCENARIO,
    EpisodeLoad,
    EpisodesAtOnce,
    InstantEngine,
    rollout_workers,
    workers_s,
)
from decoding_speed import measure_decoding, tokens_of_a_row, wait_for_device
from model_sizes import SIZES, random_model
from rich.console import Console
from rich.table import Table
from rollout_peer import peer_rows
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from agentgym_rl.config import (
    NativeEngineConfig,
    VllmEngineConfig,
)
from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.create import create_engine
from agentgym_rl.engines.paged.engine import STEPS_PER_LAUNCH
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.errors import ConfigError
from agentgym_rl.garbage import collect_garbage, rare_collections
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.forward import action_logprobs
from agentgym_rl.models.loading import DTYPES, Policy, load_pretrained
from agentgym_rl.models.tiny import train_tokenizer
from agentgym_rl.types import Sample, SamplingParams, SegmentKind

ENGINES = ("native", "vllm")
_COMPARED = 64
"""Episodes whose log-probabilities are computed by the learner as well."""
_COMPARED_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    size: str
    result: str
    beside: str


def make_engine(name: str, policy: Policy, chosen: argparse.Namespace) -> Engine:
    """Return an engine by its name; the only place that knows which there are."""
    if name == "vllm":
        config = VllmEngineConfig(
            python=chosen.python,
            args=(*shlex.split(chosen.vllm_args), *["--enforce-eager"] * chosen.no_compile),
            memory_fraction=chosen.vllm_memory,
            timeout_s=600.0,
        )
        return create_engine(policy, config)
    return create_engine(policy, NativeEngineConfig(compile=not chosen.no_compile, timeout_s=600.0))


def bench_policy(name: str, *, dtype: str, device: torch.device, texts: Iterable[str]) -> Policy:
    """Return the policy of a directory, or of one of SIZES with a tokenizer that reads `texts`."""
    if name not in SIZES:
        if not Path(name).is_dir():
            raise ConfigError(
                f"{name!r} is neither a model directory nor one of {', '.join(SIZES)}"
            )
        return load_pretrained(name, dtype=dtype, device=device.type)
    tokenizer = train_tokenizer(texts, vocab_size=1024)
    torch.manual_seed(0)
    model = random_model(name, dtype=DTYPES[dtype], device=device)
    return Policy(model=model, tokenizer=tokenizer, renderer=ChatRenderer(tokenizer))


def decode_row(
    policy: Policy, num_rows: int, context: int, *, is_compiled: bool, launches: int
) -> Row:
    """Time decoding steps of the native engine's runner alone."""
    done = measure_decoding(policy, num_rows, context, is_compiled=is_compiled, launches=launches)
    ended = f", {done.num_ended} ended" if done.num_ended else ""
    return Row(
        "decode",
        f"{num_rows} rows{ended}, context {done.context}",
        f"{done.step_ms:.2f} ms a step, {1000 * num_rows / done.step_ms:,.0f} tokens/s",
        f"memory floor {done.floor_ms:.2f} ms ({done.floor_ms / done.step_ms:.0%})",
    )


def random_prompts(policy: Policy, num: int, length: int) -> list[list[int]]:
    rng, limit = random.Random(0), int(policy.model.config.vocab_size)
    return [[rng.randrange(limit) for _ in range(length)] for _ in range(num)]


async def measure_generation(
    name: str, engine: Engine, prompts: list[list[int]], num_new: int, *, repeats: int
) -> Row:
    """Time replies to prompts that all come at once, after a round that warms up."""
    num_read = sum(map(len, prompts))
    times, speeds, speeds_in_all = list[float](), list[float](), list[float]()
    for attempt in range(1 + repeats):
        sessions = [engine.session(attempt * len(prompts) + key) for key in range(len(prompts))]
        started = time.perf_counter()
        replies = await asyncio.gather(
            *(
                session.generate(prompt, SamplingParams(1.0, num_new))
                for session, prompt in zip(sessions, prompts, strict=True)
            )
        )
        times.append(time.perf_counter() - started)
        num_tokens = sum(len(reply.token_ids) for reply in replies)
        speeds.append(num_tokens / times[-1])
        speeds_in_all.append((num_tokens + num_read) / times[-1])
        for session in sessions:
            session.close()
        engine.publish(attempt + 1)  # forgets the prompts, which come again
    seconds, speed, in_all = (
        statistics.median(all_[1:]) for all_ in (times, speeds, speeds_in_all)
    )
    return Row(
        f"generate ({name})",
        f"{len(prompts)} prompts of {len(prompts[0])}, {num_new} new",
        f"{speed:,.0f} tokens/s in {seconds:.2f} s",
        f"{in_all:,.0f} tokens/s with prompts",
    )


def measure_transformers(
    model_name: str, dtype: str, device: torch.device, prompts: list[list[int]], num_new: int
) -> Row:
    """Time `transformers.generate` on the same prompts, 256 at a time, after a short warm-up."""
    model = _baseline_model(model_name, DTYPES[dtype], device)
    ids = torch.tensor(prompts, device=device)
    options = {
        "do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0,
        "min_new_tokens": num_new, "pad_token_id": 0,
    }  # fmt: skip
    with torch.inference_mode():
        model.generate(ids[:2], max_new_tokens=num_new, **options)
        wait_for_device(ids.is_cuda)
        started = time.perf_counter()
        for batch in ids.split(256):
            model.generate(batch, max_new_tokens=num_new, **options)
        wait_for_device(ids.is_cuda)
    seconds = time.perf_counter() - started
    return Row(
        "generate (transformers)",
        f"{len(prompts)} prompts of {len(prompts[0])}, {num_new} new",
        f"{len(prompts) * num_new / seconds:,.0f} tokens/s in {seconds:.2f} s",
        "without log-probabilities",
    )


def _baseline_model(name: str, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """Return a model with transformers' own attention."""
    if name in SIZES:
        return random_model(name, dtype=dtype, device=device, attention="sdpa")
    model = AutoModelForCausalLM.from_pretrained(name, dtype=dtype, attn_implementation="sdpa")
    return model.to(device)


async def measure_episodes(
    name: str,
    engine: Engine,
    policy: Policy,
    concurrency: int,
    load: EpisodeLoad,
    *,
    repeats: int,
    has_alone: bool,
) -> Row:
    """Time whole episodes, and after each time the engine alone on the tokens that they had."""
    playing = EpisodesAtOnce(engine, policy, concurrency, load)
    speeds, speeds_alone, samples = list[float](), list[float](), list[Sample]()
    for attempt in range(1 + repeats):  # the first warms up
        episodes, seconds = await playing.play()
        samples = [sample for episode in episodes for sample in episode.samples]
        num_tokens = sum(sample.num_action_tokens for sample in samples)
        speeds.append(num_tokens / seconds)
        engine.publish(2 * attempt)
        if has_alone:
            started = time.perf_counter()
            lengths = await asyncio.gather(
                *(replay(engine, key, sample) for key, sample in enumerate(samples))
            )
            speeds_alone.append(sum(lengths) / (time.perf_counter() - started))
            engine.publish(2 * attempt + 1)
    speed, beside = statistics.median(speeds[1:]), ""
    if has_alone:
        alone = statistics.median(speeds_alone[1:])
        beside = f"engine alone {alone:,.0f} tokens/s ({1 - speed / alone:.0%} lost); "
    return Row(
        f"episodes ({name})",
        f"{concurrency} at once, {len(samples)} whole, {load.rounds} rounds of {load.reply_tokens}",
        f"{speed:,.0f} tokens/s",
        f"{beside}log-probs {difference(policy, samples[:_COMPARED]):.4f} off",
    )


async def measure_between(
    policy: Policy, concurrency: int, *, num_workers: int, rounds: int, repeats: int
) -> Row:
    """Time episodes whose replies take no time."""
    engine = InstantEngine(len(policy.tokenizer))
    each, of_thread, of_workers = list[float](), list[float](), list[float]()
    async with contextlib.AsyncExitStack() as stack:
        elsewhere = await stack.enter_async_context(rollout_workers(policy, num_workers))
        playing = EpisodesAtOnce(
            engine, policy, concurrency, EpisodeLoad(rounds), elsewhere=elsewhere
        )
        stack.enter_context(rare_collections())  # as in a run
        for _ in range(1 + repeats):  # the first warms up
            busy, there = time.thread_time(), workers_s()
            episodes, seconds = await playing.play()
            num_rounds = sum(len(episode.rounds) for episode in episodes)
            of_thread.append(1000 * (time.thread_time() - busy) / num_rounds)
            of_workers.append(1000 * (workers_s() - there) / num_rounds)
            each.append(1000 * seconds / num_rounds)
            del episodes
            collect_garbage()
    each_ms = statistics.median(each[1:])
    return Row(
        "between replies" + (f", {num_workers} workers" if num_workers else ""),
        f"{concurrency} at once, {rounds} rounds of {NEW_TOKENS}",
        f"{each_ms:.2f} ms a round, {1000 / each_ms:,.0f} rounds/s",
        f"{statistics.median(of_thread[1:]):.2f} ms of the event loop's thread"
        + (f", {statistics.median(of_workers[1:]):.2f} ms of workers" if num_workers else ""),
    )


def difference(policy: Policy, samples: Sequence[Sample]) -> float:
    """Return the mean absolute difference of the engine's and the learner's log-probabilities."""
    far = list[Tensor]()
    for start in range(0, len(samples), _COMPARED_AT_ONCE):
        batch = samples[start : start + _COMPARED_AT_ONCE]
        with torch.inference_mode():
            learner_A = action_logprobs(policy.model, batch, temperature=1.0).logprobs_A
        engine_A = [
            logprob
            for sample in batch
            for logprob, is_action in zip(sample.logprobs, sample.loss_mask, strict=True)
            if is_action
        ]
        far.append((learner_A.cpu() - torch.tensor(engine_A)).abs())
    return float(torch.cat(far).mean())


async def replay(engine: Engine, key: int, sample: Sample) -> int:
    """Ask for replies at most as long as the sample's, to the same prompts and observations.

    Returns how many tokens came: a model may end a reply sooner than it did in the episode.
    """
    session, new_ids, num_tokens = engine.session(key), list[int](), 0
    for segment in sample.segments:
        if segment.kind == SegmentKind.ACTION:
            params = SamplingParams(1.0, segment.end - segment.start)
            num_tokens += len((await session.generate(new_ids, params)).token_ids)
            new_ids = []
        else:
            new_ids += sample.token_ids[segment.start : segment.end]
    session.close()
    return num_tokens


def load_of(chosen: argparse.Namespace) -> EpisodeLoad:
    """Return the episodes that are asked for."""
    return EpisodeLoad(chosen.rounds, chosen.reply_tokens, chosen.format, chosen.group)


def check_context(policy: Policy, chosen: argparse.Namespace) -> None:
    """Refuse what does not fit into the model's context."""
    needs = list[tuple[str, int]]()
    if "decode" in chosen.parts:
        needed = tokens_of_a_row(chosen.context, launches=chosen.launches)
        needs.append((f"--context {chosen.context} with --launches {chosen.launches}", needed))
    if "generate" in chosen.parts or chosen.baseline:
        needs.append(
            (f"--prompt {chosen.prompt} with --new {chosen.new}", chosen.prompt + chosen.new)
        )
    for options, needed in needs:
        if needed > policy.max_context:
            raise ConfigError(
                f"{options} needs {needed} tokens a sequence, but {chosen.model} has a context of "
                f"{policy.max_context}; lower one of the two"
            )


async def measure(chosen: argparse.Namespace) -> AsyncIterator[Row]:
    """Give each row when it has been measured."""
    spec = await LocalEnvSource(SCENARIO).spec()
    policy = bench_policy(
        chosen.model, dtype=chosen.dtype, device=chosen.device, texts=[spec.instructions]
    )
    check_context(policy, chosen)
    if "decode" in chosen.parts:
        for num in chosen.rows:
            yield decode_row(
                policy,
                num,
                chosen.context,
                is_compiled=not chosen.no_compile,
                launches=chosen.launches,
            )
    if "between" in chosen.parts:
        for num, workers in itertools.product(chosen.concurrency, chosen.workers):
            yield await measure_between(
                policy, num, num_workers=workers, rounds=chosen.rounds, repeats=chosen.repeats
            )
    for name in chosen.engine if {"generate", "episodes"} & set(chosen.parts) else ():
        async for row in measure_engine(name, policy, chosen):
            yield row
    if chosen.peer:
        for cells in peer_rows(policy, chosen):
            yield Row(*cells)
    if chosen.baseline:
        for num in chosen.sequences:
            prompts = random_prompts(policy, num, chosen.prompt)
            yield measure_transformers(
                chosen.model, chosen.dtype, chosen.device, prompts, chosen.new
            )


async def measure_engine(
    name: str, policy: Policy, chosen: argparse.Namespace
) -> AsyncIterator[Row]:
    """Time what an engine generates, without environments and with them."""
    engine = make_engine(name, policy, chosen)
    try:
        if "generate" in chosen.parts:
            for num in chosen.sequences:
                prompts = random_prompts(policy, num, chosen.prompt)
                yield await measure_generation(
                    name, engine, prompts, chosen.new, repeats=chosen.repeats
                )
        if "episodes" in chosen.parts:
            for num in chosen.concurrency:
                yield await measure_episodes(
                    name,
                    engine,
                    policy,
                    num,
                    load_of(chosen),
                    repeats=chosen.repeats,
                    has_alone=not chosen.no_alone,
                )
    finally:
        engine.close()


async def show(chosen: argparse.Namespace) -> None:
    """Print each row when it has been measured, and all of them as a table."""
    table = Table("measured", "size", "result", "beside", title=f"{chosen.model}, {chosen.dtype}")
    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    async for row in measure(chosen):
        cells = (row.what, row.size, row.result, row.beside)
        progress.print("; ".join(cells), markup=False)
        table.add_row(*cells)
    Console(width=150).print(table)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="agentgym bench rollout", description="Generation.")
    add, whole = parser.add_argument, whole_from(1)
    sizes = f"a directory, or random weights of a size: {', '.join(SIZES)}"
    add("--model", default="smollm2-135m", help=sizes)
    add("--engine", nargs="+", default=["native"], choices=ENGINES, help="in this order")
    add("--python", default="", help="Python that has vLLM; default: this one")
    add("--vllm-memory", type=part, default=0.5, help="share of the GPU's memory for vLLM")
    add("--vllm-args", default="", help="more arguments for vLLM, in one text")
    add("--device", type=device, default="auto", metavar="|".join(DEVICES))
    add("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    add("--no-compile", action="store_true", help="run the layers as transformers has them")
    parts = ["decode", "between", "generate", "episodes"]
    add("--parts", nargs="+", default=parts, choices=parts)
    add("--rows", nargs="+", type=whole, default=[64, 256, 512])
    add("--context", type=whole, default=512, help="tokens of context in decoding, on average")
    add("--launches", type=whole, default=40, help=f"of {STEPS_PER_LAUNCH} steps, timed")
    add("--sequences", nargs="+", type=whole, default=[256, 1024])
    add("--prompt", type=whole, default=512)
    add("--new", type=whole, default=128)
    add("--concurrency", nargs="+", type=whole, default=[64, 256, 512])
    add("--workers", nargs="+", type=whole_from(0), default=[0], help="that play, in `between`")
    add("--rounds", type=whole, default=10)
    add("--reply-tokens", type=whole, default=NEW_TOKENS, help="most of a reply in `episodes`")
    add("--format", default="direct", help="of replies in `episodes`")
    add("--group", type=whole, default=1, help="episodes of a task")
    add("--peer", default="", help="Python with vLLM and this package: vLLM in process as well")
    add("--repeats", type=whole, default=3, help="timings of all but decoding, after a warm-up")
    add("--no-alone", action="store_true", help="leave out the engine by itself")
    add("--baseline", action="store_true", help="time transformers' generate as well (slow)")
    asyncio.run(show(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
