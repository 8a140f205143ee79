"""Which engine generates: the one that the recipe names, for the device that the policy is on."""

from __future__ import annotations

from pathlib import Path

from agentgym_rl.config import EngineConfig, OpenAIEngineConfig, VllmEngineConfig
from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.paged.engine import PagedEngine
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.server import check_server
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.loading import Policy


def create_engine(policy: Policy, config: EngineConfig, *, folder: Path | None = None) -> Engine:
    """Return an engine that samples with the policy's weights; the caller closes it.

    The model is on its device already, and has its adapter if it will have one. `folder` is for
    the log of a server, or for what decides the last bits on a CPU; without one it is lost.
    """
    if isinstance(config, VllmEngineConfig):
        return VllmEngine(policy, config, folder=folder)
    if isinstance(config, OpenAIEngineConfig):
        raise not_trainable(config)
    if policy.model.device.type == "cuda":
        return PagedEngine(policy, config)
    return NativeEngine(policy, config, folder=folder)


async def check_engine(config: EngineConfig) -> None:
    """Raise an AgentGymError where no policy could be trained with such an engine here."""
    if isinstance(config, OpenAIEngineConfig):
        raise not_trainable(config)
    if isinstance(config, VllmEngineConfig):
        await check_server(config)


def not_trainable(config: OpenAIEngineConfig) -> ConfigError:
    """Return the error of an engine that tells no tokens where tokens are needed."""
    return ConfigError(
        f"engine.type={config.type} is for `agentgym eval` alone: an endpoint tells no tokens to "
        "learn from; set engine.type to native or vllm"
    )
