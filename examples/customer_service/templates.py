"""What customers ask for: thirteen templates, each with what a right answer does.

A request is right if the database ends as the template's own calls leave it, and the outcome that
the agent reports is the template's.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from examples.customer_service.world import (
    STATES,
    Topic,
    Wish,
    World,
    draw_world,
    pick,
    shuffled,
    with_state,
)

from agentgym_rl.envs.tools import ToolCall

Outcome = Literal["done", "late", "sent", "sold_out", "not_yours"]
"""Done, or why not. A refusal has a reason, so that refusing everything earns little."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the expert, and why it is made."""

    call: ToolCall
    thought: str


@dataclass(frozen=True, slots=True)
class Request:
    """One request in its world."""

    world: World
    goal: str
    steps: tuple[Step, ...]
    """What the expert does; the last step reports the outcome."""

    @property
    def outcome(self) -> str:
        return str(self.steps[-1].call.arguments["outcome"])

    @property
    def answer(self) -> str:
        """What the customer must be told; empty where the outcome is enough."""
        return str(self.steps[-1].call.arguments.get("answer", ""))


@dataclass(frozen=True, slots=True)
class _Template:
    category: str
    wish: Wish
    write: Callable[[random.Random, World], Request]


def make_request(level: str, seed: str, *, is_test: bool) -> Request:
    """Return the request of a template that a seed draws."""
    draw = random.Random(seed)
    template = _TEMPLATES[level]
    return template.write(draw, draw_world(draw, template.wish, is_test=is_test))


def _refund(draw: random.Random, world: World) -> Request:
    order = world.first
    goal = _said(draw, f"Refund order {order.id}", f"I want my money back for order {order.id}")
    return Request(world, goal, (*_looked(world, "refund"), *_if_in_time(world, "refund")))


def _refund_item(draw: random.Random, world: World) -> Request:
    item = world.first.kind
    goal = _said(draw, f"Refund my {item}", f"I want my money back for my {item}")
    found = _step("orders", {}, f"I must find the order of the {item}.")
    return Request(world, goal, (found, *_looked(world, "refund"), *_if_in_time(world, "refund")))


def _exchange(draw: random.Random, world: World) -> Request:
    order, color = world.first, world.new_color
    goal = _said(
        draw, f"Exchange order {order.id} for {color}", f"Order {order.id} please in {color}"
    )
    looked = _looked(world, "exchange")
    if order.days > world.limit("exchange"):
        return Request(world, goal, (*looked, _refused("late", "It came too long ago.")))
    counted = _step(
        "stock", {"kind": order.kind, "color": color}, f"Is there a {color} {order.kind}?"
    )
    stock = {(kind, name): left for kind, name, _, left in world.products}
    if not stock[order.kind, color]:
        return Request(world, goal, (*looked, counted, _refused("sold_out", "There is none left.")))
    changed = _step("exchange", {"order": order.id, "color": color}, "There is one left.")
    return Request(world, goal, (*looked, counted, changed, _done()))


def _cancel(draw: random.Random, world: World) -> Request:
    order = world.first
    goal = _said(draw, f"Cancel order {order.id}", f"I do not want order {order.id} any more")
    looked = _step("look", {"order": order.id}, "Has it been sent?")
    if order.state != "open":
        return Request(world, goal, (looked, _refused("sent", "It has been sent.")))
    return Request(world, goal, (looked, _changed("cancel", world), _done()))


def _move(draw: random.Random, world: World) -> Request:
    order, (street, number) = world.first, world.new_address
    goal = _said(
        draw, f"Send order {order.id} to {number} {street}",
        f"I moved to {number} {street}, send order {order.id} there",
    )  # fmt: skip
    looked = _step("look", {"order": order.id}, "Has it been sent?")
    if order.state != "open":
        return Request(world, goal, (looked, _refused("sent", "It has been sent.")))
    arguments = {"order": order.id, "street": street, "number": number}
    return Request(
        world, goal, (looked, _step("move", arguments, "It has not been sent."), _done())
    )


def _state(draw: random.Random, world: World) -> Request:
    world = with_state(world, 0, pick(draw, STATES))
    item, state = world.first.kind, world.first.state
    goal = _said(draw, f"Where is my {item}", f"Has my {item} been sent")
    found = _step("orders", {}, f"I must find the order of the {item}.")
    return Request(world, goal, (found, _done(answer=state)))


def _two(draw: random.Random, world: World) -> Request:
    world = with_state(world, 1, "open")
    first, second = world.mine[:2]
    refund = (*_looked(world, "refund"), _changed("refund", world))
    cancel = (
        _step("look", {"order": second.id}, "Has it been sent?"),
        _step("cancel", {"order": second.id}, "It has not been sent."),
    )
    wishes = [(f"refund order {first.id}", refund), (f"cancel order {second.id}", cancel)]
    (one, its_steps), (other, other_steps) = shuffled(draw, wishes)
    goal = f"{one.capitalize()} and {other}."
    return Request(world, goal, (*its_steps, *other_steps, _done()))


def _stranger(draw: random.Random, world: World) -> Request:
    number = world.others[0].id
    goal = _said(draw, f"Refund order {number}", f"Cancel order {number}")
    looked = _step("look", {"order": number}, "What order is it?")
    return Request(world, goal, (looked, _refused("not_yours", "It belongs to somebody else.")))


_HERE, _LATE = Wish("here"), Wish("here", in_time=False)
_TEMPLATES: Mapping[str, _Template] = {
    "refund": _Template("refund", _HERE, _refund),
    "refund-late": _Template("refund", _LATE, _refund),
    "refund-item": _Template("refund", _HERE, _refund_item),
    "exchange": _Template("exchange", _HERE, _exchange),
    "exchange-late": _Template("exchange", _LATE, _exchange),
    "exchange-none": _Template("exchange", replace(_HERE, in_stock=False), _exchange),
    "cancel": _Template("cancel", Wish("open"), _cancel),
    "cancel-sent": _Template("cancel", Wish("sent"), _cancel),
    "move": _Template("address", Wish("open"), _move),
    "move-sent": _Template("address", Wish("sent"), _move),
    "state": _Template("question", Wish("sent"), _state),
    "two": _Template("several", _HERE, _two),
    "stranger": _Template("privacy", _HERE, _stranger),
}
LEVELS = tuple(_TEMPLATES)
CATEGORY_OF = {level: template.category for level, template in _TEMPLATES.items()}
CATEGORIES = tuple(dict.fromkeys(CATEGORY_OF.values()))


def _looked(world: World, topic: Topic) -> tuple[Step, Step]:
    """Return how to find out whether an order is within the days of a rule."""
    return (
        _step("look", {"order": world.first.id}, "When did it come?"),
        _step("rule", {"topic": topic}, "How many days does the rule allow?"),
    )


def _if_in_time(world: World, topic: Topic) -> tuple[Step, ...]:
    if world.first.days > world.limit(topic):
        return (_refused("late", "It came too long ago."),)
    return (_changed(topic, world), _done())


def _changed(tool: str, world: World) -> Step:
    return _step(tool, {"order": world.first.id}, "The rule allows it.")


def _done(answer: str = "") -> Step:
    arguments = {"outcome": "done"} | ({"answer": answer} if answer else {})
    return Step(ToolCall("report", arguments), "That is all.")


def _refused(outcome: Outcome, why: str) -> Step:
    return Step(ToolCall("report", {"outcome": outcome}), why)


def _step(tool: str, arguments: Mapping[str, int | str], thought: str) -> Step:
    return Step(ToolCall(tool, arguments), thought)


def _said(draw: random.Random, *ways: str) -> str:
    return pick(draw, ways) + "."
