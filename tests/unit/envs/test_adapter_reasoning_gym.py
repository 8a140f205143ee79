"""Questions of reasoning-gym as environments of one round."""

from __future__ import annotations

import pytest

from agentgym_rl.envs import registry
from agentgym_rl.envs.adapters.reasoning_gym import reasoning_gym_class
from agentgym_rl.envs.adapters.seeded import Outline
from agentgym_rl.envs.checker import check
from agentgym_rl.types import Task

LEGS = "reasoning_gym/leg_counting"


@pytest.mark.parametrize("generator", ["leg_counting", "chain_sum", "spell_backward", "countdown"])
def test_generators_pass_the_checker(generator: str):
    report = check(f"reasoning_gym/{generator}", tasks_per_split=5)
    assert report.problems == ()
    assert report.expert_success_rate == 1.0


def test_one_answer_ends_the_episode():
    env = registry.make(LEGS, {})
    assert "legs" in env.reset(Task(LEGS, "train", 100))
    answer = env.expert_action()
    assert answer is not None
    result = env.step(f" {answer}\n")
    assert (result.reward, result.terminated, result.success) == (1.0, True, True)
    env.reset(Task(LEGS, "train", 100))
    result = env.step("0")
    assert result.reward < 0.5 and result.terminated and not result.success
    assert result.valid_action


@pytest.mark.parametrize("answer", ["", "  ", "x" * 100_000])
def test_what_is_no_answer_is_not_valid(answer: str):
    env = registry.make(LEGS, {})
    env.reset(Task(LEGS, "train", 100))
    result = env.step(answer)
    assert (result.valid_action, result.terminated, result.reward) == (False, True, 0.0)


def test_splits_ask_different_questions():
    cls = registry.env_class(LEGS)
    env = cls()
    train = {env.reset(task) for task in cls.tasks("train")[:100]}
    test = {env.reset(task) for task in cls.tasks("test")}
    assert len(train) == len(test) == 100
    assert not train & test


def test_settings_reach_the_generator():
    cls = reasoning_gym_class(
        "chain_sum", Outline(num_train=5, num_test=2), options={"min_terms": 9, "max_terms": 9}
    )
    assert len(cls.tasks("train")) == 5
    assert sum(cls().reset(cls.tasks("train")[0]).count(sign) for sign in "+-") >= 8
    with pytest.raises(ValueError, match="refuses the settings"):
        registry.make(LEGS, {"min_animal": 3})


@pytest.mark.parametrize(
    ("generator", "words"),
    [("leg_countin", "did you mean 'leg_counting'"), ("composite", "refuses the settings")],
)
def test_unusable_generators_are_refused(generator: str, words: str):
    with pytest.raises(ValueError, match=words):
        registry.env_class(f"reasoning_gym/{generator}")
