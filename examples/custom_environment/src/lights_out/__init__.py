"""Lights Out for AgentGym-RL. See `env.py`."""
