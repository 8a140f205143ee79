"""The room that a run asks a Ray cluster for."""

from __future__ import annotations

import pytest

from agentgym_rl.config import RunConfig, parse_config
from agentgym_rl.distributed.room import Room, room_of
from agentgym_rl.errors import ConfigError

NODES = [{"CPU": 16.0, "GPU": 8.0, "memory": 1e9}, {"CPU": 16.0, "GPU": 8.0}]
VLLM = ("engine.type=vllm", "engine.tensor_parallel_size=4", "cluster.shared=false")


def config(*overrides: str) -> RunConfig:
    return parse_config({}, ("cluster.type=ray", *overrides), source="test")


def room(*overrides: str) -> Room:
    return room_of(config(*overrides), NODES)


def test_a_server_asks_for_all_its_gpus_in_one_bundle():
    apart = room(*VLLM, "training.shards=2", "cluster.engines=2")
    assert apart.bundles == [{"CPU": 1.0, "GPU": 1.0}] * 2 + [{"CPU": 1.0, "GPU": 4.0}] * 2
    assert (apart.first_engine, apart.rank_gpus, apart.engine_gpus) == (2, 1.0, 4.0)
    assert apart.wanted == {"CPU": 4.0, "GPU": 10.0} and not apart.is_shared


def test_a_rank_and_an_engine_share_a_gpu():
    shared = room("engine.type=vllm", "training.shards=4", "cluster.engines=3")
    assert shared.bundles == [{"CPU": 2.0, "GPU": 1.0}] * 4
    assert (shared.first_engine, shared.rank_gpus, shared.engine_gpus) == (0, 0.5, 0.5)
    assert shared.is_shared


def test_without_gpus_everything_asks_for_processors():
    found = room_of(config(*VLLM, "cluster.engines=2", "cluster.env_servers=3"), [{"CPU": 6.0}])
    assert found.device == "cpu" and found.bundles == [{"CPU": 1.0}] * 3
    assert found.wanted == {"CPU": 6.0, "GPU": 0.0}
    assert found.engine_gpus == 0.0 and not found.is_shared


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("cluster.engines=2",), r"share 1 GPUs .*set cluster\.shared=false"),
        (
            ("engine.type=vllm", "engine.tensor_parallel_size=16", "cluster.shared=false"),
            r"are GPUs of one node, and the largest of the Ray cluster has 8",
        ),
        (
            (*VLLM, "cluster.engines=4"),
            "asks for 17 GPUs .*has 16: lower these",
        ),
    ],
)
def test_a_run_without_room_is_refused(overrides: tuple[str, ...], told: str):
    with pytest.raises(ConfigError, match=told):
        room(*overrides)
