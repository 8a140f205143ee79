"""An engine on its host: takes messages, answers them; what carries both is not its business.

A process of this machine (process.py) hosts one. An actor elsewhere can host one as well: it makes
an `EngineHost`, hands it messages and passes on what it sends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence

import torch
from transformers.utils.logging import disable_progress_bar

from agentgym_rl.engines.base import Engine, EngineDiedError, EngineSession
from agentgym_rl.engines.channels.delivery import WeightTaker
from agentgym_rl.engines.create import create_engine
from agentgym_rl.engines.pool.messages import (
    Answer,
    Ask,
    CloseSession,
    EnginePlan,
    Ready,
    Rest,
    Taken,
    TakeWeights,
    Value,
)
from agentgym_rl.errors import EngineError
from agentgym_rl.models.loading import ADAPTER, Policy, load_pretrained
from agentgym_rl.models.lora import load_adapter

Send = Callable[[Sequence[object]], None]


class EngineHost:
    """Belongs to one event loop, on which it is made and handed messages."""

    def __init__(self, plan: EnginePlan, send: Send) -> None:
        """`send` gets the answers that are ready, on the event loop, and may block it."""
        self._send = send
        policy = _load(plan)
        self._taker = WeightTaker(policy.model)
        self._engine: Engine = create_engine(policy, plan.engine, folder=plan.folder)
        self._sessions: dict[int, EngineSession] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._ready: list[Answer[Value]] = []
        self._may_reply, self._is_quiet = asyncio.Event(), asyncio.Event()
        self._may_reply.set()
        self._is_quiet.set()
        self._num_replies = 0
        self._changing = asyncio.Lock()
        """Held while weights or memory change."""
        self._answer(Answer(0, Ready(self._engine.max_context)))

    async def close(self) -> None:
        """Nothing of it outlives its process."""

    def handle(self, messages: Sequence[object]) -> None:
        """Begin what is asked; the answers come through `send`."""
        for message in messages:
            match message:
                case Ask():
                    if message.session not in self._sessions:
                        self._sessions[message.session] = self._engine.session(message.key)
                    self._begin(message.number, self._reply(message))
                case CloseSession():
                    session = self._sessions.pop(message.session, None)
                    if session is not None:
                        session.close()
                case TakeWeights():
                    self._begin(message.number, self._take(message))
                case Rest():
                    self._begin(message.number, self._rest())

    def _begin(self, number: int, work: Coroutine[None, None, Value]) -> None:
        async def answered() -> None:
            value: Value
            try:
                value = await work
            except EngineDiedError:
                raise  # the process ends with its engine (process.py)
            except EngineError as error:
                value = error
            self._answer(Answer(number, value))

        task = asyncio.create_task(answered())
        self._work.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # Whatever it is, nobody else would hear of it: asyncio prints it, the process ends.
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a request failed", "exception": task.exception()}
            )

    def _answer(self, answer: Answer[Value]) -> None:
        """Send what has become ready in this pass of the event loop in one piece."""
        self._ready.append(answer)
        if len(self._ready) == 1:
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        ready, self._ready = self._ready, list[Answer[Value]]()
        self._send(ready)

    async def _reply(self, ask: Ask) -> Value:
        while not self._may_reply.is_set():
            await self._may_reply.wait()
        self._num_replies += 1
        self._is_quiet.clear()
        try:
            session = self._sessions.get(ask.session)
            if session is None:
                raise EngineError("the session was closed while its reply was being sampled")
            return await session.generate(ask.new_ids, ask.params)
        finally:
            self._num_replies -= 1
            if not self._num_replies:
                self._is_quiet.set()

    async def _take(self, order: TakeWeights) -> Value:
        """Take weights between replies; after a failure none is given until others are taken."""
        async with self._changing:
            self._may_reply.clear()
            await self._is_quiet.wait()
            checksum = await asyncio.to_thread(self._take_now, order)
            self._may_reply.set()
        return Taken(checksum)

    def _take_now(self, order: TakeWeights) -> int:
        checksum = self._taker.take(order.delivery, order.rank)
        # By the same thread: the engine's next pass waits for what this one has launched.
        self._engine.publish(order.version)
        return checksum

    async def _rest(self) -> Value:
        async with self._changing:
            await asyncio.to_thread(self._engine.rest)
        return None


def _load(plan: EnginePlan) -> Policy:
    if plan.gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = plan.gpu  # before anything asks for a GPU
    torch.set_num_threads(plan.num_threads)
    disable_progress_bar()
    policy = load_pretrained(plan.policy, dtype=plan.dtype, device=plan.device)
    if plan.has_lora:
        load_adapter(policy.model, plan.policy / ADAPTER)
    return policy
