"""What tasks on the four own sites share: the account, queries, and steps of experts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentgym_rl.envs.scenarios.web.page import LostError, Page, Script
from agentgym_rl.envs.scenarios.web.tasks.thinking import told
from agentgym_rl.envs.scenarios.web.templates import Case, Reading, Wrong

AGENT = "samcarter"
"""Whom the agent is logged in as."""
AGENT_ID = 1
SUBMISSIONS = """
SELECT s.id, s.title, f.name, u.username FROM forum_submission s
JOIN forum_forum f ON f.id = s.forum_id JOIN auth_user u ON u.id = s.author_id
WHERE s.is_removed = 0 AND s.author_id <> 1
AND (SELECT count(*) FROM forum_submission o WHERE o.title = s.title) = 1 ORDER BY s.id
"""
"""Submissions whose title no other one has: (id, title, forum, author)."""
CONTRIBUTORS = r"link (.+) \| \S+@\S+ \| (\d+)$"
"""Name and commits, in the list of who contributed to a project."""
_SUBMISSION = (
    r"button Upvote.*\n(-?\d+)\n.*\n\[\d+\] link (.+)\n(?:.*\n)??.*Submitted by\n.*\n"
    r"(.+?)(?: in\n\[\d+\] link (\S+)\n| )· (\d+) comment"
)
PROJECTS = "SELECT id, full_path, name FROM code_project WHERE visibility = 'public' ORDER BY id"


def users(*sites: str) -> dict[str, str]:
    """Return the agent's account on some sites."""
    return dict.fromkeys(sites, AGENT)


def click_vote(page: Page, name: str, author: str) -> Script:
    """Click Upvote or Downvote of an author's comment.

    They stand above each other beside the author, where an edge of the screen may cut off one.
    """
    yield from page.reach("link", author)
    if _vote(page, name, author) is None:
        page.thought = f"The button {name} of {author} is not on the screen, so I scroll."
        yield "scroll [up]" if name == "Upvote" else "scroll [down]"
    vote = _vote(page, name, author)
    if vote is None:
        raise LostError(f"no button {name!r} beside {author!r} on {page.url}")
    page.thought = f"The task is about the comment of {author}, so I take the {name} beside it."
    yield f"click [{vote}]"


def _vote(page: Page, name: str, author: str) -> int | None:
    """Return a vote on the screen that is one of the two elements before an author."""
    link, nth = page.find("link", author), 0
    while link is not None and (vote := page.find("button", name, nth=nth)) is not None:
        if 0 < link - vote <= 2:
            return vote
        nth += 1
    return None


class Submission(NamedTuple):
    """A submission as a list of the forum shows it."""

    title: str
    score: str
    when: str
    """Such as "on 20 Feb 2024" or "1 day ago"."""
    forum: str
    """Empty in the list of one forum."""
    comments: str


def submissions(page: Page) -> list[Submission]:
    """Return the submissions that have been on the screen, in their order."""
    return [
        Submission(title, score, when, forum, comments)
        for score, title, when, forum, comments in page.listed(_SUBMISSION)
    ]


def first_submissions(page: Page, order: str) -> str:
    """Return a thought about what comes first in "New", "Top" or "Most commented"."""
    rows = submissions(page)[:3]
    told_by = {
        "New": "from new to old",
        "Top": "by score",
        "Most commented": "by number of comments",
    }
    values = {"New": [row.when for row in rows], "Top": [row.score for row in rows]}
    shown = values.get(order, [row.comments for row in rows])
    pairs = zip([row.title for row in rows], shown, strict=True)
    return f"Sorted {told_by[order]}, the first are: {told(pairs)}"


def open_forum(page: Page, name: str) -> Script:
    """Find a forum in the list of all and open it."""
    yield from page.click("link", "Forums")
    yield from page.turn_to("link", name)
    yield from page.click("link", name)


def search_forum(page: Page, name: str) -> Script:
    """Find a forum by a search for forums and open it."""
    yield from page.type("textbox", "Search", name)
    yield from page.reach("link", "Forums", nth=1)
    page.thought = f"{name} is a forum, so I take Forums among the kinds of results."
    yield f"click [{page.find('link', 'Forums', nth=1)}]"
    yield from page.click("link", name)


def open_submission(page: Page, title: str) -> Script:
    """Find a submission by its title and open it."""
    yield from page.type("textbox", "Search", title)
    yield from page.click("link", title)


def open_project(page: Page, path: str) -> Script:
    """Find a project by its path and open it."""
    yield from page.type("textbox", "Search", path)
    yield from page.click("link", path)


class Counting(Reading):
    """A question whose answer is a number."""

    def wrong(self, case: Case, other: Case) -> Sequence[Wrong]:
        number = int(case.answer.replace(",", ""))
        return (
            Wrong("no action", ""),
            Wrong("one more", str(number + 1)),
            Wrong("two answers", f"{number} or {number + 1}"),
        )
