"""How calls reach an environment server: many in one request, each sent once.

aiohttp's errors pass through. Repeating, deadlines and what an answer means are in http.py.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from http import HTTPStatus

import aiohttp

from agentgym_rl.envs.service import protocol
from agentgym_rl.envs.service.client.connections import Connections
from agentgym_rl.envs.service.protocol import Answer, Call, ProtocolError
from agentgym_rl.serving import bodies

_NUM_PARTS = 3
"""Requests among which the calls under way are spread: while the server works on one, another is
on its way and the answers of a third are read, so that neither side waits for the other."""
_MIN_BATCH_CALLS = 16
_MAX_BATCH_CALLS = 512
_MAX_BATCH_BYTES = 1024 * 1024
_BATCH_DELAY_S = 0.01
"""How long a call waits at most for one of this many requests to end."""


async def get(connections: Connections, path: str) -> Answer:
    """Return the answer to one GET; its number is 0."""
    async with connections.session().get(connections.url + path) as response:
        return _answer(0, response.status, await response.read())


class BatchSender:
    """Sends the calls that are ready in one request.

    A call that finds the line idle goes at once. While several requests are under way calls gather
    until one of them ends, or for a moment, so batches grow with the load. Answers are taken as
    they come: a slow one does not hold up the others of its batch.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._waiting: deque[_Posting] = deque()
        self._timer: asyncio.Handle | None = None
        self._requests: set[asyncio.Task[None]] = set()
        self._num_calls = 0
        """Calls that wait or are under way."""

    async def send(self, call: Call) -> Answer:
        """Send the call once and return its answer; the numbers of both do not matter."""
        posting = _Posting(call)
        self._waiting.append(posting)
        self._num_calls += 1
        if self._timer is None:
            self._schedule()
        try:
            return await posting.answer
        except asyncio.CancelledError:
            posting.abandon()
            raise
        finally:
            self._num_calls -= 1

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        if len(self._requests) < _NUM_PARTS:
            self._timer = loop.call_soon(self._post_waiting)
        else:
            self._timer = loop.call_later(_BATCH_DELAY_S, self._post_waiting)

    def _post_waiting(self) -> None:
        self._timer = None
        batch: list[_Posting] = []
        size = 0
        share = math.ceil(self._num_calls / _NUM_PARTS)
        max_calls = min(max(share, _MIN_BATCH_CALLS), _MAX_BATCH_CALLS)
        while self._waiting and len(batch) < max_calls and size < _MAX_BATCH_BYTES:
            posting = self._waiting.popleft()
            if not posting.answer.done():  # who waited may have been cancelled
                batch.append(posting)
                size += len(posting.call.action)
        if batch:
            task = asyncio.create_task(self._post(batch))
            for posting in batch:
                posting.request = (task, batch)
            self._requests.add(task)
            task.add_done_callback(self._on_request_ended)
        if self._waiting:
            self._schedule()

    def _on_request_ended(self, request: asyncio.Task[None]) -> None:
        self._requests.discard(request)
        if self._timer is not None:
            self._timer.cancel()
            self._schedule()

    async def _post(self, batch: list[_Posting]) -> None:
        """Send one request and give every call of it an answer or an error."""
        try:
            await self._exchange(batch)
            failure: Exception = aiohttp.ServerDisconnectedError("the answer broke off")
        except (aiohttp.ClientError, OSError, ProtocolError) as error:
            failure = error
        except BaseException as error:
            failure = aiohttp.ServerDisconnectedError(f"the request was given up: {error!r}")
            raise
        finally:
            for posting in batch:
                if not posting.answer.done():
                    posting.answer.set_exception(failure)

    async def _exchange(self, batch: list[_Posting]) -> None:
        if not await self._try_exchange(batch):
            # One call with a huge action must not spoil the others that it travelled with.
            middle = len(batch) // 2
            await self._exchange(batch[:middle])
            await self._exchange(batch[middle:])

    async def _try_exchange(self, batch: list[_Posting]) -> bool:
        """Settle the batch with one request; return False where the server wants it in parts."""
        calls = [protocol.call_fields(posting.call, number) for number, posting in enumerate(batch)]
        url = f"{self._connections.url}/batch"
        body = bodies.encode({"calls": calls})
        async with self._connections.session().post(url, data=body) as response:
            if response.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and len(batch) > 1:
                return False
            if response.status != HTTPStatus.OK:
                refusal = _answer(0, response.status, await response.read())
                for posting in batch:
                    posting.settle(refusal)
                return True
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    answer = protocol.decode_answer(line)
                    batch[answer.number].settle(answer)
        return True


class _Posting:
    """A call that waits for its answer."""

    __slots__ = ("answer", "call", "request")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.request: tuple[asyncio.Task[None], list[_Posting]] | None = None
        """The request with which it went, and all calls of that."""
        self.answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def abandon(self) -> None:
        """Wait no longer; the last to do so takes the request along, and its connection."""
        self.answer.cancel()
        if self.request is not None:
            task, batch = self.request
            if all(posting.answer.done() for posting in batch):
                task.cancel()

    def settle(self, answer: Answer) -> None:
        if not self.answer.done():
            self.answer.set_result(answer)


def _answer(number: int, status: int, body: bytes) -> Answer:
    """Return an answer whose body may be anything where the status is not a success."""
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        try:
            return Answer(number, status, bodies.load(body))
        except ProtocolError:
            text = body[:200].decode(errors="replace")
            return Answer(number, status, {"error": {"message": text}})
    return Answer(number, status, bodies.load(body) if body else {})
