"""Gymnasium's environments as ours: words for numbers, rewards in a range, clear refusals."""

from __future__ import annotations

from collections.abc import Mapping

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from agentgym_rl.envs import registry
from agentgym_rl.envs.adapters.gymnasium import gymnasium_class
from agentgym_rl.envs.adapters.outcome import Outcome, reaches
from agentgym_rl.envs.adapters.seeded import Outline
from agentgym_rl.envs.adapters.spaces import is_printable, plain_picture, print_value
from agentgym_rl.envs.base import Environment
from agentgym_rl.envs.checking.checker import check
from agentgym_rl.types import StepResult, Task
from case_shares import spread_over

TOY_TEXT = ("FrozenLake-v1", "CliffWalking-v1", "Taxi-v4", "Blackjack-v1")


def play(env: Environment, actions: str) -> StepResult:
    return [env.step(action) for action in actions.split()][-1]


def first_task(env: Environment) -> Task:
    return type(env).tasks("train")[0]


@pytest.mark.parametrize("env_id", spread_over(TOY_TEXT, 2))
def test_toy_text_passes_the_checker(env_id: str):
    num_processes = 2 if env_id == "FrozenLake-v1" else 0  # each imports the whole library
    assert (
        check(f"gymnasium/{env_id}", tasks_per_split=5, num_processes=num_processes).problems == ()
    )


def test_a_name_is_always_the_same_class():
    cls = registry.env_class("gymnasium/FrozenLake-v1")
    assert registry.env_class("gymnasium/FrozenLake-v1") is cls
    assert cls.spec.name == cls.tasks("train")[0].env == "gymnasium/FrozenLake-v1"
    assert cls.spec.max_rounds == 100


def test_frozen_lake_is_seen_and_solved():
    env = registry.make("gymnasium/FrozenLake-v1", {"is_slippery": False})
    first = env.reset(first_task(env))
    assert first.startswith("Goal: Reach G")
    assert first.endswith("[S]FFF\nFHFH\nFFFH\nHFFG")
    assert env.step("Down.").observation.endswith("SFFF\n[F]HFH\nFFFH\nHFFG")
    assert env.available_actions() == ("left", "down", "right", "up")
    result = play(env, "down right right down 2")
    assert (result.reward, result.terminated, result.success) == (1.0, True, True)


def test_plain_numbers_of_the_info_are_metrics():
    env = registry.make("gymnasium/Taxi-v4", {})
    env.reset(first_task(env))
    assert env.step("north").metrics == {"prob": 1.0}  # and no action_mask, which is an array


def test_a_hole_ends_without_success():
    env = registry.make("gymnasium/FrozenLake-v1", {"is_slippery": False})
    env.reset(first_task(env))
    result = play(env, "down right")
    assert (result.reward, result.terminated, result.success) == (0.0, True, False)


def test_cliff_walking_succeeds_at_its_end_though_it_never_pays():
    env = registry.make("gymnasium/CliffWalking-v1", {})
    env.reset(first_task(env))
    result = play(env, "up" + " right" * 11 + " down")
    assert (result.reward, result.success) == (1.0, True)


def test_taxi_lists_only_actions_that_do_something():
    env = registry.make("gymnasium/Taxi-v4", {})
    text = env.reset(first_task(env))
    assert "<blue " in text and "<magenta " in text and "\x1b" not in text
    assert set(env.available_actions()) < {"south", "north", "east", "west", "pickup", "dropoff"}


def test_blackjack_is_told_in_words():
    env = registry.make("gymnasium/Blackjack-v1", {})
    assert "The dealer shows" in env.reset(first_task(env))


def test_a_word_that_is_no_action_changes_nothing():
    env = registry.make("gymnasium/CliffWalking-v1", {})
    env.reset(first_task(env))
    result = env.step("fly\x00")
    assert result == StepResult(
        '"fly?" is not an action. Actions: up, right, down, left.', valid_action=False
    )


def test_task_seeds_vary_the_start_and_repeat():
    env = registry.make("gymnasium/Taxi-v4", {})
    tasks = [Task("gymnasium/Taxi-v4", "train", 100, seed=seed) for seed in (0, 0, 1, 2, -3)]
    texts = [env.reset(task) for task in tasks]
    assert texts[0] == texts[1]
    assert len(set(texts)) == 4


class Counter(gymnasium.Env[np.ndarray, np.ndarray]):
    """Pays what it is given; observations and actions need hooks."""

    observation_space = spaces.Box(0, 1, (100, 100))
    action_space = spaces.Box(-5, 5, (1,))

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None
    ) -> tuple[np.ndarray, dict[str, object]]:
        super().reset(seed=seed)
        self.total = 0.0
        return np.zeros((100, 100)), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self.total += float(action[0])
        return np.zeros((100, 100)), float(action[0]), False, self.total > 9, {}


gymnasium.register("AdapterCounter-v0", entry_point=Counter)


def parse_number(text: str, env: gymnasium.Env) -> np.ndarray | None:
    words = text.split()
    return np.array([float(words[0])]) if words[:1] and words[0].lstrip("-").isdigit() else None


def test_hooks_are_named_where_they_are_needed():
    with pytest.raises(ValueError, match=r"describe=.*\(env, observation\) -> str"):
        gymnasium_class("AdapterCounter-v0")
    with pytest.raises(ValueError, match=r"parse=.*\(text, env\) -> action"):
        gymnasium_class("AdapterCounter-v0", describe=lambda env, seen: "x")
    with pytest.raises(ValueError, match="4 actions, but 2 names"):
        gymnasium_class("FrozenLake-v1", actions=("left", "right"))


def test_rewards_are_cut_so_that_their_sum_stays_in_the_range():
    cls = gymnasium_class(
        "AdapterCounter-v0",
        Outline(name="counter", num_train=3, num_test=2, max_rounds=9, instructions="Count."),
        describe=lambda env, seen: f"total {env.unwrapped.total:g}",
        parse=parse_number,
        reward_range=(-1.0, 6.0),
        success=lambda outcome: outcome.total_reward == 5,
    )
    assert (len(cls.tasks("train")), len(cls.tasks("test")), cls.spec.max_rounds) == (3, 2, 9)
    env = cls()
    env.reset(cls.tasks("train")[0])
    # Sums of the environment: -2, 1, 4, 7, 10. Within the range: -1, 1, 4, 6, 6.
    results = [env.step(action) for action in ("-2", "3", "3", "3", "3")]
    assert [result.reward for result in results] == [-1.0, 2.0, 3.0, 2.0, 0.0]
    assert (results[-1].truncated, results[-1].terminated) == (True, False)
    assert results[1].observation == "total 1"
    assert not env.step("much").valid_action
    env.reset(cls.tasks("train")[0])
    assert env.step("5").success


def test_success_ends_the_episode():
    cls = gymnasium_class("CliffWalking-v1", success=lambda outcome: outcome.reward == -1)
    env = cls()
    env.reset(cls.tasks("test")[0])
    result = env.step("up")
    assert (result.success, result.terminated, result.reward) == (True, True, 1.0)


def test_an_environment_that_pays_for_surviving_must_reach_its_threshold():
    env = registry.make("gymnasium/CartPole-v1", {"max_episode_steps": 9})
    env.reset(first_task(env))
    results = [env.step("0") for _ in range(9)]
    assert results[-1].is_last and not results[-1].success
    assert "475 or more" in env.spec.success
    rule = reaches(475)
    assert rule(Outcome(1.0, 500.0, terminated=False, truncated=True, info={}))
    assert not rule(Outcome(1.0, 480.0, terminated=False, truncated=False, info={}))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gymnasium/FrozenLak-v1", "did you mean 'FrozenLake-v1'"),
        ("gymnasium/Taxi-v3", "did you mean 'Taxi-v4'"),
        ("gymnasum/Taxi-v4", "did you mean 'gymnasium/Taxi-v4'"),
        ("gymnasium/Pendulum-v1", "neither text nor discrete"),
    ],
)
def test_unknown_ids_are_refused_with_a_guess(name: str, words: str):
    with pytest.raises(ValueError, match=words):
        registry.env_class(name)


def test_unknown_options_are_refused():
    with pytest.raises(ValueError, match=r"cannot be made with the options.*is_slipery"):
        registry.make("gymnasium/FrozenLake-v1", {"is_slipery": False})


@pytest.mark.parametrize("changes", [{"num_train": 0}, {"num_test": -1}, {"max_rounds": -1}])
def test_impossible_outlines_are_refused(changes: Mapping[str, int]):
    with pytest.raises(ValueError, match="must be"):
        Outline(**changes)


def test_values_are_printed_shortly():
    assert print_value(np.int64(3)) == "3"
    assert print_value(np.array([0.5, -1.25], dtype=np.float32)) == "[0.5, -1.25]"
    assert print_value({"at": np.array([1, 2]), "key": 0}) == "at: [1, 2], key: 0"
    assert print_value((7, 10, 0)) == "7, 10, 0"


def test_what_is_too_large_is_not_printed():
    assert is_printable(spaces.Dict({"at": spaces.MultiDiscrete([3, 3]), "to": spaces.Text(9)}))
    assert not is_printable(spaces.Dict({"view": spaces.Box(0, 255, (64, 64, 3))}))
    assert not is_printable(spaces.Sequence(spaces.Discrete(2)))


def test_colours_of_a_picture_are_written_out():
    assert plain_picture("\n\x1b[41mS\x1b[0mF\n\x1b[34;1mR\x1b[0m:\x1b[1mY\x1b[0m") == (
        "[S]F\n<blue R>:Y"
    )
