"""The way of weights to engines, as a pool of engines sees it.

Where replies are sampled meanwhile (`rollout.overlap`) an engine takes weights in its turn: no
reply of it is under way then, and the others continue.

| channel | engines | how | in turn |
| --- | --- | --- | --- |
| `pool.native_channels.BroadcastChannel` | native | torch.distributed | gloo: by the file |
| `pool.native_channels.FolderChannel` | native | a file, also of LoRA adapters | yes |
| `vllm.channel.VllmChannel` | vLLM | its weight transfer, or loading a folder | yes |

NCCL brings weights to all engines together, also where they sample meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from agentgym_rl.engines.channels.delivery import WeightSource

EngineT = TypeVar("EngineT")

Turn = Callable[[Sequence[EngineT]], AbstractContextManager[None]]
"""Waits until these engines are between two replies, and keeps them there inside."""


class WeightChannel(Protocol[EngineT]):
    """Brings the present weights to engines."""

    def follow(self, source: WeightSource) -> bool:
        """Take weights from there from now on; return False if only the policy will do."""

    def publish(
        self, version: int, engines: Sequence[EngineT], *, turn: Turn[EngineT] | None = None
    ) -> int:
        """Give the weights to engines, each between two replies; return the bytes moved.

        With a `turn` one engine takes them after another, if the channel allows it; without one
        nobody asks for replies, and all take them at the same time.

        Afterwards each engine has exactly the source's weights or is being ended. Raises
        EngineError where the weights could not be given to anybody.
        """

    def close(self) -> None:
        """Remove what was made. Safe to repeat."""
