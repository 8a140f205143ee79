"""What of a recipe decides its memory. The one place of this package that reads settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from agentgym_rl.config import (
    AgentEvolConfig,
    NativeEngineConfig,
    OnlineConfig,
    PPOConfig,
    RunConfig,
    VllmEngineConfig,
)

TINY = "tiny"
"""`model.path` of the model that is made on the spot."""

Engine = Literal["native", "vllm", "elsewhere"]
Offload = Literal["none", "optimizer", "all"]


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The choices that memory depends on, whatever the model and the machine."""

    element: int = 2
    """Bytes of a weight in arithmetic: 2 in bfloat16, 4 in float32."""
    lora_rank: int = 0
    ranks: int = 1
    """Processes that share the learner (`training.shards`)."""
    sequence_parallel: int = 1
    """Ranks that split each pass over its tokens."""
    offload: Offload = "none"
    """What of the learner is in the CPU's memory."""
    tokens: int = 16384
    """Of the largest pass: an episode longer than `training.tokens_per_batch` is a pass too."""
    shares_prefix: bool = False
    """Whether passes keep the keys of common beginnings several times."""
    is_checkpointed: bool = False
    is_compiled: bool = False
    has_reference: bool = False
    critic: Literal["", "own", "shared"] = ""
    engine: Engine = "native"
    cache_fraction: float = 0.5
    max_batch_tokens: int = 4096
    memory_fraction: float = 0.5
    """Of vLLM's server."""
    tensor_parallel: int = 1
    engines: int = 1
    has_cluster: bool = False
    """Whether each engine is a process of its own, with its own copy of the policy."""
    is_apart: bool = False
    """Whether engines are on the GPUs after the learner's."""
    is_overlapped: bool = False
    """Whether engines keep all their memory while the learner works."""
    episodes: int = 256
    """At once."""
    max_tokens: int = 4096
    """Of one context."""

    @property
    def rank_tokens(self) -> int:
        """Of a rank's part of the largest pass."""
        return -(-self.tokens // self.sequence_parallel)

    @property
    def engine_width(self) -> int:
        """GPUs of one engine."""
        return self.tensor_parallel if self.engine == "vllm" else 1

    @property
    def has_sleeping_servers(self) -> bool:
        """Whether vLLM's servers give their GPUs to the learner while it works."""
        return self.engine == "vllm" and not (self.is_overlapped or self.is_apart)

    @property
    def first_engine_gpu(self) -> int:
        return self.ranks if self.is_apart else 0

    @property
    def gpus(self) -> int:
        """How many GPUs the run uses."""
        if self.engine == "elsewhere":
            return self.ranks
        return max(self.ranks, self.first_engine_gpu + self.engines * self.engine_width)

    @property
    def processes(self) -> int:
        """On the machine: the controller, ranks and engines."""
        has_own = self.has_cluster or self.engine == "vllm"
        return 1 + (self.ranks if self.ranks > 1 else 0) + (self.engines if has_own else 0)

    def has_engine(self, gpu: int) -> bool:
        place = gpu - self.first_engine_gpu
        return self.engine != "elsewhere" and 0 <= place < self.engines * self.engine_width

    def keeps_weights_on(self, gpu: int) -> bool:
        """Whether the controller's own model, which it trains, is there beside an engine's copy."""
        return self.has_cluster and self.ranks == 1 and gpu == 0

    def policies_on(self, gpu: int) -> int:
        """Copies of the policy there, besides the weights of the learner."""
        if self.has_cluster:  # the controller's copy is in the CPU's memory
            return int(self.engine == "native" and self.has_engine(gpu))
        return int(self.ranks > 1 and gpu == 0)

    def processes_on(self, gpu: int) -> int:
        """Processes on a GPU: a rank, the controller beside ranks, an engine's own."""
        has_own = (self.has_cluster or self.engine == "vllm") and self.has_engine(gpu)
        is_controlled = self.ranks > 1 and gpu == 0 and not self.has_cluster
        return int(gpu < self.ranks) + int(is_controlled) + int(has_own)


def plan_of(config: RunConfig) -> MemoryPlan:
    """Return what memory depends on in a recipe."""
    training, engine, algorithm = config.training, config.engine, config.algorithm
    longest = config.max_tokens
    plan = MemoryPlan(
        element=2 if config.model.dtype == "bfloat16" else 4,
        lora_rank=config.lora.rank,
        tokens=max(training.tokens_per_batch, longest),
        shares_prefix=training.share_prefix,
        is_checkpointed=training.gradient_checkpointing,
        is_compiled=training.compile,
        has_reference=_copies_reference(config),
        critic=algorithm.critic if isinstance(algorithm, PPOConfig) else "",
        engine="elsewhere",
        episodes=_episodes(config),
        max_tokens=longest,
        ranks=training.shards,
        sequence_parallel=training.sequence_parallel,
        offload=training.offload,
        engines=config.cluster.engines,
        has_cluster=config.cluster.type != "none",
        is_apart=not config.cluster.shared,
        is_overlapped=config.rollout.overlap,
    )
    if isinstance(engine, NativeEngineConfig):
        return replace(
            plan,
            engine="native",
            cache_fraction=engine.cache_fraction,
            max_batch_tokens=engine.max_batch_tokens,
        )
    if isinstance(engine, VllmEngineConfig) and not engine.url:
        return replace(
            plan,
            engine="vllm",
            memory_fraction=engine.memory_fraction,
            tensor_parallel=engine.tensor_parallel_size,
        )
    return plan


def _copies_reference(config: RunConfig) -> bool:
    """Whether the learner keeps a copy of the first weights (training/learner/reference.py)."""
    algorithm = config.algorithm
    is_online = isinstance(algorithm, OnlineConfig) and not isinstance(algorithm, AgentEvolConfig)
    if not is_online or not config.kl.coef:
        return False
    # A fresh adapter, switched off, is the reference; one that a warm start trained is not.
    is_fresh = not config.warm_start.steps or config.model.path == TINY
    return not (config.lora.rank and is_fresh)


def _episodes(config: RunConfig) -> int:
    """Return how many episodes can be under way at once."""
    algorithm, rollout, num_played = config.algorithm, config.rollout, config.eval.tasks
    num_trained = 0
    if isinstance(algorithm, OnlineConfig):
        num_groups = config.training.tasks_per_step
        quarters = rollout.max_staleness if rollout.overlap else min(1, rollout.max_staleness)
        num_groups += quarters * -(-num_groups // 4)  # as many more groups are under way
        num_trained = min(rollout.max_concurrency, num_groups * algorithm.group_size)
    num_played = min(rollout.max_concurrency, num_played)
    together = num_trained + num_played if rollout.overlap else max(num_trained, num_played)
    return max(1, together)
