"""The agent: what the model is shown, what its replies mean, and the loop of an episode.

`Agent.play` is the loop. `agents/interaction.py` has its other side: the environment, the limits
and the record. `rollout/episode.py` starts and restarts episodes.
"""

from __future__ import annotations

import contextlib
import inspect
from copy import copy

from agentgym_rl.agents.context import AgentContext
from agentgym_rl.agents.formats import ParsedReply, ToolTemplate, make_format
from agentgym_rl.agents.interaction import Interaction, TryOver
from agentgym_rl.config import AgentConfig
from agentgym_rl.envs.base import EnvSpec, ToolSchema
from agentgym_rl.envs.tools.described import briefing
from agentgym_rl.lookup import check_call, is_own, load_object


class Agent:
    """Turns an environment's text into prompts and a model's replies into actions.

    One object serves all episodes at once, so what an episode needs to remember is local to `play`.
    Your own agent is a subclass; most replace only `play`.
    """

    def __init__(self, config: AgentConfig, spec: EnvSpec) -> None:
        self.config, self.spec = config, spec
        self._format = make_format(config.format, spec)
        self._preamble = self._instructions()
        self.result_role = "user"
        """The role of the message that answers an action."""

    @property
    def name(self) -> str:
        """The class, for people."""
        return type(self).__name__

    @property
    def tools(self) -> tuple[ToolSchema, ...]:
        """Schemas of the tools, for a chat template that shows tools itself."""
        return self._format.tools if self.config.include_instructions else ()

    def for_model(self, template: ToolTemplate) -> Agent:
        """Return the agent for a model; if its template shows tools, the prompt does not."""
        if not template.shows_tools:
            return self
        agent = copy(self)
        agent._format = self._format.for_template(template)
        agent._preamble, agent.result_role = agent._instructions(), template.result_role
        return agent

    def first_prompt(self, observation: str) -> str:
        """Return the first message: the instructions and the first observation."""
        return self._preamble + observation

    def parse(self, reply: str, *, cut_at: int | None = None) -> ParsedReply:
        """Read the action out of a reply; `cut_at` is the token limit that cut it, if any."""
        return self._format.parse(reply, cut_at=cut_at)

    def write(self, action: str, thought: str = "") -> str:
        """Return the reply with which a demonstration takes `action`, for this reason."""
        return self._format.write(action, thought)

    async def play(self, interaction: Interaction) -> None:
        """Play an episode: ask, parse, act, observe until the try is over; reflect, try again."""
        config = self.config.reflection
        context = AgentContext(self.config, interaction, first_prompt=self.first_prompt)
        while True:
            # A full context ends a try; another may follow.
            with contextlib.suppress(TryOver):
                context.begin_try(await interaction.reset(credit=config.credit))
                while not interaction.is_over:
                    await context.prepare_round()
                    reply = await interaction.ask()
                    parsed = self.parse(reply.text, cut_at=reply.cut_at)
                    reply = interaction.split(reply, parsed.action_start or 0)
                    result = await interaction.act(parsed.action, complaint=parsed.complaint)
                    context.end_round(reply, result)
            if interaction.has_succeeded or interaction.try_index + 1 >= config.tries:
                return
            # Without room for a reflection, the next try begins without one.
            with contextlib.suppress(TryOver):
                await context.reflect()

    def _instructions(self) -> str:
        """Return what precedes the first observation."""
        if not self.config.include_instructions:
            return ""
        # A format that calls tools shows them itself, or has the chat template do so.
        told = self.spec.instructions.strip() if self._format.tools else briefing(self.spec)
        return f"{told}\n\n{self._format.instructions()}\n\n"


def make_agent(config: AgentConfig, spec: EnvSpec, cls: type[Agent] | None = None) -> Agent:
    """Return the agent that the recipe asks for, or an instance of `cls`."""
    found = cls or agent_class(config)
    check_call(found, config, spec, given=f"agent.type={config.type!r}")
    return found(config, spec)


def agent_class(config: AgentConfig) -> type[Agent]:
    """Return the class that `agent.type` names."""
    if config.type == "standard":
        return Agent
    if not is_own(config.type):
        raise ValueError(
            f'agent.type={config.type!r} is neither "standard" nor of the form "module:Class"'
        )
    given = f"agent.type={config.type!r}"
    return check_agent_class(load_object(config.type, given=given), given=given)


def check_agent_class(found: object, *, given: str) -> type[Agent]:
    """Return a class of agents, or raise ValueError; `given` is how it was named."""
    if not (isinstance(found, type) and issubclass(found, Agent)):
        raise ValueError(f"{given} is not a subclass of Agent: {found!r}")
    if not inspect.iscoroutinefunction(found.play):
        raise ValueError(f"{given}: `play` must be an `async def`")
    return found
