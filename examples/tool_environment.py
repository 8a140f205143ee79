"""Your own tools in one class: the methods are the actions, a function pays for the result.

agentgym check examples.tool_environment:Thermostat
agentgym play examples.tool_environment:Thermostat
agentgym train quickstart env.name=examples.tool_environment:Thermostat 'env.levels=[]' \
    rollout.max_tokens_per_round=24
"""

from collections.abc import Sequence

from agentgym_rl.envs.base import EnvSpec
from agentgym_rl.envs.tools import CallRecord, Final, ToolCall, ToolEnvironment, ToolError
from agentgym_rl.types import Task


class Thermostat(ToolEnvironment):
    spec = EnvSpec(
        name="thermostat",
        summary="Bring a room to a temperature with a dial that moves in steps.",
        instructions="You control a room. Bring it to the temperature that is asked for.",
        example_action="turn(steps=2)",
        splits=("train", "test"),
        categories=("room",),
        max_rounds=6,
        replay_is_safe=True,  # it only computes, so the UI may play stored actions again
    )

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        cls.require_split(split)
        goals = [n for n in range(40) if (n % 4 == 0) == (split == "test")]
        return [Task("thermostat", split, n, category="room") for n in goals]

    def begin(self, task: Task) -> str:
        self._now, self._goal = 15 + task.index % 10, 17 + task.index // 4
        return f"Make it {self._goal} degrees. It is {self._now} now."

    def turn(self, steps: int) -> str:
        """Turn the dial.

        Args:
            steps: degrees up, or down if below 0; at most 5
        """
        if abs(steps) > 5:
            raise ToolError("The dial turns 5 steps at most.")
        self._now += steps
        return f"It is {self._now} degrees."

    def finish(self) -> Final:
        """Say that the room is right; this ends the episode."""
        return Final("Thank you.")

    def score(self, calls: Sequence[CallRecord]) -> float:
        return float(self._now == self._goal)

    def expert_action(self) -> str:
        missing = self._goal - self._now
        call = ToolCall("turn", {"steps": max(-5, min(5, missing))})
        return call.text if missing else "finish()"
