"""The estimate of a recipe: its settings, its model and a machine put together."""

from __future__ import annotations

from agentgym_rl.config import RunConfig
from agentgym_rl.errors import ConfigError
from agentgym_rl.sizing.estimate import Estimate, estimate
from agentgym_rl.sizing.find_shape import find_shape
from agentgym_rl.sizing.machine import Machine
from agentgym_rl.sizing.plan import plan_of


def estimate_of_recipe(config: RunConfig, machine: Machine) -> Estimate:
    """Return the memory of a run on the machine. Raises UnknownModelError for an unknown model."""
    shape = find_shape(config.model)
    if config.model.device == "cpu":
        machine = machine.without_gpus()
    return estimate(shape, plan_of(config), machine)


def missing_gpus(found: Estimate) -> ConfigError | None:
    """Return the error of a recipe that wants more GPUs than there are; None for all others."""
    plan, num_gpus = found.plan, len(found.machine.gpus)
    wanted = {"training.shards": plan.ranks}
    if plan.engine == "vllm":
        wanted["engine.tensor_parallel_size"] = plan.tensor_parallel
    if plan.has_cluster and plan.gpus > max(wanted.values()):
        wanted = {f"cluster.engines={plan.engines} beside training.shards": plan.gpus}
    over = [f"{key}={number}" for key, number in wanted.items() if number > num_gpus]
    if not num_gpus or not over:
        return None
    return ConfigError(
        f"{' and '.join(over)} needs that many GPUs, and {found.machine} is all: lower it to "
        f"{num_gpus}"
    )
