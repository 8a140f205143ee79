"""Episodes without an environment, for tests of engines: what is played depends on a key alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import torch

from agentgym_rl.config import TinyModelConfig
from agentgym_rl.engines.base import Engine, EngineSession
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.tiny import build_tiny_model, train_tokenizer
from agentgym_rl.rollout.handler import RolloutHandler
from agentgym_rl.types import Completion, Sample, SamplingParams

MAX_CONTEXT = 512
NUM_ROUNDS = 3
SHORT = SamplingParams(temperature=0.0, max_tokens=2)
LONG = SamplingParams(temperature=0.0, max_tokens=MAX_CONTEXT - 20)
PROMPT = [11, 12, 13, 14]


def endless_policy() -> Policy:
    """A tiny model that nobody trains; its longest reply, LONG, takes a second or so."""
    tokenizer = train_tokenizer(["go to the red ball", "you see a wall"], vocab_size=300)
    config = TinyModelConfig(vocab_size=300, hidden_size=32)
    model = build_tiny_model(config, tokenizer, seed=0).eval()
    model.config.max_position_embeddings = MAX_CONTEXT
    with torch.no_grad():  # a stop token of logit 0 is never the most likely: greedy replies go on
        model.get_input_embeddings().weight[tokenizer.eos_token_id].zero_()
    return Policy(model, tokenizer, ChatRenderer(tokenizer))


async def play(
    engine: Engine, key: int, *, temperature: float = 1.0, vocab_size: int = 270
) -> tuple[Sample, list[Completion]]:
    """Play an episode whose prompt, observations and limits depend on `key` alone."""
    rng = random.Random(key)
    handler, session, completions = RolloutHandler(), engine.session(key), []
    new_ids = [rng.randrange(vocab_size) for _ in range(rng.randint(3, 90))]
    handler.append_prompt(new_ids, "")
    for index in range(NUM_ROUNDS):
        params = SamplingParams(temperature, rng.randint(1, 12))
        completions.append(await session.generate(new_ids, params))
        handler.append_reply(completions[-1], "")
        if index + 1 < NUM_ROUNDS:
            new_ids = [rng.randrange(vocab_size) for _ in range(rng.randint(1, 20))]
            handler.append_observation(new_ids, "")
    session.close()
    return handler.sample(), completions


async def play_all(
    engine: Engine, keys: Sequence[int], *, concurrency: int, shuffle_seed: int | None = None
) -> dict[int, Sample]:
    """Play the episodes of `keys`, so many at a time, in this order or in a shuffled one."""
    places = asyncio.Semaphore(concurrency)
    rng = random.Random(shuffle_seed)
    order = list(keys) if shuffle_seed is None else rng.sample(keys, len(keys))
    delays = [0.0 if shuffle_seed is None else rng.random() / 20 for _ in order]

    async def one(key: int, delay: float) -> Sample:
        async with places:
            await asyncio.sleep(delay)
            return (await play(engine, key))[0]

    samples = await asyncio.gather(*map(one, order, delays))
    return dict(zip(order, samples, strict=True))


async def start(session: EngineSession, params: SamplingParams) -> asyncio.Task[Completion]:
    """Return the task of a reply that has been asked for, but not been given yet."""
    task = asyncio.create_task(session.generate(PROMPT, params))
    await asyncio.sleep(0)
    return task
