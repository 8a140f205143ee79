"""What the manager looks up and corrects about orders and those who placed them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.office_changing import OFFICE, OfficeChange, set_status
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import (
    as_staff,
    choose,
    money,
    open_office_customer,
    open_office_order,
    open_section,
    orders,
    own_orders,
    text,
)
from agentgym_rl.envs.scenarios.web.tasks.thinking import because, counted, told
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Outcome,
    Reading,
    Row,
    Seeded,
    Template,
)

_BUYERS = """
SELECT o.number, u.username, r.num_order_items,
    (SELECT count(*) FROM reviews_productreview v WHERE v.user_id = u.id) AS written
FROM order_order o JOIN auth_user u ON u.id = o.user_id
JOIN analytics_userrecord r ON r.user_id = u.id
WHERE written > 0 AND written != r.num_order_items AND r.num_order_items > 6 ORDER BY o.id
"""
_WAITING = """
SELECT p.title, u.username FROM customer_productalert a
JOIN catalogue_product p ON p.id = a.product_id JOIN auth_user u ON u.id = a.user_id
WHERE (SELECT count(*) FROM customer_productalert x WHERE x.product_id = p.id) = 1 AND
    (SELECT count(*) FROM customer_productalert x WHERE x.user_id = u.id) = 1
ORDER BY a.id
"""
_BETWEEN = """
SELECT number, status FROM order_order WHERE date(date_placed) BETWEEN ? AND ? ORDER BY id
"""
_ADDRESS = """
SELECT a.first_name, a.last_name, a.line1, a.line2, a.line4, a.postcode, a.country_id,
    a.phone_number, a.notes FROM order_shippingaddress a
JOIN order_order o ON o.shipping_address_id = a.id WHERE o.number = ?
"""
_LINES = """
SELECT o.number, l.id, l.title, l.status FROM order_line l JOIN order_order o ON o.id = l.order_id
WHERE o.status IN ('Pending', 'Being processed') AND o.status = l.status AND
    (SELECT count(*) FROM order_line x WHERE x.order_id = o.id) BETWEEN 2 AND 4 AND
    (SELECT count(*) FROM order_line x WHERE x.order_id = o.id AND x.title = l.title) = 1
ORDER BY l.id
"""
_STATUSES = """
SELECT l.id, l.status, o.status FROM order_line l JOIN order_order o ON o.id = l.order_id
WHERE o.number = ? ORDER BY l.id
"""
_LATEST = """o.status = 'Pending' AND (SELECT count(*) FROM order_order x
    WHERE x.user_id = o.user_id) > 1 AND o.date_placed = (SELECT max(x.date_placed)
    FROM order_order x WHERE x.user_id = o.user_id)"""
_CANCELLED = """
SELECT o.number FROM order_order o JOIN auth_user u ON u.id = o.user_id
WHERE u.username = ? AND o.status = 'Cancelled' ORDER BY o.number
"""


def _found_orders(page: Page) -> list[tuple[str, ...]]:
    """Return (number, total, status, customer) of the orders found that have been on screen."""
    return page.listed(r"link (\d+) \| (£[\d,.]+) \| \d+ \| ([^|]+) \| \[\d+\] link ([^|\n]+) \|")


class OfficeQuestion(Reading):
    """What these questions share."""

    sites = ("shop",)
    category = "backoffice"
    level = 3
    split = "train"


class BuyerRecord(OfficeQuestion):
    """What is known about the customer who placed an order."""

    name = "office-buyer-record"
    number = 49

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("shop", _BUYERS))
        for place, (number, email, pieces, written) in enumerate(rows):
            objective, answer, label = (
                (f"How many reviews has the customer who placed order {number} written?",
                 written, "Reviews written"),
                (f"Look up who placed order {number}. How many items has this customer ordered "
                 "altogether, in all orders?", pieces, "Number of ordered items"),
            )[place % 2]  # fmt: skip
            values = {"number": number, "email": email, "label": label}
            yield Case(objective, str(answer), OFFICE, as_staff(), values)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_order(page, text(case, "number"))
        number, email = text(case, "number"), text(case, "email")
        thought = f"Order {number} was placed by {email}, so I look up this customer."
        yield from because(page, thought, open_office_customer(page, email))
        yield from page.answer(case.answer, shown=f"{case.values['label']} | {case.answer}")


class DaysBestOrder(OfficeQuestion):
    """Which order of a day came to most, or whose it was."""

    name = "office-days-best-order"
    number = 50

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        days: dict[str, list[Row]] = {}
        for row in orders(seeded):
            days.setdefault(str(row[4])[:10], []).append(row)
        several = [rows for rows in days.values() if 3 < len(rows) < 9]
        for place, rows in enumerate(seeded.some(self, several)):
            ranked = sorted(rows, key=lambda row: float(str(row[2])), reverse=True)
            if ranked[0][2] == ranked[1][2]:
                continue
            _, number, total, _, placed, _, first, last, _ = ranked[0]
            day = date.fromisoformat(str(placed)[:10])
            objective, answer = (
                (f"Which order of {day:%d %B %Y} has the highest total? Give its number.", number),
                (f"Who placed the most valuable order of {day:%d %B %Y}? Give the customer's "
                 "first and last name.", f"{first} {last}"),
            )[place % 2]  # fmt: skip
            values = {"day": f"{day:%d/%m/%Y}", "total": money(total)}
            yield Case(objective, str(answer), OFFICE, as_staff(), values)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Fulfilment", "Orders")
        yield from page.click("link", "Advanced Search")
        yield from page.type("textbox", "Date from", text(case, "day"), enter=False)
        yield from page.type("textbox", "Date to", text(case, "day"))
        yield from page.read_to_end()
        rows = told((number, total, whose) for number, total, _, whose in _found_orders(page))
        highest = f"The highest total is {case.values['total']}"
        page.thought = f"The orders of this day: {rows}. {highest}, so the answer is {case.answer}."
        yield f"stop [{case.answer}]"


class OrdersOfStatus(OfficeQuestion):
    """How many orders of some days have a status."""

    name = "office-orders-of-status"
    number = 51

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, number in enumerate(seeded.some(self, range(100), 100)):
            start = date(2022, 10, 3) + timedelta(days=6 * number)
            end = start + timedelta(days=4 + number % 4)
            status = ("Cancelled", "Delivered", "Returned")[place % 3]
            rows = seeded.rows("shop", _BETWEEN, start.isoformat(), end.isoformat())
            count = sum(row[1] == status for row in rows)
            if not 1 < count < len(rows) < 15:
                continue
            yield Case(
                f'Of the orders placed from {start:%d %B %Y} to {end:%d %B %Y}, both days '
                f'included, how many have the status "{status}"?',
                str(count),
                OFFICE,
                as_staff(),
                {"from": f"{start:%d/%m/%Y}", "to": f"{end:%d/%m/%Y}", "earliest": rows[0][0],
                 "status": status},
            )  # fmt: skip

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Fulfilment", "Orders")
        yield from page.click("link", "Advanced Search")
        yield from page.type("textbox", "Date from", text(case, "from"), enter=False)
        yield from page.type("textbox", "Date to", text(case, "to"))
        yield from page.read(f"link {case.values['earliest']}")
        wanted, rows = case.values["status"], _found_orders(page)
        others = told((number, status) for number, _, status, _ in rows if status != wanted)
        found = counted([number for number, _, status, _ in rows if status == wanted])
        page.thought = f"Not {wanted}: {others}. {wanted}: {found}. So {case.answer} are {wanted}."
        yield f"stop [{case.answer}]"


class WhoWaits(OfficeQuestion):
    """Who waits for a product, or what a customer waits for."""

    name = "office-who-waits"
    number = 52

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("shop", _WAITING))
        for place, (title, email) in enumerate(rows):
            objective, answer, near = (
                (f"Which customer asked for a stock alert for {title}? Give the email address.",
                 email, title),
                (f"For which product did {email} request a stock alert? Give its full name.",
                 title, email),
            )[place % 2]  # fmt: skip
            yield Case(objective, str(answer), OFFICE, as_staff(), {"near": near})

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Customers", "Stock alert requests")
        yield from page.turn_to("link", case.answer, near=text(case, "near"))
        yield from page.answer(case.answer)


class OrderAddress(OfficeChange):
    """Correct where an order is sent."""

    name = "office-order-address"
    number = 53
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = orders(seeded, "o.status IN ('Pending', 'Being processed')")
        for place, (_, number, *_) in enumerate(seeded.some(self, rows)):
            before = seeded.rows("shop", _ADDRESS, number)[0]
            street = f"Flat {3 + place}, {before[2]}"
            wish, field, column, new = (
                (f'has a flat number missing. Its first line should be "{street}".',
                 "First line of address *", 2, street),
                (f"needs another phone number: +44113496{1200 + 7 * place}.",
                 "Phone number", 7, f"+44113496{1200 + 7 * place}"),
                (f'needs this instruction for the courier: "Ring twice at door {3 + place}."',
                 "Instructions", 8, f"Ring twice at door {3 + place}."),
            )[place % 3]  # fmt: skip
            wanted = (*before[:column], new, *before[column + 1 :])
            yield Case(
                f"The shipping address of order {number} {wish} Change nothing else about it.",
                path=OFFICE,
                users=as_staff(),
                values={"number": number, "field": field, "new": new, "wanted": str(wanted)},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("shop", _ADDRESS, (case.values["number"],))
        return [str(row) for row in rows] == [case.values["wanted"]]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_order(page, text(case, "number"))
        yield from page.click("link", "Shipping")
        yield from page.click("link", "Update")
        yield from page.type("textbox", text(case, "field"), text(case, "new"), enter=False)
        yield from page.click("button", "Update address")
        yield from page.done()


class LineStatus(OfficeChange):
    """Move one line of an order on, and not the others."""

    name = "office-line-status"
    number = 54
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("shop", _LINES))
        for place, (number, line, title, old) in enumerate(rows):
            new = ("Cancelled", "Being processed" if old == "Pending" else "Shipped")[place % 2]
            before = seeded.rows("shop", _STATUSES, number)
            wanted = [(row[0], new if row[0] == line else row[1], row[2]) for row in before]
            yield Case(
                f'In order {number}, set the status of the line with {title} to "{new}". The '
                "rest of the order stays as it is.",
                path=OFFICE,
                users=as_staff(),
                values={"number": number, "title": title, "status": new, "wanted": str(wanted)},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("shop", _STATUSES, (case.values["number"],))
        return str(rows) == case.values["wanted"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_order(page, text(case, "number"))
        yield from page.click("checkbox", None, near=text(case, "title"))
        yield from page.click("radio", "Change line status to")
        yield from choose(page, "-- choose new status --", text(case, "status"))
        yield from page.click("button", "Go!")
        yield from page.done()


class CancelLatest(OfficeChange):
    """Find a customer's last order, and cancel it."""

    name = "office-cancel-latest"
    number = 73
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, orders(seeded, _LATEST))):
            _, number, _, _, _, email, *_ = row
            objective = (
                f"The customer {email} called and does not want the last order any more. Cancel "
                "this customer's most recent order, but none of the earlier ones.",
                f"Find the most recent order of {email} and set its status to Cancelled.",
            )[place % 2]
            before = [str(old) for (old,) in seeded.rows("shop", _CANCELLED, email)]
            wanted = ", ".join(sorted([*before, str(number)]))
            values = {"email": email, "number": number, "wanted": wanted}
            yield Case(objective, path=OFFICE, users=as_staff(), values=values)

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("shop", _CANCELLED, (case.values["email"],))
        return ", ".join(str(number) for (number,) in rows) == case.values["wanted"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_customer(page, text(case, "email"))
        number = text(case, "number")
        yield from page.reach("link", number)
        dates = told((order, day) for order, _, _, day in own_orders(page))
        page.thought = f"The orders by date: {dates}. So {number} is the most recent one."
        yield f"click [{page.find('link', number)}]"
        yield from set_status(page, "Cancelled")
        yield from page.done()


TEMPLATES: list[Template] = [
    BuyerRecord(),
    DaysBestOrder(),
    OrdersOfStatus(),
    WhoWaits(),
    OrderAddress(),
    LineStatus(),
    CancelLatest(),
]
