"""The agent: what the model is shown, and what its replies mean."""

from __future__ import annotations

from agentgym_rl.agents.formats import ParsedReply, make_format
from agentgym_rl.config import AgentConfig
from agentgym_rl.envs.base import EnvSpec


class Agent:
    """Turns an environment's text into prompts and a model's replies into actions."""

    def __init__(self, config: AgentConfig, spec: EnvSpec) -> None:
        self._format = make_format(config.format, spec)
        self._preamble = (
            f"{spec.instructions.strip()}\n\n{self._format.instructions()}\n\n"
            if config.include_instructions
            else ""
        )

    def first_prompt(self, observation: str) -> str:
        """Return the first message: the instructions and the first observation."""
        return self._preamble + observation

    def parse(self, reply: str) -> ParsedReply:
        """Read the action out of a reply."""
        return self._format.parse(reply)

    def write(self, action: str) -> str:
        """Return the reply with which a demonstration takes `action`."""
        return self._format.write(action)
