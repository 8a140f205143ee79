"""Which tasks a step works on, out of the environments of a run.

Each environment has an order of its own. Which of them comes next is decided by shares: a step's
tasks are dealt out so that over the run each has had its share to within one task. Shares are the
weights of the recipe; with `rollout.follow_learnable` also what earlier steps found out about how
many groups of an environment have episodes of different reward. A run with one environment takes
all tasks from it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentgym_rl.config import RunConfig
from agentgym_rl.rollout.statistics import has_spread
from agentgym_rl.rollout.tasks import EpochSampler, RestingSampler
from agentgym_rl.training.run_parts import RunEnv
from agentgym_rl.types import Group, Task

_MEMORY = 32
"""How many of an environment's latest groups decide about it, roughly: each moves the mean by a
32nd of the way."""


class TaskMix:
    """Deals out the tasks of one step after another.

    A function of the seed and of how many were taken, unless solved tasks rest or shares follow
    what is learnable; `state` has all that a resumed run needs.
    """

    def __init__(self, envs: Sequence[RunEnv], config: RunConfig) -> None:
        rollout, trained = config.rollout, [env for env in envs if env.weight > 0]
        self._seed, self._num_groups = config.seed, config.training.tasks_per_step
        self._follow, self._rest = rollout.follow_learnable, rollout.rest_solved
        self._max_refills = rollout.max_refills
        self._weights = {env.label: env.weight for env in trained}
        self._orders = {
            env.label: RestingSampler(env.tasks, seed=self._seed, rest=self._rest)
            for env in trained
        }
        # A separate order: what refills take must not shift what later steps work on.
        self._refills = {
            env.label: EpochSampler(env.tasks, seed=-1 - self._seed) for env in trained
        }
        self._credits = dict.fromkeys(self._weights, 0.0)
        """What an environment has been short of its share so far, in tasks."""
        self._learnable = dict.fromkeys(self._weights, 1.0)
        """The smoothed share of groups whose episodes differ in reward."""

    @property
    def shares(self) -> dict[str, float]:
        """The share of the tasks that each environment gets now, by label."""
        most = max(self._learnable.values()) or 1.0
        worth = {
            label: weight * (1 - self._follow * (1 - self._learnable[label] / most))
            for label, weight in self._weights.items()
        }
        total = sum(worth.values())
        return {label: value / total for label, value in worth.items()}

    def take(self, number: int) -> list[Task]:
        """Return the next tasks; those of different environments alternate."""
        shares = self.shares
        labels = [self._next_label(shares) for _ in range(number)]
        numbers = Counter(labels)
        taken = {label: iter(self._orders[label].take(numbers[label])) for label in numbers}
        return [next(taken[label]) for label in labels]

    def find(self, task_id: str = "", *, number: int) -> Task:
        """Return the task of this id; without one, of the only environment, the one at a place."""
        if not task_id:
            (order,) = self._orders.values()
            return order.at(number)
        found = (order.find(task_id) for order in self._orders.values())
        return next(task for task in found if task is not None)

    def take_refill(self, step: int, refill: int, number: int) -> list[Task]:
        """Return tasks in the place of groups without spread; `refill` counts from 1 in a step."""
        if self._rest:
            return self.take(number)
        shares, rng = self.shares, random.Random(f"{self._seed}/refill/{step}/{refill}")
        labels = rng.choices(list(shares), list(shares.values()), k=number)
        place = (step - 1) * self._max_refills + refill
        taken = {
            label: iter(self._refills[label].take(place, self._num_groups)) for label in set(labels)
        }
        return [next(taken[label]) for label in labels]

    def learn_from(self, groups: Iterable[Group], *, min_size: int) -> None:
        """Take note of what became of groups; those that failed say nothing about their task."""
        for group in groups:
            label = group.task.env
            if group.is_solved:
                self._orders[label].let_rest([group.task])
            if len(group.completed) >= min_size:
                self._learnable[label] += (has_spread(group) - self._learnable[label]) / _MEMORY

    def metrics(self) -> dict[str, float]:
        """Return metrics of what decides the next tasks."""
        found = dict[str, float]()
        if self._rest:
            resting = sum(order.num_resting for order in self._orders.values())
            found["rollout/tasks_resting"] = float(resting)
        for label, share in self.shares.items() if self._follow else ():
            found[f"rollout/{label}/share_of_tasks"] = share
            found[f"rollout/{label}/learnable_rate"] = self._learnable[label]
        return found

    def state(self) -> dict[str, object]:
        """Return what `resume` needs, in JSON types."""
        return {
            "orders": {label: order.state() for label, order in self._orders.items()},
            "credits": dict(self._credits),
            "learnable": dict(self._learnable),
        }

    def resume(self, state: Mapping[str, Any], *, num_taken: int) -> None:
        """Resume from what `state` returned, after `num_taken` tasks.

        Checkpoints of older versions are of one environment, with the state of its order at most.
        """
        if "orders" in state:
            for label, order in self._orders.items():
                order.load_state(state["orders"][label])
            self._credits = {label: float(state["credits"][label]) for label in self._orders}
            self._learnable = {label: float(state["learnable"][label]) for label in self._orders}
            return
        (order,) = self._orders.values()
        if "tasks" in state:
            order.load_state(state["tasks"])
        else:
            order.skip_to(num_taken)

    def _next_label(self, shares: Mapping[str, float]) -> str:
        """Return the environment that is shortest of its share, which has it then."""
        for label, share in shares.items():
            self._credits[label] += share
        chosen = max(self._credits, key=lambda label: self._credits[label])
        self._credits[chosen] -= 1.0
        return chosen
