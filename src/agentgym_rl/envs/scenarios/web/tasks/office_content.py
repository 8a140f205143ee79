"""What the manager does with reviews, categories and options of the catalogue."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.office_changing import OFFICE, OfficeChange
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import as_staff, choose, open_section, text
from agentgym_rl.envs.scenarios.web.templates import Case, Outcome, Seeded, Template, Wrong

_PUBLISHED = """
SELECT r.id, p.title, r.title, u.first_name || ' ' || u.last_name FROM reviews_productreview r
JOIN catalogue_product p ON p.id = r.product_id JOIN auth_user u ON u.id = r.user_id
WHERE r.status = 1 AND
    (SELECT count(*) FROM reviews_productreview o WHERE o.user_id = u.id) BETWEEN 2 AND 9 AND
    (SELECT count(*) FROM reviews_productreview o
     WHERE o.user_id = u.id AND o.product_id = p.id) = 1
ORDER BY r.id
"""
_STATUS = "SELECT status FROM reviews_productreview WHERE id = ?"
_STATUSES = """
SELECT sum(status = 0), sum(status = 1), sum(status = 2) FROM reviews_productreview
"""
"""How many reviews wait, are approved, are rejected."""
_WAITING = """
SELECT u.first_name || ' ' || u.last_name AS author, r.id, p.title FROM reviews_productreview r
JOIN catalogue_product p ON p.id = r.product_id JOIN auth_user u ON u.id = r.user_id
WHERE r.status = 0 AND
    (SELECT count(DISTINCT o.product_id) FROM reviews_productreview o
     WHERE o.user_id = u.id AND o.status = 0) = 2 AND
    (SELECT count(*) FROM reviews_productreview o WHERE o.user_id = u.id AND o.status = 0) = 2
ORDER BY author, r.id
"""
_PARENTS = """
SELECT c.name, (SELECT p.name FROM catalogue_category p WHERE p.path = substr(c.path, 1, 4))
FROM catalogue_category c WHERE c.depth = 2 ORDER BY c.id
"""
_CATEGORIES = """
SELECT c.name, c.depth, (SELECT p.name FROM catalogue_category p
    WHERE p.path = substr(c.path, 1, length(c.path) - 4)) FROM catalogue_category c
WHERE c.id > 85 ORDER BY c.id
"""
"""The seeded ones have the numbers up to 85."""
_GROUPS = """
SELECT g.name, o.option FROM catalogue_attributeoptiongroup g
LEFT JOIN catalogue_attributeoption o ON o.group_id = g.id ORDER BY g.id, o.option
"""
_NEW_CATEGORIES = (
    "Seasonal", "Handmade", "Clearance", "For Children", "Miniatures", "Refurbished", "Vintage",
    "Bestsellers",
)  # fmt: skip
_NEW_GROUPS = {
    "Material": ("Cork", "Slate", "Felt"),
    "Pattern": ("Striped", "Dotted", "Plain"),
    "Plug": ("Type C", "Type F", "Type G"),
    "Fragrance": ("Cedar", "Citrus", "Lavender"),
    "Finish": ("Matt", "Glossy", "Brushed"),
    "Shoe width": ("Narrow", "Regular", "Wide"),
    "Binding": ("Hardback", "Paperback", "Spiral"),
    "Roast": ("Light", "Medium", "Dark"),
    "Language": ("English", "French", "Dutch"),
    "Age": ("3 to 5", "6 to 8", "9 to 12"),
    "Wattage": ("5 W", "9 W", "15 W"),
    "Closure": ("Zip", "Buttons", "Velcro"),
}


class DeleteReview(OfficeChange):
    """Delete a review of a customer."""

    name = "office-delete-review"
    number = 57
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        ((waiting, approved, rejected),) = seeded.rows("shop", _STATUSES)
        left = str((waiting, int(str(approved)) - 1, rejected))
        rows = seeded.some(self, seeded.rows("shop", _PUBLISHED))
        for place, (number, product, title, author) in enumerate(rows):
            objective = (
                f'{author} regrets the review "{title}" that they wrote about {product}. Delete it '
                "for them.",
                f'Delete the review "{title}" that {author} wrote about {product}.',
            )[place % 2]
            yield Case(
                objective,
                path=OFFICE,
                users=as_staff(),
                values={"review": number, "product": product, "author": author, "left": left},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        is_there = bool(outcome.query("shop", _STATUS, (case.values["review"],)))
        (left,) = outcome.query("shop", _STATUSES, ())
        return not is_there and str(left) == case.values["left"]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Content", "Reviews")
        yield from page.type("textbox", "Customer name:", text(case, "author"))
        yield from page.click("button", "Actions", near=text(case, "product"))
        yield from page.click("link", "Delete", near=text(case, "product"))
        yield from page.click("button", "Delete")
        yield from page.done()


class DecideTwo(OfficeChange):
    """Approve one review of a customer and reject another."""

    name = "office-decide-two"
    number = 76
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        ((waiting, approved, rejected),) = seeded.rows("shop", _STATUSES)
        after = str((int(str(waiting)) - 2, int(str(approved)) + 1, int(str(rejected)) + 1))
        rows = seeded.rows("shop", _WAITING)
        groups = [list(group) for _, group in itertools.groupby(rows, lambda row: row[0])]
        for place, pair in enumerate(seeded.some(self, groups)):
            good, bad = pair[:: -1 if place % 2 else 1]
            yield Case(
                f"{good[0]} wrote two reviews that wait for moderation. Approve the one of "
                f"{good[2]} and reject the one of {bad[2]}.",
                path=OFFICE,
                users=as_staff(),
                values={"author": good[0], "good": good[1], "good_product": good[2],
                        "bad": bad[1], "bad_product": bad[2], "after": after},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        good, bad = (outcome.query("shop", _STATUS, (case.values[x],)) for x in ("good", "bad"))
        (after,) = outcome.query("shop", _STATUSES, ())
        return (good, bad) == ([(1,)], [(2,)]) and str(after) == case.values["after"]

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        values = case.values
        swapped = {"good_product": values["bad_product"], "bad_product": values["good_product"]}
        mistaken = replace(case, values={**values, **swapped})
        return (*super().wrong(case, other), Wrong("the other way", "done", of_other=mistaken))

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Content", "Reviews")
        for name, status in (("good", "Approved"), ("bad", "Rejected")):
            yield from page.type("textbox", "Customer name:", text(case, "author"))
            yield from page.click("checkbox", None, near=text(case, f"{name}_product"))
            if status != "Approved":  # which is chosen already
                yield from choose(page, "Approved", status)
            yield from page.click("button", "Update")
        yield from page.done()


class NewCategory(OfficeChange):
    """Make a category below another one."""

    name = "office-new-category"
    number = 58
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("shop", _PARENTS))
        for place, (parent, root) in enumerate(rows):
            name = f"{_NEW_CATEGORIES[place % 8]} {parent}"
            yield Case(
                f'Create the category "{name}" in the catalogue, below {parent}, which belongs to '
                f"{root}.",
                path=OFFICE,
                users=as_staff(),
                values={"name": name, "parent": parent, "place": f"{root} > {parent}"},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("shop", _CATEGORIES, ())
        return rows == [(case.values["name"], 3, case.values["parent"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Catalogue", "Categories")
        yield from page.click("link", "Create new category")
        yield from page.type("textbox", "Name *", text(case, "name"), enter=False)
        yield from choose(page, "-- root --", text(case, "place"))
        yield from page.click("button", "Save")
        yield from page.done()


class NewOptionGroup(OfficeChange):
    """Make a group of options that products can have."""

    name = "office-new-option-group"
    number = 77
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for name, options in _NEW_GROUPS.items():
            one, two, three = options
            yield Case(
                f'Create an attribute option group called "{name}" with the options "{one}", '
                f'"{two}" and "{three}".',
                path=OFFICE,
                users=as_staff(),
                values={"name": name, "options": "; ".join(options)},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        wanted = [(case.values["name"], each) for each in text(case, "options").split("; ")]
        return outcome.query("shop", _GROUPS, ()) == sorted(wanted, key=str)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_section(page, "Catalogue", "Attribute Option Groups")
        yield from page.click("link", "Create new Attribute Option Group")
        yield from page.type("textbox", "Name *", text(case, "name"), enter=False)
        yield from page.click("link", "Attribute Options")
        for place, option in enumerate(text(case, "options").split("; ")):
            yield from page.reach("textbox", "", nth=place)
            page.thought = f"The task says {option}: it is option {place + 1}."
            yield f"type [{page.find('textbox', '', nth=place)}] [{option}] [0]"
        yield from page.click("button", "Save")
        yield from page.done()


TEMPLATES: list[Template] = [
    DeleteReview(),
    DecideTwo(),
    NewCategory(),
    NewOptionGroup(),
]
