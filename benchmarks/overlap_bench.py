"""`agentgym bench overlap`: seconds per step with and without `rollout.overlap`.

Trainer, collector, pool, episodes and run folder are those of every run. An environment whose steps
take a seeded random time, engines whose replies take a time and a learner whose updates do only
sleep, so the table shows who waits for whom on any machine. All ways have the same episodes.

    agentgym bench overlap
    agentgym bench overlap --scale 0.2 --steps 10 --ways synchronous 1
    agentgym bench overlap --shape exponential --out waits    # `bench scale --from waits/...`
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench_arguments import number_from, positive, whole_from
from rich.console import Console
from rich.table import Table
from transformers.utils.logging import disable_progress_bar

from agentgym_rl.agents.agent import Agent
from agentgym_rl.config import (
    AgentConfig,
    FixedRoundsConfig,
    GRPOConfig,
    PolicyLossConfig,
    RunConfig,
    TinyModelConfig,
    TrainingConfig,
    dump_config,
)
from agentgym_rl.config.cluster import ClusterConfig
from agentgym_rl.config.sections import RolloutConfig
from agentgym_rl.engines.base import Engine, EngineSession
from agentgym_rl.engines.channels.channel import Turn
from agentgym_rl.engines.channels.delivery import WeightSource
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.client import EnvClient, EnvSource
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.tiny import build_tiny_model, train_tokenizer
from agentgym_rl.rollout.episode import Participants, TokenPolicy
from agentgym_rl.runs.folder import Metrics, RunFolder
from agentgym_rl.training.algorithms.base import ScoredEpisode, ScoredSample, TrainingSample
from agentgym_rl.training.learner.learner import LossFunction, Observer
from agentgym_rl.training.learner.update_report import UpdateReport
from agentgym_rl.training.make import make_algorithm, make_collector
from agentgym_rl.training.run_parts import RunEnv, RunParts
from agentgym_rl.training.trainer import RLTrainer
from agentgym_rl.types import Completion, Group, Sample, SamplingParams, StepResult, Task

WAYS = ("synchronous", "carried", "1", "2")
"""Wait for all groups; carry groups over with staleness 1; overlap with that staleness."""
SHAPES = ("lognormal", "exponential", "outliers")
"""Of the environment's seconds; with outliers one step in ten takes six times as long."""
_ACTION = "wait"


@dataclass(frozen=True, slots=True)
class Times:
    """What the parts take, in seconds, and the sizes of a run."""

    reply_s: float = 0.25
    latency_s: float = 0.5
    """The mean of an environment's step."""
    sigma: float = 1.0
    update_s: float = 1.1
    steps: int = 20
    groups: int = 16
    group_size: int = 8
    rounds: int = 3
    engines: int = 2
    seed: int = 0
    shape: str = "lognormal"

    def draw_latency(self, rng: random.Random) -> float:
        """Return the seconds of a step of the environment; their mean is `latency_s`."""
        if self.shape == "exponential":
            return rng.expovariate(1 / self.latency_s)
        if self.shape == "outliers":
            return self.latency_s * (4.0 if rng.random() < 0.1 else 2 / 3)
        mu = math.log(self.latency_s) - self.sigma**2 / 2
        return rng.lognormvariate(mu, self.sigma)


class SleepingSource(EnvSource):
    """Environments whose steps sleep; the seconds depend on the seed, the task and how many
    episodes it has had."""

    SPEC = EnvSpec(
        name="sleeping",
        summary="steps that take a seeded time",
        instructions="Wait.",
        example_action=_ACTION,
        splits=("train",),
        categories=("",),
        max_rounds=1000,
    )

    def __init__(self, times: Times) -> None:
        self._times, self._num_played = times, Counter[int]()

    async def spec(self) -> EnvSpec:
        return self.SPEC

    async def aclose(self) -> None:
        """Nothing is held."""

    def draws(self, task: Task) -> Callable[[], float]:
        """Return what draws the seconds of the steps of one more episode of a task."""
        times = self._times
        rng = random.Random(f"{times.seed}/{task.index}/{self._num_played[task.index]}")
        self._num_played[task.index] += 1
        return lambda: times.draw_latency(rng)

    async def _new_client(self) -> EnvClient:
        return _SleepingClient(self, self._times.rounds)

    async def _do_tasks(self, split: str) -> tuple[Task, ...]:
        number = self._times.steps * self._times.groups
        return tuple(Task(self.SPEC.name, split, index) for index in range(number))


class _SleepingClient(EnvClient):
    def __init__(self, source: SleepingSource, rounds: int) -> None:
        super().__init__(SleepingSource.SPEC.name)
        self._source, self._rounds = source, rounds
        self._draw: Callable[[], float] = float

    async def _do_create(self) -> None:
        """Nothing is held."""

    async def _do_reset(self, task: Task) -> str:
        self._draw = self._source.draws(task)
        return "Wait."

    async def _do_step(self, round_index: int, action: str) -> StepResult:
        await asyncio.sleep(self._draw())
        is_last = round_index + 1 == self._rounds
        return StepResult("Wait.", float(is_last), terminated=is_last, success=is_last)

    async def _do_observation(self) -> str:
        return "Wait."

    async def _do_available_actions(self) -> tuple[str, ...]:
        return (_ACTION,)

    async def _do_close(self) -> None:
        """Nothing is held."""


class SleepingEngine:
    """An engine of a pool; any number of replies may be under way."""

    max_context: int | None = None
    is_alive = is_ready = True

    def __init__(self, number: int, times: Times, token_ids: Sequence[int]) -> None:
        self.name, self.version, self.num_under_way = f"engine-{number}", 0, 0
        self._reply_s, self._token_ids = times.reply_s, tuple(token_ids)

    def session(self, key: int) -> EngineSession:
        return _SleepingSession(self)

    async def reply(self) -> Completion:
        version = self.version
        self.num_under_way += 1
        try:
            await asyncio.sleep(self._reply_s)
        finally:
            self.num_under_way -= 1
        return Completion(self._token_ids, (-0.5,) * len(self._token_ids), True, version)

    def begin_update(self) -> None:
        """The weights of others are no affair of this one."""

    def rest(self) -> None:
        assert not self.num_under_way, "told to rest while a reply was under way"

    def take_metrics(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        """Nothing is held."""


class _SleepingSession(EngineSession):
    def __init__(self, engine: SleepingEngine) -> None:
        self._engine = engine

    async def generate(self, new_ids: Sequence[int], params: SamplingParams) -> Completion:
        return await self._engine.reply()

    def close(self) -> None:
        """Nothing is held."""


class SleepingChannel:
    """Gives versions, to one engine after another where they go on sampling."""

    def follow(self, source: WeightSource) -> bool:
        return True

    def publish(
        self,
        version: int,
        engines: Sequence[SleepingEngine],
        *,
        turn: Turn[SleepingEngine] | None = None,
    ) -> int:
        for engine in engines:
            with nullcontext() if turn is None else turn([engine]):
                assert not engine.num_under_way, "weights changed while a reply was under way"
                engine.version = version
        return 0

    def close(self) -> None:
        """Nothing is held."""


class SleepingLearner:
    """A `LearnerGroup` that computes nothing; each update sleeps."""

    def __init__(self, times: Times, sleep: Callable[[float], None] = time.sleep) -> None:
        self._update_s, self._sleep = times.update_s, sleep

    def score(self, groups: Sequence[Group]) -> list[list[ScoredEpisode]]:
        return [
            [ScoredEpisode(e, tuple(self.score_samples(e.samples))) for e in group.episodes]
            for group in groups
        ]

    def score_samples(self, samples: Sequence[Sample]) -> list[ScoredSample]:
        return [ScoredSample(sample) for sample in samples]

    def update(
        self,
        samples: Sequence[TrainingSample],
        loss: LossFunction,
        *,
        updates_policy: bool = True,
        kept_share: float = 1.0,
        observe: Observer | None = None,
    ) -> UpdateReport:
        self._sleep(self._update_s)
        return UpdateReport()

    def fetch_weights(self) -> None:
        """There are none."""

    def schedule_after(self, num_updates: int) -> None:
        """There is no learning rate."""

    def take_rates(self) -> dict[str, float]:
        return {}

    def restart(self) -> None:
        """There is no state."""

    def save_state(self, folder: Path) -> Callable[[], None]:
        return lambda: None

    def restore_state(self, folder: Path) -> None:
        """There is no state."""

    def check(self) -> None:
        """It lives."""

    def close(self) -> None:
        """Nothing is held."""


def run_config(way: str, times: Times) -> RunConfig:
    """Return the recipe of a run in one of WAYS."""
    stale = {"synchronous": 0, "carried": 1}.get(way) if not way.isdigit() else int(way)
    return RunConfig(
        seed=times.seed,
        cluster=ClusterConfig(type="local", engines=times.engines),
        algorithm=GRPOConfig(group_size=times.group_size),
        rollout=RolloutConfig(
            max_staleness=stale or 0,
            overlap=way.isdigit(),
            max_tokens_per_round=16,
            max_tokens=512,
            max_concurrency=4096,
        ),
        rounds=FixedRoundsConfig(rounds=times.rounds),
        policy_loss=PolicyLossConfig(importance_cap=2.0),
        training=TrainingConfig(steps=times.steps, tasks_per_step=times.groups),
    )


def sleeping_policy() -> Policy:
    """Return a tiny policy; only its tokenizer is used."""
    tokenizer = train_tokenizer([_ACTION, "Wait."], vocab_size=300)
    model = build_tiny_model(TinyModelConfig(vocab_size=300, hidden_size=32), tokenizer, seed=0)
    return Policy(model.eval(), tokenizer, ChatRenderer(tokenizer))


def sleeping_pool(times: Times, token_ids: Sequence[int]) -> Engine:
    """Return engines that sleep, in the pool of every run with `cluster.type=local`."""
    engines = [SleepingEngine(number, times, token_ids) for number in range(times.engines)]
    return EnginePool(engines, SleepingChannel(), wait_s=60.0)


async def run_way(
    way: str,
    times: Times,
    folder: Path,
    *,
    make_engine: Callable[[Times, Sequence[int]], Engine] = sleeping_pool,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Metrics]:
    """Train in a new run folder and return its metrics, a line per step."""
    config, policy, run = run_config(way, times), sleeping_policy(), RunFolder(folder)
    run.create(dump_config(config))
    source, engine = SleepingSource(times), make_engine(times, policy.renderer.reply(_ACTION))
    agent = Agent(AgentConfig(format="direct", include_instructions=False), source.SPEC)
    participants = Participants(source, agent, TokenPolicy(engine, policy.renderer))
    env = RunEnv(source.SPEC.name, config, participants, await source.tasks("train"))
    parts = RunParts(config, policy, run, [env])
    trainer = RLTrainer(
        parts,
        algorithm=make_algorithm(config),
        learner=SleepingLearner(times, sleep),
        collector=make_collector(parts),
    )
    try:
        await trainer.train()
    finally:
        engine.close()
    return run.read_metrics()


def summary(way: str, lines: Sequence[Metrics]) -> dict[str, float]:
    """Return the means over a run's steps, and the oldest token that it learned from."""
    return {
        "step_s": fmean(line["time/step_s"] for line in lines),
        "waited_s": fmean(line["time/rollout_s"] for line in lines),
        "publish_s": fmean(line["time/publish_s"] for line in lines),
        "mean": fmean(line.get("rollout/staleness_mean", 0.0) for line in lines),
        "max": max(line.get("rollout/staleness_max", 0.0) for line in lines),
    }


def table(found: dict[str, dict[str, float]]) -> Table:
    first = next(iter(found.values()))["step_s"]
    shown = Table("way", "s/step", "faster", "waited", "published", "staleness", "most")
    for way, line in found.items():
        name = f"overlapped, {way}" if way.isdigit() else way
        shown.add_row(
            name,
            f"{line['step_s']:.2f}",
            f"{first / line['step_s']:.2f}",
            f"{line['waited_s']:.2f}",
            f"{line['publish_s']:.2f}",
            f"{line['mean']:.2f}",
            f"{line['max']:g}",
        )
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="agentgym bench overlap",
        description="Seconds per step with and without rollout.overlap; the parts only sleep.",
        epilog="example: agentgym bench overlap --scale 0.2 --ways synchronous 1",
    )
    add, whole = parser.add_argument, whole_from(1)
    add("--ways", nargs="+", default=WAYS, choices=WAYS, help="1 and 2 overlap, so stale")
    add("--reply", type=number_from(0), default=0.25, help="seconds of a reply")
    add("--latency", type=positive, default=0.5, help="mean seconds of an environment's step")
    add("--shape", choices=SHAPES, default="lognormal", help="how these seconds are distributed")
    add("--sigma", type=number_from(0), default=1.0, help="of the logarithm of lognormal ones")
    add("--update", type=number_from(0), default=1.1, help="seconds of an update")
    add("--scale", type=positive, default=1.0, help="by which all these seconds are multiplied")
    add("--steps", type=whole, default=20)
    add("--groups", type=whole, default=16, help="of a step")
    add("--group-size", type=whole, default=8)
    add("--rounds", type=whole, default=3)
    add("--engines", type=whole, default=2)
    add("--seed", type=whole_from(0), default=0)
    add("--out", type=Path, help="folder that keeps the runs, one for each way")
    chosen = parser.parse_args(arguments)
    times = Times(
        *(chosen.scale * each for each in (chosen.reply, chosen.latency)),
        chosen.sigma,
        chosen.scale * chosen.update,
        chosen.steps,
        chosen.groups,
        chosen.group_size,
        chosen.rounds,
        chosen.engines,
        chosen.seed,
        chosen.shape,
    )
    disable_progress_bar()
    found: dict[str, dict[str, float]] = {}
    for way in chosen.ways:
        with _folder(chosen.out, way) as folder:
            found[way] = summary(way, asyncio.run(run_way(way, times, folder)))
    Console(highlight=False).print(table(found))


@contextmanager
def _folder(out: Path | None, way: str) -> Iterator[Path]:
    if out is not None:
        yield out / way
        return
    with tempfile.TemporaryDirectory(prefix="overlap-") as folder:
        yield Path(folder)


if __name__ == "__main__":
    main()
