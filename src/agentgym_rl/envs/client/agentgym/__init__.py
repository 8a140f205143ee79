"""The client of AgentGym's own environment servers: source.py; its scenarios: scenarios.py."""

from agentgym_rl.envs.client.agentgym.source import AgentGymEnvSource

__all__ = ["AgentGymEnvSource"]
