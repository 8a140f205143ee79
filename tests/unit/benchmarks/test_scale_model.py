"""The model of `agentgym bench scale`: small cases by hand, and the real trainer's own times."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym_rl.runs.episodes import read_groups
from fake_engines import RestlessEngine
from virtual_time import virtual_seconds

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from overlap_bench import SleepingSource, Times, run_way
from scale_model import EpisodePlan, Job, Outcome, Simulation, Speeds

ONE_TOKEN_A_SECOND = Speeds(token_s=1.0)


def episode(*rounds: tuple[float, float], num_tokens: int = 10) -> EpisodePlan:
    """Return an episode of rounds of (work of the reply, seconds of the environment)."""
    work = [reply for reply, _ in rounds]
    return EpisodePlan(work, work, [1] * len(rounds), [wait for _, wait in rounds], num_tokens)


def simulate(job: Job, speeds: Speeds, *groups: Sequence[EpisodePlan]) -> Outcome:
    return Simulation(job, speeds, lambda number: groups[number % len(groups)]).run()


def test_a_step_waits_for_its_slowest_episode_and_then_updates():
    # 2 + 1 + 2 + 3 = 8 against 2 + 1; then 5 of the update, 0.5 of the weights, 0.25 of the rest.
    speeds = replace(ONE_TOKEN_A_SECOND, update_s=5.0, publish_s=0.5, rest_s=0.25)
    group = [episode((2, 1), (2, 3)), episode((2, 1))]
    found = simulate(Job("synchronous", steps=3, groups=1), speeds, group)
    assert found.step_s == pytest.approx(13.75)
    assert (found.waited_s, found.staleness_max) == (pytest.approx(8.0), 0)
    assert found.learner == pytest.approx(5 / 13.75)
    assert found.engines == pytest.approx(4 / 13.75)  # both at 0 to 2, one at 3 to 5
    assert found.env_calls == pytest.approx((1 + 3 + 1) / 13.75)


def test_replies_share_an_engine():
    # Alone a unit takes 1 + 1 = 2 s, of two each 1 + 2 = 3 s: 1 unit of both by 3 s, and the second
    # unit of the longer one by 5 s.
    speeds = Speeds(token_s=1.0, token_s_each=1.0)
    found = simulate(Job("synchronous", 1, 1), speeds, [episode((1, 0)), episode((2, 0))])
    assert found.step_s == pytest.approx(5.0)
    assert found.in_flight == pytest.approx((2 * 3 + 1 * 2) / 5)


def test_episodes_go_to_the_least_loaded_engine():
    speeds = Speeds(token_s=0.0, token_s_each=1.0)
    group = [episode((1, 0))] * 4
    assert simulate(Job("synchronous", 1, 1), speeds, group).step_s == pytest.approx(4.0)
    assert simulate(Job("synchronous", 1, 1, engines=2), speeds, group).step_s == pytest.approx(2)
    assert simulate(Job("synchronous", 1, 1, engines=9), speeds, group).step_s == pytest.approx(1)


def test_places_and_the_controller_are_taken_in_turn():
    group = [episode((1, 2))] * 3
    waiting = Job("synchronous", 1, 1, max_concurrency=1)
    assert simulate(waiting, ONE_TOKEN_A_SECOND, group).step_s == pytest.approx(9.0)
    slow = replace(ONE_TOKEN_A_SECOND, controller_s=0.5)  # the third is handled at 2.5
    assert simulate(Job("synchronous", 1, 1), slow, group).step_s == pytest.approx(4.5)


def test_learner_gpus_share_an_update_but_not_a_sequence():
    # 10 + 10 + 40 tokens: 60 of one GPU, 40 of two or more, since one has the longest sequence.
    speeds = replace(ONE_TOKEN_A_SECOND, update_s=1.0, learner_token_s=0.1)
    group = [episode((1, 0)), episode((1, 0)), episode((1, 0), num_tokens=40)]
    for learners, update_s in ((1, 7.0), (2, 5.0), (8, 5.0)):
        found = simulate(Job("synchronous", 1, 1, learners=learners), speeds, group)
        assert found.step_s == pytest.approx(1 + update_s)
    # In two parts of two groups each, one GPU of two has the longest of each part.
    found = simulate(Job("synchronous", 1, 4, learners=2, updates=2), speeds, group)
    assert found.step_s == pytest.approx(1 + 1 + 0.1 * (60 + 60))


def test_overlapping_hides_the_update():
    # Collecting takes 4, the update 3. From the second step on whichever is slower counts.
    speeds = replace(ONE_TOKEN_A_SECOND, update_s=3.0)
    group = [episode((1, 3))]
    found = simulate(Job("1", 12, 1), speeds, group)
    assert found.staleness_max <= 1
    assert simulate(Job("synchronous", 12, 1), speeds, group).step_s == pytest.approx(7.0)
    assert found.step_s < 4.5


def test_an_engine_takes_weights_when_its_replies_have_ended():
    # The second group's second reply begins at 2 + 2.5. The update ends at 4 + 1, and the weights
    # wait for that reply until 7.5. Both replies, of three tokens in all, are one version old.
    speeds = replace(ONE_TOKEN_A_SECOND, update_s=1.0, publish_s=0.5)
    groups = [episode((4, 0))], [episode((2, 2.5), (3, 0))]
    for takes_turns in (True, False):
        speeds = replace(speeds, takes_turns=takes_turns)
        found = simulate(Job("1", 2, 1), speeds, *groups)
        assert found.steps_s == pytest.approx((7.5 + 0.5, 1 + 0.5))
        assert (found.staleness_mean, found.staleness_max) == (pytest.approx(2 / 3), 1)


def test_all_is_read_again_with_new_weights():
    # Carried over: the second group's first reply is over at 2, its environment at 10. The second
    # reply begins then, with the weights of 6 and 7 units for its context in place of 1.
    speeds = replace(ONE_TOKEN_A_SECOND, update_s=2.0)
    slow = EpisodePlan((2.0, 1.0), (2.0, 7.0), (1, 1), (8.0, 0.0), 10)
    found = simulate(Job("carried", 2, 1), speeds, [episode((4, 0))], [slow])
    assert found.steps_s == pytest.approx((4 + 2, 4 + 7 + 2))
    assert (found.staleness_mean, found.staleness_max) == (pytest.approx(1 / 3), 1)


def test_replies_wait_for_the_learner_where_groups_carry_over():
    # The second group's environment answers at 5, during the update from 4 to 6.
    speeds = replace(ONE_TOKEN_A_SECOND, update_s=2.0)
    groups = [episode((4, 0))], [episode((2, 3), (1, 0))]
    assert simulate(Job("carried", 2, 1), speeds, *groups).steps_s == pytest.approx((6, 1 + 2))


def restless(times: Times, token_ids: Sequence[int]) -> RestlessEngine:
    return RestlessEngine(times.reply_s, token_ids)


LATENCIES = Times(reply_s=0.01, groups=6, group_size=3, steps=8)


def plans_of(times: Times, sync_run: Path) -> list[list[EpisodePlan]]:
    """Return the groups of runs by number, with the seconds that their environments draw."""
    source, plans = SleepingSource(times), list[list[EpisodePlan]]()
    for step in range(1, times.steps + 1):
        for group in read_groups(sync_run / "episodes" / f"train-{step:06d}.parquet"):
            draws = [source.draws(group[0].task) for _ in group]
            plans.append(
                [
                    episode(*((times.reply_s, draw()) for _ in range(times.rounds)), num_tokens=0)
                    for draw in draws
                ]
            )
    return plans


@pytest.mark.long
@pytest.mark.slow
def test_the_model_takes_as_long_as_the_trainer_in_virtual_time(tmp_path: Path):
    speeds = replace(
        ONE_TOKEN_A_SECOND, update_s=LATENCIES.update_s, waits_for_replies=False
    )  # as the test's engine
    plans = list[list[EpisodePlan]]()
    for way in ("synchronous", "carried", "1", "2"):
        lines, seconds = virtual_seconds(
            lambda loop, way=way: run_way(
                way, LATENCIES, tmp_path / way, make_engine=restless, sleep=loop.sleep
            )
        )
        plans = plans or plans_of(LATENCIES, tmp_path / way)
        job = Job(way, LATENCIES.steps, LATENCIES.groups)
        found = simulate(job, speeds, *plans)
        assert sum(found.steps_s) == pytest.approx(seconds, abs=1e-3)
        stalest = max(line.get("rollout/staleness_max", 0.0) for line in lines)
        assert found.staleness_max == stalest


@pytest.mark.long
def test_a_thousand_engines_and_a_million_rounds_take_less_than_a_minute():
    def draw(number: int) -> list[EpisodePlan]:
        rng = random.Random(number)
        waits = [[rng.lognormvariate(-1.2, 1.0) for _ in range(16)] for _ in range(8)]
        return [EpisodePlan([120.0] * 16, [240.0] * 16, [50] * 16, one, 1000) for one in waits]

    speeds = Speeds(0.005, 0.0001, learner_token_s=1e-4, publish_s=1.0, takes_turns=False)
    started = time.process_time()
    found = Simulation(Job("1", 10, 800, engines=1000, learners=100), speeds, draw).run()
    assert found.num_rounds == 1_024_000
    assert time.process_time() - started < 60
