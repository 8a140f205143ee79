"""OpenEnv's wire protocol over an `EpisodeService`, so that its clients can play here.

Routes are in routes.py, one socket's session in session.py, the task API in tasks.py, the
published schemas in schema.py.
"""

from agentgym_rl.envs.server.openenv.routes import routes

__all__ = ["routes"]
