"""`agentgym doctor`: what this machine has, what is missing, and the command that gets it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata

from rich import box
from rich.markup import escape
from rich.table import Table

from agentgym_rl.browser.executable import REMEDY, find_browser
from agentgym_rl.cli.terminal import in_lines, print_table
from agentgym_rl.envs import registry
from agentgym_rl.envs.scenarios.sciworld import java
from agentgym_rl.errors import AgentGymError, install_command

_LOADING_S = 60.0
_C_COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True, slots=True)
class MachineFinding:
    """One thing that was looked for."""

    what: str
    is_there: bool
    told: str
    """What was found, or what its absence means."""
    remedy: str = ""


def diagnose() -> None:
    """Print what is here; below, whole and to be copied, how to get the rest."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("what", no_wrap=True)
    for column in ("here", "found"):
        table.add_column(column, overflow="fold")
    findings = examine()
    for finding in findings:
        mark = "yes" if finding.is_there else "no"
        table.add_row(finding.what, mark, escape(finding.told))
    print_table(table)
    missing = [finding for finding in findings if finding.remedy]
    if missing:
        print("To get what is missing:")
    for finding in missing:
        print(f"- {finding.what}: {in_lines(finding.remedy.removeprefix(f'{finding.what} '))}")


def examine() -> list[MachineFinding]:
    """Look for everything that some part of the project can use."""
    return [
        MachineFinding("Python", True, f"{platform.python_version()}, {os.cpu_count()} cores"),
        *_torch_and_gpu(),
        _program("C compiler", _C_COMPILERS, "no training.compile and no GPU kernels", "gcc"),
        _flash4(),
        _package("peft", "no lora.rank above 0", "lora"),
        _package("gguf", "no model.path of a GGUF file", "gguf"),
        _package("vllm", "engine.type=vllm only with engine.python or engine.url", "vllm"),
        _java(),
        _browser(),
        *(_environment(name) for name in registry.BUILTIN),
    ]


def _guarded(what: str, look: Callable[[], MachineFinding]) -> MachineFinding:
    """Return what `look` finds; a broken installation is a finding too."""
    try:
        return look()
    except Exception as error:  # noqa: BLE001 - a broken package must not end the examination
        return MachineFinding(what, False, f"{type(error).__name__}: {error}", f"reinstall {what}")


def _torch_and_gpu() -> tuple[MachineFinding, ...]:
    found = _package("torch", "no training and no local models; environments work", "train")
    return (_guarded("torch", _torch), _guarded("GPU", _gpu)) if found.is_there else (found,)


def _torch() -> MachineFinding:
    import torch  # heavy

    return MachineFinding("torch", True, f"{torch.__version__}, {torch.get_num_threads()} threads")


def _gpu() -> MachineFinding:
    import torch  # heavy

    if not torch.cuda.is_available():
        return MachineFinding(
            "GPU", False, "training runs on the CPU", "a CUDA build of torch and a GPU"
        )
    count = torch.cuda.device_count()
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(count))
    return MachineFinding("GPU", True, names)


def _program(what: str, names: Sequence[str], absence: str, package: str) -> MachineFinding:
    for name in names:
        if path := shutil.which(name):
            return MachineFinding(what, True, path)
    return MachineFinding(what, False, absence, f"on Debian: apt-get install {package}")


def _package(name: str, absence: str, extra: str) -> MachineFinding:
    try:
        return MachineFinding(name, True, metadata.version(name))
    except metadata.PackageNotFoundError:
        return MachineFinding(name, False, absence, install_command(extra))


def _flash4() -> MachineFinding:
    """Look whether FlashAttention 4 can be loaded: its parts must fit each other.

    Tried in another process, which a broken library may end.
    """
    found = _package("flash-attn-4", "torch's own attention kernels, slower", "flash4")
    if not found.is_there:
        return found
    from agentgym_rl.models import flash4  # heavy

    line = [sys.executable, "-c", f"import {flash4.MODULE}"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=_LOADING_S)
    except subprocess.TimeoutExpired:
        told = f"not loaded within {_LOADING_S:g} s"
    else:
        if done.returncode == 0:
            return found
        told = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
    remedy = f"{install_command('flash4')}, or pip uninstall flash-attn-4"
    return MachineFinding(found.what, False, f"{found.told} cannot be loaded: {told}", remedy)


def _java() -> MachineFinding:
    found = java.find_java()
    if found is None:
        return MachineFinding("Java", False, "sciworld cannot run", java.REMEDY)
    return MachineFinding("Java", True, f"{found.version} at {found.path} ({found.source})")


def _browser() -> MachineFinding:
    path = find_browser()
    if path is None:
        told = "miniwob and web cannot run, and the tests of the web UI are skipped"
        return MachineFinding("browser", False, told, REMEDY)
    return MachineFinding("browser", True, str(path))


def _environment(name: str) -> MachineFinding:
    try:
        cls = registry.env_class(name)
        if not cls.is_prepared():
            return MachineFinding(
                name, True, f"{cls.spec.summary}; its index is built at first use"
            )
        registry.make(name, {}).close()
    except (AgentGymError, ValueError) as error:
        return MachineFinding(name, False, "see below", str(error))
    return MachineFinding(name, True, cls.spec.summary)
