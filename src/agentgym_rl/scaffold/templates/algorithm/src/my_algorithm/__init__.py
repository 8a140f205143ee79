"""An algorithm for AgentGym-RL. See `algorithm.py`."""
