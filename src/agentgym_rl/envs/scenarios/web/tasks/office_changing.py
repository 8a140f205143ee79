"""What the manager changes in the shop's back office: orders, reviews, customers, pages, vouchers.

Products are in office_products.py.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import (
    as_staff,
    choose,
    customers,
    find_pending_review,
    open_office_order,
    open_section,
    orders,
    text,
)
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Seeded,
    Template,
)

_SITES = ("shop",)
OFFICE = "/dashboard/"
_PENDING = """
SELECT r.id, p.title, r.title, u.first_name || ' ' || u.last_name FROM reviews_productreview r
JOIN catalogue_product p ON p.id = r.product_id JOIN auth_user u ON u.id = r.user_id
WHERE r.status = 0 AND (SELECT count(*) FROM reviews_productreview o
    WHERE o.product_id = r.product_id AND o.status = 0) = 1
ORDER BY r.id
"""
_NOTES = (
    "Customer will collect the parcel herself.",
    "Replace the broken piece free of charge.",
    "Waiting for the supplier, promised for Friday.",
    "Address confirmed by telephone.",
)
_SUBJECTS = (
    "Spring sale", "Opening hours", "Our makers", "Repairs", "Newsletter", "Jobs", "Workshops",
    "Press", "Trade fair", "Parking", "Care guide", "Gift wrapping",
)  # fmt: skip


class OfficeChange(Changing):
    """What all of these share."""

    sites = _SITES
    category = "backoffice"


class OrderStatusChange(OfficeChange):
    """Move an order on."""

    name = "office-change-status"
    number = 62
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = orders(seeded, "o.status = 'Pending'")
        for place, (_, number, *_) in enumerate(seeded.some(self, rows)):
            status = ("Being processed", "Cancelled")[place % 2]
            yield Case(
                f'Change the status of order {number} to "{status}".',
                path=OFFICE,
                users=as_staff(),
                values={"number": number, "status": status},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop", "SELECT status FROM order_order WHERE number = ?", (case.values["number"],)
        )
        return rows == [(case.values["status"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_order(page, text(case, "number"))
        yield from set_status(page, text(case, "status"))
        yield from page.done()


def set_status(page: Page, status: str) -> Script:
    """Change the status of the order that is open."""
    if status != "Being processed":  # which is chosen already
        yield from choose(page, "Being processed", status)
    yield from page.click("button", "Change status")


class OrderNote(OfficeChange):
    """Write a note about an order."""

    name = "office-order-note"
    number = 63
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, (_, number, *_) in enumerate(seeded.some(self, orders(seeded))):
            note = _NOTES[place % len(_NOTES)]
            yield Case(
                f'Add this note to order {number}: "{note}"',
                path=OFFICE,
                users=as_staff(),
                values={"number": number, "note": note},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return has_note(case, outcome)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_order(page, text(case, "number"))
        yield from write_note(page, text(case, "note"))
        yield from page.done()


def has_note(case: Case, outcome: Outcome) -> bool:
    """Return whether the case's note was added to its order."""
    rows = outcome.query(
        "shop",
        """SELECT n.message FROM order_ordernote n JOIN order_order o ON o.id = n.order_id
        WHERE o.number = ? AND n.date_created >= '2024-06-14 10:30:00'""",
        (case.values["number"],),
    )
    return (case.values["note"],) in rows


def write_note(page: Page, note: str) -> Script:
    """Write a note about the order that is open."""
    yield from page.click("link", "Notes")
    yield from page.type("textbox", "Message *", note, enter=False)
    yield from page.click("button", "Save note")


class Moderate(OfficeChange):
    """Approve or reject a review."""

    name = "office-moderate-review"
    number = 64
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("shop", _PENDING))
        for place, (number, product, title, author) in enumerate(rows):
            verb, status = (("Approve", 1), ("Reject", 2))[place % 2]
            yield Case(
                f'{verb} the review "{title}" of {product} by {author}, which waits for '
                "moderation.",
                path=OFFICE,
                users=as_staff(),
                values={"review": number, "product": product, "title": title, "status": status,
                        "author": author},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop",
            "SELECT status, title FROM reviews_productreview WHERE id = ?",
            (case.values["review"],),
        )
        return rows == [(case.values["status"], case.values["title"])]

    def expert(self, case: Case, page: Page) -> Script:
        product = text(case, "product")
        yield from find_pending_review(page, title=text(case, "title"), product=product)
        yield from page.click("link", text(case, "title"), near=product)
        if case.values["status"] == 2:
            yield from choose(page, "Approved", "Rejected")
        yield from page.click("button", "Save")
        yield from page.done()


class DeactivateCustomer(OfficeChange):
    """Close the account of a customer."""

    name = "office-deactivate-customer"
    number = 67
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for number, email, *_ in seeded.some(self, customers(seeded)):
            yield Case(
                f"The customer {email} wants the account closed. Make it inactive.",
                path=OFFICE,
                users=as_staff(),
                values={"user": number, "email": email},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("shop", "SELECT id FROM auth_user WHERE NOT is_active", ())
        return rows == [(case.values["user"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Customers", "Customers")
        yield from page.type("textbox", "Email:", text(case, "email"))
        yield from page.click("checkbox", None, near=text(case, "email"))
        yield from page.click("radio", "Make inactive")
        yield from page.click("button", "Go!")
        yield from page.done()


class NewPage(OfficeChange):
    """Publish a page of text."""

    name = "office-new-page"
    number = 68
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, title in enumerate(seeded.some(self, _SUBJECTS)):
            url = f"/{title.lower().replace(' ', '-')}/"
            body = f"Everything about {title.lower()} will be here from {1 + place} July."
            yield Case(
                f'Create a page with the title "{title}", the URL {url} and this content: "{body}"',
                path=OFFICE,
                users=as_staff(),
                values={"title": title, "url": url, "body": body},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop",
            "SELECT title, content FROM django_flatpage WHERE url = ?",
            (case.values["url"],),
        )
        return (
            len(rows) == 1
            and rows[0][0] == case.values["title"]
            and (str(case.values["body"]) in str(rows[0][1]))
        )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Content", "Pages")
        yield from page.click("link", "Create new page")
        yield from page.type("textbox", "Title *", text(case, "title"), enter=False)
        yield from page.type("textbox", "URL", text(case, "url"), enter=False)
        yield from page.type("any", "Rich Text Area", text(case, "body"), enter=False)
        yield from page.click("button", "Save")
        yield from page.done()


class EditPage(OfficeChange):
    """Change the title of a page."""

    name = "office-edit-page"
    number = 69
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("shop", "SELECT id, title, url FROM django_flatpage ORDER BY id")
        for number, title, url in seeded.some(self, rows):
            new = f"{title} (2024)"
            yield Case(
                f'Change the title of the page {url} from "{title}" to "{new}".',
                path=OFFICE,
                users=as_staff(),
                values={"page": number, "title": title, "new": new},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop", "SELECT title FROM django_flatpage WHERE id = ?", (case.values["page"],)
        )
        return rows == [(case.values["new"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Content", "Pages")
        yield from page.click("link", text(case, "title"))
        yield from page.type("textbox", "Title *", text(case, "new"), enter=False)
        yield from page.click("button", "Save")
        yield from page.done()


class NewVoucher(OfficeChange):
    """Make a voucher for an offer that is there."""

    name = "office-new-voucher"
    number = 70
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("shop", "SELECT id, name FROM voucher_voucher ORDER BY id")
        for place, (_, name) in enumerate(seeded.some(self, rows)):
            code = f"{str(name).upper().replace(' ', '')}X{31 + 3 * place}"
            title, end = f"{name} again", f"2024-{8 + place % 4:02}-{10 + place:02} 00:00:00"
            offer = f"Offer for voucher '{name}'"
            yield Case(
                f'Create a voucher with the name "{title}" and the code {code} that ends on {end} '
                f'and is for the offer "{offer}".',
                path=OFFICE,
                users=as_staff(),
                values={"title": title, "code": code, "end": end, "offer": offer},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop",
            """SELECT v.name, substr(v.end_datetime, 1, 19), c.name FROM voucher_voucher v
            JOIN voucher_voucher_offers o ON o.voucher_id = v.id
            JOIN offer_conditionaloffer c ON c.id = o.conditionaloffer_id WHERE v.code = ?""",
            (case.values["code"],),
        )
        return rows == [tuple(case.values[name] for name in ("title", "end", "offer"))]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Offers", "Vouchers")
        yield from page.click("link", "Create new voucher")
        yield from page.type("textbox", "Name *", text(case, "title"), enter=False)
        yield from page.type("textbox", "Code *", text(case, "code"), enter=False)
        yield from page.type("textbox", "End datetime *", text(case, "end"), enter=False)
        yield from page.reach("combobox", "")
        yield f"type [{page.find('combobox', '')}] [{text(case, 'offer')}]"
        yield from page.click("button", "Save")
        yield from page.done()


class StatusAndNote(OfficeChange):
    """Move an order on and write a note about it."""

    name = "office-status-and-note"
    number = 71
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = orders(seeded, "o.status = 'Pending'")
        for place, (_, number, *_) in enumerate(seeded.some(self, rows)):
            status, note = ("Cancelled", "Being processed")[place % 2], _NOTES[place % len(_NOTES)]
            yield Case(
                f'Change the status of order {number} to "{status}" and add this note to it: '
                f'"{note}"',
                path=OFFICE,
                users=as_staff(),
                values={"number": number, "status": status, "note": note},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "shop", "SELECT status FROM order_order WHERE number = ?", (case.values["number"],)
        )
        return rows == [(case.values["status"],)] and has_note(case, outcome)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_office_order(page, text(case, "number"))
        yield from set_status(page, text(case, "status"))
        yield from write_note(page, text(case, "note"))
        yield from page.done()


TEMPLATES: list[Template] = [
    OrderStatusChange(),
    OrderNote(),
    Moderate(),
    DeactivateCustomer(),
    NewPage(),
    EditPage(),
    NewVoucher(),
    StatusAndNote(),
]
