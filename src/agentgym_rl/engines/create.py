"""Which engine generates: the one for the device that the policy is on."""

from __future__ import annotations

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.engines.base import Engine
from agentgym_rl.engines.native import NativeEngine
from agentgym_rl.engines.paged import PagedEngine
from agentgym_rl.models.loading import Policy


def create_engine(policy: Policy, config: NativeEngineConfig) -> Engine:
    """Return an engine that samples with the policy's own weights; the caller closes it.

    The model is on its device already, and has its adapter if it will have one.
    """
    if policy.model.device.type == "cuda":
        return PagedEngine(policy, config)
    return NativeEngine(policy, config)
