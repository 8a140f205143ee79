"""Errands in the forum: votes, comments, subscriptions, submissions, moderation."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.town_common import (
    AGENT_ID,
    SUBMISSIONS,
    click_vote,
    open_submission,
    users,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Changing, Outcome, Seeded, Template

_TEXTS = (
    "Thank you, this helped me a lot.",
    "Could you post a picture of it?",
    "I had the same experience last winter.",
    "Which one did you buy in the end?",
    "Please keep us up to date.",
    "I will try this at the weekend.",
    "Great write-up!",
    "Does anybody have a source for this?",
    "Mine works fine after two years.",
    "I disagree, but thanks for sharing.",
)
_THREADS = """
SELECT s.id, s.title, f.name, c.id, u.username FROM forum_comment c
JOIN forum_submission s ON s.id = c.submission_id JOIN forum_forum f ON f.id = s.forum_id
JOIN auth_user u ON u.id = c.author_id
WHERE s.is_locked = 0 AND s.num_comments BETWEEN 3 AND 9 AND c.author_id NOT IN (1, s.author_id)
AND (SELECT count(*) FROM forum_submission o WHERE o.title = s.title) = 1
AND (SELECT count(*) FROM forum_comment o WHERE o.submission_id = s.id
     AND o.author_id = c.author_id) = 1
AND c.author_id NOT IN (SELECT user_id FROM forum_moderator m WHERE m.forum_id = f.id)
ORDER BY c.id
"""
"""Comments whose author wrote no other one there: (submission, title, forum, comment, author)."""
_MODERATED = """
SELECT s.id, s.title, f.name, u.username FROM forum_submission s
JOIN forum_forum f ON f.id = s.forum_id JOIN auth_user u ON u.id = s.author_id
WHERE f.id IN (SELECT forum_id FROM forum_moderator WHERE user_id = 1)
AND s.is_locked = 0 AND s.is_sticky = 0 AND s.author_id <> 1
AND (SELECT count(*) FROM forum_submission o WHERE o.title = s.title) = 1
AND s.author_id NOT IN (SELECT user_id FROM forum_ban b WHERE b.forum_id = f.id)
AND s.author_id NOT IN (SELECT user_id FROM forum_moderator m WHERE m.forum_id = f.id)
ORDER BY s.id
"""


class Upvote(Changing):
    """Vote for a submission."""

    name = "forum-upvote"
    number = 20
    sites = ("forum",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for number, title, _, _ in seeded.some(self, seeded.rows("forum", SUBMISSIONS)):
            yield Case(
                f"Upvote the submission “{title}”.",
                users=users("forum"),
                values={"id": number, "title": title},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "forum", "SELECT submission_id, value FROM forum_vote WHERE user_id = ?", (AGENT_ID,)
        )
        return rows == [(case.values["id"], 1)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_submission(page, str(case.values["title"]))
        yield from page.click("button", "Upvote")
        yield from page.done()


class DownvoteComment(Changing):
    """Vote against somebody's comment."""

    name = "forum-downvote-comment"
    number = 21
    sites = ("forum",)
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("forum", _THREADS))
        for _, title, _, comment, author in rows:
            yield Case(
                f"Downvote the comment of {author} on the submission “{title}”.",
                users=users("forum"),
                values={"id": comment, "title": title, "author": author},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "forum", "SELECT comment_id, value FROM forum_commentvote WHERE user_id = ?", (1,)
        )
        return rows == [(case.values["id"], -1)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_submission(page, str(case.values["title"]))
        yield from click_vote(page, "Downvote", str(case.values["author"]))
        yield from page.done()


class Subscribe(Changing):
    """Follow a forum."""

    name = "forum-subscribe"
    number = 22
    sites = ("forum",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "forum",
            """SELECT id, name FROM forum_forum WHERE id NOT IN
            (SELECT forum_id FROM forum_subscription WHERE user_id = 1) ORDER BY id""",
        )
        own = seeded.rows("forum", "SELECT id FROM forum_subscription WHERE user_id = 1")
        for number, name in seeded.some(self, rows):
            yield Case(
                f"Subscribe to the forum {name}.",
                users=users("forum"),
                values={"id": number, "name": name, "num": len(own) + 1},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "forum", "SELECT forum_id FROM forum_subscription WHERE user_id = ?", (AGENT_ID,)
        )
        return len(rows) == case.values["num"] and (case.values["id"],) in rows

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Forums")
        name = str(case.values["name"])
        yield from page.turn_to("link", name)
        yield from page.click("button", "Subscribe", near=f"link {name} |")
        yield from page.done()


class WriteComment(Changing):
    """Comment on a submission."""

    name = "forum-comment"
    number = 23
    sites = ("forum",)
    level = 4
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = [
            row
            for row in seeded.rows("forum", SUBMISSIONS)
            if not seeded.rows(
                "forum", "SELECT 1 FROM forum_submission WHERE id = ? AND is_locked", row[0]
            )
        ]
        for place, (number, title, _, _) in enumerate(seeded.some(self, rows)):
            text = _TEXTS[place % len(_TEXTS)]
            yield Case(
                f'Post the comment "{text}" on the submission “{title}”.',
                users=users("forum"),
                values={"id": number, "title": title, "text": text},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "forum",
            """SELECT submission_id, parent_id, trim(body) FROM forum_comment
            WHERE author_id = ? AND created >= '2024-06-14 10:30:00'""",
            (AGENT_ID,),
        )
        return rows == [(case.values["id"], None, case.values["text"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_submission(page, str(case.values["title"]))
        yield from page.type("textbox", "Comment", str(case.values["text"]), enter=False)
        yield from page.click("button", "Post")
        yield from page.done()


class Submit(Changing):
    """Create a text submission."""

    name = "forum-submit"
    number = 24
    sites = ("forum",)
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("forum", "SELECT id, name, title FROM forum_forum ORDER BY id")
        for place, (number, name, subject) in enumerate(seeded.some(self, rows)):
            title = f"Meeting about {subject} in {2 + place} weeks"
            body = f"Who would like to join? We start at {10 + place % 9}:30."
            yield Case(
                f'Create a submission in the forum {name} with the title "{title}" and the body'
                f' "{body}".',
                users=users("forum"),
                values={"id": number, "name": name, "title": title, "body": body},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "forum",
            """SELECT forum_id, title, trim(body), url FROM forum_submission
            WHERE author_id = ? AND created >= '2024-06-14 10:30:00'""",
            (AGENT_ID,),
        )
        values = case.values
        return rows == [(values["id"], values["title"], values["body"], "")]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Submit")
        yield from page.select("Forum", str(case.values["name"]))
        yield from page.type("textbox", "Title", str(case.values["title"]), enter=False)
        yield from page.type("textbox", "Body", str(case.values["body"]), enter=False)
        yield from page.click("button", "Create submission")
        yield from page.done()


class EditBio(Changing):
    """Change the own profile."""

    name = "forum-bio"
    number = 25
    sites = ("forum",)
    level = 4
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("forum", "SELECT title FROM forum_forum ORDER BY id")
        for (subject,) in seeded.some(self, rows):
            bio = f"I mostly write about {str(subject).lower()}."
            yield Case(
                f'Change the biography of your profile to "{bio}"',
                users=users("forum"),
                values={"bio": bio},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "forum", "SELECT trim(bio) FROM accounts_profile WHERE user_id = 1", ()
        )
        return rows == [(case.values["bio"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("button", "samcarter")
        yield from page.click("link", "Edit profile")
        yield from page.type("textbox", "Bio", str(case.values["bio"]), enter=False)
        yield from page.click("button", "Save")
        yield from page.done()


class LockAndPin(Changing):
    """Two acts of a moderator on one submission."""

    name = "forum-lock-and-pin"
    number = 26
    sites = ("forum",)
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for number, title, name, _ in seeded.some(self, seeded.rows("forum", _MODERATED)):
            yield Case(
                f"You moderate the forum {name}. Lock and pin the submission “{title}” there.",
                users=users("forum"),
                values={"id": number, "title": title},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "forum",
            """SELECT text FROM forum_moderationaction WHERE moderator_id = 1 ORDER BY id""",
            (),
        )
        state = outcome.query(
            "forum",
            "SELECT is_locked, is_sticky, is_removed FROM forum_submission WHERE id = ?",
            (case.values["id"],),
        )
        is_only_one = all(str(text).endswith(f"“{case.values['title']}”") for (text,) in rows)
        return is_only_one and state == [(1, 1, 0)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_submission(page, str(case.values["title"]))
        yield from page.click("button", "Lock")
        yield from page.click("button", "Pin")
        yield from page.done()


class RemoveAndBan(Changing):
    """Remove a submission and ban its author."""

    name = "forum-remove-and-ban"
    number = 27
    sites = ("forum",)
    level = 5
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("forum", _MODERATED))
        for place, (number, title, name, author) in enumerate(rows):
            reason = ("Advertising", "Insults", "Spam", "Off-topic posts")[place % 4]
            yield Case(
                f"You moderate the forum {name}. Remove the submission “{title}” there and ban its"
                f' author from the forum, with the reason "{reason}" and without an end.',
                users=users("forum"),
                values={"id": number, "title": title, "name": name, "author": author,
                        "reason": reason},
            )  # fmt: skip

    def check(self, case: Case, outcome: Outcome) -> bool:
        bans = outcome.query(
            "forum",
            """SELECT f.name, u.username, b.reason, b.expires FROM forum_ban b
            JOIN forum_forum f ON f.id = b.forum_id JOIN auth_user u ON u.id = b.user_id
            WHERE b.by_id = 1""",
            (),
        )
        removed = outcome.query("forum", "SELECT id FROM forum_submission WHERE is_removed", ())
        values = case.values
        return removed == [(values["id"],)] and bans == [
            (values["name"], values["author"], values["reason"], None)
        ]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_submission(page, str(case.values["title"]))
        yield from page.click("button", "Remove")
        yield from page.click("link", "Bans")
        yield from page.type("textbox", "Username", str(case.values["author"]), enter=False)
        yield from page.type("textbox", "Reason", str(case.values["reason"]), enter=False)
        yield from page.click("button", "Ban")
        yield from page.done()


class CreateForum(Changing):
    """Make a forum and post there."""

    name = "forum-create"
    number = 28
    sites = ("forum",)
    level = 5
    split = "train"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows("forum", "SELECT username FROM auth_user WHERE id > 1 ORDER BY id")
        subjects = ("kayaks", "origami", "saunas", "kites", "chess", "bees", "stamps", "tea",
                    "pottery", "ferries", "puzzles", "orchids", "radios", "fossils", "jazz",
                    "haiku", "owls", "canoes", "clocks", "soap")  # fmt: skip
        for place, subject in enumerate(subjects):
            title = f"{subject.capitalize()} for everyone"
            welcome = f"Welcome to {subject}, {rows[place][0]}!"
            yield Case(
                f'Create a forum with the name {subject}, the title "{title}" and the description'
                f' "All about {subject}". Then create a submission there with the title'
                f' "{welcome}".',
                users=users("forum"),
                values={"name": subject, "title": title, "welcome": welcome},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "forum",
            """SELECT f.name, f.title, f.description, s.title FROM forum_forum f
            JOIN forum_submission s ON s.forum_id = f.id
            WHERE f.created >= '2024-06-14 10:30:00'""",
            (),
        )
        values = case.values
        wanted = (values["name"], values["title"], f"All about {values['name']}", values["welcome"])
        return rows == [wanted]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("button", "samcarter")
        yield from page.click("link", "Create forum")
        name = str(case.values["name"])
        yield from page.type("textbox", "Name", name, enter=False)
        yield from page.type("textbox", "Title", str(case.values["title"]), enter=False)
        yield from page.type("textbox", "Description", f"All about {name}", enter=False)
        yield from page.click("button", "Create forum")
        yield from page.click("link", "Submit")
        yield from page.type("textbox", "Title", str(case.values["welcome"]), enter=False)
        yield from page.click("button", "Create submission")
        yield from page.done()


class ReplyAndVote(Changing):
    """Answer somebody's comment and vote for it."""

    name = "forum-reply-and-vote"
    number = 29
    sites = ("forum",)
    level = 5
    split = "test"

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, seeded.rows("forum", _THREADS))
        for place, (_, title, _, comment, author) in enumerate(rows):
            text = _TEXTS[place % len(_TEXTS)]
            yield Case(
                f"Upvote the comment of {author} on the submission “{title}”, and reply to the"
                f' comment with "{text}"',
                users=users("forum"),
                values={"id": comment, "title": title, "author": author, "text": text},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        replies = outcome.query(
            "forum",
            """SELECT parent_id, trim(body) FROM forum_comment
            WHERE author_id = 1 AND created >= '2024-06-14 10:30:00'""",
            (),
        )
        votes = outcome.query(
            "forum",
            """SELECT v.comment_id, v.value FROM forum_commentvote v
            JOIN forum_comment c ON c.id = v.comment_id WHERE v.user_id = 1 AND c.author_id <> 1""",
            (),
        )
        values = case.values
        return replies == [(values["id"], values["text"])] and votes == [(values["id"], 1)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from open_submission(page, str(case.values["title"]))
        author = str(case.values["author"])
        yield from click_vote(page, "Upvote", author)
        yield from page.click_after(f"link {author}", "link", "Reply")
        yield from page.type("textbox", "Comment", str(case.values["text"]), enter=False)
        yield from page.click("button", "Post")
        yield from page.done()


TEMPLATES: list[Template] = [
    Upvote(),
    DownvoteComment(),
    Subscribe(),
    WriteComment(),
    Submit(),
    EditBio(),
    LockAndPin(),
    RemoveAndBan(),
    CreateForum(),
    ReplyAndVote(),
]
