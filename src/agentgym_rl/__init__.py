"""AgentGym-RL: train language-model agents over many rounds with reinforcement learning.

    import agentgym_rl as ag

    run = ag.train("quickstart", {"training.steps": 20})
    report = ag.evaluate(run.model, env="babyai")

The names in `__all__` are the public API, and everything else is private (docs/python.md). Each
name is imported when it is first used, so `import agentgym_rl` loads neither torch nor a server.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agentgym_rl.agents.agent import Agent
    from agentgym_rl.agents.interaction import Interaction
    from agentgym_rl.api.environments import make
    from agentgym_rl.api.playing import evaluate, rollout
    from agentgym_rl.api.training import train
    from agentgym_rl.callbacks import Callback
    from agentgym_rl.config import RunConfig, load_config
    from agentgym_rl.envs.base import Environment, EnvSpec
    from agentgym_rl.envs.checking.checker import check
    from agentgym_rl.evaluation.report import EvalReport
    from agentgym_rl.results import Run
    from agentgym_rl.training.algorithms.base import (
        Algorithm,
        Batch,
        ScoredEpisode,
        TokenBatch,
        TokenLoss,
        TrainingSample,
    )
    from agentgym_rl.training.algorithms.grpo import GRPO
    from agentgym_rl.types import Episode, Group, StepResult, Task

__version__ = "0.1.0"

_MODULES = {
    "agentgym_rl.agents.agent": ("Agent",),
    "agentgym_rl.agents.interaction": ("Interaction",),
    "agentgym_rl.api.environments": ("make",),
    "agentgym_rl.api.playing": ("evaluate", "rollout"),
    "agentgym_rl.api.training": ("train",),
    "agentgym_rl.callbacks": ("Callback",),
    "agentgym_rl.config": ("RunConfig", "load_config"),
    "agentgym_rl.envs.base": ("EnvSpec", "Environment"),
    "agentgym_rl.envs.checking.checker": ("check",),
    "agentgym_rl.evaluation.report": ("EvalReport",),
    "agentgym_rl.results": ("Run",),
    "agentgym_rl.training.algorithms.base": (
        "Algorithm",
        "Batch",
        "ScoredEpisode",
        "TokenBatch",
        "TokenLoss",
        "TrainingSample",
    ),
    "agentgym_rl.training.algorithms.grpo": ("GRPO",),
    "agentgym_rl.types": ("Episode", "Group", "StepResult", "Task"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [  # noqa: RUF022 - in the order of use
    "make",
    "check",
    "Environment",
    "EnvSpec",
    "Task",
    "StepResult",
    "Agent",
    "Interaction",
    "Algorithm",
    "GRPO",
    "ScoredEpisode",
    "TrainingSample",
    "Batch",
    "TokenBatch",
    "TokenLoss",
    "Episode",
    "Group",
    "load_config",
    "RunConfig",
    "train",
    "Run",
    "Callback",
    "evaluate",
    "EvalReport",
    "rollout",
]


class _PublicFace(ModuleType):
    """The function `rollout` has the name of a package of ours, which imports would put here."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULE_OF and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _PublicFace


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'agentgym_rl' has no attribute {name!r}")
    found: object = getattr(import_module(_MODULE_OF[name]), name)  # a name of the table
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
