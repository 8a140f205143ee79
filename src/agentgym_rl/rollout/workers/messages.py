"""What a controller and a rollout worker say to each other, whatever carries it.

Thousands of these travel per second, and named tuples do so at a fraction of the cost of frozen
dataclasses. Tokens travel as bytes, episodes as `packed` makes them.
"""

from __future__ import annotations

import io
import operator
import pickle
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

from agentgym_rl.agents.limits import Limits
from agentgym_rl.config import AgentConfig, EnvConfig, RewardConfig
from agentgym_rl.engines.base import ContextFullError, EngineDiedError
from agentgym_rl.errors import AgentError, AgentGymError, ConfigError, EngineError, RunError
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.rollout.episode import EpisodeSpec
from agentgym_rl.types import (
    Completion,
    Episode,
    Message,
    Round,
    Sample,
    SamplingParams,
    Segment,
)

_NotZero = tuple[bytes, bytes]
"""Numbers that are not 0: their places, and they themselves."""
_ErrorT = TypeVar("_ErrorT", bound=AgentGymError)


@dataclass(frozen=True, slots=True)
class WorkerEnv:
    """What a worker plays the episodes of one environment with."""

    env: EnvConfig
    agent: AgentConfig
    renderer: ChatRenderer
    label: str
    """As in `Participants`."""
    num_servers: int = 0
    """Servers that the run has started for it, whose addresses the controller knows."""


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What a worker is built from."""

    number: int
    """Of its place in the pool."""
    envs: tuple[WorkerEnv, ...]
    reward: RewardConfig
    reward_timeout_s: float
    folder: Path
    """Its own, for its log."""

    @property
    def log(self) -> Path:
        return self.folder / "rollout.log"


class Play(NamedTuple):
    """Play an episode; the answer is `Played`, or `Failed`."""

    number: int
    env: int
    """Its place in the plan."""
    spec: EpisodeSpec
    limits: Limits
    max_context: int | None
    """Of the engine."""


class GiveUp(NamedTuple):
    """Nobody waits for an episode any more. Has no answer."""

    play: int


class Ping(NamedTuple):
    """Answer with None."""

    number: int


class Played(NamedTuple):
    """An episode with its final reward."""

    episode: bytes
    counts: dict[str, float]
    """Episodes that began on each environment server, or were lost to one, since the worker's last
    answer, by the names of metrics."""


class Failed(NamedTuple):
    """What escaped from an episode, which ends the run."""

    error: AgentGymError


WorkerValue = Played | Failed | None
"""What answers of a worker say; number 0 is the start."""


class AskReply(NamedTuple):
    """The worker needs a reply; the first one of a session opens it."""

    number: int
    play: int
    session: int
    key: int
    new_ids: bytes
    params: tuple[object, ...]


class CloseSession(NamedTuple):
    """The worker drops a session; a reply under way is given up."""

    play: int
    session: int


class Reply(NamedTuple):
    """The answer to `AskReply`: the fields of a completion, or an error."""

    number: int
    token_ids: bytes
    logprobs: bytes
    is_stopped: bool
    version: int
    error: EngineError | None = None


class Waits(NamedTuple):
    """The clock of the episode that waits for a reply is to stand still, or to go on."""

    number: int
    is_waiting: bool


class FindServer(NamedTuple):
    """The worker needs the address of an environment server."""

    number: int
    env: int
    place: int


class Server(NamedTuple):
    """The answer to `FindServer`."""

    number: int
    url: str
    token: str


def ids_to_bytes(ids: Sequence[int]) -> bytes:
    return array("i", ids).tobytes()


def ids_from_bytes(data: bytes) -> list[int]:
    return array("i", data).tolist()


def numbers_to_bytes(numbers: Sequence[float]) -> bytes:
    return array("d", numbers).tobytes()


def numbers_from_bytes(data: bytes) -> tuple[float, ...]:
    return tuple(array("d", data))


def reply_of(number: int, completion: Completion) -> Reply:
    """Return the message that carries a completion, to the last bit."""
    return Reply(
        number,
        ids_to_bytes(completion.token_ids),
        numbers_to_bytes(completion.logprobs),
        completion.is_stopped,
        completion.version,
    )


def completion_of(reply: Reply) -> Completion:
    """Return what `reply_of` was given."""
    return Completion(
        tuple(ids_from_bytes(reply.token_ids)),
        numbers_from_bytes(reply.logprobs),
        reply.is_stopped,
        reply.version,
    )


def plain_error(error: AgentGymError) -> AgentGymError:
    """Return an error that says the same and can travel; a user's own may not."""
    return _plain(error, (EngineDiedError, AgentError, ConfigError), RunError)


def plain_engine_error(error: EngineError) -> EngineError:
    """Return an error of an engine that says the same and can travel."""
    return _plain(error, (EngineDiedError, ContextFullError), EngineError)


def _plain(error: Exception, kinds: Sequence[type[_ErrorT]], other: type[_ErrorT]) -> _ErrorT:
    kind = next((kind for kind in kinds if isinstance(error, kind)), other)
    return kind(str(error))


_ByCall = tuple[Callable[..., object], tuple[object, ...]]
"""How `pickle` wants to be told what to call, and with what."""


def _by_fields(kind: type) -> Callable[[object], _ByCall]:
    """Return how to pickle a frozen dataclass by a call with its fields; its own way is slow."""
    values = operator.attrgetter(*(field.name for field in fields(kind)))
    return lambda it: (kind, values(it))


def _by_arrays(sample: Sample) -> _ByCall:
    """Return how to pickle a training sequence: its numbers as arrays, to the last bit, and only
    those that are not 0."""
    return _sample_of, (
        ids_to_bytes(sample.token_ids),
        bytes(sample.loss_mask),
        _not_zero(sample.logprobs),
        _not_zero(sample.rewards),
        sample.segments,
        sample.version,
        sample.try_index,
    )


def _sample_of(
    token_ids: bytes,
    loss_mask: bytes,
    logprobs: _NotZero,
    rewards: _NotZero,
    segments: tuple[Segment, ...],
    version: int,
    try_index: int,
) -> Sample:
    num = len(loss_mask)
    return Sample(
        tuple(ids_from_bytes(token_ids)),
        tuple(loss_mask),
        _with_zeros(logprobs, num),
        _with_zeros(rewards, num),
        segments,
        version,
        try_index,
    )


def _not_zero(numbers: Sequence[float]) -> _NotZero:
    """Return which numbers are not 0, and these."""
    places = [place for place, number in enumerate(numbers) if number]
    return ids_to_bytes(places), numbers_to_bytes([numbers[place] for place in places])


def _with_zeros(found: _NotZero, num: int) -> tuple[float, ...]:
    numbers = [0.0] * num
    for place, number in zip(ids_from_bytes(found[0]), array("d", found[1]), strict=True):
        numbers[place] = number
    return tuple(numbers)


_QUICK: dict[type, Callable[..., _ByCall]] = {
    Sample: _by_arrays,
    **{kind: _by_fields(kind) for kind in (Episode, Message, Round, Segment)},
}


def packed(episode: Episode) -> bytes:
    """Return an episode as bytes; `pickle.loads` returns an equal one."""
    written = io.BytesIO()
    pickler = pickle.Pickler(written, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = _QUICK
    pickler.dump(episode)
    return written.getvalue()


def unpacked(data: bytes) -> Episode:
    """Return what `packed` was given."""
    return cast("Episode", pickle.loads(data))  # from a process of the run


def params_of(values: tuple[object, ...]) -> SamplingParams:
    """Return the parameters whose fields these are."""
    return SamplingParams(*values)  # pyrefly: ignore[bad-argument-type] - as `values_of` has them


values_of = operator.attrgetter(*(field.name for field in fields(SamplingParams)))
"""The fields of `SamplingParams` as a tuple."""
