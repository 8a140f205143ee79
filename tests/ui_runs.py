"""Run folders for the browser's tests: plays of real environments, long episodes, hostile texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from agentgym_rl.envs import registry
from agentgym_rl.evaluation.report import EvalReport, score
from agentgym_rl.runs.episodes import write_episodes
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.types import (
    Episode,
    Message,
    Round,
    Sample,
    Segment,
    SegmentKind,
    StopReason,
    Task,
)

CONFIG = """
[env]
name = "{env}"
[algorithm]
type = "grpo"
[model]
path = "tiny"
[training]
steps = {steps}
"""

HOSTILE = (
    "<script>window.stolen = 1; alert('script')</script>"
    "<img src=x onerror=\"alert('picture')\"><svg onload=alert(1)>"
    "<iframe src='http://example.com/'></iframe>\x1b[31mred\x1b[0m \u202eturned\x00"
    "</div></textarea>"
)


def played(task: Task, actions: Sequence[str], *, sample_index: int = 0) -> Episode:
    """Return what really happens when the actions are taken at the task."""
    env = registry.make(task.env, {})
    first = env.reset(task)
    messages, rounds, results = [Message("user", first)], [], []
    for action in actions:
        result = env.step(action)
        results.append(result)
        rounds.append(Round(action, action, result.observation, result.reward, result.valid_action))
        messages += [Message("assistant", action), Message("user", result.observation)]
    env.close()
    is_solved = any(result.success for result in results)
    return Episode(
        task=task,
        sample_index=sample_index,
        stop_reason=StopReason.SUCCESS if is_solved else StopReason.MAX_ROUNDS,
        reward=sum(result.reward for result in results),
        success=is_solved,
        rounds=tuple(rounds),
        messages=tuple(messages),
        samples=(token_sample(num_rounds=len(rounds), tokens_per_round=8),),
        seconds=1.5,
    )


def token_sample(*, num_rounds: int, tokens_per_round: int) -> Sample:
    """Return a sample of a prompt of 4 tokens, then in each round half reply, half observation."""
    half = tokens_per_round // 2
    segments = [Segment(SegmentKind.PROMPT, 0, 4, 0)]
    for index in range(num_rounds):
        start = 4 + index * tokens_per_round
        segments += [
            Segment(SegmentKind.ACTION, start, start + half, index),
            Segment(SegmentKind.OBSERVATION, start + half, start + tokens_per_round, index),
        ]
    mask = [0] * 4 + ([1] * half + [0] * half) * num_rounds
    total = len(mask)
    return Sample(
        token_ids=tuple(5 + index % 200 for index in range(total)),
        loss_mask=tuple(mask),
        logprobs=tuple(-0.01 * (index % 300) * kept for index, kept in enumerate(mask)),
        rewards=(0.0,) * (total - 1) + (1.0,),
        segments=tuple(segments),
        version=1,
    )


def long_episode(*, num_rounds: int = 100, num_tokens: int = 20_000) -> Episode:
    """Return an episode at the size that the page must stay smooth at."""
    rounds = tuple(
        Round(f"I try door {i}.", f"open door {i}", f"Door {i} is shut. " * 12, 0.01, True)
        for i in range(num_rounds)
    )
    return Episode(
        task=Task("textcraft", "train", 5, category="depth 1"),
        sample_index=0,
        stop_reason=StopReason.MAX_ROUNDS,
        reward=1.0,
        success=False,
        rounds=rounds,
        messages=(Message("user", "Find the open door."),),
        samples=(token_sample(num_rounds=num_rounds, tokens_per_round=num_tokens // num_rounds),),
        seconds=60.0,
    )


def hostile_episode(text: str = HOSTILE) -> Episode:
    """Return an episode whose every text wants to be a page of its own."""
    return Episode(
        task=Task("textcraft", "train", 3, category=text),
        sample_index=0,
        stop_reason=StopReason.ENV_ERROR,
        reward=None,
        success=False,
        rounds=(Round(text, text, text, 0.0, True), Round(text, None, text, 0.0, False)),
        messages=(Message("user", text), Message("assistant", text)),
        samples=(token_sample(num_rounds=2, tokens_per_round=4),),
        seconds=0.1,
        error=text,
    )


def write_evaluation(run: RunFolder, episodes: Sequence[Episode], *, step: int) -> None:
    """Write the episodes of an evaluation, and its report."""
    groups = [[item] for item in episodes]
    write_episodes(run.episodes, groups, phase="eval", step=step)
    whole = score(episodes)
    report = EvalReport(
        env=episodes[0].task.env, split="test", step=step, max_rounds=5, temperature=1.0,
        overall=whole, categories={episodes[0].task.category: whole}, levels={},
        stop_reasons=dict(Counter(str(item.stop_reason) for item in episodes)),
    )  # fmt: skip
    report.save(run.eval, f"step-{step:06d}")


def write_run(
    folder: Path, parts: Sequence[Sequence[Sequence[Episode]]], *, env: str, horizons: Sequence[int]
) -> RunFolder:
    """Write a run with one step a horizon; `parts` are the groups of the first steps."""
    run = RunFolder(folder)
    run.create(CONFIG.format(env=env, steps=len(horizons)))
    for step, horizon in enumerate(horizons, start=1):
        run.append_metrics(
            {
                "step": step,
                "rollout/success_rate": min(1.0, 0.1 * step),
                "rollout/reward_mean": 0.09 * step,
                "rollout/rounds_mean": horizon - 0.5,
                "rollout/max_rounds": horizon,
                "rollout/tokens_per_s": 1000.0 + step,
                "rollout/episodes_failed": 0.0,
                "rollout/invalid_action_rate": 0.5 / step,
                "train/kl": 0.001 * step,
                "train/entropy": 2.0 / step,
                "time/rollout_s": 2.0,
                "time/update_s": 1.0,
                "time/step_s": 3.5,
            }
        )
    for step, groups in enumerate(parts, start=1):
        write_episodes(run.episodes, groups, phase="train", step=step)
    return run
