"""Which environment's tasks come next: shares, what is learnable, and exact resumption."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest

from agentgym_rl.config import RolloutConfig, RunConfig, TrainingConfig, parse_config
from agentgym_rl.rollout.tasks import EpochSampler
from agentgym_rl.training.collect.task_mix import TaskMix
from agentgym_rl.training.run_parts import RunEnv
from agentgym_rl.types import Episode, Group, StopReason, Task

WEIGHTS = {"a": 2.0, "b": 1.0, "held_out": 0.0, "c": 1.0}


def make_mix(weights: dict[str, float] | None = None, **rollout: float) -> TaskMix:
    # A group of several environments is more than a run with one may set.
    settings = RolloutConfig().model_copy(update=rollout)
    config = RunConfig(training=TrainingConfig(tasks_per_step=4)).model_copy(
        update={"rollout": settings}
    )
    envs = [
        # Nobody plays here.
        RunEnv(label, config, None, [Task(label, "train", n) for n in range(7)], weight)  # pyrefly: ignore[bad-argument-type]
        for label, weight in (WEIGHTS if weights is None else weights).items()
    ]
    return TaskMix(envs, config)


def make_group(task: Task, rewards: Sequence[float | None]) -> Group:
    return Group(
        task,
        tuple(
            Episode(
                task=task,
                sample_index=index,
                stop_reason=StopReason.ENV_ERROR if reward is None else StopReason.TERMINATED,
                reward=reward,
                success=reward == 1.0,
                rounds=(),
                messages=(),
                samples=(),
                seconds=0.0,
            )
            for index, reward in enumerate(rewards)
        ),
    )


def test_shares_are_those_of_the_weights_to_within_one_task():
    mix, counts = make_mix(), Counter[str]()
    for taken in range(1, 200):
        (task,) = mix.take(1)
        counts[task.env] += 1
        for label, share in {"a": 0.5, "b": 0.25, "c": 0.25}.items():
            assert abs(counts[label] - share * taken) < 1
    assert "held_out" not in counts


def test_environments_alternate_and_each_keeps_its_order():
    mix = make_mix()
    tasks = [task for _ in range(7) for task in mix.take(4)]
    assert [task.env for task in tasks[:4]] == ["a", "b", "c", "a"]
    for label in "abc":
        own = [task for task in tasks if task.env == label]
        order = EpochSampler([Task(label, "train", n) for n in range(7)], seed=0)
        assert own == order.take(1, len(own))


def test_one_environment_gets_every_task_in_its_order():
    mix, order = (
        make_mix({"a": 0.1}),
        EpochSampler([Task("a", "train", n) for n in range(7)], seed=0),
    )
    assert [mix.take(4) for _ in range(5)] == [order.take(step, 4) for step in range(1, 6)]
    resumed = make_mix({"a": 0.1})
    resumed.resume({}, num_taken=20)  # a checkpoint of an older version
    assert resumed.take(4) == order.take(6, 4)
    older = make_mix({"a": 0.1})
    older.resume({"tasks": {"place": 8, "wakes": []}}, num_taken=20)
    assert older.take(4) == order.take(3, 4)


def test_shares_follow_what_is_learnable_down_to_a_floor():
    mix = make_mix({"mixed": 1.0, "solved": 1.0, "hopeless": 2.0}, follow_learnable=0.8)
    assert mix.shares == {"mixed": 0.25, "solved": 0.25, "hopeless": 0.5}
    for _ in range(400):
        mix.learn_from([make_group(Task("mixed", "train", 0), [0.0, 1.0])], min_size=2)
        mix.learn_from([make_group(Task("solved", "train", 0), [1.0, 1.0])], min_size=2)
        mix.learn_from([make_group(Task("hopeless", "train", 0), [0.0, 0.0])], min_size=2)
    # Worth 1, 0.2 and 2 * 0.2.
    expected = {"mixed": 1 / 1.6, "solved": 0.2 / 1.6, "hopeless": 0.4 / 1.6}
    assert mix.shares == pytest.approx(expected, abs=1e-4)
    counts = Counter(task.env for task in mix.take(160))
    assert counts["mixed"] == 100 and counts["solved"] == 20 and counts["hopeless"] == 40
    metrics = mix.metrics()
    assert metrics["rollout/mixed/learnable_rate"] == pytest.approx(1.0)
    assert metrics["rollout/solved/share_of_tasks"] == pytest.approx(0.125, abs=1e-4)


def test_failed_groups_say_nothing_about_what_is_learnable():
    mix = make_mix({"a": 1.0, "b": 1.0}, follow_learnable=0.9)
    for _ in range(50):
        mix.learn_from([make_group(Task("a", "train", 0), [None, None, 0.0])], min_size=2)
        mix.learn_from([make_group(Task("b", "train", 0), [None, 0.0, 1.0])], min_size=2)
    assert mix.shares == {"a": 0.5, "b": 0.5}


def test_where_nothing_is_learnable_weights_decide():
    mix = make_mix({"a": 3.0, "b": 1.0}, follow_learnable=0.9)
    mix._learnable = {"a": 0.0, "b": 0.0}
    assert mix.shares == {"a": 0.75, "b": 0.25}


@pytest.mark.parametrize("rest", [0, 1])
def test_a_resumed_mix_takes_what_one_that_never_stopped_would(rest: int):
    def play(mix: TaskMix, step: int) -> list[str]:
        tasks = [*mix.take(4), *mix.take_refill(step, 1, 2)]
        for task in tasks:
            solved = (task.index + step) % 3 == 0
            mix.learn_from([make_group(task, [1.0, 1.0] if solved else [0.0, 1.0])], min_size=2)
        return [task.id for task in tasks]

    def make() -> TaskMix:
        return make_mix(follow_learnable=0.7, rest_solved=rest, max_refills=1)

    whole = make()
    expected = [play(whole, step) for step in range(1, 13)]
    for stop in (1, 5, 11):
        first, second = make(), make()
        for step in range(1, stop + 1):
            play(first, step)
        second.resume(json.loads(json.dumps(first.state())), num_taken=4 * stop)
        assert [play(second, step) for step in range(stop + 1, 13)] == expected[stop:]
        assert second.state() == whole.state()


def test_refills_do_not_shift_what_later_steps_work_on():
    plain, refilled = make_mix(max_refills=2), make_mix(max_refills=2)
    for step in range(1, 6):
        assert refilled.take(4) == plain.take(4)
        assert len(refilled.take_refill(step, 1, 3)) == 3
    envs = Counter(task.env for step in range(200) for task in plain.take_refill(step + 1, 1, 4))
    assert envs["a"] / 800 == pytest.approx(0.5, abs=0.06) and "held_out" not in envs


def test_labels_of_one_environment_are_told_apart():
    table = {"envs": {"easy": {"name": "babyai"}, "hard": {"name": "babyai"}}}
    assert {c.env.name for c in parse_config(table, source="r").environments.values()} == {"babyai"}
