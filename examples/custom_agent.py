"""Your own agent in one class: it drafts an action, then has the policy check the draft.

agentgym train quickstart agent.type=examples.custom_agent:DoubleCheckAgent
"""

from __future__ import annotations

from agentgym_rl.agents.agent import Agent
from agentgym_rl.agents.interaction import Interaction
from agentgym_rl.types import SegmentKind

_CHECK = "Was that a good choice? Reply with your final action."


class DoubleCheckAgent(Agent):
    """Asks twice before it acts. The draft is a thought: learned from, but never done.

    The interaction keeps exact tokens, limits and rewards; an agent decides what is shown
    (`begin`, `tell`), what is asked for (`ask`) and what is done (`act`).
    """

    async def play(self, interaction: Interaction) -> None:
        interaction.begin(self.first_prompt(await interaction.reset()))
        while not interaction.is_over:
            await interaction.ask(SegmentKind.THOUGHT)
            interaction.tell(_CHECK)
            reply = await interaction.ask()
            parsed = self.parse(reply.text, cut_at=reply.cut_at)
            result = await interaction.act(parsed.action, complaint=parsed.complaint)
            interaction.tell(result.observation)
