"""The typed core: what travels between environments, agents, engines and the trainer.

Standard library only, so that servers, clients and the command line can use it without torch.
Everything here is frozen: a value that crosses a module border is never changed in place.

    task      one problem                       episode   what an agent does at it
    group     the episodes of one task          round     one action and the environment's reply
    sample    one training sequence             segment   a run of tokens of one kind
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agentgym_rl.frozen import NOTHING, FrozenDict, JsonValue, frozen_payload


class StopReason(StrEnum):
    """Why an episode ended. Closed: every episode has exactly one."""

    SUCCESS = "success"
    """The environment said that the task is solved."""
    TERMINATED = "terminated"
    """The environment ended the episode without success, or the agent gave up."""
    MAX_ROUNDS = "max_rounds"
    """The horizon was reached, or the environment ended the episode by a limit of its own."""
    MAX_TOKENS = "max_tokens"
    """The context was full, and the agent has no memory that makes room."""
    INVALID_ACTIONS = "invalid_actions"
    """Too many invalid actions in a row."""
    TIMEOUT = "timeout"
    """The wall-clock limit of the episode passed. A failure: it says nothing about the agent."""
    ENV_ERROR = "env_error"
    """The environment or the way to it failed."""
    ENGINE_ERROR = "engine_error"
    """Generation failed."""
    REWARD_ERROR = "reward_error"
    """The reward function of the recipe failed."""

    @property
    def is_failure(self) -> bool:
        """Whether the infrastructure, not the agent, ended the episode; it then has no reward."""
        return self in _FAILURES

    @property
    def is_truncation(self) -> bool:
        """Whether a limit on rounds or tokens ended an episode that could have continued."""
        return self in _TRUNCATIONS


_FAILURES = frozenset(
    {
        StopReason.TIMEOUT,
        StopReason.ENV_ERROR,
        StopReason.ENGINE_ERROR,
        StopReason.REWARD_ERROR,
    }
)
_TRUNCATIONS = frozenset({StopReason.MAX_ROUNDS, StopReason.MAX_TOKENS})


class SegmentKind(StrEnum):
    """What a run of tokens is."""

    PROMPT = "prompt"
    OBSERVATION = "observation"
    THOUGHT = "thought"
    """The part of a reply before its action, where the format separates them."""
    ACTION = "action"
    PLAN = "plan"
    REFLECTION = "reflection"
    SUMMARY = "summary"

    @property
    def is_reply(self) -> bool:
        """Whether the policy writes such tokens."""
        return self not in (SegmentKind.PROMPT, SegmentKind.OBSERVATION)


@dataclass(frozen=True, slots=True)
class Task:
    """One problem of one environment.

    Example: Task(env="babyai", split="test", index=44, category="GoTo", level="GoToLocalS8N7")
    """

    env: str
    split: str
    index: int
    """The environment's own number of the problem; unique within the environment."""
    category: str = ""
    """The group that reports are broken down by, e.g. "GoTo" or "depth 2"."""
    level: str = ""
    """A finer name than the category, where the environment has one."""
    seed: int = 0
    """Seeds whatever the environment draws beyond the problem itself (e.g. distractors)."""
    payload: Mapping[str, JsonValue] = field(default=NOTHING, hash=False, repr=False)
    """JSON data of the environment's own, such as a question and its answers. It is copied and
    cannot be changed; lists become tuples. Never shown to the agent by itself."""

    def __post_init__(self) -> None:
        if type(self.payload) is not FrozenDict:
            object.__setattr__(self, "payload", frozen_payload(self.payload))

    @property
    def id(self) -> str:
        """A name unique over environments and seeds: "babyai/44", with seed 7 "babyai/44/7"."""
        return f"{self.env}/{self.index}" + (f"/{self.seed}" if self.seed else "")


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; `role` is "user", "assistant", "system" or "tool"."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class StepResult:
    """What an environment answers to one action.

    `terminated` comes from the environment (solved, or beyond rescue), `truncated` from a limit of
    the environment's own. `success` implies `terminated`. A bad action is not an error: it is an
    observation that says so, with `valid_action` false.

    Example: StepResult("Crafted 4 oak planks.", 0.3, metrics={"items_crafted": 1},
                        reward_parts={"progress": 0.2, "format": 0.1})
    """

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    success: bool = False
    valid_action: bool = True
    metrics: Mapping[str, float] = NOTHING
    """Finite numbers of the environment's own, by names like identifiers; at most 64. An episode's
    value is the one reported last, so report a running figure, from the first round on."""
    reward_parts: Mapping[str, float] = NOTHING
    """What `reward` is made of, by name: the parts sum to it. `reward.weights` of a recipe weighs
    them anew. Empty where the reward is in one part."""

    @property
    def is_last(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a reply is drawn."""

    temperature: float = 1.0
    """0 takes the most likely token."""
    max_tokens: int = 256
    """Limit on the tokens of one reply."""
    top_p: float = 1.0
    """Draw from the fewest most likely tokens that have this much probability together."""
    top_k: int = 0
    """Draw from this many most likely tokens; 0 for all."""
    min_p: float = 0.0
    """Draw from tokens that have at least this share of the most likely one's probability."""
    stop: tuple[str, ...] = ()
    """Texts that end a reply, with the token that completes one of them. (Other endpoints leave
    the text out of their reply.)"""

    def __post_init__(self) -> None:
        if not isinstance(self.stop, tuple) or not all(self.stop):
            raise ValueError(f"stop must be a tuple of texts that are not empty, got {self.stop!r}")

    @property
    def has_cuts(self) -> bool:
        """Whether tokens are left out. Log-probabilities are then not those of the learner."""
        return self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled reply, exactly as the policy produced it."""

    token_ids: tuple[int, ...]
    """Includes the stop token when one was sampled."""
    logprobs: tuple[float, ...]
    """Log-probability of each token under the distribution it was drawn from."""
    is_stopped: bool
    """True when a stop token or text ended the reply, false when the token limit cut it."""
    version: int
    """Number of the training step whose weights produced it (0: before training)."""


@dataclass(frozen=True, slots=True)
class ReplyUsage:
    """What an endpoint reports of replies whose tokens it keeps to itself."""

    num_tokens: int
    """Tokens of all replies of an episode."""
    mean_logprob: float | None = None
    """Of these tokens; None where the endpoint does not report it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens `start` up to (not including) `end` of a sample are of one kind."""

    kind: SegmentKind
    start: int
    end: int
    round_index: int
    """The round the tokens belong to, from 0 over all tries; the prompt belongs to round 0. A
    plan, a summary or a reflection belongs to the round whose action comes next."""
    version: int | None = None
    """Version of the weights that sampled the tokens; None where they were not sampled here."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One training sequence: exact token ids with everything that is aligned to them.

    Example, a prompt of two tokens, a reply of two, an observation of one:
        token_ids (5, 8, 31, 2, 9)   loss_mask (0, 0, 1, 1, 0)   rewards (0, 0, 0, 1.0, 0)
    """

    token_ids: tuple[int, ...]
    loss_mask: tuple[int, ...]
    """1 exactly on the tokens that the policy sampled in this sample. A reply that a later context
    repeats has 1 where it was sampled and 0 in the later sample."""
    logprobs: tuple[float, ...]
    """The engine's log-probability of each sampled token; 0 elsewhere."""
    rewards: tuple[float, ...]
    """The reward of each round, on the last action token of that round; 0 elsewhere. What a try
    that was given up had earned is taken back on the token before the next try."""
    segments: tuple[Segment, ...]
    version: int
    """Version of the weights that sampled its last reply; `segments` have those of all."""
    try_index: int = 0
    """Which of the agent's tries at the task it belongs to, from 0."""

    @property
    def num_action_tokens(self) -> int:
        return sum(self.loss_mask)


@dataclass(frozen=True, slots=True)
class Round:
    """One action and the environment's reply."""

    reply: str
    """What the policy wrote, in full."""
    action: str | None
    """The action taken out of the reply; None where the reply did not parse."""
    observation: str
    reward: float
    valid_action: bool
    try_index: int = 0
    """Which of the agent's tries at the task it belongs to, from 0."""
    generation_s: float | None = field(default=None, compare=False)
    """Seconds that the policy took to reply, in this round's plans and summaries too."""
    environment_s: float | None = field(default=None, compare=False)
    """Seconds that the environment took; the first round of a try includes the reset."""
    metrics: Mapping[str, float] = NOTHING
    """What the environment reported of its own."""
    reward_parts: Mapping[str, float] = NOTHING
    """What the reward is made of, before `reward.weights`; empty where it is in one part."""
    picture: bytes | None = field(default=None, compare=False, repr=False)
    """What the environment looked like when the action was chosen; None where it was not kept."""
    acted_on: tuple[float, ...] | None = field(default=None, compare=False)
    """Where in the picture the action took place: x, y, width and height."""


@dataclass(frozen=True, slots=True)
class Episode:
    """All that an agent did at a task, finished or failed: one try, or several with reflection.

    A failed episode (`error` set) has no reward: it is counted and dropped, never scored 0.
    """

    task: Task
    sample_index: int
    """Which of the episodes of its group, from 0."""
    stop_reason: StopReason
    reward: float | None
    """Sum of the rewards of the last try's rounds; None when the episode failed."""
    success: bool
    rounds: tuple[Round, ...]
    """Of all tries, in order."""
    messages: tuple[Message, ...]
    """What was said, in the order of time; what a new context repeats is not said again."""
    samples: tuple[Sample, ...]
    """One for each context that the policy replied in, in the order of time; none where the policy
    is an endpoint that reports only text."""
    seconds: float
    num_restarts: int = 0
    """How often the episode was started again after an infrastructure failure."""
    error: str | None = None
    usage: ReplyUsage | None = None
    """Where the policy is an endpoint that reports only text, what it reports of its tokens."""
    env_reward: float | None = None
    """The environment's own reward, where a reward function gave another; else None."""
    num_replies_cut: int = 0
    """Replies that the limit on tokens cut."""

    @property
    def is_failed(self) -> bool:
        return self.stop_reason.is_failure

    @property
    def num_reply_tokens(self) -> int:
        """Tokens of all that the policy wrote."""
        if self.usage is not None:
            return self.usage.num_tokens
        return sum(sample.num_action_tokens for sample in self.samples)

    @property
    def num_replies(self) -> int:
        """Replies of the policy: actions, and plans, summaries and reflections."""
        return sum(message.role == "assistant" for message in self.messages)

    @property
    def num_invalid_actions(self) -> int:
        return sum(not round_.valid_action for round_ in self.rounds)

    @property
    def last_try(self) -> tuple[Round, ...]:
        """The rounds of the try that counts."""
        last = self.rounds[-1].try_index if self.rounds else 0
        return tuple(round_ for round_ in self.rounds if round_.try_index == last)

    @property
    def metrics(self) -> dict[str, float]:
        """The environment's own numbers: of each name, what the last try reported last."""
        return {name: value for round_ in self.last_try for name, value in round_.metrics.items()}

    @property
    def reward_parts(self) -> dict[str, float]:
        """The sum of each part of the reward over the last try, before `reward.weights`."""
        sums: dict[str, float] = {}
        for round_ in self.last_try:
            for name, value in round_.reward_parts.items():
                sums[name] = sums.get(name, 0.0) + value
        return sums


@dataclass(frozen=True, slots=True)
class Group:
    """The episodes of one task, all from the same start. Holds the failed ones too."""

    task: Task
    episodes: tuple[Episode, ...]

    @property
    def completed(self) -> tuple[Episode, ...]:
        """The episodes that have a reward."""
        return tuple(episode for episode in self.episodes if not episode.is_failed)

    @property
    def is_solved(self) -> bool:
        """Whether every episode succeeded."""
        return all(episode.success for episode in self.episodes)
