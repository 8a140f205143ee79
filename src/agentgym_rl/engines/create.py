"""Creates the engine that the recipe names, for the device of the policy."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from agentgym_rl.config import (
    EngineBaseConfig,
    EngineConfig,
    NativeEngineConfig,
    OpenAIEngineConfig,
    VllmEngineConfig,
)
from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.paged.engine import PagedEngine
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.server import check_server
from agentgym_rl.errors import ConfigError
from agentgym_rl.lookup import load_class
from agentgym_rl.models.loading import Policy


class OwnEngine(Engine):
    """Base of a user's engine, named by `engine.type = "module:Class"`.

    A subclass names its settings (`config_class`, a subclass of EngineBaseConfig).
    """

    config_class: ClassVar[type[EngineBaseConfig]] = EngineBaseConfig

    def __init__(
        self, policy: Policy, config: EngineBaseConfig, *, folder: Path | None = None
    ) -> None:
        """`policy` always has the weights to sample with, from each `publish` on."""


def create_engine(policy: Policy, config: EngineConfig, *, folder: Path | None = None) -> Engine:
    """Return an engine that samples with the policy's weights; the caller closes it.

    The model must be on its device, and have its adapter if it will have one. `folder` gets the log
    of a server, or what decides the last bits on a CPU; without a folder they are lost.
    """
    if isinstance(config, VllmEngineConfig):
        return VllmEngine(policy, config, folder=folder)
    if isinstance(config, OpenAIEngineConfig):
        raise not_trainable(config)
    if not isinstance(config, NativeEngineConfig):
        return load_class(config.type, OwnEngine, setting="engine.type")(
            policy, config, folder=folder
        )
    if policy.model.device.type == "cuda":
        return PagedEngine(policy, config)
    return NativeEngine(policy, config, folder=folder)


async def check_engine(config: EngineConfig) -> None:
    """Raise an AgentGymError if no policy can be trained with such an engine here."""
    if isinstance(config, OpenAIEngineConfig):
        raise not_trainable(config)
    if isinstance(config, VllmEngineConfig):
        await check_server(config)


def not_trainable(config: OpenAIEngineConfig) -> ConfigError:
    """Return the error of training with an engine that returns no tokens."""
    return ConfigError(
        f"engine.type={config.type} is only for `agentgym eval`: an endpoint returns no tokens "
        "to learn from; set engine.type to native or vllm"
    )
