"""The agent: what the model is shown, and what its replies mean."""

from __future__ import annotations

import importlib

from agentgym_rl.agents.desk import Desk
from agentgym_rl.agents.expert_desk import DemonstratedContext, ExpertDesk, run_at_once
from agentgym_rl.agents.formats import ParsedReply, make_format
from agentgym_rl.agents.play import Play
from agentgym_rl.config import AgentConfig
from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.demos import Demonstration


class Agent:
    """Turns an environment's text into prompts and a model's replies into actions.

    One object serves all episodes at once, so what an episode needs to remember is local to `play`.
    Agents of your own are subclasses; most replace `play` alone.
    """

    def __init__(self, config: AgentConfig, spec: EnvSpec) -> None:
        self.config = config
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

    async def play(self, desk: Desk) -> None:
        """Work on a task until the desk says that it is over, or there is nothing more to try."""
        await Play(self.config, desk, first_prompt=self.first_prompt, parse=self.parse).to_end()

    def demonstrate(self, demo: Demonstration) -> tuple[DemonstratedContext, ...]:
        """Return the contexts in which this agent would have acted like the expert.

        Plans are the actions that the expert went on to take, summaries those that it had taken.
        Raises ValueError where the agent does not do what it is shown.
        """
        desk = ExpertDesk(demo, self.write)
        run_at_once(self.play(desk))
        return desk.contexts()


def make_agent(config: AgentConfig, spec: EnvSpec) -> Agent:
    """Return the agent that the recipe asks for."""
    if config.type == "standard":
        return Agent(config, spec)
    module, colon, name = config.type.partition(":")
    if not colon:
        raise ValueError(
            f'agent.type={config.type!r} is neither "standard" nor of the form "module:Class"'
        )
    try:
        found: object = getattr(importlib.import_module(module), name)  # the name is the user's
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"agent.type={config.type!r}: {error}; check the spelling, and that the module is "
            "installed or on PYTHONPATH"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise ValueError(f"agent.type={config.type!r} is not a subclass of Agent: {found!r}")
    return found(config, spec)
