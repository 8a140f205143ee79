"""Questions that a customer answers in the shop."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import (
    as_customer,
    money,
    open_account,
    open_own_order,
    open_product,
    orders,
    own_orders,
    products,
    text,
)
from agentgym_rl.envs.scenarios.web.tasks.thinking import told
from agentgym_rl.envs.scenarios.web.templates import Case, Reading, Seeded, Template

_SITES = ("shop",)
_REVIEWED = """
SELECT p.id, p.slug, p.title, count(*) FROM catalogue_product p
JOIN reviews_productreview r ON r.product_id = p.id AND r.status = 1
WHERE p.structure = 'standalone' GROUP BY p.id HAVING count(*) BETWEEN 2 AND 15 ORDER BY p.id
"""
_REVIEWS = """
SELECT p.title, r.title, u.first_name || ' ' || u.last_name FROM reviews_productreview r
JOIN catalogue_product p ON p.id = r.product_id JOIN auth_user u ON u.id = r.user_id
WHERE r.status = 1 AND p.structure = 'standalone' AND
    (SELECT count(*) FROM reviews_productreview o
     WHERE o.product_id = p.id AND o.status = 1 AND o.title = r.title) = 1 AND
    (SELECT count(*) FROM reviews_productreview o
     WHERE o.product_id = p.id AND o.status = 1) BETWEEN 4 AND 9
ORDER BY r.id
"""
_LEAVES = """
SELECT c.id, c.name FROM catalogue_category c
WHERE c.depth = 3 AND c.name NOT IN ('T-Shirts', 'Sweaters') ORDER BY c.id
"""
_IN_CATEGORY = """
SELECT p.title, s.price FROM catalogue_product p
JOIN partner_stockrecord s ON s.product_id = p.id
JOIN catalogue_productcategory g ON g.product_id = p.id WHERE g.category_id = ? ORDER BY p.id
"""


class StockHere(Reading):
    """The answer is on the page of the product, which is open."""

    name = "shop-stock-here"
    number = 1
    sites = _SITES
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for row in seeded.some(self, products(seeded, "available > 0")):
            number, slug, title, _, _, available, _ = row
            path = f"/catalogue/{slug}_{number}/"
            yield Case(f"How many pieces of {title} are available?", str(available), path)

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer, shown=f"({case.answer} available)")


class UpcHere(Reading):
    """The answer is on the page of the product, further down."""

    name = "shop-upc-here"
    number = 2
    sites = _SITES
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for number, slug, title, upc, *_ in seeded.some(self, products(seeded)):
            yield Case(f"What is the UPC of {title}?", str(upc), f"/catalogue/{slug}_{number}/")

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer)


class ReviewsHere(Reading):
    """How many reviews the product has whose page is open."""

    name = "shop-reviews-here"
    number = 3
    sites = _SITES
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for number, slug, title, num in seeded.some(self, seeded.rows("shop", _REVIEWED)):
            path = f"/catalogue/{slug}_{number}/"
            yield Case(f"How many customer reviews does {title} have?", str(num), path)

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer, shown=f"{case.answer} customer reviews")


class Price(Reading):
    """What a product costs that has to be searched for."""

    name = "shop-price"
    number = 4
    sites = _SITES
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, _, title, _, price, *_ in seeded.some(self, products(seeded)):
            yield Case(f"What is the price of {title}?", money(price), values={"title": title})

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Search", text(case, "title"))
        yield from page.answer(case.answer)


class SearchCount(Reading):
    """How many results a search has."""

    name = "shop-search-count"
    number = 5
    sites = _SITES
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        counts: dict[str, int] = {}
        for row in products(seeded):
            words = str(row[2]).replace("& ", "").split()
            phrase = " ".join(words[1:3])
            counts[phrase] = counts.get(phrase, 0) + 1
        asked = sorted(phrase for phrase, number in counts.items() if number > 3)
        for phrase in seeded.some(self, asked):
            number = len(_found(seeded, phrase))
            objective = f'How many products does a search of the shop for "{phrase}" find?'
            yield Case(objective, str(number), values={"phrase": phrase})

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Search", text(case, "phrase"))
        yield from page.answer(case.answer, shown=f"{case.answer} result")


class OrderTotal(Reading):
    """What one of the customer's own orders came to."""

    name = "shop-order-total"
    number = 6
    sites = _SITES
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, number, total, _, _, email, *_ in seeded.some(self, orders(seeded)):
            yield Case(
                f"What was the total of my order {number}?",
                money(total),
                "/accounts/profile/",
                as_customer(email),
                {"number": number},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Order History")
        yield from page.type("textbox", "Order number", text(case, "number"))
        yield from page.read_to_end()
        yield from page.answer(case.answer)


class Cheapest(Reading):
    """The cheapest product of a category."""

    name = "shop-cheapest"
    number = 7
    sites = _SITES
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for number, name in seeded.some(self, seeded.rows("shop", _LEAVES), 40):
            rows = sorted(seeded.rows("shop", _IN_CATEGORY, number), key=lambda row: str(row[0]))
            prices = sorted(float(str(price)) for _, price in rows)
            if prices[0] < prices[1] and len(case_titles(rows, prices[0])) == 1:
                yield Case(
                    f"What is the cheapest product of the category {name}? Give its full name.",
                    case_titles(rows, prices[0])[0],
                    values={"category": name},
                )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", text(case, "category"))
        yield from page.select("Sort by", "Price low to high")
        yield from page.read(case.answer)
        titles = page.listed(r"link (.*[^…\n])\n\[\d+\] link .*…$")
        page.thought = f"Sorted by price from low to high, the first are: {told(titles[:3])}."
        page.thought += f" So {case.answer} is the cheapest."
        yield f"stop [{case.answer}]"


class MostExpensive(Reading):
    """The most expensive result of a search."""

    name = "shop-most-expensive"
    number = 8
    sites = _SITES
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        by_phrase: dict[str, list[tuple[str, float]]] = {}
        for _, _, title, _, price, *_ in products(seeded):
            words = str(title).split(",")[0].split()
            phrase = f"{words[0]} {words[1]}"
            by_phrase.setdefault(phrase, []).append((str(title), float(str(price))))
        several = sorted(phrase for phrase, rows in by_phrase.items() if 3 < len(rows) < 19)
        for phrase in seeded.some(self, several, 60)[:60]:
            rows = [row for row in _found(seeded, phrase) if row is not None]
            best = max(price for _, price in rows)
            titles = case_titles(rows, best)
            if len(titles) == 1:
                yield Case(
                    f'Which is the most expensive product that a search for "{phrase}" finds? '
                    "Give its full name.",
                    titles[0],
                    values={"phrase": phrase},
                )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Search", text(case, "phrase"))
        yield from page.select("Sort by", "Price high to low")
        yield from page.answer(case.answer)


def _found(seeded: Seeded, phrase: str) -> list[tuple[str, float]]:
    """Return title and price of what a search finds."""
    words = " ".join(f'"{word}"' for word in phrase.split())
    rows = seeded.rows(
        "shop",
        """SELECT p.title, (SELECT max(s.price) FROM partner_stockrecord s
            WHERE s.product_id = p.id OR s.product_id IN
                (SELECT c.id FROM catalogue_product c WHERE c.parent_id = p.id))
        FROM catalogue_product p WHERE p.structure IN ('standalone', 'parent') AND
            p.id IN (SELECT rowid FROM shop_search WHERE shop_search MATCH ?) ORDER BY p.id""",
        words,
    )
    return [(str(title), float(str(price))) for title, price in rows]


def case_titles(rows: Iterable[tuple[object, ...]], price: float) -> list[str]:
    """Return the titles of what costs this much."""
    return [str(title) for title, cost in rows if float(str(cost)) == price]


class PriceRange(Reading):
    """How many results of a search lie in a range of prices."""

    name = "shop-price-range"
    number = 9
    sites = _SITES
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        ranges = {"0 to 20": (0, 20), "20 to 40": (20, 40), "40 to 60": (40, 60)}
        nouns = sorted({str(row[2]).split(",")[0].split()[-2] for row in products(seeded)})
        nouns = [noun for noun in nouns if noun.isalpha() and len(noun) > 2]
        for place, noun in enumerate(seeded.some(self, nouns, 40)):
            name = list(ranges)[place % 3]
            low, high = ranges[name]
            number = sum(low <= price <= high for _, price in _found(seeded, noun))
            if number:
                yield Case(
                    f'Search the shop for "{noun}". How many of the products found are in the '
                    f'price range "{name}"?',
                    str(number),
                    values={"noun": noun, "range": name},
                )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Search", text(case, "noun"))
        yield from page.click("link", text(case, "range"))
        yield from page.answer(case.answer, shown=f"{case.answer} result")


class ReviewAuthor(Reading):
    """Who wrote a review."""

    name = "shop-review-author"
    number = 10
    sites = _SITES
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for product, title, author in seeded.some(self, seeded.rows("shop", _REVIEWS)):
            yield Case(
                f'Who wrote the review "{title}" of {product}?',
                str(author),
                values={"product": product},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_product(page, text(case, "product"))
        yield from page.click("link", "See all reviews")
        yield from page.answer(case.answer)


class OrderStatus(Reading):
    """How far one of the customer's orders is."""

    name = "shop-order-status"
    number = 11
    sites = _SITES
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = [row for row in orders(seeded) if row[3] != "Delivered"]
        for _, number, _, status, _, email, *_ in seeded.some(self, rows):
            yield Case(
                f"What is the status of my order {number}?",
                str(status),
                users=as_customer(email),
                values={"number": number},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_own_order(page, text(case, "number"))
        yield from page.answer(case.answer)


class OrderCity(Reading):
    """Where one of the customer's orders went."""

    name = "shop-order-city"
    number = 12
    sites = _SITES
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, number, _, _, _, email, _, _, city in seeded.some(self, orders(seeded)):
            yield Case(
                f"To which city was my order {number} sent?",
                str(city),
                users=as_customer(email),
                values={"number": number},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_own_order(page, text(case, "number"))
        yield from page.answer(case.answer)


class LatestOrder(Reading):
    """What the customer's last order came to."""

    name = "shop-latest-order"
    number = 13
    sites = _SITES
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        last = "o.id = (SELECT max(x.id) FROM order_order x WHERE x.user_id = o.user_id)"
        for _, number, total, _, _, email, *_ in seeded.some(self, orders(seeded, last)):
            yield Case(
                "What was the total of my most recent order?",
                money(total),
                users=as_customer(email),
                values={"number": number},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_account(page, "Order History")
        yield from page.read(case.answer)
        dates = told((number, date) for number, _, _, date in own_orders(page))
        number = case.values["number"]
        page.thought = f"My orders by date: {dates}. So {number} is the most recent one, with a"
        page.thought += f" total of {case.answer}."
        yield f"stop [{case.answer}]"


TEMPLATES: list[Template] = [
    StockHere(),
    UpcHere(),
    ReviewsHere(),
    Price(),
    SearchCount(),
    OrderTotal(),
    Cheapest(),
    MostExpensive(),
    PriceRange(),
    ReviewAuthor(),
    OrderStatus(),
    OrderCity(),
    LatestOrder(),
]
