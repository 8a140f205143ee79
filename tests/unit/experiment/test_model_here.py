"""Where the policy of a run's own process is."""

from __future__ import annotations

import pytest

from agentgym_rl.config import parse_config
from agentgym_rl.experiment.run import model_here

SHARDED = ("training.shards=2", "cluster.type=local")


@pytest.mark.parametrize(
    ("overrides", "device"),
    [
        ((), "cuda"),
        (("training.shards=2",), "cuda"),  # the engine here needs it
        (("cluster.type=local",), "cuda"),  # the learner here needs it
        (SHARDED, "cpu"),
        ((*SHARDED, "algorithm.type=agentevol"), "cuda"),
    ],
)
def test_it_is_in_the_cpus_memory_where_others_learn_and_generate(
    overrides: tuple[str, ...], device: str
):
    config = parse_config({}, ("model.device=cuda", *overrides), source="test")
    assert model_here(config).device == device
