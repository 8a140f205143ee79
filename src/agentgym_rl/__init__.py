"""AgentGym-RL: train language-model agents over many rounds with reinforcement learning."""

__version__ = "0.1.0"
