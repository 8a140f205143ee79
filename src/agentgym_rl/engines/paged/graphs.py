"""CUDA graphs: a pass is recorded once for each size and then launched as a whole.

Passes read their inputs from fixed tensors and write their results to fixed tensors. Without a GPU
a pass is simply called.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable

import torch

logger = logging.getLogger(__name__)

_WARM_UPS = 2
"""Calls before recording: the first compiles kernels, and the second may tune them."""

GraphKey = tuple[str, int]


class GraphCache:
    """The graphs of one engine, on their own stream."""

    def __init__(self, device: torch.device, *, is_enabled: bool) -> None:
        self._device = device
        self._is_enabled = is_enabled
        self._graphs: dict[GraphKey, torch.cuda.CUDAGraph] = {}
        self._pool = torch.cuda.graph_pool_handle() if is_enabled else None
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def on_stream(self) -> contextlib.AbstractContextManager[object]:
        """Send this thread's work to the engine's stream."""
        return torch.cuda.stream(self.stream) if self.stream else contextlib.nullcontext()

    def others(self) -> torch.cuda.Event | None:
        """Return an event for the end of everything that this thread has launched so far."""
        return self._mark(torch.cuda.current_stream(self._device)) if self.stream else None

    def wait_for(self, event: torch.cuda.Event | None) -> None:
        """Start the engine's further work after the event.

        Only for the engine's thread: nothing may intervene while a pass is recorded.
        """
        if self.stream and event is not None:
            self.stream.wait_event(event)

    def mark(self) -> torch.cuda.Event | None:
        """Return an event for the end of all work of the engine so far."""
        return self._mark(self.stream) if self.stream else None

    @staticmethod
    def _mark(stream: torch.cuda.Stream) -> torch.cuda.Event:
        event = torch.cuda.Event()
        event.record(stream)
        return event

    def ensure(self, key: GraphKey, run: Callable[[], None], idle: Callable[[], None]) -> None:
        """Record a pass unless it was recorded; `idle` sets inputs that change no state."""
        if not self._is_enabled or key in self._graphs:
            return
        started = time.monotonic()
        idle()
        for _ in range(_WARM_UPS):
            run()
        graph = torch.cuda.CUDAGraph()
        # Other threads (the learner's) may use the GPU meanwhile: only this one is restricted.
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

    def finish(self) -> None:
        """Wait for all of the engine's work."""
        if self.stream:
            self.stream.synchronize()
