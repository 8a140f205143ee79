"""Questions of reasoning-gym as environments of one round: a question, an answer, a score.

    "reasoning_gym/leg_counting"                           a generator with its own settings
    Hard = reasoning_gym_class("leg_counting", options={"max_animals": 20})    in your own module

A generator numbers its questions, and task `i` is question `i`, so no number is in both splits;
a generator with few different questions may still ask the same under two numbers.
Most scorers parse the answer, some with `eval` or sympy's parser. They run in the sandbox, one
process per answer (reasoning_gym_scorer.py). An answer that hangs or breaks its scorer is wrong.
Only the package's plain scorer, which compares texts, runs in this process.
"""

from __future__ import annotations

import json
import math
import os
import pickle
from collections.abc import Mapping
from typing import ClassVar

import reasoning_gym
from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import DATASETS

from agentgym_rl.envs.adapters.seeded import SPLITS, Outline, SeededEnvironment
from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.errors import EnvError, did_you_mean
from agentgym_rl.sandbox.calls import Sandbox
from agentgym_rl.sandbox.interpreter import why_unavailable
from agentgym_rl.sandbox.messages import CallLimits
from agentgym_rl.types import StepResult, Task

_SEED = 20_000_000
"""Question `i` is drawn from seed `_SEED + i`, away from the small seeds of others' examples."""
_MIN_SUCCESS_SCORE = 0.999
_MAX_CHARS = 10_000
_BROKEN = {"game_of_life_halting": "its scorer gives any text the full score"}
"""Generators that cannot be learnt from, and why."""
_LIMITS = CallLimits(wall_s=10.0, cpu_s=5, memory_bytes=2**30, reply_bytes=1000)
"""For one answer. Sympy takes up to a second to compare two integrals."""
_sandbox = Sandbox(
    "agentgym_rl.envs.adapters.reasoning_gym_scorer:prepare",
    has_packages=True,
    max_calls=max(2, os.cpu_count() or 1),
)
_INSTRUCTIONS = (
    "You are asked one question and give one answer. Your action is the answer alone, in the form "
    "that the question asks for."
)


def reasoning_gym_class(
    generator: str,
    outline: Outline | None = None,
    *,
    options: Mapping[str, object] | None = None,
) -> type[SeededEnvironment]:
    """Return the environment of a generator; `options` are the generator's own settings.

    Raises ValueError for an unknown or broken generator, or settings that it refuses.
    """
    if generator not in DATASETS:
        raise ValueError(
            f"reasoning-gym has no generator {generator!r}{did_you_mean(generator, DATASETS)}"
        )
    if generator in _BROKEN:
        raise ValueError(
            f"reasoning-gym's {generator} is refused: {_BROKEN[generator]}; choose another"
        )
    given = outline or Outline()
    settings = dict(options or {})
    _make_dataset(generator, _settings_of(given, settings))

    class Adapted(ReasoningGymEnvironment):
        spec: ClassVar[EnvSpec] = EnvSpec(
            name=given.name or f"reasoning_gym/{generator}",
            summary=f"One question of reasoning-gym's {generator} a task.",
            instructions=given.instructions or _INSTRUCTIONS,
            example_action=given.example_action or "42",
            splits=SPLITS,
            categories=(generator,),
            max_rounds=given.max_rounds or 1,
            success="the answer has the full score",
            has_answer=True,
        )
        outline: ClassVar[Outline] = given
        # A call that waits for the sandbox must not hold up the others.
        shares_thread: ClassVar[bool] = given.shares_thread and has_plain_scorer(generator)
        _generator: ClassVar[str] = generator
        _settings: ClassVar[Mapping[str, object]] = settings

    return Adapted


def has_plain_scorer(generator: str) -> bool:
    """Return whether answers are only compared as texts, which is safe in any process."""
    return DATASETS[generator][0].score_answer is ProceduralDataset.score_answer


class ReasoningGymEnvironment(SeededEnvironment):
    """One question. The reward is its score, from 0 to 1."""

    _generator: ClassVar[str]
    _settings: ClassVar[Mapping[str, object]]

    def __init__(self, **options: object) -> None:
        """Take the generator's settings, which only reasoning-gym can list."""
        settings = _settings_of(self.outline, {**self._settings, **options})
        self._dataset = _make_dataset(self._generator, settings)
        self._setup = pickle.dumps((self._generator, settings))
        self._entry: dict[str, object] = {}
        self._is_plain = has_plain_scorer(self._generator)
        if not self._is_plain:
            _require_sandbox(self._generator)

    def reset(self, task: Task) -> str:
        """Ask the question with the task's number; the task's seed changes nothing."""
        self._check_task(task)
        self._entry = self._dataset[task.index]
        question = str(self._entry["question"])
        return f"{self.outline.goal}\n\n{question}" if self.outline.goal else question

    def step(self, action: str) -> StepResult:
        """Score the answer, which ends the episode."""
        assert self._entry, "reset before the first step"
        answer = action.strip()
        score = self._score(answer) if 0 < len(answer) <= _MAX_CHARS else None
        is_success = score is not None and score >= _MIN_SUCCESS_SCORE
        return StepResult(
            f"Score: {score or 0:.3g}.",
            reward=score or 0.0,
            terminated=True,
            success=is_success,
            valid_action=score is not None,
        )

    def expert_action(self) -> str | None:
        """Return the generator's own answer, where it has one that it scores in full."""
        answer = self._entry.get("answer")
        if not isinstance(answer, str) or (self._score(answer) or 0.0) < _MIN_SUCCESS_SCORE:
            return None
        return answer

    def details(self) -> Mapping[str, JsonValue]:
        return {"generator": self._generator, "answer": str(self._entry.get("answer"))}

    def _score(self, answer: str) -> float | None:
        """Return the score between 0 and 1, None where the scorer cannot read the answer.

        Raises EnvError when the sandbox fails, which is not the agent's doing.
        """
        if self._is_plain:
            score = self._dataset.score_answer(answer, self._entry)
        else:
            score = self._score_in_sandbox(answer)
        is_number = isinstance(score, int | float) and math.isfinite(score)
        return min(max(float(score), 0.0), 1.0) if is_number else None

    def _score_in_sandbox(self, answer: str) -> object:
        """Return what the scorer says; None where the answer broke it or took too long."""
        request = pickle.dumps((self._entry, answer))
        reply = _sandbox.call(request, _LIMITS, setup=self._setup)
        try:
            return None if reply.problem else json.loads(reply.data)
        except ValueError:
            return None


def _require_sandbox(generator: str) -> None:
    if reason := why_unavailable():
        plain = ", ".join(sorted(filter(has_plain_scorer, DATASETS)))
        raise EnvError(
            f"reasoning-gym's {generator} parses answers, which takes the sandbox: {reason}; "
            f"these generators work without it: {plain}"
        )
    _sandbox.start()


def _settings_of(outline: Outline, options: Mapping[str, object]) -> dict[str, object]:
    return {"seed": _SEED, "size": outline.num_test + outline.num_train, **options}


def _make_dataset(generator: str, options: Mapping[str, object]) -> ProceduralDataset:
    try:
        return reasoning_gym.create_dataset(generator, **options)
    except (TypeError, AssertionError, ValueError) as error:
        raise ValueError(
            f"reasoning-gym's {generator} refuses the settings {dict(options)}: {error}; give "
            "others in env.options or with reasoning_gym_class(..., options=...)"
        ) from error
    except Exception as error:
        raise EnvError(f"reasoning-gym's {generator} cannot start: {error!r}") from error
