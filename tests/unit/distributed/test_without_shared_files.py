"""Processes that share no folder: groups that meet by TCP, files that travel, and strangers."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path

import pytest
import torch

import commands  # noqa: F401 - chooses what the server of forks imports
from agentgym_rl.config import ClusterConfig, NativeEngineConfig, parse_config
from agentgym_rl.distributed.credentials import choose_token, cluster_address
from agentgym_rl.distributed.files import read_files, write_files
from agentgym_rl.engines.channels.group import GroupPlan, WeightGroup
from agentgym_rl.engines.channels.meeting import MeetingPlace, own_address, own_interface
from agentgym_rl.engines.native.engine import NativeEngine
from agentgym_rl.engines.pool.native import EngineSites, native_pool
from agentgym_rl.engines.pool.pool import EnginePool
from agentgym_rl.engines.pool.remote import RemoteEngine
from agentgym_rl.errors import ConfigError
from agentgym_rl.models.loading import Policy
from agentgym_rl.preflight import require_ray
from engine_plays import endless_policy, play_all
from engine_pools import change_weights

HERE = "127.0.0.1"


def test_groups_meet_by_tcp_and_keep_apart():
    place = MeetingPlace(HERE)
    for number in range(2):
        plan = GroupPlan(place.url(f"weights-{number}"), 2, "gloo", 20.0)
        sent, received = torch.arange(5.0) + number, torch.zeros(5)
        with ThreadPoolExecutor(2) as threads:
            giving = threads.submit(WeightGroup, plan, 0)
            taking = threads.submit(WeightGroup, plan, 1)
            groups = giving.result(), taking.result()
            done = (
                threads.submit(groups[0].send, [sent]),
                threads.submit(groups[1].receive, [received]),
            )
            for future in done:
                future.result()
        assert torch.equal(sent, received)
        for group in groups:
            group.close()


def test_the_address_and_interface_of_a_meeting_place():
    url = MeetingPlace(HERE).url("x")
    assert own_address(url) == own_address("file:///tmp/x") == HERE
    names = {name for _, name in socket.if_nameindex()}
    assert own_interface(url) in names


def test_files_travel_as_they_are(tmp_path: Path):
    files = {"model/a.bin": bytes(range(256)), "b": b""}
    write_files(files, tmp_path / "x")
    assert read_files(tmp_path / "x") == files


@pytest.fixture
def policy() -> Policy:
    return endless_policy()


@pytest.fixture
def pool(policy: Policy, tmp_path: Path) -> Iterator[EnginePool[RemoteEngine]]:
    forkserver.ensure_running()
    place = MeetingPlace(HERE)
    sites = EngineSites("cpu", ["", ""], is_shared=True, meeting_url=place.url, shares_files=False)
    pool = native_pool(policy, NativeEngineConfig(), sites, folder=tmp_path)
    try:
        yield pool
    finally:
        pool.close()


@pytest.mark.slow
def test_weights_reach_engines_without_a_file_also_one_after_another(
    policy: Policy, pool: EnginePool[RemoteEngine]
):
    num_bytes = sum(weight.numel() * 4 for weight in policy.model.parameters())
    for version in (1, 2):
        pool.begin_update() if version == 2 else pool.rest()
        change_weights(policy, seed=version)
        pool.publish(version)
        here = NativeEngine(policy, NativeEngineConfig())
        here.publish(version)
        try:
            keys = range(4)
            assert asyncio.run(play_all(pool, keys, concurrency=4)) == asyncio.run(
                play_all(here, keys, concurrency=4)
            )
        finally:
            here.close()
        assert pool.take_metrics()["rollout/published_bytes"] == 2 * num_bytes


def test_a_cluster_without_ray_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"cluster\.type=ray needs Ray, on all nodes: "):
        require_ray()


def test_the_token_of_a_cluster_of_the_run_is_not_written_anywhere(monkeypatch: pytest.MonkeyPatch):
    for name in ("RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    environment = os.environ
    choose_token(ClusterConfig(type="ray", address="10.0.0.1:6379"))
    assert "RAY_AUTH_TOKEN" not in environment
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):  # so that they are removed afterwards
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    choose_token(ClusterConfig(type="ray"))
    assert environment["RAY_AUTH_MODE"] == "token" and len(environment["RAY_AUTH_TOKEN"]) == 64
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    assert cluster_address(ClusterConfig(type="ray")) == "10.0.0.2:6379"


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["cluster.address=auto"], "set cluster.type=ray"),
        (["cluster.type=local", "cluster.shared_folder=/data"], "set cluster.type=ray"),
        (["cluster.type=ray", "engine.type=openai"], "starts only native and vllm engines"),
        (
            ["cluster.type=ray", "engine.type=vllm", "engine.url=http://x"],
            r"cluster\.type=ray starts the servers itself",
        ),
        (
            ["cluster.type=ray", "engine.type=vllm", "engine.tensor_parallel_size=2"],
            r"cannot share GPUs.*set cluster\.shared=false",
        ),
    ],
)
def test_settings_that_do_not_fit_a_cluster_are_refused(overrides: list[str], told: str):
    with pytest.raises(ConfigError, match=told):
        parse_config({}, overrides, source="test")
