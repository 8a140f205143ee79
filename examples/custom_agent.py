"""An agent of one's own in one class: it drafts an action, then has the policy check the draft.

agentgym train quickstart agent.type=examples.custom_agent:DoubleCheckAgent
"""

from __future__ import annotations

from agentgym_rl.agents.agent import Agent
from agentgym_rl.agents.desk import Desk
from agentgym_rl.types import SegmentKind

_CHECK = "Was that a good choice? Reply with your final action."


class DoubleCheckAgent(Agent):
    """Asks twice before it acts. The draft is a thought: learned from, but never done.

    The desk keeps the exact tokens, the limits and the rewards; an agent says what is shown
    (`begin`, `tell`), what is asked for (`ask`) and what is done (`act`).
    """

    async def play(self, desk: Desk) -> None:
        desk.begin(self.first_prompt(await desk.reset()))
        while not desk.is_over:
            await desk.ask(SegmentKind.THOUGHT)
            desk.tell(_CHECK)
            reply = await desk.ask()
            parsed = self.parse(reply.text, cut_at=reply.cut_at)
            result = await desk.act(parsed.action, complaint=parsed.complaint)
            desk.tell(result.observation)
