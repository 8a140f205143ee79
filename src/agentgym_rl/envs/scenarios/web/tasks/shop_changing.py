"""Errands of a customer in the shop."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import (
    BASKET,
    add_to_basket,
    as_customer,
    customers,
    open_account,
    open_product,
    products,
    text,
)
from agentgym_rl.envs.scenarios.web.tasks.thinking import because
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Row,
    Seeded,
    Template,
)

_SITES = ("shop",)
_NEW_ORDERS = """
SELECT l.upc, l.quantity, a.line1, u.username FROM order_order o
JOIN order_line l ON l.order_id = o.id
JOIN order_shippingaddress a ON a.id = o.shipping_address_id JOIN auth_user u ON u.id = o.user_id
WHERE o.date_placed >= '2024-06-14 10:30:00' ORDER BY l.upc
"""
_ADDRESSES = """
SELECT u.username, a.line1, a.line4 FROM address_useraddress a JOIN auth_user u ON u.id = a.user_id
ORDER BY a.id
"""
_AVAILABLE = "available > 9"
_SENTENCES = (
    "It does what it should and looks good in our kitchen.",
    "The colour is lovely and it was delivered in two days.",
    "Not quite what I had hoped for, but my brother likes it.",
    "I would buy this again without a second thought.",
    "The finish could be better for this price.",
)
_TITLES = ("Nice surprise", "Good buy", "Hmm", "Five of these, please", "Could be better")
_STREETS = ("7 Lantern Row", "88 Quay Street", "3 Foundry Lane", "41 Copper Court", "12 Abbey Walk")
_CITIES = (("Hull", "HU3 2LD"), ("Stirling", "FK8 1EH"), ("Ripon", "HG4 1QW"), ("Wells", "BA5 2RB"))


class AddToBasket(Changing):
    """Put a product into the basket."""

    name = "shop-add-to-basket"
    number = 20
    sites = _SITES
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        people = seeded.some(self, customers(seeded))
        goods = seeded.some(self, products(seeded, _AVAILABLE))
        for person, (_, _, title, upc, *_) in zip(people, goods, strict=True):
            objective = f"Put one {title} into my basket. Do not order it yet."
            values = {"title": title, "upc": upc}
            yield Case(objective, users=as_customer(person[1]), values=values)

    def check(self, case: Case, outcome: Outcome) -> bool:
        return outcome.query("shop", BASKET, ()) == [(case.values["upc"], 1)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from add_to_basket(page, text(case, "title"))
        yield from page.done()


class WriteReview(Changing):
    """Write a review of a product."""

    name = "shop-write-review"
    number = 21
    sites = _SITES
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        people = seeded.some(self, customers(seeded))
        goods = seeded.some(self, products(seeded))
        for place, (person, row) in enumerate(zip(people, goods, strict=True)):
            number, _, title, *_ = row
            written = "SELECT 1 FROM reviews_productreview WHERE product_id = ? AND user_id = ?"
            if seeded.rows("shop", written, number, person[0]):
                continue
            head, score = _TITLES[place % 5], 1 + (2 * place) % 5
            body = _SENTENCES[(place * 3 + 1) % 5]
            yield Case(
                f'Write a review of {title} with the title "{head}", {score} of 5 stars and this '
                f'text: "{body}"',
                users=as_customer(person[1]),
                values={"title": title, "product": number, "head": head, "score": score,
                        "body": body, "user": person[0]},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop",
            """SELECT title, score, body FROM reviews_productreview
            WHERE product_id = ? AND user_id = ?""",
            (case.values["product"], case.values["user"]),
        )
        return rows == [(case.values["head"], case.values["score"], case.values["body"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_product(page, text(case, "title"))
        yield from page.click("link", "Write a review")
        yield from page.type("textbox", "Title *", text(case, "head"), enter=False)
        score = int(text(case, "score"))
        thought = f"The task says {score} of 5 stars, so I take star number {score}."
        yield from because(page, thought, page.click("box", None, nth=score - 1))
        yield from page.type("textbox", "Body *", text(case, "body"), enter=False)
        yield from page.click("button", "Save review")
        yield from page.done()


class NewAddress(Changing):
    """Add an address to the address book."""

    name = "shop-new-address"
    number = 22
    sites = _SITES
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, customers(seeded))):
            _, email, first, last = row
            street, (city, code) = _STREETS[place % 5], _CITIES[place % 4]
            yield Case(
                f"Add this address to my address book: {first} {last}, {street}, {city}, {code}, "
                "United Kingdom.",
                users=as_customer(email),
                values={"first": first, "last": last, "street": street, "city": city,
                        "code": code, "email": email},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop",
            """SELECT a.line1, a.line4, a.postcode, a.last_name, a.country_id
            FROM address_useraddress a JOIN auth_user u ON u.id = a.user_id
            WHERE u.username = ? ORDER BY a.id""",
            (case.values["email"],),
        )
        wanted = tuple(case.values[name] for name in ("street", "city", "code", "last"))
        return rows[-1] == (*wanted, "GB") and rows.count(rows[-1]) == 1

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_account(page, "Address Book")
        yield from page.click("link", "Add a new address")
        for label, name in (
            ("First name *", "first"),
            ("Last name *", "last"),
            ("First line of address *", "street"),
            ("City *", "city"),
            ("Post/Zip-code *", "code"),
        ):
            yield from page.type("textbox", label, text(case, name), enter=False)
        yield from page.select("Country *", "United Kingdom")
        yield from page.click("button", "Save")
        yield from page.done()


class ChangeName(Changing):
    """Change the customer's own name."""

    name = "shop-change-name"
    number = 23
    sites = _SITES
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        names = ("Ashworth", "Bellamy", "Cartwright", "Delaney", "Everett", "Fairchild", "Godfrey")
        for place, (_, email, first, _) in enumerate(seeded.some(self, customers(seeded))):
            last = names[place % len(names)]
            yield Case(
                f"I have married. Change my last name to {last} in my profile.",
                users=as_customer(email),
                values={"email": email, "first": first, "last": last},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop",
            "SELECT first_name, last_name, email FROM auth_user WHERE username = ?",
            (case.values["email"],),
        )
        return rows == [(case.values["first"], case.values["last"], case.values["email"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Account")
        yield from page.click("link", "Edit profile")
        yield from page.type("textbox", "Last name", text(case, "last"), enter=False)
        yield from page.click("button", "Save")
        yield from page.done()


class NewWishList(Changing):
    """Begin a wish list."""

    name = "shop-new-wish-list"
    number = 24
    sites = _SITES
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        names = ("Attic room", "Picnic", "For Grandma", "Balcony", "Winter trip", "Study corner")
        kinds = ("Private", "Shared", "Public")
        for place, (_, email, *_) in enumerate(seeded.some(self, customers(seeded))):
            name, kind = names[place % len(names)], kinds[place % 3]
            yield Case(
                f'Create a wish list called "{name}" with the visibility {kind}.',
                users=as_customer(email),
                values={"email": email, "name": name, "kind": kind},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop",
            """SELECT w.name, w.visibility FROM wishlists_wishlist w
            JOIN auth_user u ON u.id = w.owner_id WHERE u.username = ? ORDER BY w.id""",
            (case.values["email"],),
        )
        return (case.values["name"], case.values["kind"]) in rows

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_account(page, "Wish Lists")
        yield from page.click("link", "Create a new wish list")
        yield from page.type("textbox", "Name *", text(case, "name"), enter=False)
        yield from page.select("Visibility *", text(case, "kind"))
        yield from page.click("button", "Save")
        yield from page.done()


class WishForProduct(Changing):
    """Put a product on a wish list that is there."""

    name = "shop-wish-for-product"
    number = 25
    sites = _SITES
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "shop",
            """SELECT u.username, w.id, w.name FROM wishlists_wishlist w
            JOIN auth_user u ON u.id = w.owner_id ORDER BY w.id""",
        )
        goods = seeded.some(self, products(seeded))
        for (email, number, name), (product, _, title, *_) in zip(
            seeded.some(self, rows), goods, strict=True
        ):
            yield Case(
                f'Add {title} to my wish list "{name}".',
                users=as_customer(email),
                values={"list": number, "name": name, "title": title, "product": product},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop",
            "SELECT product_id FROM wishlists_line WHERE wishlist_id = ? ORDER BY id",
            (case.values["list"],),
        )
        return bool(rows) and rows[-1] == (case.values["product"],)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_product(page, text(case, "title"))
        yield from page.click("link", "Add to wish list")
        yield from page.click("link", f"Add to '{text(case, 'name')}' wish list")
        yield from page.done()


class Alert(Changing):
    """Ask to be told when a product is there again."""

    name = "shop-alert"
    number = 26
    sites = _SITES
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        people = seeded.some(self, customers(seeded))
        goods = seeded.some(self, products(seeded, "s.num_in_stock = 0"))
        for person, (number, _, title, *_) in zip(people, goods, strict=False):
            yield Case(
                f"{title} is sold out. Let me be notified when it is back in stock.",
                users=as_customer(person[1]),
                values={"title": title, "product": number, "user": person[0]},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return bool(
            outcome.query(
                "shop",
                """SELECT 1 FROM customer_productalert
                WHERE product_id = ? AND user_id = ? AND status = 'Active'""",
                (case.values["product"], case.values["user"]),
            )
        )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_product(page, text(case, "title"))
        yield from page.click("button", "Notify me")
        yield from page.done()


class Buy(Changing):
    """Buy a product, sent to an address of the address book."""

    name = "shop-buy"
    number = 27
    sites = _SITES
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        places = seeded.some(self, seeded.rows("shop", _ADDRESSES))
        goods = seeded.some(self, products(seeded, _AVAILABLE))
        for (email, street, city), (_, _, title, upc, *_) in zip(places, goods, strict=True):
            yield Case(
                f"Order one {title}, sent to my address {street} in {city}.",
                users=as_customer(email),
                values={"email": email, "street": street, "title": title, "upc": upc},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        wanted = (case.values["upc"], 1, case.values["street"], case.values["email"])
        return outcome.query("shop", _NEW_ORDERS, ()) == [wanted]

    def expert(self, case: Case, page: Page) -> Script:
        yield from add_to_basket(page, text(case, "title"))
        yield from page.click("link", "Checkout now")
        yield from check_out(page, text(case, "street"))
        yield from page.done()


def check_out(page: Page, street: str) -> Script:
    """Go from the choice of an address to the order."""
    yield from page.click_after(street, "button", None)
    yield from page.click("link", "Continue")
    yield from page.click("button", "Place order")


class BuyTwo(Changing):
    """Buy two things, one of them several times, in one order."""

    name = "shop-buy-two"
    number = 28
    sites = _SITES
    level = 5
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        places = seeded.some(self, seeded.rows("shop", _ADDRESSES))
        goods = seeded.some(self, products(seeded, _AVAILABLE), 40)
        for place, (email, street, city) in enumerate(places):
            one, other = goods[2 * place], goods[2 * place + 1]
            number = 2 + place % 3
            yield Case(
                f"Place one order for one {one[2]} and {number} {other[2]}, sent to my address "
                f"{street} in {city}.",
                users=as_customer(email),
                values={"email": email, "street": street, "number": number,
                        "one": one[2], "one_upc": one[3], "other": other[2],
                        "other_upc": other[3]},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        values = case.values
        end = (values["street"], values["email"])
        wanted: list[Row] = [
            (values["one_upc"], 1, *end),
            (values["other_upc"], values["number"], *end),
        ]
        rows = outcome.query("shop", _NEW_ORDERS, ())
        return sorted(rows, key=str) == sorted(wanted, key=str)

    def expert(self, case: Case, page: Page) -> Script:
        yield from add_to_basket(page, text(case, "one"))
        yield from add_to_basket(page, text(case, "other"))
        yield from page.click("link", "View basket")
        yield from set_quantity(page, text(case, "other"), text(case, "number"))
        yield from page.click("link", "Proceed to checkout")
        yield from check_out(page, text(case, "street"))
        yield from page.done()


def set_quantity(page: Page, title: str, number: str) -> Script:
    """Change how many of a product are in the basket, which is open."""
    field = yield from page.reach_after(title, "spinbutton", None)
    yield f"type [{field}] [{number}]"


class FillBasket(Changing):
    """Put several things into the basket, one of them several times."""

    name = "shop-fill-basket"
    number = 29
    sites = _SITES
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        people = seeded.some(self, customers(seeded))
        goods = seeded.some(self, products(seeded, _AVAILABLE), 40)
        for place, person in enumerate(people):
            one, other = goods[2 * place], goods[2 * place + 1]
            number = 2 + place % 4
            yield Case(
                f"Put {number} {one[2]} and one {other[2]} into my basket. Do not order them yet.",
                users=as_customer(person[1]),
                values={"number": number, "one": one[2], "one_upc": one[3], "other": other[2],
                        "other_upc": other[3]},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        values = case.values
        wanted = [(values["one_upc"], values["number"]), (values["other_upc"], 1)]
        return outcome.query("shop", BASKET, ()) == sorted(wanted, key=str)

    def expert(self, case: Case, page: Page) -> Script:
        yield from add_to_basket(page, text(case, "other"))
        yield from add_to_basket(page, text(case, "one"))
        yield from page.click("link", "View basket")
        yield from set_quantity(page, text(case, "one"), text(case, "number"))
        yield from page.done()


TEMPLATES: list[Template] = [
    AddToBasket(),
    WriteReview(),
    NewAddress(),
    ChangeName(),
    NewWishList(),
    WishForProduct(),
    Alert(),
    Buy(),
    BuyTwo(),
    FillBasket(),
]
