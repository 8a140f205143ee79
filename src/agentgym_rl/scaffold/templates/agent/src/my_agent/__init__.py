"""An agent for AgentGym-RL. See `agent.py`."""
