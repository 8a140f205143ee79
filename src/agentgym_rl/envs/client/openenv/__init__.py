"""The client of servers that speak OpenEnv's protocol.

Episodes are in source.py, what a foreign server leaves open in mapping.py, its tasks in
profile.py, sockets and deadlines in transport.py.
"""

from agentgym_rl.envs.client.openenv.mapping import OpenEnvOptions
from agentgym_rl.envs.client.openenv.source import OpenEnvSource

__all__ = ["OpenEnvOptions", "OpenEnvSource"]
