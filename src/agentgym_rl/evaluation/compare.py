"""Whether one evaluation is better than another: a paired test over the tasks of both.

A task counts once, with the mean success of its samples. With one sample on both sides the test
is McNemar's in its exact form (a sign test over the tasks that only one side solved); otherwise
the signs of the differences are flipped (Fisher 1935), all ways where they are few and at random
where they are many. The interval of the difference comes from drawing tasks anew.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import numpy as np

from agentgym_rl.errors import RunError
from agentgym_rl.evaluation.metrics import mean_interval
from agentgym_rl.evaluation.settings import load_settings
from agentgym_rl.runs.episodes import read_episodes
from agentgym_rl.runs.regular_files import MEGABYTE, read_regular
from agentgym_rl.types import Episode

_MAX_REPORT_BYTES = 64 * MEGABYTE
_ALPHA = 0.05
_NUM_DRAWS = 10_000
"""Of signs."""
_MAX_EXACT = 16
"""This many differences have 2**16 combinations of signs."""
_LIMITS = ("env.", "rollout.max_tokens", "rollout.max_invalid_actions", "agent.reflection.tries")
"""Settings, by the beginning of their keys, that make tasks easier or harder."""
_OF_THE_WAY = (
    "env.url",
    "env.workers",
    "env.dialect",
    "env.token_file",
    "env.timeout_s",
    "env.split",
)
"""Settings of the environment that say how it is reached, not what it is."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """B against A on the tasks that both have."""

    env: str
    tasks: int
    left_out: int
    """Tasks without a completed episode on one of the sides."""
    success_a: float
    success_b: float
    only_a: int
    """Tasks that A does better at."""
    only_b: int
    difference: float
    """Success of B minus success of A."""
    low: float
    """Lower end of its 95% interval."""
    high: float
    p: float
    """Chance of a difference as large, or larger, in either direction, if A and B were alike."""
    test: str

    @property
    def verdict(self) -> str:
        """What it means, in a sentence."""
        size = f"{abs(self.difference) * 100:.1f} points"
        if not self.only_a and not self.only_b:
            return f"No difference: A and B do the same at each of these {self.tasks} tasks."
        if self.p >= _ALPHA:
            return (
                f"No clear difference: B is {size} "
                f"{'better' if self.difference >= 0 else 'worse'} on these {self.tasks} tasks, "
                "which chance alone can explain."
            )
        word = "better" if self.difference > 0 else "worse"
        return (
            f"B is {word}: by {size} on these {self.tasks} tasks, "
            "which chance alone hardly explains."
        )

    def to_markdown(self) -> str:
        return "\n".join(
            [
                f"# {self.env}: B against A",
                "",
                "| tasks | A | B | difference | interval | better at: A, B | p |",
                "|---|---|---|---|---|---|---|",
                f"| {self.tasks} | {self.success_a:.1%} | {self.success_b:.1%} "
                f"| {self.difference * 100:+.1f} points "
                f"| {self.low * 100:+.1f} to {self.high * 100:+.1f} "
                f"| {self.only_a}, {self.only_b} | {self.p:.3g} |",
                "",
                f"{self.verdict} Test: {self.test}; the interval is 95% (paired bootstrap over "
                "tasks)."
                + f" {self.left_out} tasks have no completed episode on one side and are left out."
                * bool(self.left_out),
                "",
            ]
        )


def compare_folders(a: Path, b: Path, *, common: bool = False) -> list[Comparison]:
    """Compare two evaluations, environment by environment where they have several.

    Raises RunError where they are not of the same tasks (unless only the `common` ones are asked
    for) or not under the same limits.
    """
    parts_a, parts_b = _parts(a), _parts(b)
    names = [name for name in parts_a if name in parts_b]
    apart = sorted(parts_a.keys() ^ parts_b.keys())
    if not names or (apart and not common):
        raise RunError(
            f"{a} and {b} do not cover the same environments and horizons ({', '.join(apart)} on "
            "one side only); compare folders that do, or add --common to compare what both have"
        )
    return [_compare(parts_a[name], parts_b[name], common=common) for name in names]


def compare_episodes(a: Sequence[Episode], b: Sequence[Episode]) -> Comparison:
    """Compare the episodes of tasks that both sides have; others are left out."""
    left_out = {episode.task.id for episode in (*a, *b)}
    found = compare_rates(a[0].task.env, _success_by_task(a), _success_by_task(b))
    return replace(found, left_out=len(left_out) - found.tasks)


def compare_rates(
    env: str, rates_a: Mapping[str, float], rates_b: Mapping[str, float]
) -> Comparison:
    """Compare the success of each task, by its id, on the tasks that both sides have."""
    shared = [task for task in rates_a if task in rates_b]
    if not shared:
        raise RunError("there is no task with a completed episode on both sides")
    diffs = [rates_b[task] - rates_a[task] for task in shared]
    only_a, only_b = sum(d < 0 for d in diffs), sum(d > 0 for d in diffs)
    is_single = all(rate in (0.0, 1.0) for rates in (rates_a, rates_b) for rate in rates.values())
    low, high = mean_interval(diffs, [1.0] * len(diffs)) or (-1.0, 1.0)
    return Comparison(
        env=env,
        tasks=len(shared),
        left_out=len(rates_a.keys() | rates_b.keys()) - len(shared),
        success_a=fmean(rates_a[task] for task in shared),
        success_b=fmean(rates_b[task] for task in shared),
        only_a=only_a,
        only_b=only_b,
        difference=fmean(diffs),
        low=low,
        high=high,
        p=sign_test(only_a, only_b) if is_single else permutation_test(diffs),
        test="exact McNemar, two-sided" if is_single else "paired permutation, two-sided",
    )


def sign_test(losses: int, wins: int) -> float:
    """Return the two-sided p of a fair coin for these losses and wins (McNemar 1947, exact)."""
    total = losses + wins
    tail = sum(math.comb(total, k) for k in range(min(losses, wins) + 1)) / 2**total
    return min(1.0, 2 * tail)


def permutation_test(differences: Sequence[float]) -> float:
    """Return the two-sided p of the sum of differences when their signs are a matter of chance."""
    values = np.asarray([value for value in differences if value], dtype=np.float64)
    if len(values) == 0:
        return 1.0
    if len(values) <= _MAX_EXACT:
        numbers = np.arange(2 ** len(values))
        signs = 1.0 - 2.0 * ((numbers[:, None] >> np.arange(len(values))) & 1)
    else:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(_NUM_DRAWS, len(values)))
    # Sums that are equal but for rounding count as equal.
    is_far = np.abs(signs @ values) >= abs(values.sum()) - 1e-9
    if len(values) <= _MAX_EXACT:
        return float(is_far.mean())
    return float((is_far.sum() + 1) / (_NUM_DRAWS + 1))  # what was seen is one of the draws


def _success_by_task(episodes: Sequence[Episode]) -> dict[str, float]:
    successes: defaultdict[str, list[bool]] = defaultdict(list)
    for episode in episodes:
        if not episode.is_failed:
            successes[episode.task.id].append(episode.success)
    return {task: fmean(flags) for task, flags in successes.items()}


def _parts(folder: Path) -> Mapping[str, Path]:
    """Return the folders with episodes in an evaluation, by their place in it."""
    found = sorted(folder.glob("**/eval-000000.parquet"))
    files = [file for file in found if (file.parent / "report.json").exists()]
    if not files:
        if not folder.is_dir():
            raise RunError(f"there is no folder {folder}; name two folders of evaluations")
        if load_settings(folder):
            remedy = "repeat its command to finish it"
        elif (folder / "config.toml").exists():
            remedy = f"it is a run: evaluate it with `agentgym eval {folder} --env ...`"
        else:
            remedy = "name another"
        raise RunError(f"{folder} holds no finished evaluation; {remedy}")
    return {str(file.parent.relative_to(folder)): file.parent for file in files}


def _compare(a: Path, b: Path, *, common: bool) -> Comparison:
    episodes_a, episodes_b = (read_episodes(part / "eval-000000.parquet") for part in (a, b))
    tasks_a, tasks_b = ({e.task.id for e in episodes} for episodes in (episodes_a, episodes_b))
    _refuse_other_limits(a, b)
    if tasks_a != tasks_b:
        if not common:
            raise RunError(
                f"{a} has {len(tasks_a)} tasks and {b} {len(tasks_b)}, of which "
                f"{len(tasks_a & tasks_b)} are the same; add --common to compare on those"
            )
        shared = tasks_a & tasks_b
        episodes_a = [episode for episode in episodes_a if episode.task.id in shared]
        episodes_b = [episode for episode in episodes_b if episode.task.id in shared]
        if not shared:
            raise RunError(f"{a} and {b} have no task in common")
    return compare_episodes(episodes_a, episodes_b)


def _refuse_other_limits(a: Path, b: Path) -> None:
    differing = differing_limits(_limits(a), _limits(b))
    if differing:
        raise RunError(
            f"{a} and {b} were evaluated under different conditions ({'; '.join(differing)}), so a "
            "difference would say nothing about the models; evaluate one of them again"
        )


def _limits(folder: Path) -> dict[str, object]:
    """Return what makes the tasks of an evaluation easier or harder, as far as it is known."""
    file = folder / "report.json"
    try:
        report = json.loads(read_regular(file.resolve(), max_bytes=_MAX_REPORT_BYTES))
        limits = {"rounds": report["max_rounds"], "split": report["split"]}
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise RunError(f"{file} cannot be read ({error}); choose another folder") from error
    settings = load_settings(folder) or load_settings(folder.parent)  # above, of a horizon
    return limits | limits_of(settings.config if settings is not None else {})


def differing_limits(a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    """Return "key: A's / B's" for what both have and what differs."""
    return [f"{key}: {a[key]!r} / {b[key]!r}" for key in a if key in b and a[key] != b[key]]


def limits_of(config: Mapping[str, object]) -> dict[str, object]:
    """Return the settings, by dotted key, that make tasks easier or harder."""
    return {
        key: value
        for key, value in config.items()
        if key.startswith(_LIMITS) and not key.startswith(_OF_THE_WAY)
    }
