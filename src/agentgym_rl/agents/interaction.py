"""How an agent prompts the policy and acts in the environment during an episode.

An interaction keeps the limits, the rounds and the reasons to stop. It has a transcript, which
keeps what was said. An agent only decides what is shown, what is asked for, and what is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, Protocol

from agentgym_rl.agents.limits import Limits
from agentgym_rl.agents.transcript import (
    ContextPart,
    Credit,
    NoRoomError,
    Reply,
    ReplyRequest,
    Transcript,
)
from agentgym_rl.errors import PromptTooLongError
from agentgym_rl.frozen import JsonValue
from agentgym_rl.types import Round, SegmentKind, StepResult, StopReason, Task


class TryOver(Exception):  # noqa: N818 - an end, not an error
    """The context has no room for another reply."""


class InteractionEnv(Protocol):
    """The environment of an interaction: an `EnvClient`, or a demonstration that is replayed."""

    async def reset(self, task: Task) -> str: ...

    async def step(self, action: str) -> StepResult: ...


class Camera(Protocol):
    """What takes pictures of an environment: an `EnvClient`."""

    async def render(self) -> bytes | None: ...

    async def details(self) -> Mapping[str, JsonValue]: ...


class Interaction:
    """One episode as its agent sees it.

    Example, one round:
        interaction.begin(agent.first_prompt(await interaction.reset()))
        reply = await interaction.ask()
        result = await interaction.act(agent.parse(reply.text).action)
        interaction.tell(result.observation)
    """

    def __init__(
        self,
        task: Task,
        env: InteractionEnv,
        transcript: Transcript,
        *,
        limits: Limits,
        weigh: Callable[[StepResult], StepResult] | None = None,
        camera: Camera | None = None,
    ) -> None:
        """`weigh` replaces the reward of each step by the one that the run trains on.

        With a `camera` every round keeps what the environment looked like before its action.
        """
        self._camera = camera
        self._task, self._env, self._transcript = task, env, transcript
        self._limits, self._weigh = limits, weigh
        self.try_index = -1
        """The present try at the task, from 0; -1 before the first."""
        self._texts = list[str]()
        """Shown with the next request for a reply."""
        self._latest: Reply | None = None
        self._generation_s, self._environment_s = 0.0, 0.0
        """Of the present round."""
        self.rounds = list[Round]()
        self.num_replies_cut = 0
        self.stop_reason: StopReason | None = None

    @property
    def is_over(self) -> bool:
        """Whether the present try has ended: solved, failed for good, or at a limit."""
        return self.stop_reason is not None

    @property
    def has_succeeded(self) -> bool:
        """Whether the present try solved the task."""
        return self.stop_reason is StopReason.SUCCESS

    @property
    def has_replies(self) -> bool:
        """Whether the policy has said anything."""
        return self._latest is not None

    @property
    def max_reply_tokens(self) -> int:
        """Limit on the tokens of one reply."""
        return self._limits.max_tokens_per_round

    @property
    def reward(self) -> float:
        """What the present try has earned."""
        return sum(round_.reward for round_ in self._rounds_of_try())

    async def reset(self, *, credit: Credit = "improvement") -> str:
        """Begin a try and return the first observation; call it again for a fresh try.

        The reward of an episode is the reward of its last try. With credit "episode" the rewards of
        earlier tries are dropped. With "improvement" they stay where they were earned, and the last
        token before the next try takes them back, so that what follows earns the improvement.
        """
        if self.try_index >= 0:
            self._transcript.take_rewards_back(self.reward, try_index=self.try_index, credit=credit)
        self.try_index += 1
        self.stop_reason = None
        started = time.monotonic()
        observation = await self._env.reset(self._task)
        self._environment_s += time.monotonic() - started
        return observation

    def begin(self, *parts: ContextPart) -> None:
        """Begin a new context: texts and replies in turn, a text first and last.

        Replies keep the ids that were sampled, and are not learned from again. The last text may be
        empty if the policy is told something else before its next reply.
        """
        *earlier, text = parts
        assert len(parts) % 2 and isinstance(text, str), "texts and replies in turn"
        self._transcript.begin(earlier, try_index=self.try_index)
        self._texts = [text] if text else []

    def tell(self, text: str) -> None:
        """Queue a text for the next prompt; several are joined with blank lines."""
        self._texts.append(text)

    def room(self, *texts: str) -> int:
        """Return the tokens left for a reply once these texts are told as well."""
        return self._transcript.room("\n\n".join([*self._texts, *texts]))

    def room_in(self, *parts: ContextPart) -> int:
        """Return the tokens left for a reply in a context that begins with these parts."""
        *earlier, text = parts
        assert isinstance(text, str), "a context ends with a text"
        return self._transcript.room_in(earlier, text)

    async def ask(
        self, kind: SegmentKind = SegmentKind.ACTION, *, stop: tuple[str, ...] = ()
    ) -> Reply:
        """Return the policy's next reply, which ends at the latest with one of the texts `stop`.

        Raises TryOver if there is no room for a reply.
        """
        kind = SegmentKind(kind)  # a user's agent may pass anything
        text = "\n\n".join(self._texts)
        assert text, "the policy is told something before it is asked"
        limit = self._limits.max_tokens_per_round
        try:
            reply = await self._transcript.ask(
                ReplyRequest(text, kind, len(self.rounds), limit, stop)
            )
        except NoRoomError as full:
            self._refuse(full)
        self._texts = []
        self._generation_s += reply.seconds
        self.num_replies_cut += reply.cut_at is not None
        self._latest = reply
        return reply

    def split(self, reply: Reply, action_start: int) -> Reply:
        """Separate the thought of the latest reply from its action, which begins at a character.

        A token across the border belongs to the action. Returns the reply with its thought marked.
        """
        return self._transcript.split(reply, action_start)

    async def act(self, action: str | None, *, complaint: str = "") -> StepResult:
        """Play a round with the latest reply; without an action, the answer is the complaint."""
        assert self._latest is not None and not self.is_over, "a try is under way"
        picture = await self._camera.render() if self._camera else None
        started = time.monotonic()
        if action is None:
            result = StepResult(complaint, valid_action=False)
        else:
            result = await self._env.step(action)
            result = result if self._weigh is None else self._weigh(result)
        self._environment_s += time.monotonic() - started
        self._transcript.end_round(result)
        self.rounds.append(
            Round(
                self._latest.text,
                action,
                result.observation,
                result.reward,
                result.valid_action,
                self.try_index,
                self._generation_s,
                self._environment_s,
                result.metrics,
                result.reward_parts,
                picture,
                None if action is None else await self._acted_on(),
            )
        )
        self._generation_s, self._environment_s = 0.0, 0.0
        self.stop_reason = self._reason_after(result)
        return result

    async def _acted_on(self) -> tuple[float, ...] | None:
        """Return where the latest action took place, as the environment tells it."""
        place = (await self._camera.details()).get("acted_on") if self._camera else None
        is_box = isinstance(place, Sequence) and all(isinstance(n, int | float) for n in place)
        return tuple(float(str(n)) for n in place) if is_box and place else None

    def _rounds_of_try(self) -> list[Round]:
        return [round_ for round_ in self.rounds if round_.try_index == self.try_index]

    def _refuse(self, full: NoRoomError) -> NoReturn:
        """End the try for lack of room; a first prompt that leaves no room is an error."""
        if not self.has_replies:
            raise PromptTooLongError(
                f"the prompt of {self._task.id} has {full.num_tokens} tokens, which leaves no "
                f"room for a reply within {full.max_tokens}; raise rollout.max_tokens, or "
                "use a model (or its server) with a longer context"
            ) from full
        self.stop_reason = self.stop_reason or StopReason.MAX_TOKENS
        raise TryOver from full

    def _reason_after(self, result: StepResult) -> StopReason | None:
        """Return why the try ends after this round, or None if it continues."""
        limits, rounds = self._limits, self._rounds_of_try()
        if result.success:
            return StopReason.SUCCESS
        if result.terminated:
            return StopReason.TERMINATED
        if result.truncated or len(rounds) >= limits.max_rounds:
            return StopReason.MAX_ROUNDS
        limit = limits.max_invalid_actions
        latest = rounds[-limit:] if limit else []
        if limit and len(latest) == limit and not any(r.valid_action for r in latest):
            return StopReason.INVALID_ACTIONS
        return None
