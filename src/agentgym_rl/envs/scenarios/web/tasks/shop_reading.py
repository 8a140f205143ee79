"""Questions that a customer answers in the shop."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.templates import Case, Reading, Seeded, Template

PRODUCTS = """
SELECT p.id, p.slug, p.title, p.upc, s.price FROM catalogue_product p
JOIN partner_stockrecord s ON s.product_id = p.id WHERE p.structure = 'standalone' ORDER BY p.id
"""


class PriceBySearch(Reading):
    """What does a product cost?"""

    name = "shop-price"
    number = 1
    sites = ("shop",)
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, _, title, _, price in seeded.some(self, seeded.rows("shop", PRODUCTS)):
            yield Case(f"What is the price of {title}?", f"£{price:.2f}", values={"title": title})

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Search", str(case.values["title"]))
        yield from page.click("link", str(case.values["title"]))
        yield from page.answer(case.answer)


TEMPLATES: list[Template] = [PriceBySearch()]
