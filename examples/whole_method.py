"""The whole method in one file: a model plays, its episodes are compared, and it learns from them.

    python examples/whole_method.py

A tiny model, made on the spot, learns to walk to a red ball in BabyAI: under two minutes on a CPU.
Every part is the one that `agentgym train` uses; only the loop, the comparison of episodes and the
loss are written out here, because they are the method:

    1. rollout      every task is played several times: a group of episodes
    2. advantages   how much better an episode did than its group, one number per action token
    3. update       make the tokens of better episodes likelier, but not too much at once

What a real run adds is in `training/`: checkpoints, exact resume, metrics, growing horizons, other
algorithms, critics, several GPUs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections.abc import Sequence
from statistics import fmean, pstdev

import torch

from agentgym_rl import (
    Agent,
    Algorithm,
    Batch,
    Episode,
    Group,
    RunConfig,
    ScoredEpisode,
    Task,
    TokenBatch,
    TokenLoss,
    TrainingSample,
    load_config,
)
from agentgym_rl.engines.create import create_engine
from agentgym_rl.envs.demos.collection import collect_demonstrations
from agentgym_rl.envs.execution.local import LocalEnvSource
from agentgym_rl.models.loading import Policy, load_policy
from agentgym_rl.rollout.collect import collect, keep_groups
from agentgym_rl.rollout.episode import Participants, TokenPolicy
from agentgym_rl.rollout.limits import episode_limits
from agentgym_rl.training.algorithms.aggregation import Aggregation
from agentgym_rl.training.algorithms.base import Needs
from agentgym_rl.training.data.conversations import Conversation, from_demonstration, texts_of
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.sft import fitting_samples, negative_logprob

LEVEL = "GoToRedBallNoDists"
MAX_ROUNDS = 4
GROUP_SIZE = 8
CLIP = 0.2


def settings(*, steps: int) -> RunConfig:
    """Return the sizes of everything. A recipe in TOML says the same."""
    return load_config(
        "quickstart",
        {
            "env.levels": [LEVEL],
            "model.device": "cpu",
            "model.tiny": {"vocab_size": 320, "hidden_size": 32, "num_layers": 1},
            "training": {"steps": steps, "tasks_per_step": 8, "lr": 2e-3, "warmup_steps": 0},
            "rollout": {"max_tokens_per_round": 12, "max_tokens": 512},
        },
    )


class GroupRelative(Algorithm):
    """GRPO (arXiv:2402.03300): an episode is as good as it is better than the rest of its group."""

    def __init__(self) -> None:
        self.aggregation = Aggregation("token_mean")  # the loss of an update: mean over tokens
        self.needs = Needs()  # neither a reference nor a critic

    def advantages(self, groups: Sequence[Sequence[ScoredEpisode]]) -> Batch:
        """Give every action token of an episode the episode's advantage."""
        samples = list[list[TrainingSample]]()
        for group in groups:
            rewards = [item.episode.reward or 0.0 for item in group]
            mean, deviation = fmean(rewards), pstdev(rewards)
            samples.append([])
            for item, reward in zip(group, rewards, strict=True):
                advantage = (reward - mean) / (deviation + 1e-6)
                for scored in item.samples:  # one, unless the agent edits its context
                    num_tokens = scored.sample.num_action_tokens
                    samples[-1].append(TrainingSample(scored.sample, (advantage,) * num_tokens))
        return Batch(samples, {})

    def loss(self, batch: TokenBatch) -> TokenLoss:
        """Return PPO's clipped surrogate (arXiv:1707.06347) of each token (A: action tokens)."""
        # How much likelier a token has become since it was sampled.
        ratios_A = (batch.logprobs_A - batch.old_logprobs_A).exp()
        clipped_A = ratios_A.clamp(1 - CLIP, 1 + CLIP)
        gains_A = torch.minimum(ratios_A * batch.advantages_A, clipped_A * batch.advantages_A)
        return TokenLoss(-gains_A)


class Method:
    """The parts of the method, and the three things that a step does with them."""

    def __init__(self, config: RunConfig, source: LocalEnvSource, policy: Policy, agent: Agent):
        self.config, self.policy = config, policy
        self.algorithm = GroupRelative()
        self.learner = Learner(
            policy,
            config.training,
            temperature=config.rollout.temperature,
            needs=self.algorithm.needs,
            aggregation=self.algorithm.aggregation,
        )
        # The engine samples with the very weights that the learner changes.
        self.engine = create_engine(policy, config.engine)
        self.participants = Participants(source, agent, TokenPolicy(self.engine, policy.renderer))

    async def rollout(self, tasks: Sequence[Task], *, noise: str, group_size: int) -> list[Group]:
        """Play every task `group_size` times, all episodes at once; tokens are kept exactly."""
        limits = episode_limits(
            self.config, max_context=self.policy.max_context, max_rounds=MAX_ROUNDS
        )
        return await collect(
            tasks,
            self.participants,
            limits,
            group_size=group_size,
            noise=(self.config.seed, noise),
            temperature=self.config.rollout.temperature,
            max_concurrency=self.config.rollout.max_concurrency,
        )

    def learn(self, groups: Sequence[Group]) -> None:
        """Compare the episodes of each group and make one update."""
        # An episode that the infrastructure ended has no reward: it is dropped, never scored 0.
        scored = self.learner.score(keep_groups(groups, min_size=2))
        batch = self.algorithm.advantages(scored)
        self.learner.update([item for group in batch.groups for item in group], self.algorithm.loss)

    def imitate(self, demos: Sequence[Conversation], *, steps: int, lr: float) -> None:
        """Learn from an expert first: an agent that never succeeds has nothing to compare."""
        training = self.config.training.model_copy(update={"lr": lr})
        learner = Learner(self.policy, training, temperature=1.0)
        fitting = fitting_samples(demos, self.policy, max_tokens=self.config.rollout.max_tokens)
        samples, rng = [sample for _, sample in fitting], random.Random(self.config.seed)
        for _ in range(steps):
            learner.update(rng.sample(samples, 16), negative_logprob)


def demonstrations(tasks: Sequence[Task], agent: Agent) -> list[Conversation]:
    """Return what the agent would have said in the place of the environment's expert."""
    demos = collect_demonstrations("babyai", tasks, num_demos=48, max_rounds=8)
    return [conversation for demo in demos for conversation in from_demonstration(demo, agent)]


def success_rate(episodes: Sequence[Episode]) -> float:
    return fmean(episode.success for episode in episodes)


async def train(*, steps: int, warm_start_steps: int, num_eval_tasks: int) -> tuple[float, float]:
    """Train, and return the success rate on held-out tasks before and after."""
    config = settings(steps=steps)
    async with LocalEnvSource("babyai") as source:
        train_tasks, test_tasks = [
            [task for task in await source.tasks(split) if task.level == LEVEL]
            for split in ("train", "test")
        ]
        agent = Agent(config.agent, await source.spec())
        demos = demonstrations(train_tasks[:200], agent)
        policy = load_policy(config.model, seed=config.seed, texts=lambda: texts_of(demos))
        method = Method(config, source, policy, agent)
        method.imitate(demos, steps=warm_start_steps, lr=1e-2)

        async def evaluate() -> float:
            groups = await method.rollout(test_tasks[:num_eval_tasks], noise="eval", group_size=1)
            return success_rate([episode for group in groups for episode in group.episodes])

        before, rng = await evaluate(), random.Random(config.seed)
        print(f"before: success {before:.0%}")
        for step in range(1, steps + 1):
            tasks = rng.sample(train_tasks, config.training.tasks_per_step)
            groups = await method.rollout(tasks, noise=f"step {step}", group_size=GROUP_SIZE)
            method.learn(groups)
            method.engine.publish(step)
            episodes = [episode for group in groups for episode in group.episodes]
            print(f"step {step:3}: success {success_rate(episodes):.0%}")
        after = await evaluate()
        print(f"after:  success {after:.0%}")
        method.engine.close()
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train a tiny model, the whole method in a file.")
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    asyncio.run(train(steps=arguments.steps, warm_start_steps=8, num_eval_tasks=100))
