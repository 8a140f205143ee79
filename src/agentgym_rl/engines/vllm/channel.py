"""Weights to vLLM servers: each engine makes its server take them, all at the same time.

On the learner's own GPU that is vLLM's weight transfer (transfer.py). Otherwise, and where a server
refuses it, the servers load a folder, which is written once for all of them (weights.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from agentgym_rl.engines.channels.delivery import WeightSource
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.weights import SharedStore


class VllmChannel:
    """A `WeightChannel` to vLLM servers that share a store of weights.

    vLLM reports no checksum of its weights. Each engine replaces a server that fails, and counts
    the bytes that it transfers.
    """

    def __init__(self, store: SharedStore) -> None:
        self._store = store

    def follow(self, source: WeightSource) -> bool:
        """Return False: servers take whole models under the names of transformers."""
        return False

    def publish(self, version: int, engines: Sequence[VllmEngine]) -> int:
        self._store.begin()
        before = self._store.num_bytes_written
        with ThreadPoolExecutor(max(1, len(engines)), thread_name_prefix="publish") as threads:
            published = [threads.submit(engine.publish, version) for engine in engines]
            for each in published:
                each.result()
        return self._store.num_bytes_written - before

    def close(self) -> None:
        self._store.clear()
