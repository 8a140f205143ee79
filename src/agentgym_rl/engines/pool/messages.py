"""What a controller and an engine elsewhere say to each other, whatever carries it.

Messages travel in lists: whatever has gathered while the last list was on its way. Each request has
a number, and gets exactly one `Answer` with it, unless the engine dies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from agentgym_rl.config import NativeEngineConfig
from agentgym_rl.errors import EngineError
from agentgym_rl.types import Completion, SamplingParams

if TYPE_CHECKING:  # start-up time: processes that only hold a server need no torch
    from agentgym_rl.engines.channels.delivery import Delivery

ValueT = TypeVar("ValueT")
"""What the answers of a process say."""


@dataclass(frozen=True, slots=True)
class EnginePlan:
    """What an engine elsewhere is built from."""

    number: int
    """Of its place in the pool."""
    policy: Path
    """A folder with the policy, and its adapter if it has one."""
    dtype: str
    device: str
    """The type of device, "cpu" or "cuda"; it sees only its own GPU."""
    gpu: str
    """What CUDA_VISIBLE_DEVICES calls that GPU; empty on a CPU."""
    has_lora: bool
    num_threads: int
    engine: NativeEngineConfig
    folder: Path
    """Its own folder, for its log and what decides the last bits."""

    @property
    def log(self) -> Path:
        return self.folder / "engine.log"


@dataclass(frozen=True, slots=True)
class Ask:
    """Sample a reply; the first one of a session opens it."""

    number: int
    session: int
    key: int
    new_ids: Sequence[int]
    params: SamplingParams


@dataclass(frozen=True, slots=True)
class CloseSession:
    """Drop a session; a reply under way is given up. Has no answer."""

    session: int


@dataclass(frozen=True, slots=True)
class TakeWeights:
    """Take weights once no reply is under way; replies that are asked for meanwhile wait."""

    number: int
    version: int
    delivery: Delivery
    rank: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Release memory until the next reply or weights."""

    number: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine is built."""

    max_context: int | None


@dataclass(frozen=True, slots=True)
class Taken:
    """The engine has the weights."""

    checksum: int


Value = Completion | Ready | Taken | EngineError | None


@dataclass(frozen=True, slots=True)
class Answer(Generic[ValueT]):
    """What came of a request; number 0 is the start."""

    number: int
    value: ValueT | EngineError


Message = Ask | CloseSession | TakeWeights | Rest
