"""Customer service: look up orders and rules, change what the rules allow, report the outcome.

An episode is right if the final database is exactly the one that the request calls for, so that a
forbidden change fails as a missing one does, and if the reported outcome is the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import ClassVar

from examples.customer_service.store import ImpossibleError, Order, Store
from examples.customer_service.templates import (
    CATEGORIES,
    CATEGORY_OF,
    LEVELS,
    Outcome,
    Request,
    make_request,
)
from examples.customer_service.world import ME, Color, Topic

from agentgym_rl.envs.base import EnvSpec, JsonValue
from agentgym_rl.envs.tools import CallRecord, Final, ToolEnvironment, ToolError
from agentgym_rl.types import Task

_NUM_TEST, _NUM_TRAIN = 40, 400
"""Tasks of each level."""


class CustomerService(ToolEnvironment):
    """One request of one customer."""

    spec: ClassVar[EnvSpec] = EnvSpec(
        name="customer_service",
        summary="Customer service over a database of orders: refunds, exchanges, addresses.",
        instructions="You serve the customers of a shop. Do what the customer asks, if the rules "
        "allow it, and nothing else, then report the outcome.\n"
        "Rules: only orders of this customer may be changed. A refund or an exchange is allowed "
        "within the days that the rule says since the order came (`here`), an exchange only for a "
        "color in stock. An order can be cancelled, or sent to another address, while it is "
        "`open`, not once it is `sent`.",
        example_action="look(order=4)",
        splits=("train", "test"),
        categories=CATEGORIES,
        max_rounds=8,
        success="the database ends exactly as the request and the rules ask for, and the outcome "
        "is reported",
        replay_is_safe=True,
    )
    shares_thread: ClassVar[bool] = True
    _store: Store | None = None

    @classmethod
    def tasks(cls, split: str) -> Sequence[Task]:
        cls.require_split(split)
        return _tasks(split)

    def begin(self, task: Task) -> str:
        seed = f"{task.env} {task.index} {task.seed}"
        self._request = make_request(task.level, seed, is_test=task.split == "test")
        self.close()
        self._store = self._request.world.store()
        self._reported: Mapping[str, str] = {}
        return f"{self._request.world.name}: {self._request.goal}"

    def orders(self) -> str:
        """List the orders of this customer."""
        found = self._open_store().orders_of(ME)
        return "\n".join(f"{o.id}: {o.color} {o.kind}, {o.state}" for o in found)

    def look(self, order: int) -> str:
        """Look at one order.

        Args:
            order: its number
        """
        with _refusals():
            return _described(self._open_store().order(order))

    def rule(self, topic: Topic) -> str:
        """Read the rule on a topic."""
        days = self._open_store().rule_days(topic)
        return f"{topic}: while it is open" if days is None else f"{topic}: up to {days} days"

    def stock(self, kind: str, color: Color) -> str:
        """Count what is left of a product.

        Args:
            kind: such as lamp
            color: the color asked for
        """
        with _refusals():
            return f"{self._open_store().stock(kind, color)} left"

    def refund(self, order: int) -> str:
        """Pay an order back."""
        with _refusals():
            return f"order {order}: paid back {self._open_store().refund(order)}"

    def exchange(self, order: int, color: Color) -> str:
        """Send the product of an order again in another color."""
        with _refusals():
            self._open_store().exchange(order, color)
            return f"order {order}: exchanged"

    def cancel(self, order: int) -> str:
        """Cancel an order."""
        with _refusals():
            self._open_store().cancel(order)
            return f"order {order}: cancelled"

    def move(self, order: int, street: str, number: int) -> str:
        """Send an order to another address.

        Args:
            order: the number of the order
            street: name of the street
            number: number of the house
        """
        with _refusals():
            self._open_store().move(order, street, number)
            return f"order {order}: moved"

    def report(self, outcome: Outcome, answer: str = "") -> Final:
        """End the conversation.

        Args:
            outcome: whether you did what was asked, or why not
            answer: the state of an order (open, sent or here), if the customer asked for it
        """
        self._reported = {"outcome": outcome, "answer": " ".join(answer.lower().split())}
        return Final("Goodbye.")

    def score(self, calls: Sequence[CallRecord]) -> float:
        request = self._request
        is_told = self._reported.get("outcome") == request.outcome
        is_answered = request.answer in ("", self._reported.get("answer"))
        is_right = self._open_store().snapshot() == _right_database(request)
        return float(is_told and is_answered and is_right)

    def expert_action(self) -> str | None:
        return self._request.steps[self._next_step()].call.text

    def expert_thought(self) -> str | None:
        return self._request.steps[self._next_step()].thought

    def details(self) -> Mapping[str, JsonValue]:
        if self._store is None:
            return {}
        tables = self._store.snapshot()
        return {table: [list(row) for row in tables[table]] for table in sorted(tables)}

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def _open_store(self) -> Store:
        assert self._store is not None, "an episode runs"
        return self._store

    def _next_step(self) -> int:
        """Return the first step of the expert that has not been done."""
        done = [(call.name, dict(call.arguments)) for call in self.calls]
        steps = self._request.steps
        to_do = (
            i for i, s in enumerate(steps) if (s.call.name, dict(s.call.arguments)) not in done
        )
        return next(to_do, len(steps) - 1)


def _right_database(request: Request) -> dict[str, list[tuple[int | str | None, ...]]]:
    """Return the tables as the changes among the expert's steps leave them."""
    store = request.world.store()
    changes: Mapping[str, Callable[..., object]] = {
        "refund": store.refund,
        "exchange": store.exchange,
        "cancel": store.cancel,
        "move": store.move,
    }
    for step in request.steps:
        if step.call.name in changes:
            changes[step.call.name](**step.call.arguments)
    tables = store.snapshot()
    store.close()
    return tables


def _described(order: Order) -> str:
    owner = "" if order.customer == ME else ", of another customer"
    days = f"{order.state} for {order.days} days" if order.state == "here" else order.state
    what = f"{order.color} {order.kind}, {days}, to {order.number} {order.street}{owner}"
    return f"order {order.id}: {what}"


@contextmanager
def _refusals() -> Iterator[None]:
    """Tell the agent what the database cannot do."""
    try:
        yield
    except ImpossibleError as error:
        raise ToolError(str(error)) from None


@cache
def _tasks(split: str) -> tuple[Task, ...]:
    """Return the tasks of a split, level by level in turns; those for testing come first."""
    first = 0 if split == "test" else _NUM_TEST * len(LEVELS)
    number = (_NUM_TEST if split == "test" else _NUM_TRAIN) * len(LEVELS)
    name = CustomerService.spec.name
    levels = [LEVELS[index % len(LEVELS)] for index in range(first, first + number)]
    return tuple(
        Task(name, split, first + place, category=CATEGORY_OF[level], level=level)
        for place, level in enumerate(levels)
    )
