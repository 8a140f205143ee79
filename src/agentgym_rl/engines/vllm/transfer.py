"""Lets a server copy the weights out of this process's GPU memory, as its release expects it.

| vLLM | calls of a publication | what opens a weight in another process |
| --- | --- | --- |
| 0.20 | /update_weights | a function and its arguments |
| 0.21 | /start_weight_update, /update_weights, /finish_weight_update | the same |
| 0.22 and newer | as 0.21 | the arguments only |

From 0.21 on, /init_weight_transfer_engine comes before the first publication to a server.
"""

from __future__ import annotations

import base64
import json
import logging
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.multiprocessing.reductions import reduce_tensor
from transformers import PreTrainedModel

from agentgym_rl.engines.vllm.client import AnswerError, ServerLostError, VllmClient
from agentgym_rl.errors import EngineError

logger = logging.getLogger(__name__)

_OLDEST, _SESSIONS, _BARE_HANDLES = (0, 20), (0, 21), (0, 22)
_START, _UPDATE, _FINISH = "/start_weight_update", "/update_weights", "/finish_weight_update"


class TransferRefusedError(EngineError):
    """The server takes no weights this way, and none of its weights has changed."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a release takes weights."""

    has_session: bool
    """Whether an update is started and finished by calls of its own."""
    has_bare_handles: bool
    """Whether a handle is only the arguments, without the function that they are for."""


@dataclass(frozen=True, slots=True)
class ExportedWeights:
    """Weights that another process on the same GPU can open for as long as this object lives."""

    weights: dict[str, torch.Tensor]
    gpu: str
    """Its UUID."""
    handles: list[tuple[Callable[..., object], tuple[object, ...]]]
    """For each weight, the function that opens it, and the arguments."""

    @property
    def num_bytes(self) -> int:
        return sum(weight.numel() * weight.element_size() for weight in self.weights.values())

    def update_info(self, dialect: Dialect) -> dict[str, object]:
        """Return what the server is told of the weights."""
        handles = [
            {self.gpu: arguments if dialect.has_bare_handles else (function, arguments)}
            for function, arguments in self.handles
        ]
        weights = self.weights.values()
        return {
            "names": list(self.weights),
            "dtype_names": [str(weight.dtype).removeprefix("torch.") for weight in weights],
            "shapes": [list(weight.shape) for weight in weights],
            "ipc_handles_pickled": base64.b64encode(pickle.dumps(handles)).decode(),
        }


class WeightTransfer:
    """Transfers a model's weights to one server after another."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self._dialect: Dialect | None = None
        """Of the server that was asked; None before that."""

    def forget_server(self) -> None:
        """Expect another server, perhaps of another release."""
        self._dialect = None

    async def send(self, client: VllmClient, *, timeout_s: float, quick_s: float) -> int:
        """Make the server copy all weights; return their bytes.

        `quick_s` is the deadline of calls that move no weights. TransferRefusedError means that the
        server is as it was. After any other error its weights may be of two versions, and only a
        new server is in a known state: from 0.23 on a failed update cannot be finished, and before
        that finishing it would keep the mixture.
        """
        try:
            return await self._send(client, timeout_s=timeout_s, quick_s=quick_s)
        except (AnswerError, TransferRefusedError) as error:
            if not await client.is_healthy():  # it answers so because its engine died
                raise ServerLostError(str(error)) from error
            raise

    async def _send(self, client: VllmClient, *, timeout_s: float, quick_s: float) -> int:
        dialect = self._dialect or await self._prepare(client, timeout_s=quick_s)
        exported = export_weights(self._model)
        body = {"update_info": exported.update_info(dialect)}
        if dialect.has_session:
            # 0.21 to 0.24 insist on a body.
            await client.call("POST", _START, {}, timeout_s=quick_s)
        await client.call("POST", _UPDATE, body, timeout_s=timeout_s)
        if dialect.has_session:
            await client.call("POST", _FINISH, timeout_s=timeout_s)
        return exported.num_bytes  # until here the server may read the weights

    async def _prepare(self, client: VllmClient, *, timeout_s: float) -> Dialect:
        try:
            dialect = await ask_dialect(client, timeout_s=timeout_s)
            if dialect.has_session:
                body: dict[str, object] = {"init_info": {}}
                await client.call("POST", "/init_weight_transfer_engine", body, timeout_s=timeout_s)
        except AnswerError as error:
            raise TransferRefusedError(str(error)) from error
        self._dialect = dialect
        return dialect


async def ask_dialect(client: VllmClient, *, timeout_s: float) -> Dialect:
    """Return how the server takes weights, by its version, or else by the routes that it offers.

    A build from source may have a version that says nothing, such as 0.1.dev1. Raises
    TransferRefusedError if neither helps.
    """
    version = _field(await client.call("GET", "/version", timeout_s=timeout_s), "version")
    dialect = dialect_of(version) if isinstance(version, str) else None
    if dialect is None:
        routes = _field(await client.call("GET", "/openapi.json", timeout_s=timeout_s), "paths")
        dialect = _dialect_of_routes(routes if isinstance(routes, dict) else {})
    if dialect is None:
        raise TransferRefusedError(
            f"the vLLM server of version {version!r} has no route {_UPDATE}; vLLM 0.20 or newer "
            "with VLLM_SERVER_DEV_MODE=1 has it"
        )
    logger.info("vLLM %s copies weights within the GPU (%s)", version, dialect)
    return dialect


def dialect_of(version: str) -> Dialect | None:
    """Return the dialect of a release; None for what is not one of 0.20 or newer."""
    numbers = re.match(r"v?(\d{1,6})\.(\d{1,6})", version)
    if numbers is None:
        return None
    release = (int(numbers[1]), int(numbers[2]))
    if release < _OLDEST:
        return None
    return Dialect(has_session=release >= _SESSIONS, has_bare_handles=release >= _BARE_HANDLES)


def export_weights(model: PreTrainedModel) -> ExportedWeights:
    """Share a model's weights with other processes on its GPU (CUDA IPC)."""
    weights = {name: weight.detach().contiguous() for name, weight in model.named_parameters()}
    gpu = str(torch.cuda.get_device_properties(model.device).uuid)
    handles = [reduce_tensor(weight) for weight in weights.values()]
    torch.cuda.synchronize(model.device)  # the weights must have been computed
    return ExportedWeights(weights, gpu, handles)


def _dialect_of_routes(routes: dict[str, object]) -> Dialect | None:
    if _UPDATE not in routes:
        return None
    is_new = _START in routes
    return Dialect(has_session=is_new, has_bare_handles=is_new)


def _field(text: bytes, name: str) -> object:
    """Return one field of a JSON object, None if there is none."""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return answer.get(name) if isinstance(answer, dict) else None
