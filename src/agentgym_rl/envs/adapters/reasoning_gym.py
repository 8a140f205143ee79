"""Questions of reasoning-gym as environments of one round: a question, an answer, a score.

    "reasoning_gym/leg_counting"                           a generator with its own settings
    Hard = reasoning_gym_class("leg_counting", options={"max_animals": 20})    in your own module

A generator numbers its questions, and task `i` is question `i`, so no number is in both splits;
a generator with few different questions may still ask the same under two numbers.
Some scorers read the answer with Python's or sympy's parser: they can be slow on hostile answers
(the server's deadline ends them), and are not made for answers that nobody trusts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import ClassVar

import reasoning_gym
from reasoning_gym.dataset import ProceduralDataset
from reasoning_gym.factory import DATASETS

from agentgym_rl.envs.adapters.seeded import SPLITS, Outline, SeededEnvironment
from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.errors import EnvError, did_you_mean
from agentgym_rl.types import StepResult, Task

logger = logging.getLogger(__name__)

_SEED = 20_000_000
"""Question `i` is drawn from seed `_SEED + i`, away from the small seeds of others' examples."""
_MIN_SUCCESS_SCORE = 0.999
_MAX_CHARS = 10_000
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

    Raises ValueError for an unknown generator or settings that it refuses.
    """
    if generator not in DATASETS:
        raise ValueError(
            f"reasoning-gym has no generator {generator!r}{did_you_mean(generator, DATASETS)}"
        )
    told = outline or Outline()
    settings = dict(options or {})
    _make_dataset(generator, told, settings)

    class Adapted(ReasoningGymEnvironment):
        spec: ClassVar[EnvSpec] = EnvSpec(
            name=told.name or f"reasoning_gym/{generator}",
            summary=f"One question of reasoning-gym's {generator} a task.",
            instructions=told.instructions or _INSTRUCTIONS,
            example_action=told.example_action or "42",
            splits=SPLITS,
            categories=(generator,),
            max_rounds=told.max_rounds or 1,
            success="the answer has the full score",
            has_answer=True,
        )
        outline: ClassVar[Outline] = told
        shares_thread: ClassVar[bool] = told.shares_thread
        _generator: ClassVar[str] = generator
        _settings: ClassVar[Mapping[str, object]] = settings

    return Adapted


class ReasoningGymEnvironment(SeededEnvironment):
    """One question. The reward is its score, from 0 to 1."""

    _generator: ClassVar[str]
    _settings: ClassVar[Mapping[str, object]]

    def __init__(self, **options: object) -> None:
        """Take the generator's settings, which only reasoning-gym can list."""
        self._dataset = _make_dataset(self._generator, self.outline, {**self._settings, **options})
        self._entry: dict[str, object] = {}

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
        """Return the generator and its answer."""
        return {"generator": self._generator, "answer": str(self._entry.get("answer"))}

    def _score(self, answer: str) -> float | None:
        """Return the score between 0 and 1, None where the scorer cannot read the answer."""
        try:
            score = float(self._dataset.score_answer(answer, self._entry))
        except Exception as error:  # noqa: BLE001 - scorers parse what the agent wrote
            logger.debug("%s: cannot score %r: %r", self._generator, answer[:100], error)
            return None
        return min(max(score, 0.0), 1.0)


def _make_dataset(
    generator: str, outline: Outline, options: Mapping[str, object]
) -> ProceduralDataset:
    size = outline.num_test + outline.num_train
    try:
        return reasoning_gym.create_dataset(generator, **{"seed": _SEED, "size": size, **options})
    except (TypeError, AssertionError, ValueError) as error:
        raise ValueError(
            f"reasoning-gym's {generator} refuses the settings {dict(options)}: {error}; give "
            "others in env.options or with reasoning_gym_class(..., options=...)"
        ) from error
    except Exception as error:
        raise EnvError(f"reasoning-gym's {generator} cannot start: {error!r}") from error
