"""What customers do with the reviews of others: compare, find the newest, vote."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.shop_steps import (
    as_customer,
    customers,
    open_product,
    text,
)
from agentgym_rl.envs.scenarios.web.tasks.thinking import because, told
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Reading,
    Seeded,
    Template,
)

_SITES = ("shop",)
_COUNTS = """
SELECT p.title, count(*), (SELECT g.category_id FROM catalogue_productcategory g
    WHERE g.product_id = p.id) AS category
FROM catalogue_product p JOIN reviews_productreview r ON r.product_id = p.id AND r.status = 1
WHERE p.structure = 'standalone' GROUP BY p.id HAVING count(*) > 1 ORDER BY category, p.id
"""
_NEWEST = """
SELECT p.title, r.title, u.first_name || ' ' || u.last_name FROM reviews_productreview r
JOIN catalogue_product p ON p.id = r.product_id JOIN auth_user u ON u.id = r.user_id
WHERE r.status = 1 AND p.structure = 'standalone' AND
    r.date_created = (SELECT max(o.date_created) FROM reviews_productreview o
        WHERE o.product_id = p.id AND o.status = 1) AND
    r.score < (SELECT max(o.score) FROM reviews_productreview o
        WHERE o.product_id = p.id AND o.status = 1) AND
    (SELECT count(*) FROM reviews_productreview o
     WHERE o.product_id = p.id AND o.status = 1) BETWEEN 4 AND 12
ORDER BY r.id
"""
"""Never the first one on the page, where the best come first."""
_VOTABLE = """
SELECT r.id, p.title, r.title, u.first_name || ' ' || u.last_name, r.user_id
FROM reviews_productreview r
JOIN catalogue_product p ON p.id = r.product_id JOIN auth_user u ON u.id = r.user_id
WHERE r.status = 1 AND p.structure = 'standalone' AND
    (SELECT count(*) FROM reviews_productreview o
     WHERE o.product_id = p.id AND o.status = 1 AND o.title = r.title) = 1 AND
    (SELECT count(*) FROM reviews_productreview o
     WHERE o.product_id = p.id AND o.status = 1) BETWEEN 4 AND 8
ORDER BY r.id
"""


class MoreReviews(Reading):
    """Which of two products has more reviews."""

    name = "shop-more-reviews"
    number = 16
    sites = _SITES
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("shop", _COUNTS)
        pairs = [
            (one, other)
            for one, other in zip(rows[::2], rows[1::2], strict=False)
            if one[2] == other[2] and one[1] != other[1]
        ]
        for place, pair in enumerate(seeded.some(self, pairs)):
            one, other = pair[:: -1 if place % 2 else 1]
            best = max(pair, key=lambda row: int(str(row[1])))
            yield Case(
                f"I cannot decide between {one[0]} and {other[0]}. Which of the two has more "
                "customer reviews? Give its full name.",
                str(best[0]),
                values={"one": one[0], "num_one": one[1], "other": other[0],
                        "num_other": other[1]},
            )  # fmt: skip

    def expert(self, case: Case, page: Page) -> Script:
        found = list[str]()
        for name in ("one", "other"):
            title = text(case, name)
            search = page.type("textbox", "Search", title)
            thought = f"{'; '.join(found)}. Now I look at {title}."
            yield from because(page, thought, search) if found else search
            yield from page.click("link", title)
            yield from page.read(f"{case.values[f'num_{name}']} customer review")
            ((num,), *_) = page.listed(r"link (\d+ customer reviews?)$")
            found.append(f"{title} has {num}")
        page.thought = f"{'; '.join(found)}. So {case.answer} has more."
        yield f"stop [{case.answer}]"


class NewestReview(Reading):
    """The title or the author of the newest review of a product."""

    name = "shop-newest-review"
    number = 17
    sites = _SITES
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("shop", _NEWEST))
        for place, (product, title, author) in enumerate(rows):
            objective, answer = (
                (f"What is the title of the most recent review of {product}?", title),
                (f"Who reviewed {product} last? Give the first and last name.", author),
            )[place % 2]
            yield Case(objective, str(answer), values={"product": product})

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_product(page, text(case, "product"))
        yield from page.click("link", "See all reviews")
        yield from page.select("Sort by:", "Recency")
        yield from page.click("button", "Go")
        yield from page.read(case.answer)
        dates = told(page.listed(r"^Reviewed by (.+) on (\d+ \w+ \d{4}), ")[:3])
        first = f"The newest review comes first now{': ' if dates else ''}{dates}"
        page.thought = f"{first}. So the answer is {case.answer}."
        yield f"stop [{case.answer}]"


class VoteReview(Changing):
    """Say whether somebody's review was helpful."""

    name = "shop-vote-review"
    number = 34
    sites = _SITES
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        people = seeded.some(self, customers(seeded))
        reviews = seeded.some(self, seeded.rows("shop", _VOTABLE))
        for place, (person, row) in enumerate(zip(people, reviews, strict=True)):
            number, product, title, author, writer = row
            if person[0] == writer:
                continue
            button, objective = (
                ("Yes", f'Vote for the review "{title}" of {product} by {author}: it was helpful.'),
                ("No", f'I read the review "{title}" that {author} wrote about {product}, and it '
                 "was not helpful. Answer the question below the review accordingly."),
            )[place % 2]  # fmt: skip
            yield Case(
                objective,
                users=as_customer(person[1]),
                values={"review": number, "user": person[0], "product": product, "title": title,
                        "author": author, "button": button, "delta": 1 - 2 * (place % 2)},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("shop", "SELECT review_id, user_id, delta FROM reviews_vote", ())
        return rows == [tuple(case.values[name] for name in ("review", "user", "delta"))]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_product(page, text(case, "product"))
        yield from page.click("link", "See all reviews")
        button, title = text(case, "button"), text(case, "title")
        number = yield from page.reach_after(f"link {title}\n", "button", button)
        page.thought = f'Below "{title}" by {case.values["author"]} I choose {button}.'
        yield f"click [{number}]"
        yield from page.done()


TEMPLATES: list[Template] = [
    MoreReviews(),
    NewestReview(),
    VoteReview(),
]
