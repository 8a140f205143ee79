"""How fast the parts of runs were, for `agentgym bench scale`: read from their folders.

    episodes/       rounds, tokens and seconds of each episode, by group
    metrics.jsonl   seconds of updates, publications and what follows them
    config.toml     how many of each part there were

When a reply was under way is not stored. In a synchronous run all episodes of a step begin
together, so their seconds tell how many replies were under way beside each. Other runs tell only
the mean of a step, and take the slope from synchronous ones.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from scale_model import EpisodePlan, Speeds

from agentgym_rl.config import RunConfig, parse_config
from agentgym_rl.config.algorithms import OnlineConfig
from agentgym_rl.errors import RunError
from agentgym_rl.runs.folder import Metrics, RunFolder, no_run_in, step_of
from agentgym_rl.runs.regular_files import open_regular
from agentgym_rl.types import SegmentKind

CONTROLLER_S = 0.0005
"""Of the event loop per round, unless told: `agentgym bench rollout --parts between`."""
_MAX_STEPS = 200
"""The last ones of a run are read."""
_REPLIES = {str(kind) for kind in SegmentKind if kind.is_reply}
_SEGMENT = "samples.list.element.segments.list.element"
_COLUMNS = [
    *("group", "error", "seconds", "num_tokens"),
    *(f"rounds.list.element.{name}" for name in ("generation_s", "environment_s")),
    *(f"{_SEGMENT}.{name}" for name in ("kind", "start", "end", "round_index")),
]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply of a stored episode."""

    seconds: float
    wait_s: float
    """Of the environment after it."""
    sampled: int
    context: int
    """Tokens before it."""
    in_flight: float
    """Replies under way on its engine meanwhile, itself included; a mean."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One stored episode."""

    step: int
    group: int
    num_tokens: int
    start_s: float
    """Of its seconds those of neither replies nor environment."""
    replies: tuple[Reply, ...]


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """What one run folder has."""

    path: Path
    config: RunConfig
    lines: list[Metrics]
    episodes: list[Stored]

    @property
    def engines(self) -> int:
        return self.config.cluster.engines

    @property
    def learners(self) -> int:
        return max(1, self.config.training.shards)

    @property
    def way(self) -> str:
        rollout = self.config.rollout
        if rollout.overlap:
            return str(rollout.max_staleness)
        return "carried" if rollout.max_staleness else "synchronous"

    @property
    def group_size(self) -> int:
        assert isinstance(self.config.algorithm, OnlineConfig), "checked when it was read"
        return self.config.algorithm.group_size


@dataclass(frozen=True, slots=True)
class Parts:
    """What was measured: how fast parts are, and what episodes ask of them."""

    speeds: Speeds
    groups: tuple[tuple[EpisodePlan, ...], ...]
    most_in_flight: float
    """The most replies under way on an engine that were seen."""

    def draw(self, number: int, *, size: int, seed: int = 0) -> list[EpisodePlan]:
        """Return the group of a number: episodes of one that was measured."""
        rng = random.Random(f"{seed}/{number}")
        group = rng.choice(self.groups)
        return rng.sample(group, size) if len(group) >= size else rng.choices(group, k=size)

    @property
    def env_s(self) -> float:
        """The mean seconds of a step of the environment."""
        return fmean(wait_s for group in self.groups for plan in group for wait_s in plan.waits_s)

    @property
    def num_episodes(self) -> int:
        return sum(map(len, self.groups))

    @property
    def rounds_mean(self) -> float:
        return fmean(len(plan.work) for group in self.groups for plan in group)


def read_run(path: Path) -> MeasuredRun:
    """Return what a run folder has of the run's steps but the first, which warms up."""
    folder = RunFolder(path)
    if not folder.exists:
        raise RunError(no_run_in(path))
    with open_regular(folder.config_file.resolve()) as file:
        table = tomllib.loads(file.read().decode("utf-8"))
    config = parse_config(table, source=str(folder.config_file), is_data=True)
    if not isinstance(config.algorithm, OnlineConfig):
        raise RunError(f"{path} has no episodes of its own: {config.algorithm.type} collects none")
    lines = [line for line in folder.read_metrics() if "time/update_s" in line]
    lines = lines[-_MAX_STEPS:] if len(lines) < 4 else lines[1:][-_MAX_STEPS:]
    if not lines:
        raise RunError(f"{path} has no complete step: name a run that has made some")
    run = MeasuredRun(path, config, lines, [])
    for line in lines:
        part = folder.episodes / f"train-{int(line['step']):06d}.parquet"
        if part.is_file():
            run.episodes.extend(_with_loads(_read_part(part), line, run))
    if not run.episodes:
        raise RunError(f"{path} has no episodes left in {folder.episodes}")
    return run


def measure(runs: Sequence[MeasuredRun], *, controller_s: float = CONTROLLER_S) -> Parts:
    """Return the parts of runs, taken together."""
    replies = [reply for run in runs for episode in run.episodes for reply in episode.replies]
    token_s, token_s_each, read_share = fit_engine(replies)
    update_s, learner_token_s = fit_learner(runs)
    calm = [run for run in runs if not run.config.rollout.overlap]
    # Where replies continue, a publication also waits for those under way.
    published = [[line["time/publish_s"] for line in run.lines] for run in calm or runs]
    publish_s = (median if calm else min)([second for seconds in published for second in seconds])
    speeds = Speeds(
        token_s=token_s,
        token_s_each=token_s_each,
        update_s=update_s,
        learner_token_s=learner_token_s,
        publish_s=publish_s,
        rest_s=fmean(_rest_s(line) for run in runs for line in run.lines),
        controller_s=controller_s,
    )
    plans = [_plans(run, speeds, read_share) for run in runs]
    most = max(reply.in_flight for reply in replies)
    return Parts(speeds, tuple(group for groups in plans for group in groups), most)


def fit_engine(replies: Sequence[Reply]) -> tuple[float, float, float]:
    """Return the seconds of a token, those more for each reply under way, and the share of a
    sampled token's time that a token takes which is only read."""
    seconds, sampled, context, load = (
        np.array([getattr(reply, name) for reply in replies], dtype=np.float64)
        for name in ("seconds", "sampled", "context", "in_flight")
    )

    def fit(share: float) -> tuple[float, Floats]:
        work = np.maximum(sampled, 1.0) + share * context
        columns = np.stack([work, work * load], axis=1)
        found = _not_negative(columns, seconds)
        return float(np.square(columns @ found - seconds).sum()), found

    low, high = 0.0, 1.0
    if np.ptp(context) <= 1 or np.ptp(sampled) <= 1:
        high = 0.0  # nothing tells one from the other
    while high - low > 1e-4:
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if fit(left)[0] <= fit(right)[0] else (left, high)
    token_s, each = fit(low)[1]
    return float(token_s), float(each), low


def fit_learner(runs: Sequence[MeasuredRun]) -> tuple[float, float]:
    """Return the seconds of an update with any number of tokens, and those of a token on one GPU.

    Where steps are too much alike to tell them apart, all of it is taken for tokens'.
    """
    tokens, seconds = list[float](), list[float]()
    for run in runs:
        learned: dict[int, int] = {}
        for episode in run.episodes:
            learned[episode.step] = learned.get(episode.step, 0) + episode.num_tokens
        for line in run.lines:
            if int(line["step"]) in learned:
                tokens.append(learned[int(line["step"])] / run.learners)
                seconds.append(line["time/update_s"])
    x, y = np.array(tokens), np.array(seconds)
    if len(x) > 2 and np.ptp(x) > 0.2 * x.mean() and np.corrcoef(x, y)[0, 1] > 0.9:
        fixed, each = _not_negative(np.stack([np.ones_like(x), x], axis=1), y)
        return float(fixed), float(each)
    return 0.0, float(y.sum() / max(1.0, x.sum()))


def _not_negative(columns: Floats, values: Floats) -> Floats:
    """Return the least squares without negative ones, of one or two columns."""
    best: Floats | None = None
    best_error = np.inf
    num_columns = columns.shape[1]
    for chosen in ([0], [1], [0, 1])[: 2 * num_columns - 1]:
        found = np.zeros(num_columns)
        found[chosen] = np.linalg.lstsq(columns[:, chosen], values, rcond=None)[0]
        error = float(np.square(columns @ found - values).sum())
        if (found >= 0).all() and error < best_error * (1 - 1e-9):
            best, best_error = found, error
    return np.zeros(num_columns) if best is None else best


def _plans(run: MeasuredRun, speeds: Speeds, read_share: float) -> list[tuple[EpisodePlan, ...]]:
    """Return a run's episodes by group, with work in sampled tokens of the time that it took."""
    groups: dict[tuple[int, int], list[EpisodePlan]] = {}
    for episode in run.episodes:
        work = [
            reply.seconds / max(1e-12, speeds.token_s + speeds.token_s_each * reply.in_flight)
            for reply in episode.replies
        ]
        reads = [read_share * reply.context for reply in episode.replies]
        plan = EpisodePlan(
            work=work,
            again=[one + read for one, read in zip(work, reads, strict=True)],
            sampled=[reply.sampled for reply in episode.replies],
            waits_s=[reply.wait_s for reply in episode.replies],
            num_tokens=episode.num_tokens,
            start_s=episode.start_s,
        )
        groups.setdefault((episode.step, episode.group), []).append(plan)
    return [tuple(group) for group in groups.values()]


def _rest_s(line: Metrics) -> float:
    names = ("rollout", "update", "publish", "eval")
    return max(0.0, line["time/step_s"] - sum(line[f"time/{name}_s"] for name in names))


def _read_part(part: Path) -> list[Stored]:
    try:
        with open_regular(part.resolve()) as file:
            rows = pq.ParquetFile(file).read(columns=_COLUMNS).to_pylist()
        return [_stored(row, step_of(part.stem)) for row in rows if row["error"] is None]
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{part} holds no episodes: {type(error).__name__}: {error}") from error


def _stored(row: Mapping[str, Any], step: int) -> Stored:  # Any: pyarrow knows no types
    sampled, context = dict[int, int](), dict[int, int]()
    for sample in row["samples"]:
        for segment in sample["segments"]:
            if segment["kind"] in _REPLIES and segment["round_index"] is not None:
                number, length = segment["round_index"], segment["end"] - segment["start"]
                sampled[number] = sampled.get(number, 0) + length
                context.setdefault(number, segment["start"])
    replies = tuple(
        Reply(
            seconds=item["generation_s"] or 0.0,
            wait_s=item["environment_s"] or 0.0,
            sampled=sampled.get(number, 0),
            context=context.get(number, 0),
            in_flight=1.0,
        )
        for number, item in enumerate(row["rounds"])
    )
    played_s = sum(reply.seconds + reply.wait_s for reply in replies)
    start_s = max(0.0, row["seconds"] - played_s)
    return Stored(step, row["group"], row["num_tokens"], start_s, replies)


def _with_loads(episodes: Sequence[Stored], line: Metrics, run: MeasuredRun) -> list[Stored]:
    """Return a step's episodes with how many replies were under way on an engine."""
    num_at_once = run.config.rollout.max_concurrency
    if run.way == "synchronous" and len(episodes) <= num_at_once:
        loads = loads_of(episodes)
    else:
        seconds = line["time/step_s" if run.config.rollout.overlap else "time/rollout_s"]
        reply_s = sum(reply.seconds for episode in episodes for reply in episode.replies)
        loads = [[reply_s / max(1e-9, seconds)] * len(episode.replies) for episode in episodes]
    return [
        replace(
            episode,
            replies=tuple(
                replace(reply, in_flight=max(1.0, load / run.engines))
                for reply, load in zip(episode.replies, own, strict=True)
            ),
        )
        for episode, own in zip(episodes, loads, strict=True)
    ]


def loads_of(episodes: Sequence[Stored]) -> list[list[float]]:
    """Return how many replies were under way beside each, if all episodes began together."""
    starts, ends = list[float](), list[float]()
    for episode in episodes:
        # What belongs to neither part is spread over the rounds.
        now, pause_s = 0.0, episode.start_s / max(1, len(episode.replies))
        for reply in episode.replies:
            starts.append(now + pause_s)
            ends.append(now + pause_s + reply.seconds)
            now = ends[-1] + reply.wait_s
    times = np.concatenate([starts, ends])
    order = np.argsort(times, kind="stable")
    changes = np.concatenate([np.ones(len(starts)), -np.ones(len(ends))])[order]
    times = times[order]
    # The integral of the number under way, at each time.
    areas = np.concatenate([[0.0], np.cumsum(np.cumsum(changes)[:-1] * np.diff(times))])
    first, last = np.interp(starts, times, areas), np.interp(ends, times, areas)
    loads = iter((last - first) / np.maximum(1e-9, np.subtract(ends, starts)))
    return [[float(next(loads)) for _ in episode.replies] for episode in episodes]
