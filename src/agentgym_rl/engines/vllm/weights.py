"""Gives weights to the server through the disk, as a whole model or as an adapter."""

from __future__ import annotations

import itertools
import secrets
import shutil
import threading
from pathlib import Path

from agentgym_rl.engines.vllm.client import VllmClient
from agentgym_rl.models.loading import Policy
from agentgym_rl.models.lora import has_lora, save_adapter, save_base


class WeightStore:
    """Folders of weights that a server reads; only the newest of each kind is kept."""

    def __init__(self, policy: Policy, folder: Path) -> None:
        self._policy, self._folder = policy, folder
        self._numbers = itertools.count(1)
        self._token = secrets.token_hex(4)
        """Distinguishes our adapters from others on a shared server."""
        self._newest: dict[str, Path] = {}
        self.num_bytes_written = 0

    def save_model(self) -> Path:
        """Write the model, without its adapter if it has one; return its folder."""
        if not has_lora(self._policy.model):
            folder = self._new("model")
            self._policy.save(folder)
        elif "model" in self._newest:
            return self._newest["model"]  # the weights beside an adapter never change
        else:
            folder = self._new("model")
            save_base(self._policy.model, folder)
            self._policy.tokenizer.save_pretrained(folder)
        return self._keep("model", folder)

    def save_adapter(self) -> Path:
        """Write the adapter; return its folder, which has a unique name."""
        folder = self._new("adapter")
        save_adapter(self._policy.model, folder)
        return self._keep("adapter", folder)

    def clear(self) -> None:
        """Remove everything that was written."""
        for folder in self._newest.values():
            shutil.rmtree(folder, ignore_errors=True)
        self._newest = {}

    def _new(self, kind: str) -> Path:
        return self._folder / f"{kind}-{self._token}-{next(self._numbers)}"

    def _keep(self, kind: str, folder: Path) -> Path:
        self.num_bytes_written += sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        old = self._newest.get(kind)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
        self._newest[kind] = folder.resolve()
        return self._newest[kind]


class SharedStore(WeightStore):
    """A store for several servers: what is published together is written once."""

    def __init__(self, policy: Policy, folder: Path) -> None:
        super().__init__(policy, folder)
        self._lock = threading.Lock()
        self._present: dict[str, Path] = {}
        """What was written of the present weights."""

    def begin(self) -> None:
        """Expect other weights."""
        with self._lock:
            self._present = {}

    def save_model(self) -> Path:
        with self._lock:
            if "model" not in self._present:
                self._present["model"] = super().save_model()
            return self._present["model"]

    def save_adapter(self) -> Path:
        with self._lock:
            if "adapter" not in self._present:
                self._present["adapter"] = super().save_adapter()
            return self._present["adapter"]


async def reload_from_disk(client: VllmClient, folder: Path, *, timeout_s: float) -> None:
    """Make every worker of the server load the folder's weights."""
    body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
    await client.call("POST", "/collective_rpc", body, timeout_s=timeout_s)


async def load_adapter(client: VllmClient, folder: Path, *, timeout_s: float) -> str:
    """Make the server load an adapter; return its name in requests."""
    body = {"lora_name": folder.name, "lora_path": str(folder)}
    await client.call("POST", "/v1/load_lora_adapter", body, timeout_s=timeout_s)
    return folder.name


async def drop_adapter(client: VllmClient, name: str, *, timeout_s: float) -> None:
    """Make the server unload an adapter."""
    await client.call("POST", "/v1/unload_lora_adapter", {"lora_name": name}, timeout_s=timeout_s)
