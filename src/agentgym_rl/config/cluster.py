"""Where the processes of a run are: `[cluster]`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from agentgym_rl.config.base import BaseConfig


class ClusterConfig(BaseConfig):
    """Engines in processes of their own."""

    type: Literal["none", "local"] = "none"
    """none: the engine is in the run's own process. local: engines are processes of this machine,
    one for each GPU, or any number on a CPU."""

    engines: int = Field(default=1, ge=1, le=1024)
    """Engines that share the episodes. With vLLM each is a server on
    `engine.tensor_parallel_size` GPUs."""

    shared: bool = True
    """Engines use the learner's GPUs (`training.shards` of them); false gives them the
    GPUs after those. On a CPU it makes no difference."""

    @model_validator(mode="after")
    def _check_idle(self) -> ClusterConfig:
        if self.type == "none" and (self.engines != 1 or not self.shared):
            raise ValueError(
                "cluster.engines and cluster.shared are for engines in processes of their own: set "
                "cluster.type=local, or leave them out"
            )
        return self
