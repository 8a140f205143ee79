"""Errands in the forum with what is there: own submissions, moderated forums, sorted lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.thinking import because, told
from agentgym_rl.envs.scenarios.web.tasks.town_common import (
    AGENT,
    AGENT_ID,
    first_submissions,
    open_submission,
    search_forum,
    submissions,
    users,
)
from agentgym_rl.envs.scenarios.web.templates import (
    Case,
    Changing,
    Outcome,
    Seeded,
    Template,
    Wrong,
)

_FOLLOWED = "SELECT forum_id FROM forum_subscription WHERE user_id = 1 ORDER BY forum_id"
_MODERATED = """
SELECT id, name, title, description, sidebar FROM forum_forum
WHERE id IN (SELECT forum_id FROM forum_moderator WHERE user_id = 1) ORDER BY id
"""
_OWN = """
SELECT s.id, s.title, s.body, f.name FROM forum_submission s JOIN forum_forum f ON f.id = s.forum_id
WHERE s.author_id = 1 AND (SELECT count(*) FROM forum_submission o WHERE o.title = s.title) = 1
ORDER BY s.created, s.id
"""
_NEW_COMMENTS = """
SELECT submission_id, parent_id, trim(body) FROM forum_comment
WHERE author_id = 1 AND created >= '2024-06-14 10:30:00'
"""
_RULES = "SELECT title, text FROM forum_rule WHERE forum_id = ? ORDER BY position, id"
_MODERATED_IN = """
SELECT DISTINCT f.name FROM forum_moderationaction a JOIN forum_forum f ON f.id = a.forum_id
WHERE a.moderator_id = 1
"""


def _plain(text: object) -> str:
    """Return a text of a form as it was before a browser sent it."""
    return str(text).replace("\r", "").strip()


class LeaveOneForum(Changing):
    """Unsubscribe from the older or the younger of two forums."""

    name = "forum-leave-older"
    number = 30
    sites = ("forum",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "forum",
            f"SELECT id, name, created FROM forum_forum WHERE id IN ({_FOLLOWED}) ORDER BY name",
        )
        pairs = seeded.some(self, list(combinations(rows, 2)))
        for place, (a, b) in enumerate(pairs):
            first, second = (a, b) if place % 3 else (b, a)
            old, new = sorted((a, b), key=lambda row: str(row[2]))
            leave, stay = (old, new) if place % 2 else (new, old)
            which = "older one" if place % 2 else "one that was created later,"
            yield Case(
                f"You are subscribed to the forums {first[1]} and {second[1]}. Unsubscribe from"
                f" the {which} and stay in the other.",
                users=users("forum"),
                values={"first": first[1], "second": second[1], "id": leave[0], "leave": leave[1],
                        "stay_id": stay[0], "stay": stay[1], "num": len(rows) - 1},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("forum", _FOLLOWED, ())
        return len(rows) == case.values["num"] and (case.values["id"],) not in rows

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        values = case.values
        swapped = {"id": values["stay_id"], "leave": values["stay"]}
        mixed_up = replace(case, values={**values, **swapped})
        return (
            *super().wrong(case, other),
            Wrong("the other forum of the two", "done", of_other=mixed_up),
        )

    def expert(self, case: Case, page: Page) -> Script:
        first, second, leave = (str(case.values[key]) for key in ("first", "second", "leave"))
        yield from page.click("link", f"f/{first}")
        yield from page.read("Created")
        created = [(first, *page.listed(r"^Created (.+)$")[0])]
        thought = f"Created: {told(created)}. Now I look at {second}."
        yield from because(page, thought, page.click("link", "Agora"))
        yield from page.click("link", f"f/{second}")
        yield from page.read("Created")
        created.append((second, *page.listed(r"^Created (.+)$")[0]))
        age = "older" if "older" in case.objective else "newer"
        thought = f"Created: {told(created)}. So {leave} is the {age} one, and I unsubscribe there."
        if leave != second:
            page.thought = thought
            yield "go_back"
            yield from page.click("link", f"f/{leave}")
        yield from because(page, thought, page.click("button", "Unsubscribe"))
        yield from page.done()


class Retitle(Changing):
    """Change the title of an own submission, and nothing else of it."""

    name = "forum-retitle"
    number = 31
    sites = ("forum",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("forum", _OWN))
        for place, (number, title, body, forum) in enumerate(rows):
            new = (
                f"Solved: {title}",
                f"{title} (seen from today)",
                f"{str(forum).title()}: {title}",
            )
            asked = (
                f'Change the title of your submission “{title}” to "{new[place % 3]}". Its text'
                " stays as it is.",
                f"You submitted “{title}” to the forum {forum}. Give it the title"
                f' "{new[place % 3]}" instead, without touching its body.',
            )
            yield Case(
                asked[place % 2],
                users=users("forum"),
                values={"id": number, "title": title, "new": new[place % 3], "body": _plain(body)},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "forum", "SELECT id, title, body FROM forum_submission WHERE edited IS NOT NULL", ()
        )
        values = case.values
        found = [(number, title, _plain(body)) for number, title, body in rows]
        return found == [(values["id"], values["new"], values["body"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_submission(page, str(case.values["title"]))
        yield from page.click("link", "Edit")
        yield from page.type("textbox", "Title", str(case.values["new"]), enter=False)
        yield from page.click("button", "Save")
        yield from page.done()


class UpvoteFirst(Changing):
    """Vote for the submission that comes first in some order and period."""

    name = "forum-upvote-first"
    number = 32
    sites = ("forum",)
    level = 4
    split = "train"
    orders = (
        ("newest submission", "New", "", "created", 4000),
        ("submission with the highest score of the past year", "Top", "Past year", "score", 365),
        ("most commented submission of all time", "Most commented", "", "num_comments", 4000),
        ("submission with the highest score of the past month", "Top", "Past month", "score", 30),
    )

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        forums = seeded.rows("forum", "SELECT id, name FROM forum_forum ORDER BY id")
        for place, (forum, name) in enumerate(seeded.some(self, forums, 33)):
            asked, order, period, column, days = self.orders[place % len(self.orders)]
            best = seeded.rows(
                "forum",
                f"""SELECT id, title, {column}, author_id FROM forum_submission
                WHERE forum_id = ? AND is_removed = 0
                AND created >= datetime('2024-06-14 10:30:00', ?) ORDER BY {column} DESC LIMIT 2""",
                forum,
                f"-{days} days",
            )
            if len(best) == 2 and best[0][2] != best[1][2] and best[0][3] != AGENT_ID:
                yield Case(
                    f"Find the {asked} in the forum {name}, and upvote it.",
                    users=users("forum"),
                    values={"id": best[0][0], "title": best[0][1], "forum": name, "order": order,
                            "period": period},
                )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "forum", "SELECT submission_id, value FROM forum_vote WHERE user_id = 1", ()
        )
        others = outcome.query("forum", "SELECT 1 FROM forum_commentvote WHERE user_id = 1", ())
        return rows == [(case.values["id"], 1)] and not others

    def expert(self, case: Case, page: Page) -> Script:
        yield from search_forum(page, str(case.values["forum"]))
        yield from page.click("link", str(case.values["order"]))
        if case.values["period"]:
            yield from page.select("From", str(case.values["period"]))
        yield from page.reach("button", "Upvote")
        first = first_submissions(page, str(case.values["order"]))
        page.thought = f"{first}. So I upvote “{case.values['title']}”."
        yield f"click [{page.find('button', 'Upvote')}]"
        yield from page.done()


class DeleteSubmission(Changing):
    """Delete an own submission, which has to be found on the own profile."""

    name = "forum-delete-submission"
    number = 33
    sites = ("forum",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("forum", _OWN)
        found = list[Case]()
        for number, title, _, forum in rows:
            here = [row[0] for row in rows if row[3] == forum]
            asked = f"Delete the only submission that you made in the forum {forum}."
            if len(here) > 1:
                which = "older" if number == here[0] else "newer"
                asked = f"Delete the {which} of your two submissions in the forum {forum}."
            found.append(
                Case(
                    asked,
                    users=users("forum"),
                    values={"id": number, "title": title, "num": len(rows) - 1},
                )
            )
        return seeded.some(self, found)

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("forum", "SELECT id FROM forum_submission WHERE author_id = 1", ())
        return len(rows) == case.values["num"] and (case.values["id"],) not in rows

    def expert(self, case: Case, page: Page) -> Script:
        title = str(case.values["title"])
        yield from page.click("button", AGENT)
        yield from page.click("link", "Profile")
        yield from page.reach("link", title)
        forum = next(row.forum for row in submissions(page) if row.title == title)
        mine = [(row.title, row.when) for row in submissions(page) if row.forum == forum]
        page.thought = f"What I submitted in {forum}: {told(mine)}. So it is “{title}”."
        yield f"click [{page.find('link', title)}]"
        yield from page.click("button", "Delete")
        yield from page.done()


class DescribeForum(Changing):
    """Change one of three texts about a forum that the agent moderates."""

    name = "forum-describe"
    number = 34
    sites = ("forum",)
    level = 4
    split = "train"
    texts = (
        ("Description", "Everything about {name}, for beginners and for those who stayed"),
        ("Title", "{title} among friends"),
        ("Sidebar", "Meetings on the first Sunday of the month. Ask a moderator for the address."),
        ("Description", "Questions, pictures and long evenings about {name}"),
        ("Title", "All about {name}"),
    )

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("forum", _MODERATED)
        for place in range(len(rows) * len(self.texts)):
            number, name, *old = rows[place % len(rows)]
            field, text = self.texts[place % len(self.texts)]
            text = text.format(name=name, title=old[0])
            new = dict(zip(("Title", "Description", "Sidebar"), map(_plain, old), strict=True))
            others = " and ".join(one.lower() for one in new if one != field)
            yield Case(
                f"You moderate the forum {name}. Set its {field.lower()} to"
                f' "{text}", and leave its {others} as they are.',
                users=users("forum"),
                values={"id": number, "name": name, "field": field, "text": text,
                        "all": "\n\n".join((new | {field: text}).values())},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        ((title, description, sidebar),) = outcome.query(
            "forum",
            "SELECT title, description, sidebar FROM forum_forum WHERE id = ?",
            (case.values["id"],),
        )
        is_right = "\n\n".join(map(_plain, (title, description, sidebar))) == case.values["all"]
        return is_right and outcome.query("forum", _MODERATED_IN, ()) == [(case.values["name"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", f"f/{case.values['name']}")
        yield from page.click("link", "Edit forum")
        field, text = str(case.values["field"]), str(case.values["text"])
        yield from page.type("textbox", field, text, enter=False)
        yield from page.click("button", "Save")
        yield from page.done()


class ReplaceRule(Changing):
    """Delete a rule of a moderated forum, and add another one."""

    name = "forum-replace-rule"
    number = 35
    sites = ("forum",)
    level = 5
    split = "train"
    new_rules = (
        ("Use metric units", "Kilometres and kilograms are understood by everybody."),
        ("Say what you tried", "A question should tell what did not help."),
        ("Mark spoilers", "Warn the readers before you tell the end."),
        ("Add a price", "Whoever recommends something says what it cost."),
        ("Write full sentences", "A list of words is not a submission."),
    )

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[tuple[int, str, str, list[str]]]()
        for number, name, *_ in seeded.rows("forum", _MODERATED):
            rules = [f"{title}: {text}" for title, text in seeded.rows("forum", _RULES, number)]
            found += [(int(str(number)), str(name), rule, rules) for rule in rules]
        for place, (number, name, rule, rules) in enumerate(seeded.some(self, found)):
            title, text = self.new_rules[place % len(self.new_rules)]
            old = rule.partition(":")[0]
            left = [one for one in rules if one != rule]
            yield Case(
                f"You moderate the forum {name}. Delete its rule “{old}”, and add a rule with the"
                f' title "{title}" and the text "{text}"',
                users=users("forum"),
                values={"id": number, "name": name, "old": old, "title": title, "text": text,
                        "all": "\n".join([*left, f"{title}: {text}"])},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query("forum", _RULES, (case.values["id"],))
        is_right = "\n".join(f"{title}: {text}" for title, text in rows) == case.values["all"]
        return is_right and outcome.query("forum", _MODERATED_IN, ()) == [(case.values["name"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", f"f/{case.values['name']}")
        yield from page.click("link", "Rules")
        yield from page.click_after(str(case.values["old"]), "button", "Delete")
        yield from page.type("textbox", "Title", str(case.values["title"]), enter=False)
        yield from page.type("textbox", "Text", str(case.values["text"]), enter=False)
        yield from page.click("button", "Add rule")
        yield from page.done()


class SwapPin(Changing):
    """Unpin what is pinned in a moderated forum, and pin something else."""

    name = "forum-swap-pin"
    number = 36
    sites = ("forum",)
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "forum",
            """SELECT s.id, s.title, f.name, p.title FROM forum_submission s
            JOIN forum_forum f ON f.id = s.forum_id
            JOIN forum_submission p ON p.forum_id = f.id AND p.is_sticky
            WHERE f.id IN (SELECT forum_id FROM forum_moderator WHERE user_id = 1)
            AND s.is_sticky = 0 AND s.is_locked = 0 AND s.is_removed = 0 AND s.author_id <> 1
            AND (SELECT count(*) FROM forum_submission o WHERE o.title = s.title) = 1
            ORDER BY s.id""",
        )
        for place, (number, title, name, pinned) in enumerate(seeded.some(self, rows)):
            asked = (
                f"In the forum {name}, which you moderate, “{title}” should be pinned instead of"
                " what is pinned there now. Unpin the old one, too.",
                f"You moderate the forum {name}. Unpin the submission that is pinned there, and pin"
                f" “{title}”.",
            )
            yield Case(
                asked[place % 2],
                users=users("forum"),
                values={"id": number, "title": title, "name": name, "pinned": pinned},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "forum",
            """SELECT s.id, s.is_locked, s.is_removed FROM forum_submission s
            JOIN forum_forum f ON f.id = s.forum_id WHERE f.name = ? AND s.is_sticky""",
            (case.values["name"],),
        )
        done = outcome.query(
            "forum", "SELECT text FROM forum_moderationaction WHERE moderator_id = 1", ()
        )
        titles = tuple(f"“{case.values[key]}”" for key in ("title", "pinned"))
        is_only_these = all(str(text).endswith(titles) for (text,) in done)
        return rows == [(case.values["id"], 0, 0)] and is_only_these

    def expert(self, case: Case, page: Page) -> Script:
        pinned = str(case.values["pinned"])
        yield from page.click("link", f"f/{case.values['name']}")
        yield from page.reach("link", pinned)
        page.thought = f"“{pinned}” comes first and is pinned, so I open it."
        yield f"click [{page.find('link', pinned)}]"
        yield from page.click("button", "Unpin")
        yield from open_submission(page, str(case.values["title"]))
        yield from page.click("button", "Pin")
        yield from page.done()


class JoinIn(Changing):
    """Follow a forum, and comment on what is newest or best there."""

    name = "forum-join-in"
    number = 37
    sites = ("forum",)
    level = 5
    split = "train"
    orders = (("newest submission", "New", "created"), ("best-scored submission", "Top", "score"))
    texts = (
        "Hello everybody, I am new here.",
        "This is why I joined this forum.",
        "I would like to hear more about this.",
        "Thanks, I will come back for more.",
    )

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        forums = seeded.rows(
            "forum", f"SELECT id, name FROM forum_forum WHERE id NOT IN ({_FOLLOWED}) ORDER BY id"
        )
        num = len(seeded.rows("forum", _FOLLOWED)) + 1
        for place, (forum, name) in enumerate(seeded.some(self, forums, 33)):
            which, order, column = self.orders[place % 2]
            best = seeded.rows(
                "forum",
                f"""SELECT id, title, {column}, is_locked FROM forum_submission
                WHERE forum_id = ? AND is_removed = 0 ORDER BY {column} DESC LIMIT 2""",
                forum,
            )
            if best[0][2] == best[1][2] or best[0][3]:
                continue
            text = self.texts[place % len(self.texts)]
            yield Case(
                f"Subscribe to the forum {name}. Then post the comment"
                f' "{text}" on the {which} there{"" if place % 2 == 0 else " (of all time)"}.',
                users=users("forum"),
                values={"forum": forum, "name": name, "order": order, "id": best[0][0],
                        "title": best[0][1], "text": text, "num": num},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        followed = outcome.query("forum", _FOLLOWED, ())
        values = case.values
        is_in = len(followed) == values["num"] and (values["forum"],) in followed
        return is_in and outcome.query("forum", _NEW_COMMENTS, ()) == [
            (values["id"], None, values["text"])
        ]

    def expert(self, case: Case, page: Page) -> Script:
        title = str(case.values["title"])
        yield from search_forum(page, str(case.values["name"]))
        yield from page.click("button", "Subscribe")
        yield from page.click("link", str(case.values["order"]))
        yield from page.reach("link", title)
        first = first_submissions(page, str(case.values["order"]))
        page.thought = f"{first}. So I open “{title}”."
        yield f"click [{page.find('link', title)}]"
        yield from page.type("textbox", "Comment", str(case.values["text"]), enter=False)
        yield from page.click("button", "Post")
        yield from page.done()


TEMPLATES: list[Template] = [
    LeaveOneForum(),
    Retitle(),
    UpvoteFirst(),
    DeleteSubmission(),
    DescribeForum(),
    ReplaceRule(),
    SwapPin(),
    JoinIn(),
]
