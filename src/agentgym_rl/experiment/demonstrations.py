"""The demonstrations that a run learns from: of its environments' experts, or of a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from agentgym_rl.envs.demos.collection import collect_demonstrations
from agentgym_rl.errors import ConfigError
from agentgym_rl.evaluation.progress import Progress
from agentgym_rl.experiment.environments import OpenedEnv
from agentgym_rl.training.data.conversation_files import read_conversations
from agentgym_rl.training.data.conversations import Conversation, from_demonstration

logger = logging.getLogger(__name__)

_NUM_DEMOS = 256
"""How many experts are asked for where a recipe does not say."""


def demonstrations(
    envs: Sequence[OpenedEnv], num_demos: int, *, progress: Progress
) -> list[Conversation]:
    """Return conversations of the environments' experts, as many of each as its weight asks for.

    Raises ConfigError where an environment that is trained on has none.
    """
    num_demos = num_demos or _NUM_DEMOS
    progress.begin("demonstrations", num_demos)
    num_found, found = 0, list[Conversation]()

    def on_found() -> None:
        nonlocal num_found
        num_found += 1
        progress.on_step({"step": num_found})

    numbers = apportioned(num_demos, {env.label: env.weight for env in envs})
    for env in envs:
        if numbers[env.label]:
            found += _of_expert(env, numbers[env.label], on_found)
    if num_found < num_demos:
        logger.warning("the expert gave %d demonstrations; %d were asked for", num_found, num_demos)
    return found


def read_demonstrations(path: Path, num_demos: int) -> list[Conversation]:
    """Return the first conversations of a file, all for 0."""
    found = list(read_conversations(path))
    if not found:
        raise ConfigError(f"{path} has no conversations")
    if 0 < num_demos < len(found):
        logger.warning("%s: %d of %d conversations are used", path, num_demos, len(found))
        return found[:num_demos]
    return found


def apportioned(number: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Return whole numbers in the proportion of the weights that add up to `number`.

    What rounding down leaves goes to the largest remainders.
    """
    total = sum(weights.values())
    exact = {label: number * weight / total for label, weight in weights.items()}
    parts = {label: int(value) for label, value in exact.items()}
    by_rest = sorted(exact, key=lambda label: parts[label] - exact[label])
    for label in by_rest[: number - sum(parts.values())]:
        parts[label] += 1
    return parts


def _of_expert(env: OpenedEnv, num_demos: int, on_found: Callable[[], None]) -> list[Conversation]:
    config = env.config
    if config.env.url:
        raise ConfigError(
            f"demonstrations come from the expert of {env.label}, which a server does not offer, "
            "and a warm start or a tiny model needs them: set warm_start.data to a file of "
            "`agentgym demos`, leave the url empty, or set warm_start.steps=0 and model.path "
            "to a model"
        )
    # A limit in training alone must not decide what a warm start sees.
    max_rounds = max(config.rounds.longest, config.eval_max_rounds)
    demos = collect_demonstrations(
        env.objects.env or config.env.name,
        env.demo_tasks,
        num_demos=num_demos,
        max_rounds=max_rounds,
        options=config.env.options,
        num_processes=config.env.workers,
    )
    conversations, num_left_out = list[Conversation](), 0
    with closing(demos):
        for demo in demos:
            try:
                found = from_demonstration(demo, env.agent)
            except ValueError as error:
                logger.warning("%s: the demonstration is left out: %s", demo.task.id, error)
                num_left_out += 1
                continue
            conversations += [replace(item, renderer=env.renderer) for item in found]
            on_found()
    if not conversations and num_left_out:
        raise ConfigError(
            f"none of the {num_left_out} demonstrations of {env.spec.name} suits "
            f"{env.agent.name}: the warnings above say why; set warm_start.steps=0 and "
            "model.path to a model, or fix the agent"
        )
    if not conversations:
        raise ConfigError(
            f"{env.spec.name} has no expert that solves a task within "
            f"{max_rounds} rounds, and a warm start or a tiny model needs one: set "
            "warm_start.steps=0 and model.path to a model, or with algorithm.type=sft "
            "algorithm.data to a file of conversations"
        )
    return conversations
