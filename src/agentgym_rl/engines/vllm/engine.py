"""Generation by a vLLM server, for models and tensor-parallel sizes beyond one process.

The whole context of an episode (session.py) is sent in every round; the server's prefix cache
makes that cheap. A separate thread has the event loop that talks to the server, so that sessions
may belong to any loop, and `publish` to none.

A lost server is restarted only for a reply or a publication, when the policy has the weights that
were published last. Between `begin_update` and `end_update` it has not: replies wait.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import TypeVar

import torch

from agentgym_rl.config import VllmEngineConfig
from agentgym_rl.engines.base import ContextFullError, Engine, says_context_full
from agentgym_rl.engines.host import context_is_full
from agentgym_rl.engines.sampling import session_key, signed
from agentgym_rl.engines.vllm.client import AnswerError, ServerLostError
from agentgym_rl.engines.vllm.protocol import COMPLETIONS, CompletionRequest, read_answer
from agentgym_rl.engines.vllm.server import (
    START_TIMEOUT_S,
    OwnServer,
    Placement,
    Server,
    ServerOptions,
    UserServer,
)
from agentgym_rl.engines.vllm.session import VllmSession
from agentgym_rl.engines.vllm.transfer import TransferRefusedError, WeightTransfer
from agentgym_rl.engines.vllm.weights import (
    WeightStore,
    drop_adapter,
    load_adapter,
    reload_from_disk,
)
from agentgym_rl.errors import EngineError
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import has_lora, lora_rank
from agentgym_rl.types import Completion, SamplingParams

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class VllmEngine(Engine):
    """Asks a vLLM server for replies, and gives it the weights of the policy.

    `folder` gets the server's log and the weights for the server; a user's server must be able to
    read it. The constructor returns when the server is ready, unless it is given one.
    """

    def __init__(
        self,
        policy: Policy,
        config: VllmEngineConfig,
        *,
        folder: Path | None = None,
        placement: Placement | None = None,
        store: WeightStore | None = None,
        server: Server | None = None,
    ) -> None:
        """Without a `placement` the server takes the policy's GPU. A `store` that is given is
        shared by several engines, and not cleared here. A `server` that is given is elsewhere:
        `ready` waits for it."""
        self._policy, self._config = policy, config
        self._stop_ids = policy.stop_token_ids
        self._has_lora = has_lora(policy.model)
        self._placement = placement or Placement.of(policy.model.device)
        self._is_colocated = self._placement.is_cuda and self._placement.is_shared
        self._is_colocated = self._is_colocated and not config.url
        is_near = server is None and self._placement.is_shared and can_transfer(policy, config)
        self._transfer = WeightTransfer(policy.model) if is_near else None
        """None where weights go through the disk."""
        self._has_died_in_transfer = False
        self._num_bytes_transferred = self._num_replaced = 0
        self._lost_s = 0.0
        self._reported: dict[str, float] = {}
        self._scratch = folder is None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="agentgym-engine-"))
        if server is None:
            self._folder.mkdir(parents=True, exist_ok=True)
        self.name = self._folder.name
        self._store = store or WeightStore(policy, self._folder)
        self._owns_store = store is None
        self._version, self._adapter = 0, ""
        self._is_asleep = self._is_closed = self._is_lost = self._was_published = False
        self._under_way: set[VllmSession] = set()
        self._changing = asyncio.Lock()
        """Held while the server is started, woken or changed."""
        self._is_whole, self._whole_version = asyncio.Event(), 0
        """Whether the policy has the weights of a step, and of which; not during an update."""
        self._is_whole.set()
        self._recovery: asyncio.Task[None] | None = None
        self._opener: asyncio.Task[None] | None = None
        self._closing, self._why_closed = threading.Lock(), ""
        """Held while something is begun on the loop, which `close` ends."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="vllm-engine", daemon=True
        )
        self._thread.start()
        try:
            self._server = server or self._call(self._make_server())
        except BaseException:
            self._stop_loop()
            raise
        self._opening = self._begin(self._open())
        if server is None:
            self.ready()

    def ready(self) -> None:
        """Wait until the server answers; if it does not, raise why, and be closed."""
        try:
            self._opening.result()
        except CancelledError:
            raise EngineError(self._why_closed or "the engine is closed") from None
        except BaseException:
            self.close()
            raise
        self.take_metrics()  # the weights that a server starts with are not published

    def session(self, key: int) -> VllmSession:
        return VllmSession(self, key)

    def publish(self, version: int) -> None:
        if self._is_colocated:
            torch.cuda.empty_cache()  # the server is about to take memory again
        self._call(self._publish(version))

    def begin_update(self) -> None:
        """Until `end_update` the policy has the weights of no step; replies continue."""
        self._soon(self._is_whole.clear)

    def end_update(self, version: int) -> None:
        """The policy has the weights of step `version`; a server that was lost comes back now."""

        def note() -> None:
            self._whole_version = version
            self._is_whole.set()

        self._soon(note)

    def rest(self) -> None:
        if self._is_colocated:
            self._call(self._rest())

    def close(self) -> None:
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._stop_loop()

    def take_metrics(self) -> dict[str, float]:
        # Sums that only the engine's thread changes, less what this thread has taken of them.
        num_written = self._store.num_bytes_written if self._owns_store else 0
        totals: dict[str, float] = {
            "rollout/published_bytes": self._num_bytes_transferred + num_written,
            "cluster/restarts_engine": self._num_replaced,
            "cluster/time_lost_s": self._lost_s,
        }
        before, self._reported = self._reported, totals
        return {name: total - before.get(name, 0.0) for name, total in totals.items()}

    @property
    def is_alive(self) -> bool:
        """It replaces its own server."""
        return not self._is_closed

    @property
    def is_ready(self) -> bool:
        return not self._is_lost

    @property
    def server(self) -> Server:
        return self._server

    @property
    def max_context(self) -> int:
        """As the server reported it when it was opened; `--max-model-len` limits it."""
        return self._server.max_context

    @property
    def may_answer(self) -> bool:
        return not (self._is_lost or self._is_asleep or self._recovery is not None)

    def until_ready(self, session: VllmSession) -> Future[None]:
        return self._begin(self._wait_until_ready(session))

    def submit(self, session: VllmSession, params: SamplingParams) -> Future[Completion]:
        return self._begin(self._reply(session, params))

    def _begin(self, work: Coroutine[None, None, ResultT]) -> Future[ResultT]:
        """Begin work on the loop; raises EngineError if the engine is closed."""
        with self._closing:
            if not self._is_closed:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise EngineError(self._why_closed or "the engine is closed")

    def _call(self, work: Coroutine[None, None, ResultT]) -> ResultT:
        return self._begin(work).result()

    def _soon(self, note: Callable[[], None]) -> None:
        """Have the loop note something, unless the engine is closed."""
        with self._closing:
            if not self._is_closed:
                self._loop.call_soon_threadsafe(note)

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        if self._scratch:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _open(self) -> None:
        self._opener, server = asyncio.current_task(), self._server
        try:
            await server.open()
            self._warn_of_short_context(server)
            if self._has_lora and not self._config.url:
                self._adapter = await self._load_adapter(server)
        except BaseException:
            await server.close()
            self._clear_store()
            raise

    def _warn_of_short_context(self, server: Server) -> None:
        if server.max_context < self._policy.max_context:
            logger.warning(
                "the vLLM server accepts contexts of %d tokens, the model %d: longer episodes are "
                "ended (max_tokens). Raise --max-model-len, or give the server more memory",
                server.max_context,
                self._policy.max_context,
            )

    async def _make_server(self) -> Server:
        """Make it on the loop, to which its connections belong."""
        if self._config.url:
            return UserServer(self._config)
        options = ServerOptions(
            dtype=str(self._policy.model.dtype).removeprefix("torch."),
            is_cuda=self._placement.is_cuda,
            gpus=",".join(self._placement.gpus),
            lora_rank=lora_rank(self._policy.model),
            can_transfer=self._transfer is not None,
        )
        save = self._store.save_model
        return OwnServer(self._config, options=options, folder=self._folder, save=save)

    async def _close(self) -> None:
        if self._recovery is not None:
            self._recovery.cancel()
        for session in list(self._under_way):
            session.end(self._why_closed)
        if self._opener is not None and not self._opener.done():
            self._opener.cancel()
            await asyncio.wait({self._opener})
        await asyncio.sleep(0)  # lets their requests end before the connections do
        await self._server.close()
        self._clear_store()

    def _clear_store(self) -> None:
        if self._owns_store:
            self._store.clear()

    async def _reply(self, session: VllmSession, params: SamplingParams) -> Completion:
        self._under_way.add(session)
        try:
            await self._get_ready()
            return await self._ask(session, params)
        except ServerLostError:
            self._is_lost = True
            raise
        finally:
            self._under_way.discard(session)

    async def _ask(self, session: VllmSession, params: SamplingParams) -> Completion:
        length = len(session.context)
        room = self._server.max_context - length
        if room < 1:
            raise context_is_full(length, self._server.max_context)
        if params.max_tokens > room:
            raise ContextFullError(
                f"a context of {length} tokens and a reply of {params.max_tokens} do not fit in "
                f"the server's {self._server.max_context}"
            )
        seed = signed(session_key(session.key, length)) if self._config.seeds else None
        request = CompletionRequest(session.context, params, seed, self._stop_ids)
        body = request.body(self._adapter or self._server.model)
        client, version = self._server.client, self._version
        try:
            text = await client.call("POST", COMPLETIONS, body, timeout_s=self._config.timeout_s)
        except AnswerError as error:
            if error.status >= 500 and not await client.is_healthy():
                raise ServerLostError(str(error)) from error
            if says_context_full(error.status, str(error)):
                raise ContextFullError(str(error)) from error
            raise
        return read_answer(text, request, version=version)

    async def _wait_until_ready(self, session: VllmSession) -> None:
        self._under_way.add(session)
        try:
            await self._get_ready()
        finally:
            self._under_way.discard(session)

    async def _get_ready(self) -> None:
        """Wait for a server that was lost or sleeps.

        All who wait share one recovery, which continues when one of them gives up.
        """
        if self._recovery is None and (self._is_lost or self._is_asleep):
            self._recovery = asyncio.create_task(self._recover())
        if self._recovery is not None:
            await asyncio.shield(self._recovery)

    async def _recover(self) -> None:
        try:
            if not self._is_whole.is_set() and not await self._server.client.is_healthy():
                await self._until_whole()
            async with self._changing:
                client = self._server.client
                # Many requests notice one death; only the first of them finds the server dead.
                if self._is_lost and (self._config.url or not await client.is_healthy()):
                    await self._replace()
                    self._version = self._whole_version
                self._is_lost = False
                if self._is_asleep:
                    await self._wake_up()
        finally:
            self._recovery = None

    async def _until_whole(self) -> None:
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._is_whole.wait()
        except TimeoutError:
            raise EngineError(
                f"a lost server got no weights: no update ended within {START_TIMEOUT_S:g} s"
            ) from None

    async def _wake_up(self) -> None:
        try:
            await self._post("/wake_up")
            self._is_asleep = False
        except EngineError as error:
            logger.warning("the vLLM server did not wake up: %s", error)
            await self._replace()

    async def _replace(self) -> None:
        """Replace a failed server by one with the policy's weights; wait for a user's server."""
        self._is_lost, started = True, time.monotonic()
        self._num_replaced += 1
        if self._transfer is not None:
            self._transfer.forget_server()
        await self._server.come_back()
        self._is_asleep = False
        try:
            if self._has_lora and (self._was_published or not self._config.url):
                self._adapter = await self._load_adapter(self._server)
            elif self._config.url and self._was_published:
                await self._update_model()
        except EngineError:
            self._server.stop()  # it lives, but with other weights
            raise
        finally:
            self._lost_s += time.monotonic() - started
        self._is_lost = False

    async def _publish(self, version: int) -> None:
        if any(not session.is_closed for session in self._under_way):
            raise EngineError("weights were published while replies were being sampled")
        async with self._changing:
            try:
                await (self._publish_adapter() if self._has_lora else self._publish_model())
            except EngineError as error:
                if self._config.url:
                    raise self._refusal(error) from error
                logger.warning("weights could not be updated in place: %s", error)
                await self._replace()
            self._version = self._whole_version = version
            self._was_published = True

    async def _publish_adapter(self) -> None:
        if self._is_asleep:
            await self._post("/wake_up")
            self._is_asleep = False
        old, self._adapter = self._adapter, await self._load_adapter(self._server)
        if old:
            await drop_adapter(self._server.client, old, timeout_s=self._config.timeout_s)

    async def _publish_model(self) -> None:
        if self._is_asleep:  # nothing is cached; weights first, then memory for the cache
            await self._post("/wake_up?tags=weights")
            await self._update_model()
            await self._post("/wake_up?tags=kv_cache")
            self._is_asleep = False
        else:
            # Ends abandoned requests, and drops keys and values of the old weights.
            await self._post("/pause?mode=abort")
            await self._update_model()
            await self._post("/resume")

    async def _update_model(self) -> None:
        if self._transfer is None or not await self._transferred(self._transfer):
            folder = await self._server.lend(self._store.save_model())
            await reload_from_disk(self._server.client, folder, timeout_s=START_TIMEOUT_S)

    async def _transferred(self, transfer: WeightTransfer) -> bool:
        """Return whether the server has the weights; one that refused them is as it was."""
        quick_s = self._config.timeout_s
        try:
            self._num_bytes_transferred += await transfer.send(
                self._server.client, timeout_s=START_TIMEOUT_S, quick_s=quick_s
            )
        except TransferRefusedError as error:
            logger.warning("weights go through the disk from now on: %s", error)
            self._transfer = None
            return False
        except EngineError as error:
            # A death may have had another cause; a second one in a row would be no accident.
            if self._has_died_in_transfer or not isinstance(error, ServerLostError):
                logger.warning("weights go through the disk from now on: %s", error)
                self._transfer = None
            self._has_died_in_transfer = True
            raise
        self._has_died_in_transfer = False
        return True

    async def _load_adapter(self, server: Server) -> str:
        folder = await server.lend(self._store.save_adapter())
        return await load_adapter(server.client, folder, timeout_s=self._config.timeout_s)

    async def _rest(self) -> None:
        async with self._changing:
            try:
                await self._post("/sleep?level=1")
                self._is_asleep = True
            except EngineError as error:
                logger.warning("the vLLM server did not go to sleep: %s", error)
                self._server.stop()  # the learner needs its memory
                self._is_lost = True

    async def _post(self, path: str) -> None:
        await self._server.client.call("POST", path, timeout_s=self._config.timeout_s)

    def _refusal(self, error: EngineError) -> EngineError:
        return EngineError(
            f"the weights of the server at engine.url={self._config.url} could not be updated "
            f"({error}); start it with VLLM_SERVER_DEV_MODE=1, for LoRA with --enable-lora and "
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, or leave engine.url empty. It must see "
            f"{self._folder}"
        )


def can_transfer(policy: Policy, config: VllmEngineConfig) -> bool:
    """Return whether our own server is on the GPU of a policy that changes as a whole."""
    return (
        policy.model.device.type == "cuda"
        and not config.url
        and config.tensor_parallel_size == 1
        and not has_lora(policy.model)
    )
