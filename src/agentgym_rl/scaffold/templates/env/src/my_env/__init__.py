"""An environment for AgentGym-RL. See `env.py`."""
