"""Questions that the forum answers."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.town_common import (
    SUBMISSIONS,
    Counting,
    first_submissions,
    open_forum,
    open_submission,
    users,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Reading, Seeded, Template

_FORUMS = "SELECT id, name, num_subscribers FROM forum_forum ORDER BY id"
_BEST = """
SELECT id, title, score, author_id FROM forum_submission
WHERE forum_id = ? AND is_removed = 0 ORDER BY score DESC, id DESC LIMIT 2
"""


class Subscribers(Counting):
    """How many people follow a forum? Its own page says so."""

    name = "forum-subscribers"
    number = 1
    sites = ("forum",)
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, name, count in seeded.some(self, seeded.rows("forum", _FORUMS)):
            yield Case(
                f"How many subscribers does the forum {name} have?",
                str(count),
                f"/f/{name}",
                users("forum"),
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer, shown=f"{case.answer} subscribers")


class NumComments(Counting):
    """How many comments does a submission have? Its own page says so."""

    name = "forum-num-comments"
    number = 2
    sites = ("forum",)
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "forum",
            """SELECT s.id, s.num_comments, f.name, s.title FROM forum_submission s
            JOIN forum_forum f ON f.id = s.forum_id WHERE s.num_comments BETWEEN 2 AND 12
            ORDER BY s.id""",
        )
        for number, count, name, title in seeded.some(self, rows):
            yield Case(
                f"How many comments does the submission “{title}” have?",
                str(count),
                f"/f/{name}/{number}",
                users("forum"),
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer, shown=f"# {case.answer} comments")


class WhoSubmitted(Reading):
    """Who wrote a submission? A search away."""

    name = "forum-who-submitted"
    number = 3
    sites = ("forum",)
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, title, _, author in seeded.some(self, seeded.rows("forum", SUBMISSIONS)):
            yield Case(
                f"Which user submitted “{title}”?",
                str(author),
                users=users("forum"),
                values={"title": title},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.type("textbox", "Search", str(case.values["title"]))
        yield from page.reach("link", str(case.values["title"]))
        yield from page.answer(case.answer)


class BestScore(Counting):
    """What is the highest score in a forum? One click away."""

    name = "forum-best-score"
    number = 4
    sites = ("forum",)
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for forum, name, _ in seeded.some(self, seeded.rows("forum", _FORUMS)):
            _, title, score, _ = seeded.rows("forum", _BEST, forum)[0]
            yield Case(
                f"Which is the highest score of all time of a submission in the forum {name}?",
                str(score),
                f"/f/{name}",
                users("forum"),
                {"title": title},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Top")
        yield from page.reach("link", str(case.values["title"]))
        yield from page.read(case.answer)
        page.thought = f"{first_submissions(page, 'Top')}. So the highest score is {case.answer}."
        yield f"stop [{case.answer}]"


class MostCommented(Reading):
    """Which submission of a period has the most comments? Sorted and filtered."""

    name = "forum-most-commented"
    number = 5
    sites = ("forum",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[Case]()
        for forum, name, _ in seeded.rows("forum", _FORUMS):
            best = seeded.rows(
                "forum",
                """SELECT title, num_comments FROM forum_submission WHERE forum_id = ?
                AND is_removed = 0 AND created >= '2024-05-15 10:30:00'
                ORDER BY num_comments DESC LIMIT 2""",
                forum,
            )
            if len(best) == 2 and best[0][1] != best[1][1]:
                found.append(
                    Case(
                        f"What is the title of the submission in the forum {name} that got the most"
                        " comments in the past month?",
                        str(best[0][0]),
                        users=users("forum"),
                        values={"forum": name},
                    )
                )
        return seeded.some(self, found)

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_forum(page, str(case.values["forum"]))
        yield from page.click("link", "Most commented")
        yield from page.select("From", "Past month")
        yield from page.read(case.answer)
        first = first_submissions(page, "Most commented")
        page.thought = f"{first}. So {case.answer} got the most."
        yield f"stop [{case.answer}]"


class RankOfForum(Reading):
    """Which forum has the n-th most subscribers? Sorted, on two pages."""

    name = "forum-rank"
    number = 6
    sites = ("forum",)
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "forum", "SELECT name, num_subscribers FROM forum_forum ORDER BY num_subscribers DESC"
        )
        counts = [row[1] for row in rows]
        for rank, (name, count) in enumerate(rows[:24], start=1):
            if counts.count(count) == 1 and rank <= 20:
                yield Case(
                    "Sort the forums by their number of subscribers, the largest first. Which"
                    f" forum is number {rank}?",
                    str(name),
                    users=users("forum"),
                    values={"rank": rank},
                )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Forums")
        yield from page.click("link", "By subscribers")
        if int(str(case.values["rank"])) > 12:
            yield from page.click("link", "Next")
        yield from page.answer(case.answer)


class WhyBanned(Reading):
    """Why was somebody banned? In the public log of a forum."""

    name = "forum-why-banned"
    number = 7
    sites = ("forum",)
    level = 3
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "forum",
            """SELECT u.username, f.name, b.reason FROM forum_ban b
            JOIN auth_user u ON u.id = b.user_id JOIN forum_forum f ON f.id = b.forum_id
            ORDER BY b.id""",
        )
        for user, forum, reason in seeded.some(self, rows):
            yield Case(
                f"For which reason was the user {user} banned from the forum {forum}?",
                str(reason),
                users=users("forum"),
                values={"forum": forum, "user": user},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_forum(page, str(case.values["forum"]))
        yield from page.click("link", "Moderation log")
        yield from page.answer(case.answer, shown=f"banned {case.values['user']}: {case.answer}")


class WritesOfAuthor(Counting):
    """How many comments did an author write? By way of a submission and a profile."""

    name = "forum-comments-of-author"
    number = 8
    sites = ("forum",)
    level = 3
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for _, title, _, author in seeded.some(self, seeded.rows("forum", SUBMISSIONS)):
            ((count,),) = seeded.rows(
                "forum",
                """SELECT count(*) FROM forum_comment c JOIN auth_user u ON u.id = c.author_id
                WHERE u.username = ? AND c.is_removed = 0""",
                author,
            )
            yield Case(
                f"How many comments has the author of “{title}” written in total?",
                str(count),
                users=users("forum"),
                values={"title": title, "author": author},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_submission(page, str(case.values["title"]))
        yield from page.click("link", str(case.values["author"]))
        yield from page.answer(case.answer, shown=f"Comments ({case.answer})")


TEMPLATES: list[Template] = [
    Subscribers(),
    NumComments(),
    WhoSubmitted(),
    BestScore(),
    MostCommented(),
    RankOfForum(),
    WhyBanned(),
    WritesOfAuthor(),
]
