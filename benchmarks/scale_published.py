"""The model of `agentgym bench scale` against a published table: verl's 7B runs on 32 to 128 GPUs.

    python benchmarks/scale_published.py

Qwen2.5-Math-7B, DAPO, at most 28k tokens, H20, 512 groups of 16 per step, half of the GPUs for
engines; see https://verl.readthedocs.io/en/latest/advance/fully_async.html and the scripts in its
repository. How long replies are and how fast the parts were is not published. What is free:

    fixed by the row of 32 GPUs    mean length   the update of the asynchronous run, 269.8 s
                                   engine        collecting in the synchronous run, 357.4 s
                                   the rest      what the asynchronous step has beyond the model's
    fixed by data sheets           148 TFLOPS and 4 TB/s of an H20
    assumed                        the learner's share of the peak, and the spread of lengths: rows

The steps on 64 and 128 GPUs are then predicted. Their bound on samples ahead is not ours, which is
set so wide here (4 steps) that it holds nothing up, and their engines take weights at any token.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from scale_model import EpisodePlan, Job, Outcome, Simulation, Speeds

GROUPS, GROUP_SIZE, UPDATES = 512, 16, 16
MAX_TOKENS = 28 * 1024
GPUS_TOGETHER = 4
"""Tensor parallelism of an engine, and sequence parallelism of the learner."""
AT_ONCE = 16 * GROUP_SIZE
"""Replies that verl keeps under way per engine."""
PUBLISHED_S = {32: 294.77, 64: 189.26, 128: 150.63}
"""Seconds of an asynchronous step by GPUs in all."""
UPDATE_S, COLLECT_S = 269.80, 357.41
_WAY = "4"

WEIGHTS, LAYERS, WIDTH, KV_BYTES = 7.6e9, 28, 3584, 57_344
PEAK_FLOPS, BYTES_PER_S = 148e12 * GPUS_TOGETHER, 4e12 * GPUS_TOGETHER
_TRAINING_PASSES = 4
"""Forward, again for the backward pass, and that, which is two."""
_ATTENTION = 2 * WIDTH * LAYERS / (2 * WEIGHTS)
"""Of one more token of context, as a part of what a token costs otherwise; half a context is seen
on average."""
GUESSES = ((1.8, 0.4), (1.6, 0.4), (2.0, 0.4), (1.8, 0.3), (1.8, 0.5))
"""Deviations of a length's logarithm, with shares of the peak. From 1.8 on some reply of each step
reaches the limit, for which its authors chose it."""
STEPS = 8


@dataclass(frozen=True, slots=True)
class Fit:
    """What was fitted to the row of 32 GPUs, and what it gives."""

    peak_share: float
    spread: float
    """The deviation of a length's logarithm."""
    mean_tokens: float
    token_s: float
    outcomes: dict[int, Outcome]
    """By GPUs in all."""

    @property
    def rest_s(self) -> float:
        """What the published step on 32 GPUs has beyond the model's."""
        return PUBLISHED_S[32] - self._own_s(32)

    def step_s(self, num_gpus: int) -> float:
        return self._own_s(num_gpus) + self.rest_s

    def _own_s(self, num_gpus: int) -> float:
        """Return the mean without the first step, which has to wait for its groups, and the last,
        which wait for the longest replies, as they would not in a run of 400."""
        return fmean(self.outcomes[num_gpus].steps_s[1:-3])


Tokens = npt.NDArray[np.int64]


def lengths(median: float, spread: float, steps: int) -> Tokens:
    """Return lengths of replies: steps, groups, episodes."""
    normal = np.random.default_rng(0).standard_normal((steps, GROUPS, GROUP_SIZE))
    return np.clip(median * np.exp(spread * normal), 10, MAX_TOKENS).astype(np.int64)


def learner_cost(tokens: Tokens) -> Tokens:
    """Return what sequences cost the learner, in tokens without context."""
    return (tokens * (1 + _ATTENTION * tokens)).astype(np.int64)


def learner_token_s(peak_share: float) -> float:
    return _TRAINING_PASSES * 2 * WEIGHTS / (PEAK_FLOPS * peak_share)


def update_s(tokens: Tokens, learners: int, token_s: float) -> float:
    """Return the mean seconds of a step's updates, as `scale_model.update_seconds` has them."""
    parts = learner_cost(tokens).reshape(len(tokens), UPDATES, -1)
    shares = np.maximum(parts.sum(-1) / learners, parts.max(-1))
    return float(shares.sum(-1).mean()) * token_s


def median_of(spread: float, peak_share: float) -> float:
    """Return the median length with which an update on 16 GPUs takes as long as published."""
    low, high = 1.0, float(MAX_TOKENS)
    for _ in range(40):
        middle = (low * high) ** 0.5
        took_s = update_s(
            lengths(middle, spread, 6), 16 // GPUS_TOGETHER, learner_token_s(peak_share)
        )
        low, high = (middle, high) if took_s < UPDATE_S else (low, middle)
    return low


def simulate(tokens: Tokens, way: str, num_gpus: int, speeds: Speeds) -> Outcome:
    """Return what a run takes with this many GPUs for engines, and as many for the learner."""
    number = num_gpus // GPUS_TOGETHER
    flat, costs = tokens.reshape(-1, GROUP_SIZE), learner_cost(tokens).reshape(-1, GROUP_SIZE)

    def group(index: int) -> list[EpisodePlan]:
        pairs = zip(flat[index].tolist(), costs[index].tolist(), strict=True)
        return [EpisodePlan((n,), (n,), (n,), (0.0,), cost) for n, cost in pairs]

    at_once = AT_ONCE * number if way.isdigit() else 1 << 30
    job = Job(way, len(tokens), GROUPS, number, number, UPDATES, at_once)
    return Simulation(job, speeds, group).run()


def fit(spread: float, peak_share: float) -> Fit:
    """Return the fit with a spread of lengths and a share of the peak."""
    median = median_of(spread, peak_share)
    tokens, few = lengths(median, spread, STEPS), lengths(median, spread, 1)
    # Compute of a token at half the peak, and its keys and values of a mean context.
    each = 2 * WEIGHTS / (PEAK_FLOPS / 2) + KV_BYTES * float(tokens.mean()) / BYTES_PER_S
    speeds = partial(Speeds, token_s_each=each, waits_for_replies=False)
    token_s = 0.01
    for _ in range(3):  # collecting takes a part that does not depend on it, and one in proportion
        first, second = (
            simulate(few, "synchronous", 32, speeds(seconds)).waited_s
            for seconds in (token_s, 2 * token_s)
        )
        token_s *= max(0.1, 1 + (COLLECT_S - first) / (second - first))
    fast = speeds(token_s, learner_token_s=learner_token_s(peak_share))
    outcomes = {gpus: simulate(tokens, _WAY, gpus // 2, fast) for gpus in PUBLISHED_S}
    return Fit(peak_share, spread, float(tokens.mean()), token_s, outcomes)


def main(arguments: Sequence[str] | None = None) -> None:
    argparse.ArgumentParser(description="Predict a published table.").parse_args(arguments)
    with ProcessPoolExecutor() as processes:
        fits = list(processes.map(fit, *zip(*GUESSES, strict=True)))
    shown = Table("peak", "spread", "tokens", "ms", "rest", *map(str, PUBLISHED_S))
    for one in fits:
        shown.add_row(
            f"{one.peak_share:.0%}",
            f"{one.spread:g}",
            f"{one.mean_tokens:.0f}",
            f"{1000 * one.token_s:.1f}",
            f"{one.rest_s:.0f}",
            *(
                f"{one.step_s(gpus):.0f} ({one.step_s(gpus) / real - 1:+.0%})"
                for gpus, real in PUBLISHED_S.items()
            ),
        )
    Console(highlight=False).print(shown)


if __name__ == "__main__":
    main()
