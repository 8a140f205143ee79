"""An agent that drafts an action, reads its draft again, and then acts."""

from __future__ import annotations

import agentgym_rl as ag
from agentgym_rl.types import SegmentKind

QUESTION = "Was that a good choice? Reply with your final action."


class MyAgent(ag.Agent):
    """Asks twice before it acts. The draft is a thought: learned from, but never done."""

    async def play(self, interaction: ag.Interaction) -> None:
        interaction.begin(self.first_prompt(await interaction.reset()))
        while not interaction.is_over:
            await interaction.ask(SegmentKind.THOUGHT)
            interaction.tell(QUESTION)
            reply = await interaction.ask()
            parsed = self.parse(reply.text, cut_at=reply.cut_at)
            result = await interaction.act(parsed.action, complaint=parsed.complaint)
            interaction.tell(result.observation)
