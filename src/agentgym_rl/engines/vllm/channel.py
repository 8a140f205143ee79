"""Weights to vLLM servers: each engine makes its server take them, all at the same time or in turn.

On the learner's own GPU that is vLLM's weight transfer (transfer.py). Otherwise, and where a server
refuses it, the servers load a folder, which is written once for all of them (weights.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from agentgym_rl.engines.channels.channel import Turn
from agentgym_rl.engines.channels.delivery import WeightSource
from agentgym_rl.engines.vllm.engine import VllmEngine
from agentgym_rl.engines.vllm.weights import SharedStore
from agentgym_rl.errors import EngineError

logger = logging.getLogger(__name__)


class VllmChannel:
    """A `WeightChannel` to vLLM servers that share a store of weights.

    vLLM reports no checksum of its weights. An engine that fails replaces its server, or ends, if
    that is elsewhere (far.py). It counts the bytes that it transfers.
    """

    def __init__(self, store: SharedStore) -> None:
        self._store = store

    def follow(self, source: WeightSource) -> bool:
        """Return False: servers take whole models under the names of transformers."""
        return False

    def publish(
        self, version: int, engines: Sequence[VllmEngine], *, turn: Turn[VllmEngine] | None = None
    ) -> int:
        self._store.begin()
        before = self._store.num_bytes_written
        if turn is None:
            self._publish_to_all(version, engines)
        else:
            for engine in engines:
                engine.end_update(version)  # what waits for a lost server must end before its turn
            for engine in engines:
                with turn([engine]):
                    _publish_to(engine, version)
        return self._store.num_bytes_written - before

    def close(self) -> None:
        self._store.clear()

    def _publish_to_all(self, version: int, engines: Sequence[VllmEngine]) -> None:
        with ThreadPoolExecutor(max(1, len(engines)), thread_name_prefix="publish") as threads:
            published = [threads.submit(_publish_to, engine, version) for engine in engines]
            for each in published:
                each.result()


def _publish_to(engine: VllmEngine, version: int) -> None:
    try:
        engine.publish(version)
    except EngineError as error:
        if engine.is_alive:
            raise
        logger.warning("%s got no weights and is replaced: %s", engine.name, error)
