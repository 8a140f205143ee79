"""What tasks on the four own sites share: the account, queries, and steps of experts."""

from __future__ import annotations

from collections.abc import Sequence

from agentgym_rl.envs.scenarios.web.page import LostError, Page, Script
from agentgym_rl.envs.scenarios.web.templates import Case, Reading, Wrong

AGENT = "samcarter"
"""Whom the agent is logged in as."""
AGENT_ID = 1
_MAX_PAGES = 8
SUBMISSIONS = """
SELECT s.id, s.title, f.name, u.username FROM forum_submission s
JOIN forum_forum f ON f.id = s.forum_id JOIN auth_user u ON u.id = s.author_id
WHERE s.is_removed = 0 AND s.author_id <> 1
AND (SELECT count(*) FROM forum_submission o WHERE o.title = s.title) = 1 ORDER BY s.id
"""
"""Submissions whose title no other one has: (id, title, forum, author)."""
PROJECTS = "SELECT id, full_path, name FROM code_project WHERE visibility = 'public' ORDER BY id"


def users(*sites: str) -> dict[str, str]:
    """Return the agent's account on some sites."""
    return dict.fromkeys(sites, AGENT)


def turn_to(page: Page, role: str, name: str) -> Script:
    """Turn the pages of a list until an element is on the screen."""
    for _ in range(_MAX_PAGES):
        try:
            yield from page.reach(role, name)
        except LostError:
            yield from page.click("link", "Next")
        else:
            return
    raise LostError(f"no {role} {name!r} on {_MAX_PAGES} pages up to {page.url}")


def last_before(page: Page, role: str, name: str, number: int) -> int:
    """Return the last element of a role and name before another one on the screen."""
    last, nth = None, 0
    while (found := page.find(role, name, nth=nth)) is not None and found < number:
        last, nth = found, nth + 1
    if last is None:
        raise LostError(f"no {role} {name!r} before [{number}] on {page.url}")
    return last


def open_forum(page: Page, name: str) -> Script:
    """Find a forum in the list of all and open it."""
    yield from page.click("link", "Forums")
    yield from turn_to(page, "link", name)
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
