"""Errands of a customer in the shop."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.shop_reading import PRODUCTS
from agentgym_rl.envs.scenarios.web.templates import Case, Changing, Outcome, Seeded, Template


class AddToBasket(Changing):
    """Put a product into the basket."""

    name = "shop-add-to-basket"
    number = 20
    sites = ("shop",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, _, title, upc, _ in seeded.some(self, seeded.rows("shop", PRODUCTS)):
            yield Case(
                f"Add one {title} to the basket.",
                users={"shop": "ann@example.com"},
                values={"title": title, "upc": upc},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop",
            """SELECT p.upc, l.quantity FROM basket_line l
            JOIN basket_basket b ON b.id = l.basket_id
            JOIN catalogue_product p ON p.id = l.product_id WHERE b.status = 'Open'""",
            (),
        )
        return rows == [(case.values["upc"], 1)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Search", str(case.values["title"]))
        yield from page.click("link", str(case.values["title"]))
        yield from page.click("button", "Add to basket")
        yield from page.done()


TEMPLATES: list[Template] = [AddToBasket()]
