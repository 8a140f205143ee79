"""What customers look up and change in their account: own orders, addresses, wish lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import (
    BASKET,
    as_customer,
    open_account,
    open_own_order,
    own_orders,
    text,
)
from agentgym_rl.envs.scenarios.web.tasks.thinking import because, told
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Reading,
    Row,
    Seeded,
    Template,
    Wrong,
)

_SITES = ("shop",)
_BOUGHT_ONCE = """
SELECT u.username, l.title, min(o.number) FROM order_line l
JOIN order_order o ON o.id = l.order_id JOIN auth_user u ON u.id = o.user_id
WHERE (SELECT count(*) FROM order_order x WHERE x.user_id = u.id) BETWEEN 2 AND 3
GROUP BY u.id, l.title HAVING count(*) = 1 ORDER BY u.id, l.title
"""
_YEARS = """
SELECT u.username, strftime('%Y', o.date_placed) AS year, o.number, o.total_incl_tax,
    (SELECT sum(l.quantity) FROM order_line l WHERE l.order_id = o.id)
FROM order_order o JOIN auth_user u ON u.id = o.user_id ORDER BY u.id, year, o.id
"""
_SECOND_ADDRESSES = """
SELECT u.username, a.id, a.line1, a.line4, a.postcode FROM address_useraddress a
JOIN auth_user u ON u.id = a.user_id WHERE NOT a.is_default_for_shipping AND a.line1 NOT IN
    (SELECT x.line1 FROM address_useraddress x WHERE x.user_id = a.user_id AND x.id != a.id)
ORDER BY a.id
"""
_BOOK = """
SELECT a.id, a.first_name, a.last_name, a.line1, a.line2, a.line4, a.postcode, a.country_id,
    a.phone_number, a.is_default_for_shipping + 0, a.is_default_for_billing + 0
FROM address_useraddress a JOIN auth_user u ON u.id = a.user_id WHERE u.username = ? ORDER BY a.id
"""
_STREET, _CODE, _SHIPPING, _BILLING = 3, 6, 9, 10
"""Columns of it. Numbers are read without their type, which one of two connections applies."""
_WISHES = """
SELECT u.username, w.id, w.name, p.id, p.title FROM wishlists_line l
JOIN wishlists_wishlist w ON w.id = l.wishlist_id JOIN auth_user u ON u.id = w.owner_id
JOIN catalogue_product p ON p.id = l.product_id
WHERE (SELECT count(*) FROM wishlists_line x WHERE x.wishlist_id = w.id) > 2 AND
    (SELECT count(*) FROM wishlists_line x
     WHERE x.wishlist_id = w.id AND x.product_id = l.product_id) = 1
ORDER BY l.id
"""
_WISHED = "SELECT product_id, quantity FROM wishlists_line WHERE wishlist_id = ? ORDER BY id"
_REPEATABLE = """
SELECT u.username, o.number FROM order_order o JOIN auth_user u ON u.id = o.user_id
WHERE (SELECT count(*) FROM order_line l WHERE l.order_id = o.id) BETWEEN 2 AND 4 AND NOT EXISTS
    (SELECT 1 FROM order_line l LEFT JOIN partner_stockrecord s ON s.product_id = l.product_id
     WHERE l.order_id = o.id AND coalesce(s.num_in_stock - s.num_allocated, 0) < l.quantity + 5)
ORDER BY o.id
"""
_ORDERED = """
SELECT p.upc, sum(l.quantity) FROM order_line l JOIN order_order o ON o.id = l.order_id
JOIN catalogue_product p ON p.id = l.product_id WHERE o.number = ? GROUP BY p.id ORDER BY p.upc
"""


class OrderOfProduct(Reading):
    """In which of the customer's orders a product was."""

    name = "shop-order-of-product"
    number = 14
    sites = _SITES
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("shop", _BOUGHT_ONCE))
        for place, (email, title, number) in enumerate(rows):
            objective = (
                f"I once bought {title} here. Which of my orders was it in? Give its number.",
                f"I need the number of my order that had {title} in it.",
            )[place % 2]
            values = {"title": title}
            yield Case(objective, str(number), users=as_customer(email), values=values)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_account(page, "Order History")
        yield from page.reach("link", case.answer)
        numbers = [line for line in page.text.splitlines() if " | £" in line]
        seen = list[str]()
        for number in [line.split("link ")[1].split(" |")[0] for line in numbers]:
            thought = f"It was not in order {', '.join(seen)}, so I look into {number}."
            order = page.click("link", number)
            yield from because(page, thought, order) if seen else order
            seen.append(number)
            while text(case, "title") not in page.text and "Order total" not in page.text:
                yield from page.read("Order total")
            if text(case, "title") in page.text:
                break
            page.thought = f"{text(case, 'title')} is not in order {number}, so I go back."
            yield "go_back"
        yield from page.answer(case.answer, shown=text(case, "title"))


class LargestOrder(Reading):
    """Which of the customer's orders of a year came to most, or had most pieces."""

    name = "shop-largest-order"
    number = 15
    sites = _SITES
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        years: dict[tuple[str, str], list[Row]] = {}
        for email, year, *row in seeded.rows("shop", _YEARS):
            years.setdefault((str(email), str(year)), []).append(tuple(row))
        several = [(key, rows) for key, rows in years.items() if len(rows) > 2]
        asked = seeded.some(self, several, len(several))
        for place, ((email, year), rows) in enumerate(asked):
            column = 1 + place % 2
            amounts = sorted((float(str(row[column])) for row in rows), reverse=True)
            best = next(row for row in rows if float(str(row[column])) == amounts[0])
            if amounts[0] == amounts[1]:
                continue
            most = ("the highest total", "the most items")[place % 2]
            yield Case(
                f"Which of the orders that I placed in {year} had {most}? Give its order number.",
                str(best[0]),
                users=as_customer(email),
                values={"year": year, "most": most},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_account(page, "Order History")
        yield from page.read(f"link {case.answer} |")
        year, most = text(case, "year"), text(case, "most")
        rows = [row for row in own_orders(page) if row[3].endswith(year)]
        shown = told(
            [(number, total if "total" in most else num) for number, num, total, _ in rows],
            lambda row: -float(row[1].strip("£").replace(",", "")),
        )
        kind = "totals" if "total" in most else "numbers of items"
        page.thought = f"The {kind} of the orders of {year}: {shown}. So {case.answer} has {most}."
        yield f"stop [{case.answer}]"


class DefaultAddress(Changing):
    """Make another address of the address book the default."""

    name = "shop-default-address"
    number = 30
    sites = _SITES
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("shop", _SECOND_ADDRESSES))
        for place, (email, number, street, city, _) in enumerate(rows):
            kind, column = (("shipping", _SHIPPING), ("billing", _BILLING))[place % 2]
            yield Case(
                f"Make {street} in {city} my default {kind} address from now on.",
                users=as_customer(email),
                values={"email": email, "address": number, "street": street, "kind": kind,
                        "column": column, "before": str(seeded.rows("shop", _BOOK, email))},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("shop", _BOOK, (case.values["email"],))
        column = int(text(case, "column"))
        is_default = {row[0]: row[column] for row in rows}
        wanted = {number: int(number == case.values["address"]) for number in is_default}
        undone = [(*row[:column], 1 - wanted[row[0]], *row[column + 1 :]) for row in rows]
        return is_default == wanted and str(undone) == case.values["before"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_account(page, "Address Book")
        yield from page.click("button", None, near=text(case, "street"))
        yield from page.click("link", f"Set as default {case.values['kind']} address")
        yield from page.done()

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        kind = "billing" if case.values["kind"] == "shipping" else "shipping"
        mistaken = replace(case, values={**case.values, "kind": kind})
        return (*super().wrong(case, other), Wrong("the other kind", "done", of_other=mistaken))


class CorrectAddress(Changing):
    """Correct one line of an address of the address book."""

    name = "shop-correct-address"
    number = 31
    sites = _SITES
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("shop", _SECOND_ADDRESSES))
        for place, (email, number, street, city, code) in enumerate(rows):
            if place % 2:
                field, column, what = "Post/Zip-code *", _CODE, "postcode"
                new = f"{str(code).split()[0]} {1 + place % 9}{'ABDEFGHJLN'[place % 10]}W"
            else:
                field, column, what = "First line of address *", _STREET, "first line"
                new = f"Flat {2 + place}, {street}"
            yield Case(
                f"There is a mistake in my address book: the {what} of my address {street}, "
                f'{city}, {code} should be "{new}". Correct it and leave the rest as it is.',
                users=as_customer(email),
                values={"email": email, "address": number, "street": street, "field": field,
                        "column": column, "new": new,
                        "before": str(seeded.rows("shop", _BOOK, email)),
                        "old": (code if place % 2 else street)},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("shop", _BOOK, (case.values["email"],))
        column, number = int(text(case, "column")), case.values["address"]
        undone = [
            (*row[:column], case.values["old"], *row[column + 1 :]) if row[0] == number else row
            for row in rows
        ]
        news = [row[column] for row in rows if row[0] == number]
        return news == [case.values["new"]] and str(undone) == case.values["before"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_account(page, "Address Book")
        yield from page.click("link", "Edit", near=text(case, "street"))
        yield from page.type("textbox", text(case, "field"), text(case, "new"), enter=False)
        yield from page.click("button", "Save")
        yield from page.done()


class DropWish(Changing):
    """Take a product off a wish list."""

    name = "shop-drop-wish"
    number = 32
    sites = _SITES
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("shop", _WISHES))
        for place, (email, number, name, product, title) in enumerate(rows):
            objective = (
                f'I do not want {title} any more. Take it off my wish list "{name}".',
                f'Remove {title} from my wish list "{name}" and keep the other things on it.',
            )[place % 2]
            kept = [row for row in seeded.rows("shop", _WISHED, number) if row[0] != product]
            yield Case(
                objective,
                users=as_customer(email),
                values={"list": number, "name": name, "title": title, "kept": str(kept)},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return str(outcome.query("shop", _WISHED, (case.values["list"],))) == case.values["kept"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_account(page, "Wish Lists")
        yield from page.click("link", text(case, "name"))
        yield from page.click("button", None, near=text(case, "title"))
        yield from page.click("link", "Remove", near=text(case, "title"))
        yield from page.click("button", "Remove")
        yield from page.done()


class Reorder(Changing):
    """Put everything from an order into the basket again."""

    name = "shop-reorder"
    number = 33
    sites = _SITES
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("shop", _REPEATABLE))
        for place, (email, number) in enumerate(rows):
            objective = (
                f"Put everything that was in my order {number} into the basket again, as many "
                "of each as then. Do not check out.",
                f"I want the same things as in my order {number} once more. Fill my basket with "
                "them, in the same quantities, but do not order yet.",
            )[place % 2]
            wanted = str(seeded.rows("shop", _ORDERED, number))
            yield Case(
                objective, users=as_customer(email), values={"number": number, "wanted": wanted}
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return str(outcome.query("shop", BASKET, ())) == case.values["wanted"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_own_order(page, text(case, "number"))
        yield from page.click("button", "Re-order all items")
        yield from page.done()


TEMPLATES: list[Template] = [
    OrderOfProduct(),
    LargestOrder(),
    DefaultAddress(),
    CorrectAddress(),
    DropWish(),
    Reorder(),
]
