"""Weights to native engines in other processes: by broadcast, or through a file.

Every engine reports a checksum of the weights that it has, and one that differs from the learner's
has failed. A broadcast that fails, as when an engine dies in the middle of it, is repeated through
the file for the engines that are left. While engines go on sampling, a broadcast by gloo would hold
all of them up for as long as the slowest: the file serves one after another. Where machines share
no folder, a group of two stands for the file.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from agentgym_rl.engines.channels.channel import Turn
from agentgym_rl.engines.channels.delivery import Delivery, Given, WeightSource
from agentgym_rl.engines.channels.group import Backend, GroupPlan
from agentgym_rl.engines.pool.messages import Taken, Value
from agentgym_rl.engines.pool.remote import RemoteEngine
from agentgym_rl.errors import EngineError, LearnerDiedError

logger = logging.getLogger(__name__)

_GRACE_S = 10.0
"""For engines to notice what the learner has noticed."""


class FolderChannel:
    """Through a file in a folder that learner and engines share."""

    def __init__(self, source: WeightSource, folder: Path, *, timeout_s: float) -> None:
        self._source, self._folder, self._timeout_s = source, folder, timeout_s
        self._numbers = itertools.count(1)

    def follow(self, source: WeightSource) -> bool:
        self._source = source
        return True

    def publish(
        self,
        version: int,
        engines: Sequence[RemoteEngine],
        *,
        turn: Turn[RemoteEngine] | None = None,
    ) -> int:
        if not engines:
            return 0
        file = self._folder / f"weights-{next(self._numbers)}.safetensors"
        try:
            given = self._source.give_weights(file)
            if given.error:
                raise EngineError(f"the weights could not be written to {file}: {given.error}")
            missing: dict[RemoteEngine, str] = {}
            for together in [engines] if turn is None else [[engine] for engine in engines]:
                with _turn_of(together, turn):
                    orders = _order(together, version, file)
                    missing |= _missing(orders, given, self._timeout_s)
        finally:
            file.unlink(missing_ok=True)
        for engine, reason in missing.items():
            if engine.is_alive:
                logger.warning("%s is ended: %s", engine.name, reason)
                engine.kill()
        return given.num_bytes * (len(engines) - len(missing))

    def close(self) -> None:
        """Leave nothing: each file is removed after its publication."""


class PairChannel:
    """Through a group of learner and engine, to one engine after another."""

    def __init__(
        self, source: WeightSource, new_url: Callable[[], str], *, timeout_s: float
    ) -> None:
        self._source, self._new_url, self._timeout_s = source, new_url, timeout_s

    def follow(self, source: WeightSource) -> bool:
        self._source = source
        return True

    def publish(
        self,
        version: int,
        engines: Sequence[RemoteEngine],
        *,
        turn: Turn[RemoteEngine] | None = None,
    ) -> int:
        num_bytes = 0
        for engine in engines:
            with _turn_of([engine], turn):
                plan = GroupPlan(self._new_url(), 2, "gloo", self._timeout_s)
                orders = _order([engine], version, plan)
                given = _given(self._source, plan, orders)
                missing = _missing(orders, given, _GRACE_S if given.error else self._timeout_s)
            reason = given.error or missing.get(engine)
            if not reason:
                num_bytes += given.num_bytes
            elif engine.is_alive:
                logger.warning("%s is ended: it got no weights: %s", engine.name, reason)
                engine.kill()
        return num_bytes

    def close(self) -> None:
        """Leave nothing."""


class BroadcastChannel:
    """Through a group of torch.distributed, formed anew when an engine is replaced."""

    def __init__(
        self,
        source: WeightSource,
        one_by_one: FolderChannel | PairChannel,
        new_url: Callable[[], str],
        *,
        backend: Backend,
        timeout_s: float,
    ) -> None:
        """`one_by_one` is used where a broadcast does not do; `new_url` returns a meeting place."""
        self._source, self._new_url, self._timeout_s = source, new_url, timeout_s
        self._backend: Backend = backend
        self._one_by_one = one_by_one
        self._members: tuple[RemoteEngine, ...] = ()
        self._plan: GroupPlan | None = None
        """Of the members; None before the first broadcast, during one and after a failure."""

    def follow(self, source: WeightSource) -> bool:
        self._source, self._plan = source, None
        return self._one_by_one.follow(source)

    def publish(
        self,
        version: int,
        engines: Sequence[RemoteEngine],
        *,
        turn: Turn[RemoteEngine] | None = None,
    ) -> int:
        if not engines:
            return 0
        if turn is not None and self._backend == "gloo":
            return self._one_by_one.publish(version, engines, turn=turn)
        with _turn_of(engines, turn):
            return self._broadcast(version, engines)

    def close(self) -> None:
        """Leave nothing: the meeting places are in the folder of the pool."""

    def _broadcast(self, version: int, engines: Sequence[RemoteEngine]) -> int:
        plan, self._plan = self._plan_for(engines), None
        orders = _order(engines, version, plan)
        given = _given(self._source, plan, orders)
        missing = _missing(orders, given, _GRACE_S if given.error else self._timeout_s)
        reasons = [given.error, *missing.values()] if given.error else list(missing.values())
        if not reasons:
            self._plan = plan
            return given.num_bytes * len(engines)
        logger.warning("a broadcast of weights failed (%s): they are sent again", reasons[0])
        return self._one_by_one.publish(version, [engine for engine in engines if engine.is_alive])

    def _plan_for(self, engines: Sequence[RemoteEngine]) -> GroupPlan:
        if self._plan is not None and self._members == tuple(engines):
            return self._plan
        self._members = tuple(engines)
        return GroupPlan(self._new_url(), len(engines) + 1, self._backend, self._timeout_s)


def _turn_of(
    engines: Sequence[RemoteEngine], turn: Turn[RemoteEngine] | None
) -> AbstractContextManager[None]:
    return nullcontext() if turn is None else turn(engines)


_Orders = Sequence[tuple[RemoteEngine, Future[Value] | EngineError]]


def _order(engines: Sequence[RemoteEngine], version: int, delivery: Delivery) -> _Orders:
    """Make engines take weights; what an engine that has just died says is kept in its place."""
    orders: list[tuple[RemoteEngine, Future[Value] | EngineError]] = []
    for rank, engine in enumerate(engines, start=1):
        try:
            orders.append((engine, engine.take_weights(version, delivery, rank)))
        except EngineError as error:
            orders.append((engine, error))
    return orders


def _given(source: WeightSource, plan: GroupPlan, orders: _Orders) -> Given:
    """Return what the learner gave. If it dies, engines that wait for it for long are ended."""
    try:
        return source.give_weights(plan)
    except LearnerDiedError as error:
        _missing(orders, Given(0, 0, str(error)), _GRACE_S)
        raise


def _missing(orders: _Orders, given: Given, timeout_s: float) -> dict[RemoteEngine, str]:
    """Wait for all; return the engines without exactly the weights that were given, and why."""
    missing: dict[RemoteEngine, str] = {}
    for engine, order in orders:
        try:
            if isinstance(order, EngineError):
                raise order
            taken = engine.result(order, timeout_s, "take weights")
        except EngineError as error:
            missing[engine] = str(error)
            continue
        assert isinstance(taken, Taken), "an answer to `TakeWeights`"
        if taken.checksum != given.checksum:
            missing[engine] = f"the weights of {engine.name} differ from the learner's"
    return missing
