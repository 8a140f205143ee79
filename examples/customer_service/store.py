"""The shop's database: SQLite in memory, one per episode.

Its methods change what they are asked to, whether or not the rules of the shop allow it: keeping to
the rules is the agent's task. They refuse only what cannot be, such as an unknown order.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE products (kind TEXT, color TEXT, price INTEGER NOT NULL, stock INTEGER NOT NULL,
                       PRIMARY KEY (kind, color));
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL REFERENCES customers (id),
                     kind TEXT NOT NULL, color TEXT NOT NULL, state TEXT NOT NULL,
                     days INTEGER NOT NULL, street TEXT NOT NULL, number INTEGER NOT NULL);
CREATE TABLE rules (topic TEXT PRIMARY KEY, days INTEGER);
CREATE TABLE refunds (order_id INTEGER PRIMARY KEY REFERENCES orders (id), amount INTEGER NOT NULL);
CREATE TABLE exchanges (order_id INTEGER PRIMARY KEY REFERENCES orders (id), color TEXT NOT NULL);
"""
_TABLES = ("customers", "products", "orders", "rules", "refunds", "exchanges")

Row = tuple[int | str | None, ...]


class ImpossibleError(Exception):
    """The database cannot do what is asked; the message says why."""


@dataclass(frozen=True, slots=True)
class Order:
    """One order. `state` is "open", "sent" or "here"; `days` count since it came, or was placed."""

    id: int
    customer: int
    kind: str
    color: str
    state: str
    days: int
    street: str
    number: int


class Store:
    """The tables of one episode."""

    def __init__(
        self,
        *,
        customers: Iterable[tuple[int, str]],
        products: Iterable[tuple[str, str, int, int]],
        orders: Iterable[Order],
        rules: Iterable[tuple[str, int | None]],
    ) -> None:
        # Calls come one after another, but not all from the thread that made it.
        self._db = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._db.executescript(_SCHEMA)
        self._db.executemany("INSERT INTO customers VALUES (?, ?)", customers)
        self._db.executemany("INSERT INTO products VALUES (?, ?, ?, ?)", products)
        rows = [
            (o.id, o.customer, o.kind, o.color, o.state, o.days, o.street, o.number) for o in orders
        ]
        self._db.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._db.executemany("INSERT INTO rules VALUES (?, ?)", rules)

    def close(self) -> None:
        """Give the memory back. Safe to repeat."""
        self._db.close()

    def snapshot(self) -> dict[str, list[Row]]:
        """Return every row of every table, in a canonical order."""
        return {
            table: self._db.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
            for table in _TABLES
        }

    def order(self, order: int) -> Order:
        row = self._db.execute("SELECT * FROM orders WHERE id = ?", (_int64(order),)).fetchone()
        if row is None:
            raise ImpossibleError(f"There is no order {order}.")
        return Order(*row)

    def orders_of(self, customer: int) -> Sequence[Order]:
        found = self._db.execute("SELECT * FROM orders WHERE customer = ? ORDER BY id", (customer,))
        return [Order(*row) for row in found]

    def rule_days(self, topic: str) -> int | None:
        """Return the days that a rule allows; None for a rule without a limit."""
        row = self._db.execute("SELECT days FROM rules WHERE topic = ?", (topic,)).fetchone()
        return None if row is None else row[0]

    def price(self, kind: str, color: str) -> int:
        return self._product(kind, color)[0]

    def stock(self, kind: str, color: str) -> int:
        return self._product(kind, color)[1]

    def refund(self, order: int) -> int:
        """Pay the price of an order back, and return it."""
        bought = self.order(order)
        price = self.price(bought.kind, bought.color)
        try:
            self._db.execute("INSERT INTO refunds VALUES (?, ?)", (order, price))
        except sqlite3.IntegrityError:
            raise ImpossibleError(f"Order {order} has been refunded before.") from None
        return price

    def exchange(self, order: int, color: str) -> None:
        """Send the same product in another color, of which one less is then in stock."""
        bought = self.order(order)
        if self.stock(bought.kind, color) < 1:
            raise ImpossibleError(f"There is no {color} {bought.kind} left.")
        try:
            self._db.execute("INSERT INTO exchanges VALUES (?, ?)", (order, color))
        except sqlite3.IntegrityError:
            raise ImpossibleError(f"Order {order} has been exchanged before.") from None
        self._db.execute(
            "UPDATE products SET stock = stock - 1 WHERE kind = ? AND color = ?",
            (bought.kind, color),
        )

    def cancel(self, order: int) -> None:
        if self.order(order).state == "cancelled":
            raise ImpossibleError(f"Order {order} has been cancelled before.")
        self._db.execute("UPDATE orders SET state = 'cancelled' WHERE id = ?", (order,))

    def move(self, order: int, street: str, number: int) -> None:
        """Send an order to another address."""
        self.order(order)
        self._db.execute(
            "UPDATE orders SET street = ?, number = ? WHERE id = ?",
            (street, _int64(number), order),
        )

    def _product(self, kind: str, color: str) -> tuple[int, int]:
        row = self._db.execute(
            "SELECT price, stock FROM products WHERE kind = ? AND color = ?", (kind, color)
        ).fetchone()
        if row is None:
            raise ImpossibleError(f"We do not have a {color} {kind}.")
        return row


def _int64(number: int) -> int:
    """Return a number that SQLite can hold, or raise ImpossibleError."""
    if not -(2**63) <= number < 2**63:
        raise ImpossibleError("That number is too large.")
    return number
