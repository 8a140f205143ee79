"""vLLM in process on the load of `bench rollout`: its rows "vLLM in process".

    PYTHON rollout_vllm.py --model DIR --parts generate episodes

It runs in an environment that has vLLM and this package, and prints a line of JSON for each row:
generated tokens and seconds of every timing after the first, which warms up.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")

from peer_vllm import VllmInProcess, sampling
from step_episodes import EpisodeLimits, PeerEpisode, play_lockstep, play_stream
from transformers import AutoTokenizer

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import AgentConfig
from agentgym_rl.envs import registry
from agentgym_rl.models.chat import ChatRenderer

_LOOPS = {"stream": play_stream, "lockstep": play_lockstep}


def measure(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield what each row took."""
    from vllm import LLM  # after the options were read

    llm = LLM(
        model=options.model,
        dtype=options.dtype,
        gpu_memory_utilization=options.memory,
        max_model_len=options.max_context,
        enable_prefix_caching=True,
        logprobs_mode="processed_logprobs",
        **json.loads(options.llm),
    )
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    renderer = ChatRenderer(tokenizer)
    for part in options.parts:
        for number in options.sequences if part == "generate" else options.concurrency:
            play = generation if part == "generate" else episodes
            timings = [
                timed(play(llm, renderer, options, number, attempt))
                for attempt in range(1 + options.repeats)
            ]
            yield {"part": part, "number": number, "timings": timings[1:]}


def timed(work: Callable[[], int]) -> tuple[int, float]:
    """Return the generated tokens and the seconds."""
    started = time.perf_counter()
    num_tokens = work()
    return num_tokens, time.perf_counter() - started


def generation(
    llm: Any, renderer: ChatRenderer, options: argparse.Namespace, number: int, attempt: int
) -> Callable[[], int]:
    """Return what replies to random prompts, which differ from timing to timing."""
    rng, limit = random.Random(attempt), llm.llm_engine.model_config.get_vocab_size()
    prompts = [
        {"prompt_token_ids": [rng.randrange(limit) for _ in range(options.prompt)]}
        for _ in range(number)
    ]
    params = [sampling(options.new, renderer.stop_token_ids)] * number

    def work() -> int:
        outputs = llm.generate(prompts, params, use_tqdm=False)
        return sum(len(output.outputs[0].token_ids) for output in outputs)

    return work


def episodes(
    llm: Any, renderer: ChatRenderer, options: argparse.Namespace, number: int, _attempt: int
) -> Callable[[], int]:
    """Return what plays TextCraft episodes, `--group` of each task."""
    cls = registry.env_class("textcraft")
    agent = Agent(AgentConfig(format=options.format), cls.spec)
    limits = EpisodeLimits(options.rounds, options.reply_tokens, options.max_context)
    tasks = cls.tasks("train")[: -(-number // options.group)]
    order = [task for task in tasks for _ in range(options.group)][:number]

    def work() -> int:
        llm.reset_prefix_cache()  # as after an update
        played = [PeerEpisode(cls(), agent, renderer, task, limits) for task in order]
        _LOOPS[options.loop](VllmInProcess(llm, renderer.stop_token_ids), played)
        return sum(sum(episode.mask) for episode in played)

    return work


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__)
    add = found.add_argument
    add("--model", required=True)
    add("--dtype", default="bfloat16")
    add("--parts", nargs="+", choices=["generate", "episodes"], default=["generate", "episodes"])
    add("--sequences", nargs="+", type=int, default=[256])
    add("--prompt", type=int, default=512)
    add("--new", type=int, default=128)
    add("--concurrency", nargs="+", type=int, default=[256])
    add("--rounds", type=int, default=10)
    add("--reply-tokens", type=int, default=64)
    add("--format", default="direct")
    add("--group", type=int, default=1)
    add("--max-context", type=int, default=4096)
    add("--repeats", type=int, default=3)
    add("--memory", type=float, default=0.5)
    add("--loop", choices=[*_LOOPS], default="stream")
    add("--llm", default="{}", help="more arguments of vLLM's LLM, as JSON")
    return found


if __name__ == "__main__":
    for row in measure(parser().parse_args()):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
