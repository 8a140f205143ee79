"""What templates of the shop share: queries of its tables, and steps of experts."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.thinking import because
from agentgym_rl.envs.scenarios.web.templates import Case, Row, Seeded

STAFF = "manager@harbourhill.example"
PASSWORD = "harbour-2024"

PRODUCTS = """
SELECT p.id, p.slug, p.title, p.upc, s.price, s.num_in_stock - s.num_allocated AS available,
    s.partner_sku
FROM catalogue_product p JOIN partner_stockrecord s ON s.product_id = p.id
WHERE p.structure = 'standalone' AND {condition} ORDER BY p.id
"""
BASKET = """
SELECT p.upc, l.quantity FROM basket_line l JOIN basket_basket b ON b.id = l.basket_id
JOIN catalogue_product p ON p.id = l.product_id
WHERE b.status = 'Open' ORDER BY p.upc
"""
CUSTOMERS = """
SELECT u.id, u.username, u.first_name, u.last_name FROM auth_user u
WHERE u.is_staff = 0 AND {condition} ORDER BY u.id
"""
ORDERS = """
SELECT o.id, o.number, o.total_incl_tax, o.status, o.date_placed, u.username, u.first_name,
    u.last_name, a.line4
FROM order_order o JOIN auth_user u ON u.id = o.user_id
JOIN order_shippingaddress a ON a.id = o.shipping_address_id WHERE {condition} ORDER BY o.id
"""


def products(seeded: Seeded, condition: str = "1") -> list[Row]:
    """Return (id, slug, title, UPC, price, available, SKU) of products without variants."""
    return seeded.rows("shop", PRODUCTS.format(condition=condition))


def customers(seeded: Seeded, condition: str = "1") -> list[Row]:
    """Return (id, e-mail, first name, last name)."""
    return seeded.rows("shop", CUSTOMERS.format(condition=condition))


def orders(seeded: Seeded, condition: str = "1") -> list[Row]:
    """Return (id, number, total, status, date, e-mail, first name, last name, city)."""
    return seeded.rows("shop", ORDERS.format(condition=condition))


def as_customer(email: object) -> dict[str, str]:
    return {"shop": str(email)}


def as_staff() -> dict[str, str]:
    return {"shop": STAFF}


def text(case: Case, name: str) -> str:
    """Return a value of a case as text."""
    return str(case.values[name])


def money(amount: object) -> str:
    return f"£{float(str(amount)):,.2f}"


def open_product(page: Page, title: str) -> Script:
    """Search the shop for a product and open it."""
    yield from page.type("textbox", "Search", title)
    yield from page.click("link", title)


def add_to_basket(page: Page, title: str) -> Script:
    yield from open_product(page, title)
    yield from page.click("button", "Add to basket")


def open_account(page: Page, section: str) -> Script:
    """Open a section of the customer's account."""
    yield from page.click("link", "Account")
    yield from page.click("link", section)


def open_own_order(page: Page, number: str) -> Script:
    """Open an order in the customer's account by its number."""
    yield from open_account(page, "Order History")
    yield from page.type("textbox", "Order number", number)  # which opens it


def own_orders(page: Page) -> list[tuple[str, ...]]:
    """Return (number, items, total, date) of those of a customer's orders that were on screen."""
    return page.listed(r"link (\d+) \| (\d+) \| (£[\d,.]+) \| (\d+ \w+ \d{4})")


def compare_prices(page: Page, prices: Mapping[str, str]) -> Generator[str, None, str]:
    """Look up what products cost, and return it as a thought."""
    found = list[str]()
    for title, price in prices.items():
        search = page.type("textbox", "Search", title)
        thought = f"{' and '.join(found)}. Now I look up {title}."
        yield from because(page, thought, search) if found else search
        yield from page.read(price)
        found.append(f"{title} costs {price}")
    return " and ".join(found)


def open_section(page: Page, menu: str, section: str) -> Script:
    """Open a section of the back office from its menu."""
    yield from page.click("button", menu)
    yield from page.click("link", section)


def open_office_product(page: Page, title: str) -> Script:
    """Find a product in the back office and open its form."""
    yield from open_section(page, "Catalogue", "Products")
    yield from page.type("textbox", "Product title:", title)
    yield from page.click("link", title)


def open_office_order(page: Page, number: str) -> Script:
    """Find an order in the back office and open it."""
    yield from open_section(page, "Fulfilment", "Orders")
    yield from page.type("textbox", "Order number:", number)
    if f"orders/{number}" not in page.url:
        yield from page.click("link", number)


def open_office_customer(page: Page, email: str) -> Script:
    """Find a customer in the back office and open the customer's page."""
    yield from open_section(page, "Customers", "Customers")
    yield from page.type("textbox", "Email:", email)
    yield from page.click("link", email)


def choose(page: Page, shown: str, option: str) -> Script:
    """Choose in a list of the back office, which opens on a click and has a field for searching."""
    yield from page.click("combobox", shown)
    yield from page.type("focused", None, option)


def find_pending_review(page: Page, *, title: str, product: str) -> Script:
    """Bring a review that waits for moderation on the screen of the back office."""
    yield from open_section(page, "Content", "Reviews")
    yield from page.type("textbox", "Keyword:", title, enter=False)
    yield from page.select("Status:", "Requires moderation")
    yield from page.click("button", "Search")
    yield from page.turn_to("link", title, near=product)
