"""Questions of reasoning-gym as environments of one round."""

from __future__ import annotations

import pytest

from agentgym_rl.envs import registry
from agentgym_rl.envs.adapters import reasoning_gym as adapter
from agentgym_rl.envs.adapters.reasoning_gym import reasoning_gym_class
from agentgym_rl.envs.adapters.seeded import Outline
from agentgym_rl.envs.checking.checker import check
from agentgym_rl.errors import EnvError
from agentgym_rl.sandbox.calls import Sandbox, SandboxReply
from agentgym_rl.sandbox.interpreter import why_unavailable
from agentgym_rl.types import Task

LEGS = "reasoning_gym/leg_counting"
SUM = "reasoning_gym/chain_sum"

needs_sandbox = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())


@needs_sandbox
@pytest.mark.parametrize(
    "generator",
    [
        "countdown",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("leg_counting", "chain_sum", "spell_backward")
        ),
    ],
)
def test_generators_pass_the_checker(generator: str):
    num_processes = 2 if generator == "leg_counting" else 0  # each imports the whole library
    report = check(f"reasoning_gym/{generator}", tasks_per_split=5, num_processes=num_processes)
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
    [
        ("leg_countin", "did you mean 'leg_counting'"),
        ("composite", "refuses the settings"),
        ("game_of_life_halting", "gives any text the full score"),
    ],
)
def test_unusable_generators_are_refused(generator: str, words: str):
    with pytest.raises(ValueError, match=words):
        registry.env_class(f"reasoning_gym/{generator}")


def test_without_a_sandbox_only_plain_scorers_work(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(adapter, "why_unavailable", lambda: "there is no Landlock")
    with pytest.raises(EnvError, match=r"there is no Landlock; these .* leg_counting"):
        registry.make(SUM, {})
    env = registry.make(LEGS, {})
    env.reset(Task(LEGS, "train", 100))
    answer = env.expert_action()
    assert answer is not None and env.step(answer).success


@needs_sandbox
@pytest.mark.parametrize(
    "reply",
    [
        SandboxReply(b"1.0", "it ran longer than 10 seconds"),
        SandboxReply(b"", "it crashed (SIGSEGV)"),
        SandboxReply(b"", ""),
        SandboxReply(b"NaN", ""),
        SandboxReply(b'"1.0"', ""),
        SandboxReply(b"null", ""),
    ],
)
def test_an_answer_that_breaks_its_scorer_is_wrong(
    reply: SandboxReply, monkeypatch: pytest.MonkeyPatch
):
    env = registry.make(SUM, {})
    env.reset(Task(SUM, "train", 100))
    monkeypatch.setattr(Sandbox, "call", lambda *_, **__: reply)
    result = env.step("1")
    assert (result.reward, result.success, result.valid_action) == (0.0, False, False)
    assert result.terminated


@needs_sandbox
def test_a_sandbox_that_fails_is_not_the_agents_doing(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> SandboxReply:
        raise EnvError("no slot of the sandbox was free")

    env = registry.make(SUM, {})
    env.reset(Task(SUM, "train", 100))
    monkeypatch.setattr(Sandbox, "call", fail)
    with pytest.raises(EnvError, match="no slot"):
        env.step("1")


@needs_sandbox
@pytest.mark.parametrize(
    ("generator", "answers"),
    [
        ("spiral_matrix", ("[1, 2, 3]", "1 2 3")),
        ("countdown", ("1 + 1", "x")),
        ("simple_integration", ("x**2 + C", "sin(x) + C", "abs(x)")),
        ("polynomial_multiplication", ("x**2 - 1", "2*x*y")),
        ("bitwise_arithmetic", ("0x1", "zero")),
        ("word_ladder", ("COLD,CORD,CARD", "")),
        ("number_sorting", ("['1', '2']", "[1, 2]")),
    ],
)
def test_the_sandbox_scores_like_the_generator(generator: str, answers: tuple[str, ...]):
    env = reasoning_gym_class(generator)()
    for index in range(2):
        env.reset(Task(f"reasoning_gym/{generator}", "test", index))
        for answer in (*answers, str(env._entry["answer"])):
            expected = env._dataset.score_answer(answer, env._entry)
            assert env._score(answer) == min(max(expected, 0.0), 1.0)
