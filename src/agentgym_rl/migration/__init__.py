"""Coming from the original AgentGym-RL: its training scripts as recipes.

docs/coming-from-agentgym-rl.md has every name that differs.
"""
