"""Where the processes of a run are: `[cluster]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from pydantic import Field, model_validator

from agentgym_rl.config.base import BaseConfig
from agentgym_rl.config.sections import EnvConfig


class ClusterConfig(BaseConfig):
    """Engines and environment servers in processes of their own, and what a run outlives."""

    type: Literal["none", "local", "ray"] = "none"
    """none: the engine is in the run's own process. local: engines are processes of this machine,
    one for each GPU, or any number on a CPU. ray: engines, learner and environment servers are
    actors on the nodes of a Ray cluster."""

    address: str = ""
    """Ray cluster to join, as `ray.init` takes it ("10.0.0.1:6379", "auto"). Empty: RAY_ADDRESS,
    or else a cluster on this machine that begins and ends with the run."""

    shared_folder: str = ""
    """Folder that all nodes of the Ray cluster see under this path, with the run folder below it.
    Empty: files travel between the nodes' processes."""

    engines: int = Field(default=1, ge=1, le=1024)
    """Engines that share the episodes. With vLLM each is a server on
    `engine.tensor_parallel_size` GPUs, of one node on a Ray cluster."""

    shared: bool = True
    """Engines use the learner's GPUs (`training.shards` of them); false gives them the
    GPUs after those. On a CPU it makes no difference."""

    env_servers: int = Field(default=0, ge=0, le=256)
    """Environment servers that the run starts, replaces where they die, and stops at its end; in a
    run on several environments this many for each that has no `url`. 0 starts none."""

    rollout_workers: int = Field(default=0, ge=0, le=256)
    """Processes that play the episodes, each with environments, agents and an event loop of its
    own, for more rounds per second than one process manages (about 2,000). 0: the run's own process
    plays them."""

    max_restarts: int = Field(default=3, ge=0)
    """How often the learner is formed again after one of its processes has died
    (`training.shards`); the run then continues from its newest checkpoint. 0 ends it."""

    @model_validator(mode="after")
    def _check_idle(self) -> ClusterConfig:
        if self.type == "none" and (self.engines != 1 or not self.shared):
            raise ValueError(
                "cluster.engines and cluster.shared are for engines in processes of their own: set "
                "cluster.type=local, or leave them out"
            )
        if self.type == "none" and self.env_servers:
            raise ValueError(
                f"cluster.env_servers={self.env_servers} are processes of a cluster: set "
                f"cluster.type=local, or env.workers={self.env_servers} in its place"
            )
        if self.type == "none" and self.rollout_workers:
            raise ValueError(
                f"cluster.rollout_workers={self.rollout_workers} are processes of a cluster, and "
                "the engine of cluster.type=none is in the run's own: set cluster.type=local, or "
                "cluster.rollout_workers=0"
            )
        if self.type != "ray" and (self.address or self.shared_folder):
            raise ValueError(
                "cluster.address and cluster.shared_folder are for a Ray cluster: set "
                "cluster.type=ray, or leave them out"
            )
        return self


def check_rollout_workers(cluster: ClusterConfig, envs: Mapping[str, EnvConfig]) -> None:
    """Raise ValueError where rollout workers cannot reach the environments."""
    for env in envs.values():
        if cluster.rollout_workers and env.workers:
            raise ValueError(
                f"env.workers={env.workers} are processes of the run's own process, which "
                f"cluster.rollout_workers={cluster.rollout_workers} cannot reach: set "
                f"cluster.env_servers={env.workers} in their place"
            )


def check_env_servers(cluster: ClusterConfig, envs: Mapping[str, EnvConfig]) -> None:
    """Raise ValueError where the run cannot start the servers of its environments."""
    if not cluster.env_servers:
        return
    wanted = f"cluster.env_servers={cluster.env_servers}"
    if all(env.urls for env in envs.values()):
        url = next(iter(envs.values())).urls[0]
        raise ValueError(
            f"{wanted} starts servers, and the environment has one already, env.url={url}: leave "
            "one of the two out"
        )
    for env in envs.values():
        if env.workers:
            raise ValueError(
                f"{wanted} and env.workers={env.workers} are both processes that hold the episodes "
                f"of {env.name}: set one of them to 0"
            )
