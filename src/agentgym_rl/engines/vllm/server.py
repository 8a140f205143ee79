"""The server behind the engine: our own, which is restarted when it dies, or a user's."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import logging
import secrets
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError

from agentgym_rl.config import VllmEngineConfig
from agentgym_rl.engines.vllm.client import VllmClient
from agentgym_rl.engines.vllm.process import ServerProcess
from agentgym_rl.engines.vllm.protocol import COMPLETIONS
from agentgym_rl.errors import ConfigError, EngineError, install_command

if TYPE_CHECKING:  # start-up time: a process that only holds a server needs no torch
    import torch

logger = logging.getLogger(__name__)

_TRANSFER = "weight_transfer"
"""vLLM's package, as it stands in tracebacks."""
_DISTURBED = "Error in memory profiling"
"""vLLM gives up with it when another program frees memory of the GPU while it starts."""
_MAX_DISTURBED = 3
_MODULE = "vllm.entrypoints.openai.api_server"
START_TIMEOUT_S = 1800.0
"""Deadline of a start, and of an update of weights: enough for any model. A process that ends is
noticed at once."""
_POLL_S = 0.2
_QUICK_S = 60.0
"""Deadline of calls that compute almost nothing."""
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks of adapters that vLLM supports."""


class _Card(BaseModel):
    id: str
    max_model_len: int


class _Models(BaseModel):
    data: list[_Card]


class Server(ABC):
    """A server to ask. Belongs to the engine's event loop."""

    client: VllmClient
    model: str = "policy"
    """The name of the weights that the server started with."""
    max_context: int = 0

    @abstractmethod
    async def open(self) -> None:
        """Wait until the server answers; EngineError if it does not in time."""

    @abstractmethod
    async def come_back(self) -> None:
        """Wait until the lost server, or one in its place, answers."""

    @abstractmethod
    def stop(self) -> None:
        """End our own server until `come_back`; leave a user's alone. Safe to repeat."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect, and stop the server if it is our own. Safe to repeat."""

    async def lend(self, folder: Path) -> Path:
        """Return where the server reads a folder of this machine, until it is lent another of its
        kind, such as "model" of "model-3"."""
        return folder

    async def _introduce(self) -> None:
        text = await self.client.call("GET", "/v1/models", timeout_s=_QUICK_S)
        try:
            card = _Models.model_validate_json(text).data[0]
        except (ValidationError, IndexError) as error:
            raise EngineError(f"vLLM names no model: {text[:200]!r}") from error
        self.model, self.max_context = card.id, card.max_model_len


class OwnServer(Server):
    """A process that serves the weights that `save` writes into a folder.

    It listens on a Unix socket in a folder that only this user can enter: the routes that change
    weights are open to anyone who can reach them.
    """

    def __init__(
        self,
        config: VllmEngineConfig,
        *,
        options: ServerOptions,
        folder: Path,
        save: Callable[[], Path],
    ) -> None:
        check_installed(config)
        self._config, self._options, self._save = config, options, save
        self._log = folder / "server.log"
        self._private = Path(tempfile.mkdtemp(prefix="agentgym-vllm-"))
        self._process: ServerProcess | None = None
        self._num_disturbed = 0
        self.client = VllmClient(socket=self.socket)

    @property
    def socket(self) -> Path:
        return self._private / "socket"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was started"
        return self._process.pid

    async def open(self) -> None:
        started, limit = time.monotonic(), START_TIMEOUT_S
        command = server_command(
            self._config, self._options, model=self._save(), socket=self.socket
        )
        self.socket.unlink(missing_ok=True)
        self._process = ServerProcess(command, env=self._options.environment(), log=self._log)
        while not await self.client.is_healthy():
            if self._process.exit_code is not None:
                reason = f"ended with code {self._process.exit_code}"
            elif time.monotonic() - started > limit:
                reason = f"was not ready within {limit:g} s"
            else:
                await asyncio.sleep(_POLL_S)
                continue
            self._process.stop()
            if self._may_start_again(self._process):
                return await self.open()
            raise EngineError(self._told(self._process, reason))
        await self._introduce()
        self._num_disturbed = 0
        logger.info("vLLM is ready after %.0f s", time.monotonic() - started)

    def _told(self, process: ServerProcess, reason: str) -> str:
        words = process.last_words()
        return f"the vLLM server {reason}; its log {self._log} ends:\n{words}"

    def _may_start_again(self, ended: ServerProcess) -> bool:
        """Say whether the next start may succeed where this one failed."""
        if ended.has_said(_DISTURBED) and self._num_disturbed < _MAX_DISTURBED:
            self._num_disturbed += 1
            logger.warning(
                "another program freed memory of the GPU while vLLM measured it, which ends vLLM's "
                "start: starting again (%d of %d)",
                self._num_disturbed,
                _MAX_DISTURBED,
            )
            return True
        return self._may_start_without_transfer(ended)

    def _may_start_without_transfer(self, ended: ServerProcess) -> bool:
        """Say whether only the transfer of weights failed, and leave it out from now on.

        vLLM imports ray for it (seen in 0.26) and does not ask for it.
        """
        package = ended.missing_package(of=_TRANSFER) if self._options.can_transfer else ""
        if package:
            logger.warning(
                "vLLM needs the package %s to copy weights within the GPU, and does not install "
                "it: weights go through the disk. To copy them: %s -m pip install %s",
                package,
                self._config.python or sys.executable,
                package,
            )
            self._options = self._options.model_copy(update={"can_transfer": False})
        return bool(package)

    async def ended(self) -> str:
        """Wait for the end of a server that is open; return how it ended."""
        assert self._process is not None, "the server is open"
        code = await asyncio.to_thread(self._process.wait)
        return self._told(self._process, f"ended with code {code}")

    async def come_back(self) -> None:
        if self._process is not None:
            code = self._process.exit_code
            logger.warning("the vLLM server was lost (exit code %s); starting another", code)
            self.stop()
        await self.open()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    async def close(self) -> None:
        await self.client.close()
        self.stop()
        shutil.rmtree(self._private, ignore_errors=True)


class UserServer(Server):
    """A server that somebody else starts, and restarts when it dies."""

    def __init__(self, config: VllmEngineConfig) -> None:
        self._config = config
        self.client = VllmClient(config.url)

    async def open(self) -> None:
        if not await self.client.is_healthy():
            raise EngineError(
                f"no vLLM server answers at engine.url={self._config.url}; start one there with "
                "`VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs`, "
                "correct the address (it has no /v1), or leave engine.url empty"
            )
        await self._introduce()
        await self._check_logprobs()

    async def come_back(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not await self.client.is_healthy():
            if time.monotonic() > deadline:
                raise EngineError(f"the vLLM server at {self._config.url} did not come back")
            await asyncio.sleep(_POLL_S)
        await self._introduce()  # it may have come back with another limit

    def stop(self) -> None:
        """Leave it alone."""

    async def close(self) -> None:
        await self.client.close()

    async def _check_logprobs(self) -> None:
        """Refuse a server whose log-probabilities are not those of the sampled distribution."""
        # With top_k=1 the only possible token is certain, but not before cuts.
        body = {"model": self.model, "prompt": [1], "max_tokens": 1, "top_k": 1, "logprobs": 0}
        text = await self.client.call("POST", COMPLETIONS, body, timeout_s=self._config.timeout_s)
        logprob = json.loads(text)["choices"][0]["logprobs"]["token_logprobs"][0]
        if abs(logprob) > 1e-3:
            raise EngineError(
                f"the vLLM server at {self._config.url} returns log-probabilities before "
                "temperature and cuts; start it with --logprobs-mode processed_logprobs"
            )


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a server of ours runs."""

    is_cuda: bool
    is_shared: bool
    """Whether a learner uses the same GPUs, so that the server sleeps while it works."""
    gpus: tuple[str, ...] = ()
    """As CUDA_VISIBLE_DEVICES names them; empty for those that this process sees."""

    @classmethod
    def of(cls, device: torch.device) -> Placement:
        """Return the place of a policy."""
        return cls(is_cuda=device.type == "cuda", is_shared=True)


class ServerOptions(BaseModel, frozen=True):
    """What a server must be able to do for this policy."""

    dtype: str
    is_cuda: bool
    gpus: str = ""
    """CUDA_VISIBLE_DEVICES of the server; empty leaves it as it is."""
    lora_rank: int
    """0 for a policy without an adapter."""
    can_transfer: bool
    """Whether weights are transferred within the GPU."""

    def environment(self) -> dict[str, str]:
        """Return the variables that open the routes we use."""
        env = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_NO_USAGE_STATS": "1"}
        if self.gpus:
            env["CUDA_VISIBLE_DEVICES"] = self.gpus
        if self.lora_rank:
            env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "True"
        if self.can_transfer:  # handles of GPU memory are sent pickled
            env["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
        return env


async def check_server(config: VllmEngineConfig) -> None:
    """Raise if vLLM cannot be started, or the user's server does not answer as it must."""
    if not config.url:
        check_installed(config)
        return
    server = UserServer(config)
    try:
        await server.open()
    finally:
        await server.close()


def check_installed(config: VllmEngineConfig) -> None:
    """Raise ConfigError if vLLM is not installed."""
    if not config.python and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            f"engine.type=vllm needs vLLM: {install_command('vllm')}, or set "
            "engine.python to the Python of an environment that has it"
        )
    if config.python and shutil.which(config.python) is None:
        raise ConfigError(
            f"engine.python={config.python} is not a program; set it to the Python of an "
            "environment that has vLLM, such as /opt/vllm/bin/python"
        )


def server_command(
    config: VllmEngineConfig, options: ServerOptions, *, model: Path, socket: Path
) -> list[str]:
    """Return the command line; `engine.args` come last and win."""
    arguments = {
        "--model": str(model),
        "--served-model-name": Server.model,
        "--uds": str(socket),
        "--dtype": options.dtype,
        "--max-model-len": "auto",
        "--tensor-parallel-size": str(config.tensor_parallel_size),
        "--logprobs-mode": "processed_logprobs",
        "--generation-config": "vllm",  # ignore the model's own defaults
        # Without it servers begin with the same noise, and draw the same for a group's prompt.
        "--seed": str(secrets.randbelow(2**31)),
    }
    flags = ["--enable-prefix-caching", "--disable-uvicorn-access-log"]
    if options.is_cuda:
        arguments["--gpu-memory-utilization"] = str(config.memory_fraction)
        flags.append("--enable-sleep-mode")
    else:
        flags.append("--enforce-eager")
    if options.lora_rank:
        rank = next((rank for rank in _RANKS if rank >= options.lora_rank), None)
        if rank is None:
            raise ConfigError(f"lora.rank={options.lora_rank} is above vLLM's limit, {_RANKS[-1]}")
        arguments |= {"--max-lora-rank": str(rank), "--max-loras": "1"}
        flags.append("--enable-lora")
    if options.can_transfer:
        arguments["--weight-transfer-config"] = json.dumps({"backend": "ipc"})
    words = [word for pair in arguments.items() for word in pair]
    return [config.python or sys.executable, "-m", _MODULE, *words, *flags, *config.args]
