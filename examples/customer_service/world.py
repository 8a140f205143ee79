"""Who the customers are, what they bought and what the rules are: drawn from the task's seed.

Training and testing share no address, and no product (a kind in a color) that somebody ordered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

from examples.customer_service.store import Order, Store

_T = TypeVar("_T")

Color = Literal["red", "blue", "green", "black", "white"]
Topic = Literal["refund", "exchange", "cancel", "address"]
COLORS: tuple[Color, ...] = get_args(Color)
KINDS = ("lamp", "mug", "chair", "shirt", "clock", "bag")
STREETS = ("Oak Road", "Hill Lane", "Park Street", "Lake Way", "Mill Row", "High Street")
NAMES = ("Ann", "Ben", "Cara", "Dan", "Eva", "Finn", "Gus", "Hana", "Ivo", "Jane", "Karl", "Lea",
         "Max", "Nora", "Otto", "Pia", "Quinn", "Rosa")  # fmt: skip
_HELD_OUT_EVERY = 5
"""Of products and addresses, for testing."""
_MY_ORDERS, _OTHER_ORDERS = 4, 3
_DAYS = (3, 8, 12, 20, 26, 40, 55)
_LIMITS = (10, 14, 30)
ME, OTHER = 1, 2
STATES = ("here", "sent", "open")


@dataclass(frozen=True, slots=True)
class World:
    """One customer's situation; the first of their orders is what the request is about."""

    name: str
    mine: tuple[Order, ...]
    others: tuple[Order, ...]
    limits: tuple[tuple[str, int | None], ...]
    products: tuple[tuple[str, str, int, int], ...]
    new_color: Color
    """A color, not that of the first order, in which its product may be in stock."""
    new_address: tuple[str, int]

    @property
    def first(self) -> Order:
        return self.mine[0]

    def limit(self, topic: Topic) -> int:
        days = dict(self.limits)[topic]
        assert days is not None, "refunds and exchanges have a limit"
        return days

    def store(self) -> Store:
        """Return a new database of this world."""
        return Store(
            customers=((ME, self.name), (OTHER, "Zoe")),
            products=self.products,
            orders=(*self.mine, *self.others),
            rules=self.limits,
        )


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request needs of its world."""

    state: str
    """Of the first order."""
    in_time: bool = True
    """Whether its days are within the limits of the rules."""
    in_stock: bool = True
    """Whether its product is in stock in the new color."""


def draw_world(draw: random.Random, wish: Wish, *, is_test: bool) -> World:
    """Return a world in which a request can be made."""
    limit = pick(draw, _LIMITS)
    days = pick(draw, [day for day in _DAYS if (day <= limit) == wish.in_time])
    products = [(kind, color) for kind in KINDS for color in COLORS]
    subjects = [each for each in products if _is_held_out(*each) == is_test]
    numbers = shuffled(draw, range(1, 10))
    addresses = _share([(s, n) for s in STREETS for n in range(1, 10)], is_test=is_test)
    kinds = shuffled(draw, KINDS)
    orders = list[Order]()
    for place in range(_MY_ORDERS + _OTHER_ORDERS):
        is_mine = place < _MY_ORDERS
        kind = kinds[place] if is_mine else pick(draw, KINDS)  # a customer can name what they mean
        color = pick(draw, [color for one, color in subjects if one == kind])
        street, number = pick(draw, addresses)
        owner = ME if is_mine else OTHER
        state = wish.state if place == 0 else pick(draw, STATES)
        since = days if place == 0 else pick(draw, _DAYS)
        orders.append(Order(numbers[place], owner, kind, color, state, since, street, number))
    first = orders[0]
    new_color = pick(draw, [color for color in COLORS if color != first.color])
    stock = {(first.kind, new_color): 1 + int(draw.random() * 4) if wish.in_stock else 0}
    here = [(s, n) for s, n in addresses if (s, n) != (first.street, first.number)]
    return World(
        name=pick(draw, NAMES),
        mine=tuple(orders[:_MY_ORDERS]),
        others=tuple(orders[_MY_ORDERS:]),
        limits=(("refund", limit), ("exchange", limit), ("cancel", None), ("address", None)),
        products=tuple(
            (*each, 10 + 5 * place, stock.get(each, int(draw.random() * 5)))
            for place, each in enumerate(products)
        ),
        new_color=new_color,
        new_address=pick(draw, here),
    )


def with_state(world: World, place: int, state: str) -> World:
    """Return the world with one of the customer's orders in another state."""
    mine = list(world.mine)
    mine[place] = replace(mine[place], state=state)
    return replace(world, mine=tuple(mine))


def pick(draw: random.Random, items: Sequence[_T]) -> _T:
    """Return one of the items. Only `random()` is promised to stay the same over versions."""
    return items[int(draw.random() * len(items))]


def shuffled(draw: random.Random, items: Sequence[_T]) -> list[_T]:
    """Return the items in a drawn order."""
    keys = [draw.random() for _ in items]
    return [items[place] for place in sorted(range(len(items)), key=keys.__getitem__)]


def _is_held_out(kind: str, color: Color) -> bool:
    """Whether requests about a product are for testing: one color of every kind."""
    return (KINDS.index(kind) + COLORS.index(color)) % len(COLORS) == 0


def _share(items: Sequence[_T], *, is_test: bool) -> list[_T]:
    return [x for place, x in enumerate(items) if (place % _HELD_OUT_EVERY == 0) == is_test]
