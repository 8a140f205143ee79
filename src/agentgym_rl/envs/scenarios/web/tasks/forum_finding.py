"""Questions that need a search, another order or a comparison in the forum."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.thinking import because, told
from agentgym_rl.envs.scenarios.web.tasks.town_common import (
    AGENT_ID,
    open_submission,
    search_forum,
    submissions,
    users,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Reading, Seeded, Template, Wrong

_FIRST_COMMENTS = """
SELECT s.title, u.username FROM forum_submission s
JOIN forum_comment c ON c.id = (SELECT id FROM forum_comment o WHERE o.submission_id = s.id
    ORDER BY o.created, o.id LIMIT 1)
JOIN auth_user u ON u.id = c.author_id
WHERE s.is_removed = 0 AND s.num_comments BETWEEN 4 AND 14 AND c.parent_id IS NULL
AND c.author_id NOT IN (1, s.author_id)
AND (SELECT count(*) FROM forum_submission o WHERE o.title = s.title) = 1
AND c.id = (SELECT min(id) FROM forum_comment o WHERE o.submission_id = s.id
    AND o.parent_id IS NULL)
AND (SELECT count(*) FROM forum_comment o WHERE o.submission_id = s.id AND NOT o.is_removed
    AND o.created < datetime(c.created, '+1 hour')) = 1
AND c.author_id <> (SELECT o.author_id FROM forum_comment o WHERE o.submission_id = s.id
    AND o.parent_id IS NULL ORDER BY o.score DESC, o.id LIMIT 1)
ORDER BY s.id
"""
"""Submissions whose oldest comment is not the one that is shown first: (title, its author)."""
_SAYINGS = """
SELECT c.body, u.username, s.title FROM forum_comment c
JOIN forum_submission s ON s.id = c.submission_id JOIN auth_user u ON u.id = c.author_id
WHERE c.is_removed = 0 AND s.is_removed = 0 AND c.author_id <> 1
AND length(c.body) BETWEEN 25 AND 70
AND (SELECT count(*) FROM forum_submission o WHERE o.title = s.title) = 1
AND (SELECT count(*) FROM forum_comment o WHERE o.body = c.body) BETWEEN 3 AND 8
AND (SELECT count(*) FROM forum_comment o WHERE instr(o.body, c.body) > 0
    AND o.author_id = c.author_id) = 1
AND (SELECT count(*) FROM forum_comment o WHERE instr(o.body, c.body) > 0) <= 12
ORDER BY c.id
"""
"""Comments that others wrote in the same words: (body, author, submission)."""
_MODERATORS = """
SELECT f.name, u.username, u.date_joined, u.id FROM forum_moderator m
JOIN forum_forum f ON f.id = m.forum_id JOIN auth_user u ON u.id = m.user_id ORDER BY m.id
"""


class FirstToComment(Reading):
    """Who wrote the oldest comment on a submission? With the comments in another order."""

    name = "forum-first-comment"
    number = 9
    sites = ("forum",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("forum", _FIRST_COMMENTS))
        for place, (title, author) in enumerate(rows):
            asked = (
                f"Who was the first to comment on the submission “{title}”?",
                f"Which user wrote the oldest comment on “{title}”?",
            )
            yield Case(asked[place % 2], str(author), users=users("forum"), values={"title": title})

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_submission(page, str(case.values["title"]))
        yield from page.click("link", "Old")
        yield from page.read(f"link {case.answer}")
        comments = told(page.listed(r"button Downvote.*\n\[\d+\] link (\S+)\n(on .+|.+ ago)$")[:2])
        page.thought = f"The oldest comment comes first now: {comments}. So it is {case.answer}."
        yield f"stop [{case.answer}]"


class WhereSaid(Reading):
    """On which submission did somebody say something? By a search in the comments."""

    name = "forum-said-where"
    number = 10
    sites = ("forum",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("forum", _SAYINGS))
        for place, (body, author, title) in enumerate(rows):
            asked = (
                f'The user {author} once commented "{body}" What is the title of the submission'
                " that this comment is on?",
                f'Several people have written "{body}" in a comment. What is the title of the'
                f" submission where {author} did?",
            )
            yield Case(
                asked[place % 2],
                str(title),
                users=users("forum"),
                values={"body": body, "author": author},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Search", str(case.values["body"]))
        yield from page.click("link", "Comments")
        yield from page.answer(case.answer, shown=f"{case.values['author']} on")


class BestOfModerator(Reading):
    """Which of a moderator's submissions has the highest score or the most comments?"""

    name = "forum-moderators-best"
    number = 11
    sites = ("forum",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[Case]()
        for place, (forum, user, _, number) in enumerate(seeded.rows("forum", _MODERATORS)):
            column = ("score", "num_comments")[place % 2]
            best = seeded.rows(
                "forum",
                f"""SELECT title, {column}, id FROM forum_submission WHERE author_id = ?
                AND is_removed = 0 ORDER BY {column} DESC, id""",
                number,
            )
            if number == 1 or not 4 <= len(best) <= 25 or best[0][1] == best[1][1]:
                continue
            most = ("has the highest score", "has the most comments")[place % 2]
            last = min(best, key=lambda row: int(str(row[2])))
            found.append(
                Case(
                    f"{user} is a moderator of the forum {forum}. Which submission that {user}"
                    f" wrote, in any forum, {most}? Answer with its title.",
                    str(best[0][0]),
                    users=users("forum"),
                    values={
                        "forum": forum,
                        "user": user,
                        "most": most,
                        "num": len(best),
                        "last": last[0],
                    },
                )
            )
        return seeded.some(self, found)

    def expert(self, case: Case, page: Page) -> Script:
        yield from search_forum(page, str(case.values["forum"]))
        user = str(case.values["user"])
        yield from page.click("link", user)
        yield from page.click("link", f"Submissions ({case.values['num']})")
        yield from page.read(str(case.values["last"]))
        most = str(case.values["most"])
        by_score = "score" in most
        rows = [(row.title, row.score if by_score else row.comments) for row in submissions(page)]
        shown = told(rows, lambda row: -int(row[1]))
        kind = "Scores" if by_score else "Comments"
        page.thought = f"{kind} of what {user} submitted: {shown}. So {case.answer} {most}."
        yield f"stop [{case.answer}]"


class SeniorModerator(Reading):
    """Which of two moderators has been a member for longer? On their profiles."""

    name = "forum-senior-moderator"
    number = 12
    sites = ("forum",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        by_forum = dict[str, list[tuple[str, str]]]()
        for forum, user, joined, number in seeded.rows("forum", _MODERATORS):
            if number != AGENT_ID:
                by_forum.setdefault(str(forum), []).append((str(user), str(joined)))
        forums = [one for one in by_forum if len(by_forum[one]) > 1]
        for place, forum in enumerate(seeded.some(self, forums)):
            way = ("longer", "shorter")[place % 2]
            chosen, other = sorted(
                by_forum[forum][:2], key=lambda one: one[1], reverse=place % 2 == 1
            )
            first, second = (chosen, other) if place // 2 % 2 else (other, chosen)
            yield Case(
                f"{first[0]} and {second[0]} are moderators of the forum {forum}. Which of the two"
                f" has been a member of Agora for a {way} time?",
                chosen[0],
                users=users("forum"),
                values={"forum": forum, "first": first[0], "second": second[0], "other": other[0]},
            )

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        colleague = str(case.values["other"])
        return (*super().wrong(case, other), Wrong("the other moderator", colleague))

    def expert(self, case: Case, page: Page) -> Script:
        yield from search_forum(page, str(case.values["forum"]))
        first, second = str(case.values["first"]), str(case.values["second"])
        yield from page.click("link", first)
        yield from page.read("Member since")
        joined = [(first, _member_since(page))]
        page.thought = f"Member since: {told(joined)}. I go back to look at {second}, too."
        yield "go_back"
        yield from page.click("link", second)
        yield from page.read("Member since")
        joined.append((second, _member_since(page)))
        way = "longer" if "longer" in case.objective else "shorter"
        page.thought = f"Member since: {told(joined)}. So {case.answer} has been one {way}."
        yield f"stop [{case.answer}]"


def _member_since(page: Page) -> str:
    return page.listed(r"Member since (.+)")[0][0]


class PlaceOfModerator(Reading):
    """A phone number in the city that a moderator lives in: the forum, then the map."""

    name = "forum-map-home"
    number = 13
    sites = ("forum", "map")
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "forum",
            """SELECT f.name, u.username, o.location, p.kind, p.name, p.phone
            FROM forum_moderator m JOIN forum_forum f ON f.id = m.forum_id
            JOIN auth_user u ON u.id = m.user_id JOIN accounts_profile o ON o.user_id = u.id
            JOIN reference.place p ON p.city = o.location AND p.population = 0
            AND p.kind IN ('Hospital', 'University') AND p.phone <> ''
            WHERE u.id > 1 AND o.location <> 'Bristol' AND (SELECT count(*) FROM reference.place q
                WHERE q.city = p.city AND q.kind = p.kind) = 1 ORDER BY m.id, p.id""",
        )
        for forum, user, city, kind, name, phone in seeded.some(self, rows):
            yield Case(
                f"{user} moderates the forum {forum} on Agora (forum.test), and the profile there"
                f" says where {user} lives. What is the phone number of the {str(kind).lower()} in"
                " that city, according to Wayfarer (map.test)?",
                str(phone),
                users=users("forum", "map"),
                values={"forum": forum, "user": user, "city": city, "name": name,
                        "kind": str(kind).lower()},
            )  # fmt: skip

    def expert(self, case: Case, page: Page) -> Script:
        yield from search_forum(page, str(case.values["forum"]))
        yield from page.click("link", str(case.values["user"]))
        city = str(case.values["city"])
        yield from page.read(city)
        page.thought = f"{case.values['user']} lives in {city}, so I look that up on the map."
        yield "goto [http://map.test/]"
        search = page.type("textbox", "Search places", f"{case.values['kind']} {city}")
        thought = f"The profile said {city}, so I look for the {case.values['kind']} there."
        yield from because(page, thought, search)
        yield from page.click("link", str(case.values["name"]))
        yield from page.answer(case.answer)


TEMPLATES: list[Template] = [
    FirstToComment(),
    WhereSaid(),
    BestOfModerator(),
    SeniorModerator(),
    PlaceOfModerator(),
]
