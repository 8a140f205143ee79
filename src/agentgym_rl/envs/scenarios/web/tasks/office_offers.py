"""What the manager changes about offers, vouchers and ranges."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.office_changing import OFFICE, OfficeChange
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import (
    as_staff,
    open_section,
    products,
    text,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Outcome, Seeded, Template

_VOUCHERS = """
SELECT v.id, v.name, v.code, v.usage, substr(v.start_datetime, 1, 19) || '',
    substr(v.end_datetime, 1, 19) || '', (SELECT group_concat(o.conditionaloffer_id)
     FROM voucher_voucher_offers o WHERE o.voucher_id = v.id)
FROM voucher_voucher v ORDER BY v.id
"""
_OFFERS = """
SELECT o.name, b.value + 0, c.value + 0, o.status, o.offer_type,
    b.type, b.range_id, c.type, c.range_id FROM offer_conditionaloffer o
JOIN offer_benefit b ON b.id = o.benefit_id JOIN offer_condition c ON c.id = o.condition_id
ORDER BY o.id
"""
_RANGES = """
SELECT r.name, r.is_public + 0, r.includes_all_products + 0,
    (SELECT count(*) FROM offer_range_included_categories c WHERE c.range_id = r.id)
FROM offer_range r WHERE r.id > 7 ORDER BY r.id
"""
"""The seeded ones have the numbers up to 7."""
_IN_RANGES = """
SELECT p.upc FROM offer_rangeproduct r JOIN catalogue_product p ON p.id = r.product_id
ORDER BY p.upc
"""
_NEW_RANGES = (
    "Summer picks", "Gift ideas", "Back to school", "Rainy days", "New arrivals", "Last chance",
    "Staff favourites", "Small kitchens", "Weekend trips", "Housewarming", "Under the tree",
    "Moving in",
)  # fmt: skip


def as_text(rows: Iterable[tuple[object, ...]]) -> str:
    """Return rows in a form in which numbers of any type are alike."""
    return str([tuple(f"{x:g}" if isinstance(x, float) else str(x) for x in row) for row in rows])


class ExtendVoucher(OfficeChange):
    """Let a voucher end on another day."""

    name = "office-extend-voucher"
    number = 55
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("shop", _VOUCHERS)
        for place, row in enumerate(seeded.some(self, rows)):
            end = f"2025-{5 + place % 7:02}-{11 + place:02} 18:00:00"
            wanted = [(*old[:5], end, *old[6:]) if old == row else old for old in rows]
            yield Case(
                f'Extend the voucher "{row[1]}", so that it ends at {end} and not before. Its '
                "code, its usage and its offer stay the same.",
                path=OFFICE,
                users=as_staff(),
                values={"name": row[1], "code": row[2], "end": end, "wanted": as_text(wanted)},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return as_text(outcome.query("shop", _VOUCHERS, ())) == case.values["wanted"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Offers", "Vouchers")
        yield from page.click("button", "Actions", near=text(case, "code"))
        yield from page.click("link", "Edit", near=text(case, "code"))
        yield from page.type("textbox", "End datetime *", text(case, "end"), enter=False)
        yield from page.click("button", "Save")
        yield from page.done()


class SuspendOffer(OfficeChange):
    """Stop an offer for the time being."""

    name = "office-suspend-offer"
    number = 56
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("shop", _OFFERS)
        for place, row in enumerate(seeded.some(self, rows)):
            objective = (
                f'Suspend the offer "{row[0]}" until further notice. Do not delete it.',
                f'Something is wrong with the offer "{row[0]}": put it on hold by suspending it.',
            )[place % 2]
            wanted = [(*old[:3], "Suspended", *old[4:]) if old == row else old for old in rows]
            values = {"name": row[0], "wanted": as_text(wanted)}
            yield Case(objective, path=OFFICE, users=as_staff(), values=values)

    def check(self, case: Case, outcome: Outcome) -> bool:
        return as_text(outcome.query("shop", _OFFERS, ())) == case.values["wanted"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_offer(page, text(case, "name"))
        yield from page.click("button", "Suspend offer")
        yield from page.done()


def open_offer(page: Page, name: str) -> Script:
    yield from open_section(page, "Offers", "Offers")
    yield from page.type("textbox", "Offer name:", name)
    yield from page.click("link", name)


class ChangeOffer(OfficeChange):
    """Change how much an offer gives, and from how many items on."""

    name = "office-change-offer"
    number = 74
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("shop", _OFFERS)
        for place, row in enumerate(seeded.some(self, rows)):
            percent, least = round(float(str(row[1]))) + 3 + place % 4, int(str(row[2])) + 2
            wanted = [(row[0], percent, least, *row[3:]) if old == row else old for old in rows]
            yield Case(
                f'Change the offer "{row[0]}": it should give {percent}% off, and only when the '
                f"basket has at least {least} items of its range.",
                path=OFFICE,
                users=as_staff(),
                values={"name": row[0], "percent": percent, "least": least,
                        "wanted": as_text(wanted)},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        return as_text(outcome.query("shop", _OFFERS, ())) == case.values["wanted"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_offer(page, text(case, "name"))
        for step, field, value in (
            ("Incentive |", "Value", "percent"),
            ("Condition |", "Value *", "least"),
        ):
            yield from page.reach("link", "Edit", near=step)
            page.thought = f"What has to change is under {step.split()[0]}, so I edit that."
            yield f"click [{page.find('link', 'Edit', near=step)}]"
            yield from page.type("spinbutton", field, text(case, value), enter=False)
            yield from page.click("button", "Save changes")
        yield from page.done()


class NewRange(OfficeChange):
    """Make a range with two products, found by their numbers."""

    name = "office-new-range"
    number = 75
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        goods = seeded.some(self, products(seeded), 2 * len(_NEW_RANGES))
        for place, name in enumerate(_NEW_RANGES):
            one, other = goods[2 * place], goods[2 * place + 1]
            is_public = 1 - place % 2
            kind = ("public", "not public")[place % 2]
            yield Case(
                f'Create a range of products called "{name}" that is {kind}, and add the products '
                f"with the UPCs {one[3]} and {other[3]} to it, no others.",
                path=OFFICE,
                users=as_staff(),
                values={"name": name, "public": is_public, "one": one[3], "other": other[3]},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        inside = [upc for (upc,) in outcome.query("shop", _IN_RANGES, ())]
        made = outcome.query("shop", _RANGES, ())
        is_made = made == [(case.values["name"], case.values["public"], 0, 0)]
        return is_made and inside == sorted([text(case, "one"), text(case, "other")])

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Catalogue", "Ranges")
        yield from page.click("link", "Create new range")
        yield from page.type("textbox", "Name *", text(case, "name"), enter=False)
        yield from page.check("Is public?", on=bool(case.values["public"]))
        yield from page.click("button", "Save and edit products")
        both = f"{case.values['one']}, {case.values['other']}"
        yield from page.type("textbox", "Product SKUs or UPCs", both, enter=False)
        yield from page.click("button", "Go!")
        yield from page.done()


TEMPLATES: list[Template] = [
    ExtendVoucher(),
    SuspendOffer(),
    ChangeOffer(),
    NewRange(),
]
