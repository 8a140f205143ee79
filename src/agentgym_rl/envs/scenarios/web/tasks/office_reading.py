"""Questions that the manager answers in the shop's back office."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, timedelta

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import (
    as_staff,
    customers,
    find_pending_review,
    money,
    open_office_customer,
    open_office_product,
    open_section,
    orders,
    products,
    text,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Reading, Seeded, Template

_SITES = ("shop",)
_HOME = "/dashboard/"
_SPENT = """
SELECT u.username, count(*), sum(o.total_incl_tax) FROM order_order o
JOIN auth_user u ON u.id = o.user_id GROUP BY u.id HAVING count(*) BETWEEN 2 AND 9 ORDER BY u.id
"""
_PENDING = """
SELECT p.title, r.title, u.first_name || ' ' || u.last_name, r.score FROM reviews_productreview r
JOIN catalogue_product p ON p.id = r.product_id JOIN auth_user u ON u.id = r.user_id
WHERE r.status = 0 AND p.structure = 'standalone' AND (SELECT count(*) FROM reviews_productreview o
    WHERE o.product_id = r.product_id AND o.status = 0) = 1
ORDER BY r.id
"""
_SOLD = """
SELECT l.title, count(DISTINCT l.order_id) FROM order_line l
JOIN catalogue_product p ON p.id = l.product_id WHERE p.structure = 'standalone'
GROUP BY l.product_id HAVING count(DISTINCT l.order_id) BETWEEN 2 AND 7 ORDER BY l.product_id
"""


class OrderCustomer(Reading):
    """Who placed the order that is open."""

    name = "office-order-customer"
    number = 40
    sites = _SITES
    category = "backoffice"
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, number, _, _, _, email, *_ in seeded.some(self, orders(seeded)):
            yield Case(
                f"What is the email address of the customer who placed order {number}?",
                str(email),
                f"/dashboard/orders/{number}/",
                as_staff(),
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer)


class CustomerJoined(Reading):
    """How many orders the customer has placed whose page is open."""

    name = "office-customer-spent-here"
    number = 41
    sites = _SITES
    category = "backoffice"
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        ids = {str(row[1]): row[0] for row in customers(seeded)}
        for email, _, spent in seeded.some(self, seeded.rows("shop", _SPENT)):
            yield Case(
                f"How much has {email} spent in total?",
                money(spent),
                f"/dashboard/users/{ids[str(email)]}/",
                as_staff(),
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer)


class CustomerOrders(Reading):
    """How many orders a customer has placed, by a search for the customer."""

    name = "office-customer-orders"
    number = 42
    sites = _SITES
    category = "backoffice"
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for email, number, _ in seeded.some(self, seeded.rows("shop", _SPENT)):
            yield Case(
                f"How many orders has the customer {email} placed?",
                str(number),
                "/dashboard/users/",
                as_staff(),
                {"email": email},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Email:", text(case, "email"))
        yield from page.answer(case.answer, shown=text(case, "email"))


class OrderStatusSearch(Reading):
    """How far an order is, by a search for its number."""

    name = "office-order-status"
    number = 43
    sites = _SITES
    category = "backoffice"
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = [row for row in orders(seeded) if row[3] != "Delivered"]
        for _, number, _, status, *_ in seeded.some(self, rows):
            yield Case(
                f"What is the status of order {number}?",
                str(status),
                "/dashboard/orders/",
                as_staff(),
                {"number": number},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Order number:", text(case, "number"))
        yield from page.answer(case.answer)


class CustomerSpent(Reading):
    """What a customer has spent."""

    name = "office-customer-spent"
    number = 44
    sites = _SITES
    category = "backoffice"
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for email, _, spent in seeded.some(self, seeded.rows("shop", _SPENT)):
            objective = f"How much has the customer {email} spent in total?"
            yield Case(objective, money(spent), _HOME, as_staff(), {"email": email})

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_customer(page, text(case, "email"))
        yield from page.answer(case.answer)


class ProductSku(Reading):
    """Under which number a partner has a product."""

    name = "office-product-sku"
    number = 45
    sites = _SITES
    category = "backoffice"
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, _, title, _, _, _, sku in seeded.some(self, products(seeded)):
            objective = f"What is the partner SKU of {title}?"
            yield Case(objective, str(sku), _HOME, as_staff(), {"title": title})

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_product(page, text(case, "title"))
        yield from page.click("link", "Stock and pricing")
        yield from page.answer(case.answer)


class OrdersBetween(Reading):
    """How many orders were placed between two days."""

    name = "office-orders-between"
    number = 46
    sites = _SITES
    category = "backoffice"
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        first = date(2023, 1, 9)
        for number in seeded.some(self, range(60)):
            start = first + timedelta(days=8 * number)
            end = start + timedelta(days=5 + number % 9)
            ((count,),) = seeded.rows(
                "shop",
                """SELECT count(*) FROM order_order
                WHERE date(date_placed) BETWEEN ? AND ?""",
                start.isoformat(),
                end.isoformat(),
            )
            yield Case(
                f"How many orders were placed from {start:%d %B %Y} to {end:%d %B %Y}, both days "
                "included? Use the order statistics.",
                str(count),
                _HOME,
                as_staff(),
                {"start": f"{start:%d/%m/%Y}", "end": f"{end:%d/%m/%Y}"},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Fulfilment", "Statistics")
        yield from page.type("textbox", "From:", text(case, "start"), enter=False)
        yield from page.type("textbox", "To:", text(case, "end"), enter=False)
        yield from page.click("button", "Filter result")
        yield from page.answer(case.answer, shown=f"Total orders | {case.answer}")


class OrdersOfProduct(Reading):
    """How many orders have a product in them."""

    name = "office-orders-of-product"
    number = 47
    sites = _SITES
    category = "backoffice"
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for title, number in seeded.some(self, seeded.rows("shop", _SOLD)):
            objective = f"How many orders contain the product {title}?"
            yield Case(objective, str(number), _HOME, as_staff(), {"title": title})

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Fulfilment", "Orders")
        yield from page.click("link", "Advanced Search")
        yield from page.type("textbox", "Product name", text(case, "title"))
        yield from page.answer(case.answer, shown="Order Search Results")


class PendingReview(Reading):
    """Who wrote the review of a product that waits for approval."""

    name = "office-pending-review"
    number = 48
    sites = _SITES
    category = "backoffice"
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for product, title, author, score in seeded.some(self, seeded.rows("shop", _PENDING)):
            yield Case(
                f'A review "{title}" with {score} stars of {product} waits for moderation. '
                "Who wrote it?",
                str(author),
                _HOME,
                as_staff(),
                {"product": product, "title": title, "author": author},
            )

    def expert(self, case: Case, page: Page) -> Script:
        product = text(case, "product")
        yield from find_pending_review(page, title=text(case, "title"), product=product)
        yield from page.answer(case.answer, shown=product)


TEMPLATES: list[Template] = [
    OrderCustomer(),
    CustomerJoined(),
    CustomerOrders(),
    OrderStatusSearch(),
    CustomerSpent(),
    ProductSku(),
    OrdersBetween(),
    OrdersOfProduct(),
    PendingReview(),
]
