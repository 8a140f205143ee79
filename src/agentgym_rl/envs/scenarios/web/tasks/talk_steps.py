"""What templates of the held-out forum share: queries of its tables, and steps of experts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from agentgym_rl.envs.scenarios.web.page import LostError, Page, Script
from agentgym_rl.envs.scenarios.web.templates import Case, Changing, Outcome, Reading, Row, Seeded

MODERATOR = "marta_h"
NEW = "date >= '2024-06-14 10:30'"
"""Of rows that the episode itself made: its clock begins then."""
_TOPICS = """
SELECT t.id, t.title, t.slug, t.comment_count, k.title, u.username, k.id, k.slug
FROM spirit_topic_topic t JOIN spirit_category_category k ON k.id = t.category_id
JOIN auth_user u ON u.id = t.user_id
WHERE t.category_id <> 1 AND t.comment_count BETWEEN 3 AND 20 AND t.is_closed = 0 AND {condition}
ORDER BY t.id
"""
_SINGLE = """
SELECT c.id, c.comment, c.likes_count, u.username, u.id, t.id, t.title, t.slug
FROM spirit_comment_comment c JOIN auth_user u ON u.id = c.user_id
JOIN spirit_topic_topic t ON t.id = c.topic_id
WHERE t.category_id <> 1 AND t.comment_count BETWEEN 3 AND 18 AND t.is_closed = 0
AND c.comment NOT LIKE '%[poll%' AND {condition} AND NOT EXISTS (
    SELECT 1 FROM spirit_comment_comment o
    WHERE o.topic_id = c.topic_id AND o.user_id = c.user_id AND o.id <> c.id
) ORDER BY c.id
"""
_ELEMENT = re.compile(r"\[(\d+)\] (.*)")


class TalkReading(Reading):
    """A question about the forum."""

    sites: ClassVar = ("talk",)
    category = "held-out"
    split = "heldout"


class TalkChanging(Changing):
    """Something to do in the forum."""

    sites: ClassVar = ("talk",)
    category = "held-out"
    split = "heldout"


def topics(seeded: Seeded, condition: str = "1") -> list[Row]:
    """Return (id, title, slug, comments, category, author, category's id and slug).

    Only of open topics whose comments are on one page.
    """
    return seeded.rows("talk", _TOPICS.format(condition=condition))


def single_comments(seeded: Seeded, condition: str = "1") -> list[Row]:
    """Return (id, text, likes, author, author's id, topic, title, slug) of comments.

    Only of members who have no other comment in that topic, so that the member names the comment.
    """
    return seeded.rows("talk", _SINGLE.format(condition=condition))


def members(seeded: Seeded) -> list[str]:
    """Return the names of those who are neither moderators nor administrators."""
    rows = seeded.rows(
        "talk",
        """SELECT u.username FROM auth_user u JOIN spirit_user_userprofile p ON p.user_id = u.id
        WHERE p.is_moderator = 0 AND p.is_administrator = 0 ORDER BY u.id""",
    )
    return [str(name) for (name,) in rows]


def member_of(seeded: Seeded, place: int, *others: object) -> str:
    """Return a member who is none of the others."""
    names = [name for name in members(seeded) if name not in others]
    return names[place * 7 % len(names)]


def text(case: Case, name: str) -> str:
    """Return a value of a case as text."""
    return str(case.values[name])


def new_comments(outcome: Outcome) -> list[Row]:
    """Return (topic, author, text) of what was posted in the episode; moderation is not."""
    return outcome.query(
        "talk",
        f"""SELECT c.topic_id, u.username, trim(replace(c.comment, char(13), ''))
        FROM spirit_comment_comment c JOIN auth_user u ON u.id = c.user_id
        WHERE c.{NEW} AND c.action = 0 ORDER BY c.id""",
        (),
    )


def new_likes(outcome: Outcome) -> list[Row]:
    """Return (comment, member) of likes that were given in the episode."""
    return outcome.query(
        "talk",
        f"""SELECT l.comment_id, u.username FROM spirit_comment_like_commentlike l
        JOIN auth_user u ON u.id = l.user_id WHERE l.{NEW} ORDER BY l.comment_id""",
        (),
    )


def is_unchanged(outcome: Outcome, *, comments: int = 0, likes: int = 0) -> bool:
    """Return whether the episode made only this many comments and likes."""
    return len(new_comments(outcome)) == comments and len(new_likes(outcome)) == likes


def to_top(page: Page) -> Script:
    """Scroll up to the menus."""
    while "scroll [up])" in page.text:
        yield "scroll [up]"


def find_topic(page: Page, title: str) -> Script:
    """Search the forum for a topic and open it."""
    yield from to_top(page)
    yield from page.click("link", "")  # the magnifying glass, which has no name
    yield from page.type("textbox", "Search:", title)
    yield from page.click("link", title)


def click_after(page: Page, anchor: str, labels: Sequence[str]) -> Script:
    """Click the first link after a text whose name begins with one of the labels.

    Its number is what tells it from others: numbers go down the page, also while it scrolls.
    """
    yield from page.read(anchor)
    before = page.text[: page.text.index(anchor)]
    last = max((int(number) for number, _ in _ELEMENT.findall(before)), default=0)
    while True:
        for number, shown in _ELEMENT.findall(page.text):
            if int(number) > last and shown.startswith(tuple(f"link {one}" for one in labels)):
                yield f"click [{number}]"
                return
        if "scroll [down])" not in page.text:
            raise LostError(f"none of {labels} after {anchor!r} on {page.url}")
        yield "scroll [down]"


def post_comment(page: Page, said: str) -> Script:
    """Write a comment under the topic that is open."""
    yield from page.type("textbox", "Write comment...", said, enter=False)
    yield from page.click("button", "Publish")


def send_message(page: Page, sender: str, to: str, title: str, said: str) -> Script:
    """Begin a private topic with somebody."""
    yield from to_top(page)
    yield from page.click("link", sender)
    yield from page.click("link", "Private topics")
    yield from page.click("link", "Create private topic")
    yield from page.type("textbox", "Title:", title, enter=False)
    yield from page.type("textbox", "Invite users:", to, enter=False)
    yield from page.type("textbox", "Comment:", said, enter=False)
    yield from page.click("button", "Publish")
