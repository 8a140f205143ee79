"""The recipe of a warm start, which its own run folder keeps."""

from __future__ import annotations

import tomllib

from agentgym_rl.config import SFTConfig, dump_config, parse_config
from agentgym_rl.experiment import supervised_config

ONLINE = [
    "kl.coef=0.1",
    "credit.discount=0.9",
    "policy_loss.clip_high=0.28",
    "rollout.rest_solved=3",
    "rollout.drop_without_spread=true",
    "rollout.max_refills=2",
    "training.updates_per_step=2",
    "training.epochs_per_step=3",
    "training.lr_schedule=cosine",
    "warm_start.steps=7",
]


def test_the_recipe_of_a_warm_start_is_one_that_could_be_run():
    config = supervised_config(parse_config({}, ONLINE, source="test"))
    again = parse_config(tomllib.loads(dump_config(config)), source="warm_start/config.toml")
    assert again == config
    assert isinstance(again.algorithm, SFTConfig) and again.training.steps == 7
