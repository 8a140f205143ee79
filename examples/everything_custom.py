"""One script with your own environment, algorithm, reward function and callback.

python examples/everything_custom.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import agentgym_rl as ag

WORDS = ("red", "green", "blue", "black")


class Echo(ag.Environment):
    """Say the word that is shown, then say it again."""

    spec = ag.EnvSpec(
        name="echo",
        summary="Repeat a word, twice.",
        instructions="Reply with the word that you are shown.",
        example_action="red",
        splits=("train", "test"),
        categories=WORDS,
        max_rounds=2,
    )

    @classmethod
    def tasks(cls, split: str) -> Sequence[ag.Task]:
        cls.require_split(split)
        return [ag.Task("echo", split, n, category=word) for n, word in enumerate(WORDS)]

    def reset(self, task: ag.Task) -> str:
        self._word, self._num_right = WORDS[task.index], 0
        return f"The word is {self._word}."

    def step(self, action: str) -> ag.StepResult:
        if action.strip() != self._word:
            return ag.StepResult(f"No, {self._word}.", valid_action=action.strip() in WORDS)
        self._num_right += 1
        is_done = self._num_right == 2
        return ag.StepResult("Once more.", 0.5, terminated=is_done, success=is_done)

    def expert_action(self) -> str:
        return self._word


class Halved(ag.GRPO):
    """GRPO with half the advantages."""

    def advantages(self, groups: Sequence[Sequence[ag.ScoredEpisode]]) -> ag.Batch:
        batch = super().advantages(groups)
        halved = [
            [replace(item, advantages=tuple(a / 2 for a in item.advantages)) for item in group]
            for group in batch.groups
        ]
        return ag.Batch(halved, batch.metrics)


def quick_is_better(episode: ag.Episode) -> dict[str, float]:
    """Return named parts of a reward, which are metrics as well."""
    return {"solved": float(episode.success), "length": -0.1 * len(episode.rounds)}


class StopWhenSolved(ag.Callback):
    """Prints every step, and ends the run early."""

    def on_step(self, metrics: dict[str, float]) -> None:
        print(f"step {metrics['step']:.0f}: success {metrics['rollout/success_rate']:.0%}")
        if metrics["rollout/success_rate"] == 1.0:
            self.stop_run("every episode succeeded")


def main(overrides: dict[str, object]) -> ag.EvalReport:
    """Train on the environment, and return how well it went."""
    run = ag.train(
        "quickstart",
        overrides,
        env=Echo,
        algorithm=Halved,
        reward=quick_is_better,
        callbacks=[StopWhenSolved()],
    )
    print(run.metrics)
    return ag.evaluate(run.model, env=Echo, reward=quick_is_better, k=4)


if __name__ == "__main__":
    report = main({"warm_start.steps": 6, "training.steps": 20, "eval.every": 0})
    print(f"success {report.overall.success_rate:.0%}")
