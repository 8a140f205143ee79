"""A run with very many episodes, for the benchmark of the web UI: the store's own schema.

Texts are put together from phrases with a number of their own, so that no two replies are the same,
as with a real policy; prompts and observations recur, as they do in a real environment.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa

from agentgym_rl.runs.episode_columns import SCHEMA, episodes_table
from agentgym_rl.runs.episodes import write_episodes, write_part
from agentgym_rl.types import (
    Episode,
    Message,
    Round,
    Sample,
    Segment,
    SegmentKind,
    StopReason,
    Task,
)

LONG_EPISODE = "train-900000:0"
NEEDLE = "the rarest of words"
"""In one episode of every hundred parts."""

_GROUP = 10
_ITEMS = ["oak log", "iron ingot", "stone", "redstone dust", "blue dye", "stick", "glass", "wool"]
_THOUGHTS = [
    "I need to find out what the goal needs, and then get the raw materials first.",
    "The recipe asks for more than I have in the inventory, so I will get them now.",
    "That did not work. Perhaps the count is wrong, so I look at the commands again.",
    "Now that I have all the ingredients I can craft the item that the goal asks for.",
]
_INSTRUCTIONS = "You are given a few useful crafting recipes to craft items in Minecraft. " * 12
_CONFIG = """[env]
name = "textcraft"
[algorithm]
type = "grpo"
[model]
path = "some/model"
[agent]
format = "react"
[training]
steps = {steps}
"""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the run is."""

    num_parts: int = 1000
    episodes_per_part: int = 100
    tokens_per_episode: int = 400


def write_run(folder: Path, size: Size, *, seed: int = 0) -> None:
    """Write the run, and one episode of 100 rounds and 20,000 tokens as LONG_EPISODE."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(_CONFIG.format(steps=size.num_parts), encoding="utf-8")
    lines = []
    for step in range(1, size.num_parts + 1):
        share = step / size.num_parts
        write_part(folder / "episodes" / f"train-{step:06d}.parquet", _part(step, size, share, rng))
        lines.append(json.dumps(_metrics(step, share, rng)) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
    write_episodes(folder / "episodes", [[long_episode(rng)]], phase="train", step=900_000)


def long_episode(rng: np.random.Generator) -> Episode:
    """Return an episode of 100 rounds whose one sample has 20,000 tokens."""
    rounds, messages, segments = [], [Message("user", _INSTRUCTIONS)], []
    for index in range(100):
        reply = f"{_THOUGHTS[index % 4]} {index}\nAction: get {index} stone"
        observation = f"Got {index} stone. " * 20
        rounds.append(Round(reply, f"get {index} stone", observation, 0.0, True, 0, 0.5, 0.1))
        messages += [Message("assistant", reply), Message("user", observation)]
        segments += [
            Segment(SegmentKind.OBSERVATION, 200 * index, 200 * index + 120, max(0, index - 1)),
            Segment(SegmentKind.ACTION, 200 * index + 120, 200 * (index + 1), index),
        ]
    mask = tuple([0] * 120 + [1] * 80) * 100
    sample = Sample(
        tuple(rng.integers(0, 300, 20_000).tolist()),
        mask,
        tuple((-rng.random(20_000)).tolist()),
        (0.0,) * 20_000,
        tuple(segments),
        version=1,
    )
    return Episode(
        Task("textcraft", "train", 7, category="depth 4"),
        0,
        StopReason.SUCCESS,
        1.0,
        True,
        tuple(rounds),
        tuple(messages[:-1]),
        (sample,),
        60.0,
    )


def _metrics(step: int, share: float, rng: np.random.Generator) -> dict[str, float]:
    metrics = {
        "step": step,
        "rollout/success_rate": 0.8 * share,
        "rollout/reward_mean": 0.8 * share,
        "train/entropy": 1.5 - share,
        "time/rollout_s": 20.0,
        "time/update_s": 10.0,
        "time/score_s": 2.0,
        "time/step_s": 32.0,
    }
    return metrics | {f"train/other_{place}": float(rng.random()) for place in range(32)}


def _part(step: int, size: Size, share: float, rng: np.random.Generator) -> pa.Table:
    num = size.episodes_per_part
    num_rounds = rng.integers(2, 14, num)
    success = rng.random(num) < 0.8 * share
    rounds = _rounds_column(step, num_rounds, rng)
    columns: dict[str, object] = {
        "phase": ["train"] * num,
        "step": [step] * num,
        "env": ["textcraft"] * num,
        "split": ["train"] * num,
        "task_index": (step * num + np.arange(num) // _GROUP).tolist(),
        "task_seed": [0] * num,
        "category": [f"depth {1 + place // _GROUP % 4}" for place in range(num)],
        "level": [""] * num,
        "group": (np.arange(num) // _GROUP).tolist(),
        "sample_index": (np.arange(num) % _GROUP).tolist(),
        "stop_reason": np.where(success, "success", "max_rounds").tolist(),
        "success": success.tolist(),
        "reward": success.astype(float).tolist(),
        "num_rounds": num_rounds.tolist(),
        "num_tokens": [size.tokens_per_episode] * num,
        "num_sampled_tokens": [size.tokens_per_episode // 3] * num,
        "num_restarts": [0] * num,
        "seconds": rng.uniform(1, 20, num).tolist(),
        "error": [None] * num,
        "messages": _messages_column(step, rounds),
        "rounds": rounds,
        "usage": [None] * num,
        "samples": _samples_column(num, size.tokens_per_episode, rng),
    }
    arrays = [
        value if isinstance(value, pa.Array) else pa.array(value, SCHEMA.field(name).type)
        for name, value in ((name, columns.get(name, [None] * num)) for name in SCHEMA.names)
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _rounds_column(step: int, num_rounds: Sequence[int], rng: np.random.Generator) -> pa.Array:
    total = int(sum(num_rounds))
    picks = rng.integers(0, 1 << 30, total).tolist()
    actions = [f"get {pick % 9} {_ITEMS[pick % 8]}" for pick in picks]
    replies = [
        f"{_THOUGHTS[pick % 4]} {pick}\nAction: {action}"
        for pick, action in zip(picks, actions, strict=True)
    ]
    observations = [f"Got {pick % 9} {_ITEMS[pick % 8]}" for pick in picks]
    if step % 100 == 0:
        observations[0] = f"It is {NEEDLE}."
    fields = list(SCHEMA.field("rounds").type.value_type)
    seconds = rng.random((2, total)).astype(np.float32)
    values = {
        "reply": pa.array(replies),
        "action": pa.array(actions),
        "observation": pa.array(observations),
        "reward": pa.array(np.zeros(total)),
        "valid_action": pa.array(rng.random(total) < 0.9),
        "try_index": pa.array(np.zeros(total, np.int32)),
        "generation_s": pa.array(seconds[0]),
        "environment_s": pa.array(seconds[1] * 0.1),
    }
    arrays = [values.get(field.name, pa.nulls(total, field.type)) for field in fields]
    structs = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.ListArray.from_arrays(_offsets(num_rounds), structs)


def _messages_column(step: int, rounds: pa.ListArray) -> pa.Array:
    roles, contents, lengths = [], [], []
    for place, items in enumerate(rounds.to_pylist()):
        goal = f"{_INSTRUCTIONS}\nGoal: craft item {step}-{place // _GROUP}."
        contents.append(goal)
        roles.append("user")
        for item in items:
            contents += [item["reply"], item["observation"]]
            roles += ["assistant", "user"]
        contents.pop()
        roles.pop()
        lengths.append(2 * len(items))
    fields = list(SCHEMA.field("messages").type.value_type)
    structs = pa.StructArray.from_arrays([pa.array(roles), pa.array(contents)], fields=fields)
    return pa.ListArray.from_arrays(_offsets(lengths), structs)


def _samples_column(num: int, num_tokens: int, rng: np.random.Generator) -> pa.Array:
    """Return one sample an episode, written as the trainer writes them."""
    mask = tuple(([0] * 20 + [1] * 10) * (num_tokens // 30 + 1))[:num_tokens]
    segments = tuple(
        Segment(SegmentKind.ACTION, start + 20, min(start + 30, num_tokens), start // 30)
        for start in range(0, num_tokens - 20, 30)
    )
    zeros = (0.0,) * num_tokens
    task = Task("textcraft", "train", 0)
    episodes = [
        Episode(
            task, 0, StopReason.SUCCESS, 0.0, True, (), (),
            (Sample(tuple(ids), mask, tuple(logprobs), zeros, segments, 1),), 0.0,
        )
        for ids, logprobs in zip(
            rng.integers(0, 300, (num, num_tokens)).tolist(),
            (-rng.random((num, num_tokens))).tolist(),
            strict=True,
        )
    ]  # fmt: skip
    table = episodes_table([episodes], phase="train", step=0, scores_of=None)
    return table.column("samples").combine_chunks()


def _offsets(lengths: Sequence[int]) -> pa.Array:
    return pa.array(list(accumulate(map(int, lengths), initial=0)), pa.int32())
