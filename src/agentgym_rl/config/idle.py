"""Settings that an algorithm makes no use of.

One list for all who need it: a recipe that changes the algorithm of another does not take them
over, a run that sets one is refused, and a warm start sets them back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel

Config = TypeVar("Config", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class _Idle:
    settings: tuple[str, ...]
    """Whole sections ("kl"), or keys of one ("rollout.rest_solved")."""
    why: str
    """What follows "kl.coef=0.1 "."""


_SPREAD = ("rollout.drop_without_spread", "rollout.max_refills")
_OF_ADVANTAGES = _Idle(
    ("credit", "policy_loss", "kl"), "acts on advantages, which only reinforcement learning has"
)
_OF_REFERENCE = _Idle(
    ("training.offload_reference",), "is about the reference of kl.coef, of which there is none"
)
_OF_SPREAD = _Idle(
    _SPREAD,
    "drops groups whose rewards are equal, from which only grpo, rloo and gigpo learn nothing",
)
_OF_EPISODES = _Idle(
    (
        *_SPREAD,
        "rollout.rest_solved",
        "rollout.max_staleness",
        "training.updates_per_step",
        "training.epochs_per_step",
    ),
    "is about episodes that a step collects, where one update of algorithm.batch_size is made",
)
_OF_KINDS = _Idle(
    ("agent.train",), "weighs kinds of tokens, which text to learn from does not tell apart"
)
_OF_ONE_POLICY = _Idle(
    ("rollout.max_staleness",),
    "lets episodes go on with newer weights, where an iteration explores with one policy",
)
_OF_UPDATES = _Idle(
    ("training.updates_per_step",),
    "counts for nothing: algorithm.batch_size and training.epochs_per_step decide how many updates "
    "a step has",
)
_OF_WARM_START = _Idle(
    ("warm_start",), "is about supervised learning before another kind, not in its place"
)
_ALGORITHMS: Mapping[object, tuple[_Idle, ...]] = {
    "ppo": (_OF_SPREAD,),
    "reinforce_pp": (_OF_SPREAD,),
    "agentevol": (_OF_ADVANTAGES, _OF_REFERENCE, _OF_SPREAD, _OF_ONE_POLICY, _OF_UPDATES),
    "sft": (_OF_ADVANTAGES, _OF_REFERENCE, _OF_EPISODES, _OF_KINDS, _OF_WARM_START),
    "dpo": (_OF_ADVANTAGES, _OF_REFERENCE, _OF_EPISODES, _OF_KINDS),
}


def idle_settings(algorithm: object) -> Iterator[tuple[str, str]]:
    """Yield the section and key of what a type of algorithm makes no use of; no key for all."""
    for idle in _ALGORITHMS.get(algorithm, ()):
        for setting in idle.settings:
            section, _, key = setting.partition(".")
            yield section, key


def check_idle(config: BaseModel, algorithm: str) -> None:
    """Refuse a configuration that sets what would do nothing."""
    for idle in _ALGORITHMS.get(algorithm, ()):
        for setting in idle.settings:
            for name, value, default in _changed(config, setting):
                raise ValueError(
                    f"{name}={_written(value)} {idle.why}; with algorithm.type={algorithm} leave "
                    f"it out or set {name}={_written(default)}"
                )


def reset_idle(config: Config, algorithm: str) -> Config:
    """Return the configuration with the defaults of what the algorithm makes no use of."""
    for section, key in idle_settings(algorithm):
        value = getattr(config, section)
        default = _default(value, key) if key else _default(config, section)
        new = value.model_copy(update={key: default}) if key else default
        config = config.model_copy(update={section: new})
    return config


def _changed(config: BaseModel, setting: str) -> Iterator[tuple[str, object, object]]:
    """Yield the keys at or under a setting that are not at their defaults, with these."""
    owner, name = config, setting
    section, _, key = setting.partition(".")
    if key:
        owner, name = getattr(config, section), key
    value = getattr(owner, name)
    if isinstance(value, BaseModel):
        for field in value.model_dump(exclude_defaults=True):
            yield f"{setting}.{field}", getattr(value, field), _default(value, field)
    elif value != _default(owner, name):
        yield setting, value, _default(owner, name)


def _default(owner: BaseModel, name: str) -> object:
    return type(owner).model_fields[name].get_default(call_default_factory=True)


def _written(value: object) -> str:
    """Return a value as an override would give it."""
    return value if isinstance(value, str) else json.dumps(value)
