"""What a run refuses in its first seconds."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from agentgym_rl import preflight
from agentgym_rl.cli import doctor
from agentgym_rl.config import RunConfig, dump_config, parse_config
from agentgym_rl.errors import ConfigError
from agentgym_rl.experiment import train
from agentgym_rl.models import flash4, lora
from agentgym_rl.preflight import (
    check_before_start,
    check_compiler,
    check_dtype,
    check_memory,
    check_shards,
    check_space,
)
from agentgym_rl.runs.folder import RunFolder
from agentgym_rl.sizing.machine import Machine

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
BFLOAT16 = ("model.dtype=bfloat16",)


def make_config(*overrides: str) -> RunConfig:
    return parse_config({"env": {"name": "babyai"}}, overrides, source="test")


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)


@pytest.fixture
def broken_flash4(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hopper GPU with a FlashAttention 4 whose parts do not fit each other."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(flash4, "_is_installed", lambda: True)
    monkeypatch.setattr(flash4, "MODULE", "agentgym_rl.no_such_kernels")
    flash4._kernels.cache_clear()


def test_an_unloadable_flash_attention_is_refused_where_it_would_be_used(broken_flash4: None):
    with pytest.raises(ConfigError, match=r"cannot be loaded.*pip uninstall flash-attn-4"):
        flash4.check_flash4(GPU, torch.bfloat16)
    flash4.check_flash4(GPU, torch.float32)
    flash4.check_flash4(CPU, torch.bfloat16)


def test_doctor_loads_flash_attention(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "4.0")
    monkeypatch.setattr(flash4, "MODULE", "agentgym_no_such_kernels")
    found = doctor._flash4()
    assert not found.is_there and "\n" not in found.told
    assert found.told.startswith("4.0 cannot be loaded: ModuleNotFoundError:")
    assert "pip uninstall flash-attn-4" in found.remedy
    monkeypatch.setattr(flash4, "MODULE", "os; os.abort()")
    found = doctor._flash4()
    assert not found.is_there  # and this process lives
    monkeypatch.setattr(flash4, "MODULE", "json")
    assert doctor._flash4() == doctor.MachineFinding("flash-attn-4", True, "4.0")


@pytest.mark.usefixtures("no_compiler")
def test_code_to_compile_needs_a_compiler(monkeypatch: pytest.MonkeyPatch):
    check_compiler(make_config(), CPU)
    with pytest.raises(ConfigError, match=r"none of g\+\+.*training\.compile=false"):
        check_compiler(make_config("training.compile=true"), CPU)
    with pytest.raises(ConfigError, match=r"GPU's kernels.*none of cc, gcc, clang"):
        check_compiler(make_config(), GPU)
    check_compiler(make_config("engine.type=vllm"), GPU)
    monkeypatch.setenv("CC", "/opt/bin/icx")
    check_compiler(make_config(), GPU)


def test_bfloat16_needs_a_gpu_that_has_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    with pytest.raises(
        ConfigError, match=r"Tesla V100 does not support it; set model\.dtype=float32"
    ):
        check_dtype(make_config(*BFLOAT16), GPU)
    check_dtype(make_config(), GPU)
    check_dtype(make_config(*BFLOAT16), CPU)


def test_every_rank_needs_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    with pytest.raises(ConfigError, match=r"training\.shards=2 needs 2 GPUs.* has 1: lower"):
        check_shards(make_config("training.shards=2"), GPU)
    check_shards(make_config("training.shards=2"), CPU)
    check_shards(make_config(), GPU)


def test_a_run_without_room_for_its_optimiser_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    size = namedtuple("size", "name total_memory")
    config = make_config(*BFLOAT16, "model.path=Qwen/Qwen2.5-1.5B-Instruct")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: size("a GPU", 24 * 2**30))
    told = r"alone take 25\.9 GiB of GPU 0, which has 24\.0 GiB: set training\.offload=optimizer"
    with pytest.raises(ConfigError, match=told):
        check_memory(config, GPU)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: size("a GPU", 40 * 2**30))
    check_memory(config, GPU)
    assert "memory may not suffice: GPU 0 has 40.0 GiB" in caplog.text
    assert "set training.gradient_checkpointing=true" in caplog.text
    check_memory(make_config("model.path=nobody/knows"), GPU)


def test_a_run_without_a_gpu_is_refused_by_the_machines_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(preflight, "this_machine", lambda: Machine((), 4 * 2**30))
    check_memory(make_config(), CPU)
    with pytest.raises(ConfigError, match=r"of memory, which has 4\.0 GiB"):
        check_memory(make_config("model.path=Qwen/Qwen2.5-0.5B-Instruct"), CPU)


def test_lora_needs_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lora.importlib.util, "find_spec", lambda name: None)
    config = make_config("model.device=cpu", "lora.rank=4")
    with pytest.raises(ConfigError, match="LoRA needs peft: make setup"):
        check_before_start(config, RunFolder(tmp_path))


@pytest.mark.parametrize("type_", ["sft", "dpo", "agentevol"])
def test_data_must_exist(tmp_path: Path, type_: str):
    config = make_config(f"algorithm.type={type_}", "algorithm.data=nowhere.jsonl")
    with pytest.raises(ConfigError, match=r"algorithm\.data=nowhere\.jsonl does not exist"):
        check_before_start(config, RunFolder(tmp_path))


def test_demonstrations_of_a_warm_start_must_exist(tmp_path: Path):
    config = make_config("warm_start.data=nowhere.jsonl")
    with pytest.raises(ConfigError, match=r"warm_start\.data=nowhere\.jsonl does not exist"):
        check_before_start(config, RunFolder(tmp_path))


def test_a_model_must_be_there_and_readable_unless_one_is_saved(tmp_path: Path):
    model, run = tmp_path / "model", RunFolder(tmp_path / "run")
    config = make_config(f"model.path={model}", "model.device=cpu")
    with pytest.raises(ConfigError, match="no model directory"):
        check_before_start(config, run)
    model.mkdir()
    (model / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json cannot be read"):
        check_before_start(config, run)
    (model / "config.json").write_text('{"model_type": "unheard_of"}')
    with pytest.raises(ConfigError, match=r"cannot read the config\.json.*unheard_of"):
        check_before_start(config, run)
    run.checkpoint_path(3).mkdir(parents=True)
    check_before_start(config, run)


def test_a_disk_needs_room_for_the_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "model.safetensors").write_bytes(bytes(2000))
    config, usage = make_config(f"model.path={tmp_path}"), namedtuple("usage", "free")
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: usage(1000))
    with pytest.raises(ConfigError, match="a run folder on another disk"):
        check_space(config, RunFolder(tmp_path))
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda path: usage(3000))
    check_space(config, RunFolder(tmp_path))


async def test_a_run_checks_before_it_asks_its_environment(tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    config = make_config("model.path=/nowhere/model", "model.device=cpu", "env.url=http://[::1]:9")
    run.create(dump_config(config))
    with pytest.raises(ConfigError, match="no model directory '/nowhere/model'"):
        await train(config, run)
