"""From the parts of a run to its trainer, with the algorithm, learner and collector of its recipe.

Every piece can be replaced: a program can hand its own to the trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from agentgym_rl.config import AgentEvolConfig, DPOConfig, OnlineConfig, RunConfig, SFTConfig
from agentgym_rl.lookup import check_call, is_own, load_class
from agentgym_rl.models.device import choose_device
from agentgym_rl.training.agentevol import AgentEvolTrainer
from agentgym_rl.training.algorithms.aggregation import Aggregation
from agentgym_rl.training.algorithms.base import Algorithm, Needs, SharedSettings
from agentgym_rl.training.collect.carry_over import CarryOverCollector
from agentgym_rl.training.collect.collection import Collector, StepCollector
from agentgym_rl.training.collect.overlap import OverlapCollector
from agentgym_rl.training.data.conversations import Conversation
from agentgym_rl.training.data.preferences import PairSet, load_pairs
from agentgym_rl.training.dpo import DPOTrainer
from agentgym_rl.training.learner.group import LearnerGroup
from agentgym_rl.training.learner.learner import Learner
from agentgym_rl.training.learner.token_kinds import KindWeights, kind_weights
from agentgym_rl.training.run_parts import RunParts
from agentgym_rl.training.sft import SFTTrainer
from agentgym_rl.training.trainer import RLTrainer, Trainer


def make_trainer(parts: RunParts, demos: Sequence[Conversation] = ()) -> Trainer:
    """Return the trainer that the recipe's `[algorithm]` asks for.

    Supervised learning and AgentEvol learn from `demos`.
    """
    match parts.config.algorithm:
        case SFTConfig():
            return sft_trainer(parts, demos)
        case DPOConfig() as dpo:
            limit = parts.config.max_tokens
            return dpo_trainer(parts, load_pairs(dpo, parts.policy, max_tokens=limit))
        case AgentEvolConfig():
            return agentevol_trainer(parts, demos)
        case _:
            return rl_trainer(parts)


def make_algorithm(config: RunConfig, cls: type[Algorithm] | None = None) -> Algorithm:
    """Return the online algorithm that `algorithm.type` names, or one of the class `cls`.

    A user's class is constructed like the built-in ones: with its section of the recipe and the
    sections that all online algorithms share.
    """
    settings = config.algorithm
    if not isinstance(settings, OnlineConfig):
        raise ValueError(f"algorithm.type={settings.type} is not an online algorithm")
    name = settings.type if is_own(settings.type) else settings.implementation
    shared = SharedSettings(
        config.credit, config.policy_loss, config.kl, max_tokens=config.max_tokens
    )
    found = cls or load_class(name, Algorithm, setting="algorithm.type")
    check_call(found, settings, shared, given=f"algorithm.type={settings.type!r}")
    return found(settings, shared)


def make_learner(
    parts: RunParts,
    *,
    temperature: float,
    needs: Needs | None = None,
    aggregation: Aggregation | None = None,
    kind_weights: KindWeights | None = None,
    num_updates: int = 0,
) -> LearnerGroup:
    """Return a learner in this process, or on `training.shards` processes here or elsewhere."""
    config = parts.config
    make = parts.make_ranks
    if make is None and config.training.shards == 1:
        return Learner(
            parts.policy,
            config.training,
            temperature=temperature,
            needs=needs,
            aggregation=aggregation,
            kind_weights=kind_weights,
            num_updates=num_updates,
        )
    if make is None:
        # Start-up time: one process needs no torch.distributed.
        from agentgym_rl.training.learner.sharded.sharded_learner import ShardedLearner

        make = partial(ShardedLearner, device=choose_device(config.model.device).type)
    learner = make(
        parts.policy,
        config.training,
        temperature=temperature,
        needs=needs,
        aggregation=aggregation,
        kind_weights=kind_weights,
        num_updates=num_updates,
    )
    if parts.envs:  # a warm start has no engine
        parts.engine.follow(learner)
    return learner


def rl_trainer(parts: RunParts, algorithm: Algorithm | None = None) -> RLTrainer:
    """Return a trainer of reinforcement learning; by default with the recipe's algorithm."""
    algorithm = algorithm or make_algorithm(parts.config)
    learner = make_learner(
        parts,
        temperature=parts.config.rollout.temperature,
        needs=algorithm.needs,
        aggregation=algorithm.aggregation,
        kind_weights=kind_weights(parts.config.agent.train),
        num_updates=parts.config.num_updates,
    )
    return RLTrainer(parts, algorithm=algorithm, learner=learner, collector=make_collector(parts))


def agentevol_trainer(parts: RunParts, demos: Sequence[Conversation] = ()) -> AgentEvolTrainer:
    """Return a trainer that explores and imitates its successes and `demos`."""
    learner = make_learner(
        parts,
        temperature=1.0,
        kind_weights=kind_weights(parts.config.agent.train),
    )
    return AgentEvolTrainer(parts, demos, learner=learner, collector=make_collector(parts))


def sft_trainer(parts: RunParts, demos: Sequence[Conversation]) -> SFTTrainer:
    """Return a trainer that imitates `demos`."""
    config = parts.config
    learner = make_learner(parts, temperature=1.0, num_updates=config.num_updates)
    return SFTTrainer(parts, demos, learner=learner)


def dpo_trainer(parts: RunParts, pairs: PairSet) -> DPOTrainer:
    """Return a trainer that learns to prefer one episode of each pair."""
    learner = make_learner(
        parts,
        temperature=1.0,
        needs=Needs(policy=True),
        # Divided by episodes: each token has the weight that the loss of its pair gives.
        aggregation=Aggregation("constant"),
        num_updates=parts.config.num_updates,
    )
    return DPOTrainer(parts, pairs, learner=learner)


def make_collector(parts: RunParts) -> Collector:
    """Return what collects the episodes of each step."""
    rollout = parts.config.rollout
    if rollout.overlap:
        return OverlapCollector(parts)
    return CarryOverCollector(parts) if rollout.max_staleness else StepCollector(parts)
