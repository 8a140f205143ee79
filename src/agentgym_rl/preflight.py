"""What can be found out in the first seconds of a run, before models load and experts play.

Each check raises ConfigError with the remedy for something that would end the run later, and starts
nothing. Environment, agent, tasks and engine are asked right after (experiment/).
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
from dataclasses import replace
from pathlib import Path

import torch

from agentgym_rl.config import AgentEvolConfig, DPOConfig, NativeEngineConfig, RunConfig, SFTConfig
from agentgym_rl.engines.placement import engine_gpus
from agentgym_rl.errors import ConfigError, install_command
from agentgym_rl.lookup import OBJECT_MARKER
from agentgym_rl.models.device import choose_device
from agentgym_rl.models.flash4 import check_flash4
from agentgym_rl.models.loading import DTYPES, TINY, check_model
from agentgym_rl.models.lora import require_peft
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.sizing.advice import refusal, remedy, shortage
from agentgym_rl.sizing.find_shape import UnknownModelError
from agentgym_rl.sizing.machine import Gpu, this_machine
from agentgym_rl.sizing.of_recipe import estimate_of_recipe
from agentgym_rl.tracking.trackers import check_trackers

logger = logging.getLogger(__name__)

C_COMPILERS = ("cc", "gcc", "clang")
_CXX_COMPILERS = ("g++", "clang++", "c++")


def check_before_start(config: RunConfig, run: RunFolder) -> None:
    """Raise ConfigError where a run would fail later for what is known now."""
    if config.cluster.type == "ray":
        require_ray()  # its nodes compute, and what they have is not known yet
    else:
        check_machine(config)
    check_data(config)
    check_workers(config)
    check_trackers(config.tracking)
    if config.lora.rank:
        require_peft()
    is_saved = run.latest_checkpoint() is not None or RunFolder(run.warm_start).model.exists()
    # A saved model takes the place of the path, unless it is that model with an adapter.
    if config.model.path != TINY and (config.lora.rank or not is_saved):
        check_model(config.model.path)
        check_space(config, run)


def check_machine(config: RunConfig) -> None:
    """Refuse what cannot be computed on this machine."""
    device = choose_device(config.model.device)
    check_dtype(config, device)
    check_compiler(config, device)
    check_flash4(device, DTYPES[config.model.dtype])
    check_shards(config, device)
    if config.cluster.type == "local":
        engine_gpus(config)
    check_memory(config, device)


def require_ray() -> None:
    """Refuse a cluster where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"cluster.type=ray needs Ray, on all nodes: {install_command('cluster')}")


def check_workers(config: RunConfig) -> None:
    """Refuse objects that other processes cannot import."""
    workers = config.cluster.rollout_workers
    named = [("reward.function", config.reward.function)]
    for of_env in config.environments.values():
        named += [("env.name", of_env.env.name), ("agent.type", of_env.agent.type)]
    for setting, name in named:
        if workers and name.startswith(OBJECT_MARKER):
            raise ConfigError(
                f"cluster.rollout_workers={workers} are processes that import what they play with, "
                f"and {setting}={name} cannot be imported: define it in a module and pass the "
                "class or function itself, or set cluster.rollout_workers=0"
            )


def check_dtype(config: RunConfig, device: torch.device) -> None:
    """Refuse bfloat16 on a GPU that does not compute with it."""
    if (
        config.model.dtype == "bfloat16"
        and device.type == "cuda"
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        name = torch.cuda.get_device_name(device)
        raise ConfigError(
            f"model.dtype=bfloat16: {name} does not support it; set model.dtype=float32"
        )


def check_compiler(config: RunConfig, device: torch.device) -> None:
    """Refuse compiled code, and a GPU's kernels, where there is no compiler."""
    is_cuda = device.type == "cuda"
    is_needed = config.training.compile or (
        is_cuda and isinstance(config.engine, NativeEngineConfig)
    )
    names, variable = (C_COMPILERS, "CC") if is_cuda else (_CXX_COMPILERS, "CXX")
    if not is_needed or os.environ.get(variable) or any(map(shutil.which, names)):
        return
    what = "the GPU's kernels are" if is_cuda else "training.compile=true is"
    remedy = "" if is_cuda else ", or set training.compile=false"
    raise ConfigError(
        f"{what} built by a compiler, and none of {', '.join(names)} is on the PATH: on Debian "
        f"apt-get install g++{remedy}"
    )


def check_shards(config: RunConfig, device: torch.device) -> None:
    """Refuse more ranks than GPUs; a CPU takes any number."""
    num_ranks = config.training.shards
    if device.type == "cuda" and num_ranks > torch.cuda.device_count():
        raise ConfigError(
            f"training.shards={num_ranks} needs {num_ranks} GPUs, one for each rank, and this "
            f"machine has {torch.cuda.device_count()}: lower training.shards to that, or set "
            "model.device=cpu"
        )


def check_memory(config: RunConfig, device: torch.device) -> None:
    """Refuse a run that clearly has no room; warn of one that may have none."""
    machine = this_machine().without_gpus()
    if device.type == "cuda":
        found = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        machine = replace(machine, gpus=tuple(Gpu(gpu.name, gpu.total_memory) for gpu in found))
    try:
        estimate = estimate_of_recipe(config, machine)
    except UnknownModelError:
        return  # `check_model` refuses what is wrong
    if error := refusal(estimate):
        raise error
    over = [shortage(place) for place in estimate.places if not place.fits]
    if over:
        logger.warning(
            "memory may not suffice: %s. To make it fit: %s", "; ".join(over), remedy(estimate)
        )


def check_data(config: RunConfig) -> None:
    """Refuse a file of demonstrations, preferences or tasks that does not exist."""
    algorithm, given = config.algorithm, {"warm_start.data": config.warm_start.data}
    if isinstance(algorithm, SFTConfig | DPOConfig | AgentEvolConfig):
        given["algorithm.data"] = algorithm.data
    for key, data in given.items():
        if data and not Path(data).exists():
            raise ConfigError(f"{key}={data} does not exist")
    if config.warm_start.data and not config.warm_start.steps and config.model.path != TINY:
        logger.warning("warm_start.data is not read, because warm_start.steps is 0")
    for of_env in config.environments.values():
        for key in ("tasks_file", "eval_tasks_file"):
            file = of_env.env.tasks_file if key == "tasks_file" else of_env.env.eval_tasks_file
            if file and not Path(file).is_file():
                raise ConfigError(
                    f"env.{key}={file} does not exist; it should be a JSON list of task ids"
                )


def check_space(config: RunConfig, run: RunFolder) -> None:
    """Refuse a disk without room for the weights, of which every checkpoint has a copy."""
    folder = Path(config.model.path)
    num_bytes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    num_free = shutil.disk_usage(run.path).free
    if num_free < num_bytes:
        raise ConfigError(
            f"{run.path} is on a disk with {num_free / 1e9:.1f} GB free, and the model's weights "
            f"take {num_bytes / 1e9:.1f} GB in every checkpoint: free some, or choose a run "
            "folder on another disk"
        )
