"""No answer to a generator of reasoning-gym runs, hangs, breaks its scorer, or scores by force."""

from __future__ import annotations

import builtins
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import sympy
from reasoning_gym.composite import DatasetSpec
from reasoning_gym.factory import DATASETS

from agentgym_rl.envs.adapters import reasoning_gym as adapter
from agentgym_rl.envs.adapters.reasoning_gym import (
    ReasoningGymEnvironment,
    has_plain_scorer,
    reasoning_gym_class,
)
from agentgym_rl.envs.adapters.reasoning_gym_scorer import guarded_eval
from agentgym_rl.envs.adapters.seeded import Outline, SeededEnvironment
from agentgym_rl.sandbox import calls
from agentgym_rl.sandbox.calls import Sandbox
from agentgym_rl.sandbox.interpreter import why_unavailable
from agentgym_rl.sandbox.messages import CallLimits
from agentgym_rl.types import Task

pytestmark = pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable())

GENERATORS = sorted(set(DATASETS) - {"composite", "game_of_life_halting"})
"""All but two: the one mixes others (it has a test below), the other is refused."""
EVALUATING = {
    # How each expects an answer that reaches its evaluation.
    "binary_matrix": "[[{code}]]",
    "countdown": "{code}",
    "intermediate_integration": "{code}",
    "n_queens": "[{code}]",
    "polynomial_multiplication": "{code}",
    "puzzle24": "{code}",
    "simple_integration": "{code}",
    "spiral_matrix": "[{code}]",
    "string_insertion": "[{code}]",
}
OFTEN = {"binary_matrix", "countdown", "string_insertion", GENERATORS[0]}
"""Tried by `make test`."""
SHELL = "__import__('os').system('touch MARKER')"
PAYLOADS = {
    "a shell": SHELL,
    "a shell in a list": f"[{SHELL}]",
    "a file": "open('MARKER', 'w')",
    "a program": "exec(\"open('MARKER', 'w')\")",
    "subclasses": "[c for c in ().__class__.__base__.__subclasses__()][0]",
    "sympy's parser again": f'sympify("{SHELL}")',
    "sympy's functions": f'lambdify(Symbol("x"), "{SHELL}")(1)',
    "a forged reply": "__import__('os').write(1, b'1.0') + __import__('os')._exit(0)",
    "the expected answer": "__import__('sys')._getframe(1).f_locals['entry']['answer']",
    "sleeping": "__import__('time').sleep(1000)",
    "a huge power": "9**9**9",
    "a huge number": "1e999999999",
    "deep parentheses": "(" * 4000 + "1" + ")" * 4000,
    "deep brackets": "[" * 4000 + "]" * 4000,
    "a long repetition": "a " * 4000 + "!",
    "bytes of no text": "\x00\udcff\u202e",
}
COMMON = (
    *("a shell", "a shell in a list", "a program", "the expected answer"),
    *("a huge power", "a huge number", "deep parentheses", "a long repetition"),
)
"""For every generator; the rest for those that evaluate."""
LIMITS = CallLimits(wall_s=10.0, cpu_s=1, memory_bytes=2**30, reply_bytes=1000)


@pytest.fixture
def marker() -> Iterator[Path]:
    """A file that is not there, in a folder where every user may make it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        yield Path(folder) / "marker"


def ask(generator: str) -> SeededEnvironment:
    env = reasoning_gym_class(generator, Outline(num_train=1, num_test=1))()
    env.reset(Task(f"reasoning_gym/{generator}", "test", 0))
    return env


@pytest.mark.parametrize(
    "generator",
    [pytest.param(name, marks=() if name in OFTEN else pytest.mark.long) for name in GENERATORS],
)
def test_payloads_are_wrong_answers(generator: str, marker: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(adapter, "_LIMITS", LIMITS)
    env = ask(generator)
    solution = env.expert_action()
    for name in PAYLOADS if generator in EVALUATING else COMMON:
        result = env.step(PAYLOADS[name].replace("MARKER", str(marker)))
        assert result.terminated and not result.success, name
        # Scorers that look for likeness pay a little for any text.
        assert 0 <= result.reward <= 0.3, (name, result)
        assert not marker.exists(), name
    if solution is not None:
        assert env.step(solution).success


def test_a_mix_of_generators_is_scored_like_its_parts(marker: Path):
    parts = [DatasetSpec("spiral_matrix", 1.0, {})]
    outline = Outline(num_train=1, num_test=1)
    env = reasoning_gym_class("composite", outline, options={"datasets": parts})()
    env.reset(Task("reasoning_gym/composite", "test", 0))
    assert env.step(f"[{SHELL}]".replace("MARKER", str(marker))).reward == 0.0
    assert not marker.exists()
    solution = env.expert_action()
    assert solution is not None and env.step(solution).success


@pytest.fixture(scope="module")
def without_guard() -> Iterator[Sandbox]:
    """The sandbox of the scorers, where answers are evaluated as the package does it."""
    command = (
        "from agentgym_rl.envs.adapters import reasoning_gym_scorer as scorer\n"
        "scorer._guard_evaluation = lambda: None\n"
        "from agentgym_rl.sandbox.host import main; main()"
    )
    target = "agentgym_rl.envs.adapters.reasoning_gym_scorer:prepare"
    sandbox = Sandbox(target, has_packages=True, max_calls=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "_COMMAND", command)
        sandbox.start()
    yield sandbox
    sandbox.close()


@pytest.mark.parametrize("generator", EVALUATING)
def test_the_locks_hold_without_the_guard(
    generator: str, without_guard: Sandbox, marker: Path, monkeypatch: pytest.MonkeyPatch
):
    env = ask(generator)
    answer = EVALUATING[generator].format(code=SHELL.replace("MARKER", str(marker)))
    monkeypatch.setattr(adapter, "_sandbox", without_guard)
    assert not env.step(answer).success
    assert not marker.exists()
    # The same answer, scored in this process, is not harmless.
    assert isinstance(env, ReasoningGymEnvironment)
    with suppress(Exception):
        env._dataset.score_answer(answer, env._entry)
    assert marker.exists()


def test_only_the_scorer_that_compares_texts_runs_in_this_process():
    plain = {generator for generator in DATASETS if has_plain_scorer(generator)}
    assert not plain & set(EVALUATING)
    assert "leg_counting" in plain and 20 < len(plain) < 40


@pytest.mark.parametrize(
    "answer",
    [
        "__import__('os')",
        "().__class__",
        "[1][0]",
        "(lambda: 1)()",
        "[x for x in (1, 2)]",
        "f'{1}'",
        "getattr(x, chr(95))",
        "exec(x)",
        "open(x)",
        "sympify('x')",
        "lambdify(x, x)",
        "(y := 1)",
        "sin(x, evaluate=False)",
        "{**x}.a",
        "[*[1]]",
    ],
)
def test_the_guard_refuses_what_can_do_more_than_compute(answer: str):
    names = {**vars(builtins), **vars(sympy), "x": sympy.Symbol("x")}
    with pytest.raises((ValueError, SyntaxError)):
        guarded_eval(answer, names)


def test_the_guard_computes_what_answers_hold():
    names = {**vars(sympy), "x": sympy.Symbol("x")}
    assert guarded_eval(" [[1, -2], ['a', None]]", {}) == [[1, -2], ["a", None]]
    assert guarded_eval("(0x1f & 7) * 2 ** 3 < 60", {}) is True
    formula = guarded_eval("sqrt(Integer(4)) * sin(x) + Function('f')(x) - pi", names)
    assert str(formula) == "f(x) + 2*sin(x) - pi"
    with pytest.raises(ValueError, match="must be a text"):
        guarded_eval(compile("1", "", "eval"), {})
