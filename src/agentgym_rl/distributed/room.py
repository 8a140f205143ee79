"""The room that a run asks a Ray cluster for. Imports no Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentgym_rl.config import RunConfig, VllmEngineConfig
from agentgym_rl.errors import ConfigError

Bundle = dict[str, float]
"""What one place has, by its name at Ray: "CPU", "GPU"."""


@dataclass(frozen=True, slots=True)
class Room:
    """What a run reserves: a bundle for each rank and engine, or for a pair of both on one GPU."""

    device: str
    """The type of device that ranks and engines use, "cpu" or "cuda"."""
    bundles: list[Bundle]
    first_engine: int
    """The bundle of the first engine."""
    rank_gpus: float
    """GPUs of each rank, or a share of one."""
    engine_gpus: float
    num_servers: int
    num_workers: int

    @property
    def is_shared(self) -> bool:
        """Whether engines use the GPUs of ranks."""
        return 0 < self.engine_gpus < 1

    @property
    def wanted(self) -> Bundle:
        """What all of it comes to."""
        wanted = {"CPU": float(self.num_servers + self.num_workers), "GPU": 0.0}
        for bundle in self.bundles:
            for name, number in bundle.items():
                wanted[name] += number
        return wanted


def room_of(config: RunConfig, nodes: Sequence[Mapping[str, float]]) -> Room:
    """Return what the run asks for; `nodes` is what each node has.

    Raises ConfigError where the cluster can never give it.
    """
    cluster, num_ranks, engine = config.cluster, config.training.shards, config.engine
    envs = [of_env.env for of_env in config.environments.values()]
    num_servers = cluster.env_servers * sum(not env.urls for env in envs)
    device = config.model.device
    if device == "auto":
        device = "cuda" if any(node.get("GPU") for node in nodes) else "cpu"
    width = engine.tensor_parallel_size if isinstance(engine, VllmEngineConfig) else 1
    if device != "cuda":
        bundles = [{"CPU": 1.0}] * (num_ranks + cluster.engines)
        room = Room(device, bundles, num_ranks, 0.0, 0.0, num_servers, cluster.rollout_workers)
    elif cluster.shared:
        _check_shared(num_ranks, cluster.engines)
        bundles = [{"CPU": 2.0, "GPU": 1.0}] * num_ranks
        room = Room(device, bundles, 0, 0.5, 0.5, num_servers, cluster.rollout_workers)
    else:
        _check_width(width, nodes)
        bundles = [{"CPU": 1.0, "GPU": 1.0}] * num_ranks
        bundles += [{"CPU": 1.0, "GPU": float(width)}] * cluster.engines
        room = Room(
            device, bundles, num_ranks, 1.0, float(width), num_servers, cluster.rollout_workers
        )
    _check_whole(room, config, nodes)
    return room


def _check_shared(num_ranks: int, num_engines: int) -> None:
    """Refuse more engines than the learner has GPUs."""
    if num_engines > num_ranks:
        raise ConfigError(
            f"cluster.engines={num_engines} share {num_ranks} GPUs with the learner "
            "(training.shards): lower cluster.engines, or set cluster.shared=false"
        )


def _check_width(width: int, nodes: Sequence[Mapping[str, float]]) -> None:
    """Refuse an engine that is wider than every node."""
    most = max((node.get("GPU", 0.0) for node in nodes), default=0.0)
    if width > max(1.0, most):
        raise ConfigError(
            f"engine.tensor_parallel_size={width} are GPUs of one node, and the largest of the "
            f"Ray cluster has {most:g}: lower it"
        )


def _check_whole(room: Room, config: RunConfig, nodes: Sequence[Mapping[str, float]]) -> None:
    """Refuse a run that asks for more than there is."""
    for name, number in room.wanted.items():
        there = sum(node.get(name, 0.0) for node in nodes)
        if there < number:
            raise ConfigError(
                f"the run asks for {number:g} {name}s (training.shards={config.training.shards}, "
                f"cluster.engines={config.cluster.engines}, cluster.env_servers="
                f"{config.cluster.env_servers}, cluster.rollout_workers="
                f"{config.cluster.rollout_workers}), and the Ray cluster has {there:g}: lower "
                "these, or start more nodes"
            )
