"""AgentGym's wire protocol over an `EpisodeService`, so that its stock clients can play here.

Routes, bodies and failures are in dialect.py, the scenarios' own shapes in profiles.py, integer ids
in plays.py, and what a `data_idx` stands for in task_index.py.
"""

from agentgym_rl.envs.server.agentgym.dialect import routes

__all__ = ["routes"]
