"""What customers choose and buy: sizes, the cheaper of two, with a voucher, for a friend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.shop_changing import set_quantity
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import (
    BASKET,
    add_to_basket,
    as_customer,
    compare_prices,
    customers,
    money,
    open_product,
    products,
    text,
)
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Seeded,
    Template,
    Wrong,
)

_SITES = ("shop",)
_VARIANTS = """
SELECT p.title, c.title, c.upc, v.value_text FROM catalogue_product c
JOIN catalogue_product p ON p.id = c.parent_id JOIN partner_stockrecord s ON s.product_id = c.id
JOIN catalogue_productattributevalue v ON v.product_id = c.id
WHERE s.num_in_stock - s.num_allocated > 5 ORDER BY c.id
"""
_PAIRS = """
SELECT p.title, p.upc, s.price, g.category_id FROM catalogue_product p
JOIN partner_stockrecord s ON s.product_id = p.id
JOIN catalogue_productcategory g ON g.product_id = p.id
WHERE p.structure = 'standalone' AND s.num_in_stock - s.num_allocated > 9
ORDER BY g.category_id, p.id
"""
_VOUCHERS = """
SELECT v.code, v.name FROM voucher_voucher v
WHERE '2024-06-14 10:30:00' BETWEEN v.start_datetime AND v.end_datetime ORDER BY v.id
"""
_REDEEMED = """
SELECT v.code FROM basket_basket_vouchers r JOIN voucher_voucher v ON v.id = r.voucher_id
JOIN basket_basket b ON b.id = r.basket_id WHERE b.status = 'Open' ORDER BY v.id
"""
_SENT = """
SELECT l.upc, l.quantity, u.username, a.first_name, a.last_name, a.line1, a.line4, a.postcode,
    a.country_id
FROM order_order o JOIN order_line l ON l.order_id = o.id JOIN auth_user u ON u.id = o.user_id
JOIN order_shippingaddress a ON a.id = o.shipping_address_id
WHERE o.date_placed >= '2024-06-14 10:30:00' ORDER BY l.upc
"""
_AVAILABLE = "available > 9"
_FRIENDS = ("Petra Lindqvist", "Colin Abara", "Wanda Sorrel", "Jonas Akers", "Esme Tallis")
_HOUSES = (
    ("9 Weaver Street", "Derby", "DE1 3QT"),
    ("52 Orchard Brow", "Lancaster", "LA1 4NP"),
    ("17 Ferry Lane", "Poole", "BH15 2HX"),
    ("30 Beacon Rise", "Malvern", "WR14 1JA"),
)


class BasketSize(Changing):
    """Put a piece of clothing into the basket in a size."""

    name = "shop-basket-size"
    number = 35
    sites = _SITES
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        people = seeded.some(self, customers(seeded))
        rows = seeded.some(self, seeded.rows("shop", _VARIANTS))
        for place, (person, row) in enumerate(zip(people, rows, strict=True)):
            title, variant, upc, size = row
            objective = (
                f"Put {title} into my basket, one piece in size {size}.",
                f"I wear size {size}. Add one {title} in that size to my basket.",
            )[place % 2]
            values = {"title": title, "variant": variant, "upc": upc}
            yield Case(objective, users=as_customer(person[1]), values=values)

    def check(self, case: Case, outcome: Outcome) -> bool:
        return outcome.query("shop", BASKET, ()) == [(case.values["upc"], 1)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_product(page, text(case, "title"))
        yield from page.click("link", text(case, "variant"))
        yield from page.click("button", "Add to basket")
        yield from page.done()


class CheaperOfTwo(Changing):
    """Put some pieces of the cheaper of two products into the basket."""

    name = "shop-cheaper-of-two"
    number = 36
    sites = _SITES
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        people = seeded.some(self, customers(seeded))
        rows = seeded.rows("shop", _PAIRS)
        pairs = [
            (one, other)
            for one, other in zip(rows[::2], rows[1::2], strict=False)
            if one[3] == other[3] and one[2] != other[2]
        ]
        for place, (person, pair) in enumerate(zip(people, seeded.some(self, pairs), strict=True)):
            one, other = sorted(pair, key=lambda row: float(str(row[2])), reverse=place % 2 == 0)
            best = min(pair, key=lambda row: float(str(row[2])))
            number = 2 + place % 4
            yield Case(
                f"Compare the prices of {one[0]} and {other[0]}. Put {number} pieces of the "
                "cheaper one into my basket, and nothing else.",
                users=as_customer(person[1]),
                values={"one": one[0], "one_price": money(one[2]), "other": other[0],
                        "other_price": money(other[2]), "number": number, "best": best[0],
                        "upc": best[1]},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        wanted = [(case.values["upc"], case.values["number"])]
        return outcome.query("shop", BASKET, ()) == wanted

    def expert(self, case: Case, page: Page) -> Script:
        names = ("one", "other")
        prices = {text(case, name): text(case, f"{name}_price") for name in names}
        found, best = (yield from compare_prices(page, prices)), text(case, "best")
        if best == case.values["one"]:
            yield from page.reach("textbox", "Search")
            page.thought = f"{found}. So {best} is the cheaper one, and I go back to it."
            yield f"type [{page.find('textbox', 'Search')}] [{best}]"
        yield from page.reach("link", best)
        page.thought = f"{found}. So {best} is the cheaper one, and I open it."
        yield f"click [{page.find('link', best)}]"
        yield from page.click("button", "Add to basket")
        yield from page.click("link", "View basket")
        yield from set_quantity(page, best, text(case, "number"))
        yield from page.done()

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        values = case.values
        dearer = values["other" if values["best"] == values["one"] else "one"]
        mistaken = replace(case, values={**values, "best": dearer})
        return (*super().wrong(case, other), Wrong("the dearer one", "done", of_other=mistaken))


class RedeemVoucher(Changing):
    """Put a product into the basket and enter a voucher code."""

    name = "shop-redeem-voucher"
    number = 37
    sites = _SITES
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        people = seeded.some(self, customers(seeded))
        goods = seeded.some(self, products(seeded, _AVAILABLE))
        vouchers = seeded.rows("shop", _VOUCHERS)
        for place, (person, row) in enumerate(zip(people, goods, strict=True)):
            code, name = vouchers[place % len(vouchers)]
            title, upc = row[2], row[3]
            yield Case(
                f"Put one {title} into my basket and apply my {str(name).lower()} voucher, whose "
                f"code is {code}. I will pay later.",
                users=as_customer(person[1]),
                values={"title": title, "upc": upc, "code": code},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        is_there = outcome.query("shop", BASKET, ()) == [(case.values["upc"], 1)]
        return is_there and outcome.query("shop", _REDEEMED, ()) == [(case.values["code"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from add_to_basket(page, text(case, "title"))
        yield from page.click("link", "View basket")
        yield from page.click("link", "I have a voucher code...")
        yield from page.type("textbox", "Code *", text(case, "code"), enter=False)
        yield from page.click("button", "Add voucher")
        yield from page.done()


class BuyForFriend(Changing):
    """Buy a product, sent to an address that is not in the address book."""

    name = "shop-buy-for-friend"
    number = 38
    sites = _SITES
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        people = seeded.some(self, customers(seeded))
        goods = seeded.some(self, products(seeded, _AVAILABLE))
        for place, (person, row) in enumerate(zip(people, goods, strict=True)):
            first, last = _FRIENDS[place % 5].split()
            street, city, code = _HOUSES[place % 4]
            yield Case(
                f"Order one {row[2]} as a present and have it sent to {first} {last}, {street}, "
                f"{city}, {code}, United Kingdom.",
                users=as_customer(person[1]),
                values={"title": row[2], "upc": row[3], "email": person[1], "first": first,
                        "last": last, "street": street, "city": city, "code": code},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        names = ("email", "first", "last", "street", "city", "code")
        wanted = (case.values["upc"], 1, *(case.values[name] for name in names), "GB")
        return outcome.query("shop", _SENT, ()) == [wanted]

    def expert(self, case: Case, page: Page) -> Script:
        yield from add_to_basket(page, text(case, "title"))
        yield from page.click("link", "Checkout now")
        for label, name in (
            ("First name *", "first"),
            ("Last name *", "last"),
            ("First line of address *", "street"),
            ("City *", "city"),
            ("Post/Zip-code *", "code"),
        ):
            yield from page.type("textbox", label, text(case, name), enter=False)
        yield from page.click("button", "Continue")
        yield from page.click("link", "Continue")
        yield from page.click("button", "Place order")
        yield from page.done()


TEMPLATES: list[Template] = [
    BasketSize(),
    CheaperOfTwo(),
    RedeemVoucher(),
    BuyForFriend(),
]
