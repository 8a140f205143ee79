"""`agentgym_rl.train`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from agentgym_rl.api.arguments import (
    AgentArgument,
    AlgorithmArgument,
    EnvArgument,
    EnvsArgument,
    ModelArgument,
    RewardArgument,
    TokenizerArgument,
    loaded,
    names_and_objects,
    path_of,
)
from agentgym_rl.api.blocking import run_blocking
from agentgym_rl.api.plan import opened, plan_run
from agentgym_rl.callbacks import Callback, Callbacks
from agentgym_rl.config import RunConfig
from agentgym_rl.config.overrides import Overrides, override_texts
from agentgym_rl.results import Run


def train(  # noqa: PLR0913 - everything that a recipe names can be an object
    recipe: str | os.PathLike[str] | RunConfig | None = None,
    overrides: Overrides = (),
    *,
    env: EnvArgument = None,
    envs: EnvsArgument | None = None,
    model: ModelArgument | None = None,
    tokenizer: TokenizerArgument = None,
    agent: AgentArgument = None,
    algorithm: AlgorithmArgument = None,
    reward: RewardArgument = None,
    callbacks: Iterable[Callback] = (),
    run_dir: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> Run:
    """Train, and return the run when it is done.

    recipe      the name of a recipe (default "quickstart"), a TOML file, or a RunConfig
    overrides   {"training.steps": 20, "training.lr": 1e-4}, or texts ["training.steps=20"]
    env         a name, "module:Class", or a class; what the recipe says of another environment
                (levels, options, an address) is then left out
    envs        several environments in the place of the recipe's, by label: {"babyai": "babyai",
                "mine": MyEnv, "easy": {"name": "babyai", "levels": ["GoTo"], "weight": 2}}
    model       a name or path as in `model.path`, `run.model`, or a loaded model with its
                `tokenizer`, which is trained in place
    agent, algorithm    a name, "module:Class", a class or an object
    reward      "module:function", or a function that takes an Episode
    run_dir     the folder of the run; default runs/<recipe>-<time>
    resume      resume the run in `run_dir` from its newest checkpoint; objects are passed again

    Blocks, also inside a running event loop (a notebook). Ctrl-C saves the last complete step and
    raises KeyboardInterrupt. Raises ConfigError, ValueError or RunError for what the caller can
    fix; `metrics.jsonl` and all else is in the run folder.
    """
    heard = Callbacks(callbacks)
    if model is None and tokenizer is not None:
        raise ValueError("tokenizer=... goes with a loaded model: pass model=... as well")
    policy = None if model is None else loaded(model, tokenizer)
    names, objects = names_and_objects(
        env=env, envs=envs, policy=policy, agent=agent, algorithm=algorithm, reward=reward
    )
    path = None if model is None else path_of(model)
    if path is not None:
        names["model.path"] = path
    plan = plan_run(
        Path(recipe) if isinstance(recipe, os.PathLike) else recipe,
        [*override_texts(names), *override_texts(overrides)],
        run_dir=None if run_dir is None else Path(run_dir),
        resume=resume,
        objects=objects,
    )
    from agentgym_rl.experiment import train as train_run  # start-up time: torch

    with opened(plan):
        run_blocking(train_run(plan.config, plan.folder, objects=objects, callbacks=heard))
    return Run(plan.folder.path, plan.config)
