"""What the manager changes about products in the shop's back office."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.office_changing import OFFICE, OfficeChange
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import (
    as_staff,
    open_office_product,
    products,
    text,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Outcome, Seeded, Template, Value

_STOCK = """
SELECT s.num_in_stock, round(s.price, 2) FROM partner_stockrecord s WHERE s.product_id = ?
"""


class SetStock(OfficeChange):
    """Correct how many pieces of a product are there."""

    name = "office-set-stock"
    number = 60
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, products(seeded))):
            number, _, title, *_ = row
            amount = 200 + 7 * place
            values: dict[str, Value] = {"product": number, "title": title, "amount": amount}
            yield Case(
                f"A delivery came in: set the number in stock of {title} to {amount}.",
                path=OFFICE,
                users=as_staff(),
                values=values,
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("shop", _STOCK, (case.values["product"],))
        return len(rows) == 1 and rows[0][0] == case.values["amount"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_product(page, text(case, "title"))
        yield from page.click("link", "Stock and pricing")
        yield from page.reach("spinbutton", None)
        yield f"type [{page.find('spinbutton', None)}] [{case.values['amount']}] [0]"
        yield from page.click("button", "Save")
        yield from page.done()


class SetPrice(OfficeChange):
    """Change what a product costs."""

    name = "office-set-price"
    number = 61
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, products(seeded))):
            number, _, title, _, price, *_ = row
            new = f"{float(str(price)) + 3 + place:.2f}"
            values: dict[str, Value] = {"product": number, "title": title, "price": new}
            yield Case(
                f"Change the price of {title} to £{new}.",
                path=OFFICE,
                users=as_staff(),
                values=values,
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("shop", _STOCK, (case.values["product"],))
        return len(rows) == 1 and f"{rows[0][1]:.2f}" == case.values["price"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_product(page, text(case, "title"))
        yield from page.click("link", "Stock and pricing")
        yield from page.reach("spinbutton", None, nth=2)
        yield f"type [{page.find('spinbutton', None, nth=2)}] [{case.values['price']}] [0]"
        yield from page.click("button", "Save")
        yield from page.done()


class RenameProduct(OfficeChange):
    """Change the title of a product."""

    name = "office-rename-product"
    number = 65
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for number, _, title, *_ in seeded.some(self, products(seeded)):
            new = f"{str(title).split(',')[0]} Limited Edition"
            yield Case(
                f'Rename the product {title} to "{new}".',
                path=OFFICE,
                users=as_staff(),
                values={"product": number, "title": title, "new": new},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop", "SELECT title FROM catalogue_product WHERE id = ?", (case.values["product"],)
        )
        return rows == [(case.values["new"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_product(page, text(case, "title"))
        yield from page.type("textbox", "Title", text(case, "new"), enter=False)
        yield from page.click("button", "Save")
        yield from page.done()


class HideProduct(OfficeChange):
    """Take a product out of the catalogue."""

    name = "office-hide-product"
    number = 66
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for number, _, title, *_ in seeded.some(self, products(seeded)):
            yield Case(
                f"Take {title} out of the catalogue for now: it must not be public any more.",
                path=OFFICE,
                users=as_staff(),
                values={"product": number, "title": title},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("shop", "SELECT id FROM catalogue_product WHERE NOT is_public", ())
        return rows == [(case.values["product"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_product(page, text(case, "title"))
        yield from page.check("Is public", on=False)
        yield from page.click("button", "Save")
        yield from page.done()


class TwoPrices(OfficeChange):
    """Change the prices of two products."""

    name = "office-two-prices"
    number = 72
    level = 5
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, products(seeded), 40)
        for place in range(len(rows) // 2):
            one, other = rows[2 * place], rows[2 * place + 1]
            new, also = f"{20 + place}.49", f"{31 + place}.25"
            yield Case(
                f"Set the price of {one[2]} to £{new} and the price of {other[2]} to £{also}.",
                path=OFFICE,
                users=as_staff(),
                values={"one": one[0], "one_title": one[2], "one_price": new, "other": other[0],
                        "other_title": other[2], "other_price": also},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        for name in ("one", "other"):
            rows = outcome.query("shop", _STOCK, (case.values[name],))
            if [f"{price:.2f}" for _, price in rows] != [case.values[f"{name}_price"]]:
                return False
        return True

    def expert(self, case: Case, page: Page) -> Script:
        for name in ("one", "other"):
            yield from open_office_product(page, text(case, f"{name}_title"))
            yield from page.click("link", "Stock and pricing")
            yield from page.reach("spinbutton", None, nth=2)
            price = text(case, f"{name}_price")
            yield f"type [{page.find('spinbutton', None, nth=2)}] [{price}] [0]"
            yield from page.click("button", "Save")
        yield from page.done()


TEMPLATES: list[Template] = [
    SetStock(),
    SetPrice(),
    RenameProduct(),
    HideProduct(),
    TwoPrices(),
]
