"""CUDA graphs: a pass is recorded once for each size and then launched as a whole.

Passes read their inputs from tensors that stay where they are and leave their results in such
tensors. Where there is no GPU, a pass is simply called.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

import torch

logger = logging.getLogger(__name__)

_WARM_UPS = 2
"""Calls before recording: kernels are compiled in the first, and may be tuned in the second."""

GraphKey = tuple[str, int]


class GraphCache:
    """The graphs of one engine, on a stream of its own."""

    def __init__(self, device: torch.device, *, is_enabled: bool) -> None:
        self._device = device
        self._is_enabled = is_enabled
        self._graphs: dict[GraphKey, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle() if is_enabled else None
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def on_stream(self) -> contextlib.AbstractContextManager[object]:
        """Let this thread's work go to the engine's stream."""
        return torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext()

    def wait_for_others(self) -> None:
        """Let the engine's work begin after all that this thread has launched so far."""
        if self.stream:
            self.stream.wait_stream(torch.cuda.current_stream(self._device))

    def mark(self) -> torch.cuda.Event | None:
        """Return an event that comes when all that was launched so far is done."""
        if not self.stream:
            return None
        event = torch.cuda.Event()
        event.record(self.stream)
        return event

    def ensure(self, key: GraphKey, run: Callable[[], None], idle: Callable[[], None]) -> None:
        """Record a pass if that has not been done; `idle` sets inputs that change no state."""
        if not self._is_enabled or key in self._graphs:
            return
        started = time.monotonic()
        idle()
        for _ in range(_WARM_UPS):
            run()
        graph = torch.cuda.CUDAGraph()
        # Other threads (the learner's) may use the GPU meanwhile: only this one is held to rules.
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self.stream, capture_error_mode="thread_local"
        ):
            run()
        self._graphs[key] = graph
        logger.info("recorded %s of %d in %.1f s", *key, time.monotonic() - started)

    def run(self, key: GraphKey, run: Callable[[], None]) -> None:
        """Launch a pass that `ensure` was called for."""
        if self._is_enabled:
            self._graphs[key].replay()
        else:
            run()

    def clear(self) -> None:
        """Drop all graphs, when a tensor that they use is about to go."""
        if self.stream:
            self.stream.synchronize()
        self._graphs.clear()
        self._pool = torch.cuda.graph_pool_handle() if self._is_enabled else None
