"""Settings that no longer exist: a recipe or run that has one is told what holds now.

A removed setting is dropped where it has the value that holds now, because `config.toml` of an
older run writes every default out.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from types import MappingProxyType
from typing import NamedTuple

from agentgym_rl.config.recipes import TomlTable
from agentgym_rl.errors import ConfigError


class Removed(NamedTuple):
    """What became of a setting: the values that ask for what every run has now, and what that is
    (or what to set instead)."""

    accepted: tuple[object, ...]
    now: str


REMOVED: Mapping[str, Removed] = MappingProxyType(
    {
        "algorithm.accumulate": Removed((True,), "agentevol learns from all iterations so far"),
        "algorithm.lambda_per": Removed(("token",), "algorithm.gae_lambda acts per token"),
        "algorithm.objective": Removed(("dpo",), "dpo always has its logistic loss"),
        "algorithm.step_weight": Removed((1,), "both comparisons of gigpo weigh the same"),
        "algorithm.whiten": Removed((True,), "ppo and reinforce_pp always whiten advantages"),
        "engine.keep_cache": Removed((True,), "keys and values always stay between rounds"),
        "engine.max_retries": Removed((5,), "a request is repeated 5 times"),
        "engine.start_timeout_s": Removed((600,), "a vLLM server has 1800 s to start"),
        "kl.refresh_every": Removed((0,), "the reference is the policy that the run began with"),
        "lora.targets": Removed(("all-linear",), "every linear layer but the head is adapted"),
        "model.tiny.max_context": Removed((2048,), "the tiny model's context has 2048 tokens"),
        "model.tiny.num_heads": Removed((2, 4), "model.tiny.hidden_size decides it"),
        "policy_loss.dual_clip": Removed((0,), "losses are clipped by clip_low and clip_high"),
        "policy_loss.ratio": Removed(("token",), "set policy_loss.objective=gspo for sequences"),
        "rollout.min_group_size": Removed((2,), "a group of several needs two complete episodes"),
        "rounds.min_gain": Removed((0.01,), "a stage is over when success gains less than 0.01"),
        "training.min_lr_ratio": Removed((0,), "a falling learning rate ends at 0"),
        "training.offload_reference": Removed(
            (True, False), "the reference is in the CPU's memory while it does not score"
        ),
    }
)
"""Dotted key -> what became of it."""


def without_removed(
    table: Mapping[str, object], *, source: str, is_data: bool = False
) -> TomlTable:
    """Return the table without the settings that no longer exist.

    Raises ConfigError for one that asks for anything but what holds now, unless the table
    `is_data`: how a run was trained does not matter to who reads it.
    """
    new: TomlTable = deepcopy(dict(table))
    for key, removed in REMOVED.items():
        *sections, name = key.split(".")
        inner: object = new
        for section in sections:
            inner = inner.get(section) if isinstance(inner, dict) else None
        if isinstance(inner, dict) and name in inner:
            value = inner.pop(name)
            if value not in removed.accepted and not is_data:
                raise ConfigError(f"{source}: {key}={value} is gone: {removed.now}; leave it out")
    rounds = new.get("rounds")
    if isinstance(rounds, dict) and rounds.get("type") == "linear":
        raise ConfigError(
            f"{source}: rounds.type=linear is gone: use scaling_inter_stepwise with many stages, "
            'or a schedule of your own as "module:Class" (docs/training.md)'
        )
    return new
