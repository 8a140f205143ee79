"""The way of weights to engines, as a pool of engines sees it.

| channel | engines | how |
| --- | --- | --- |
| `pool.native_channels.BroadcastChannel` | native | torch.distributed, a bucket at a time |
| `pool.native_channels.FolderChannel` | native | a file, which also carries LoRA adapters |
| `vllm.channel.VllmChannel` | vLLM | its own weight transfer, or else its loading from a folder |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from agentgym_rl.engines.channels.delivery import WeightSource

EngineT = TypeVar("EngineT", contravariant=True)


class WeightChannel(Protocol[EngineT]):
    """Brings the present weights to engines."""

    def follow(self, source: WeightSource) -> bool:
        """Take weights from there from now on; return False if only the policy will do."""

    def publish(self, version: int, engines: Sequence[EngineT]) -> int:
        """Give the weights to engines, each between two replies; return the bytes moved.

        Afterwards each engine has exactly the source's weights or is being ended. Raises
        EngineError where the weights could not be given to anybody.
        """

    def close(self) -> None:
        """Remove what was made. Safe to repeat."""
