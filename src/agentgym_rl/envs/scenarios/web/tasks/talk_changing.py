"""Errands on the held-out forum."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.talk_steps import (
    MODERATOR,
    NEW,
    TalkChanging,
    click_after,
    find_topic,
    is_unchanged,
    member_of,
    new_comments,
    new_likes,
    post_comment,
    send_message,
    single_comments,
    text,
    topics,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Outcome, Seeded, Template

_REMARKS = [
    "Count me in, I will be there on Saturday.",
    "Thank you all, this helped a lot.",
    "Could we meet a little later, say at eight?",
    "I have one to spare, just come by.",
    "It worked at the second attempt.",
    "Please do not forget the rain covers.",
    "My brother had the same trouble last year.",
    "I would rather wait until next week.",
    "That is a good price, I would take it.",
    "The key is with the caretaker.",
]
_SUBJECTS = [
    "Ladder left at the library",
    "Carpool on weekday mornings",
    "Found: a blue scarf",
    "Spare seats for the concert",
    "Who has a long extension lead?",
    "Bread oven at the weekend",
    "Swap day in September",
    "Wet cellar after the storm",
    "Singing in the courtyard",
    "Old maps of the quay",
]
_CATEGORIES = """
SELECT id, title FROM spirit_category_category WHERE is_private = 0 ORDER BY id
"""


def remark(place: int) -> str:
    return _REMARKS[place % len(_REMARKS)]


class PostComment(TalkChanging):
    """Write a comment in a topic."""

    name = "talk-post-comment"
    number = 20
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, topics(seeded))):
            said, user = remark(place), member_of(seeded, place)
            yield Case(
                f'Post this comment in the topic "{row[1]}": {said}',
                users={"talk": user},
                values={"topic": row[0], "title": row[1], "said": said, "user": user},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        wanted = (case.values["topic"], case.values["user"], case.values["said"])
        return new_comments(outcome) == [wanted]

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from post_comment(page, text(case, "said"))
        yield from page.done()


class Like(TalkChanging):
    """Like somebody's comment."""

    name = "talk-like"
    number = 21
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        unliked = single_comments(seeded, "c.likes_count = 0")
        for place, row in enumerate(seeded.some(self, unliked)):
            user = member_of(seeded, place, row[3])
            yield Case(
                f'Like the comment by {row[3]} in the topic "{row[6]}".',
                users={"talk": user},
                values={"comment": row[0], "said": row[1], "title": row[6], "user": user},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return new_likes(outcome) == [(case.values["comment"], case.values["user"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from click_after(page, text(case, "said"), ["like"])
        yield from page.done()


class NewTopic(TalkChanging):
    """Start a topic in a category."""

    name = "talk-new-topic"
    number = 22
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        categories = seeded.rows("talk", _CATEGORIES)
        for place, subject in enumerate(seeded.some(self, _SUBJECTS)):
            number, category = categories[place % len(categories)]
            yield Case(
                f'Start a topic with the title "{subject}" in the category {category}. '
                f"Its text is: {remark(place)}",
                users={"talk": member_of(seeded, place)},
                values={
                    "id": number,
                    "category": category,
                    "title": subject,
                    "said": remark(place),
                },
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "talk", f"SELECT id, category_id, title FROM spirit_topic_topic WHERE {NEW}", ()
        )
        if [row[1:] for row in rows] != [(case.values["id"], case.values["title"])]:
            return False
        said = [(topic, said) for topic, _, said in new_comments(outcome)]
        return said == [(rows[0][0], case.values["said"])]

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", "Create Topic")
        yield from page.type("textbox", "Title:", text(case, "title"), enter=False)
        yield from page.select("Category:", text(case, "category"))
        yield from page.type("textbox", "Comment:", text(case, "said"), enter=False)
        yield from page.click("button", "Publish")
        yield from page.done()


class Vote(TalkChanging):
    """Vote in a poll."""

    name = "talk-vote"
    number = 23
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "talk",
            """SELECT c.id, t.title, c.description FROM spirit_comment_poll_commentpollchoice c
            JOIN spirit_comment_poll_commentpoll p ON p.id = c.poll_id
            JOIN spirit_comment_comment m ON m.id = p.comment_id
            JOIN spirit_topic_topic t ON t.id = m.topic_id ORDER BY c.id""",
        )
        for number, title, choice in seeded.some(self, rows):
            yield Case(
                f'Vote for "{choice}" in the poll of the topic "{title}".',
                users={"talk": "oswin"},  # who has not voted anywhere
                values={"choice": number, "title": title, "label": choice},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "talk",
            """SELECT v.choice_id FROM spirit_comment_poll_commentpollvote v
            JOIN auth_user u ON u.id = v.voter_id
            WHERE u.username = 'oswin' AND v.is_removed = 0""",
            (),
        )
        return rows == [(case.values["choice"],)]

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from page.click("radio", text(case, "label"))
        yield from page.click("button", "Vote")
        yield from page.done()


def has_message(outcome: Outcome, case: Case) -> bool:
    """Return whether the episode began one private topic, as the case wants it."""
    rows = outcome.query(
        "talk",
        f"""SELECT t.id, t.title, group_concat(u.username, ' ') FROM spirit_topic_topic t
        JOIN (SELECT * FROM spirit_topic_private_topicprivate ORDER BY user_id) p
            ON p.topic_id = t.id
        JOIN auth_user u ON u.id = p.user_id
        WHERE t.{NEW} AND t.category_id = 1 GROUP BY t.id""",
        (),
    )
    if len(rows) != 1:
        return False
    topic, title, names = rows[0]
    said = [one for number, _, one in new_comments(outcome) if number == topic]
    people = {case.values["user"], case.values["to"]}
    is_sent = title == case.values["subject"] and set(str(names).split()) == people
    return is_sent and said == [case.values["said"]]


class Message(TalkChanging):
    """Send a private message."""

    name = "talk-message"
    number = 24
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, subject in enumerate(seeded.some(self, _SUBJECTS)):
            user = member_of(seeded, place)
            to = member_of(seeded, place + 3, user)
            yield Case(
                f'Send {to} a private message with the title "{subject}" and the text: '
                f"{remark(place + 4)}",
                users={"talk": user},
                values={"user": user, "to": to, "subject": subject, "said": remark(place + 4)},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        return has_message(outcome, case) and is_unchanged(outcome, comments=1)

    def expert(self, case: Case, page: Page) -> Script:
        words = (text(case, name) for name in ("user", "to", "subject", "said"))
        yield from send_message(page, *words)
        yield from page.done()


class EditComment(TalkChanging):
    """Replace the text of an own comment."""

    name = "talk-edit-comment"
    number = 25
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        mine = single_comments(seeded, "u.username NOT IN ('marta_h', 'oswin', 'steward')")
        for place, row in enumerate(seeded.some(self, mine)):
            yield Case(
                f'Change your comment in the topic "{row[6]}" so that it says only: '
                f"{remark(place + 2)}",
                users={"talk": str(row[3])},
                values={
                    "comment": row[0],
                    "was": row[1],
                    "title": row[6],
                    "said": remark(place + 2),
                },
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "talk",
            """SELECT id, trim(replace(comment, char(13), '')) FROM spirit_comment_comment
            WHERE is_modified = 1 OR modified_count > 0""",
            (),
        )
        wanted = (case.values["comment"], case.values["said"])
        return rows == [wanted] and is_unchanged(outcome)

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from click_after(page, text(case, "was"), ["edit"])
        yield from page.type("textbox", "Comment:", text(case, "said"), enter=False)
        yield from page.click("button", "Publish")
        yield from page.done()


class Report(TalkChanging):
    """Report a comment to the moderators."""

    name = "talk-report"
    number = 26
    level = 4

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, single_comments(seeded))):
            user = member_of(seeded, place, row[3])
            reason = ("Spam", "Other")[place % 2]
            yield Case(
                f'Report the comment by {row[3]} in the topic "{row[6]}": '
                f'the reason is {reason}, the text "Please have a look".',
                users={"talk": user},
                values={
                    "comment": row[0],
                    "said": row[1],
                    "title": row[6],
                    "user": user,
                    "reason": reason,
                },
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "talk",
            f"""SELECT f.comment_id, u.username, f.reason, trim(f.body)
            FROM spirit_comment_flag_flag f JOIN auth_user u ON u.id = f.user_id WHERE f.{NEW}""",
            (),
        )
        reason = ("Spam", "Other").index(text(case, "reason"))
        wanted = (case.values["comment"], case.values["user"], reason, "Please have a look")
        return rows == [wanted]

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from click_after(page, text(case, "said"), ["report"])
        yield from page.select("Reason:", text(case, "reason"))
        yield from page.type("textbox", "Body:", "Please have a look", enter=False)
        yield from page.click("button", "Report")
        yield from page.done()


class MoveAndClose(TalkChanging):
    """Move a topic to another category and close it, as a moderator."""

    name = "talk-move-and-close"
    number = 40
    level = 5

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        categories = seeded.rows("talk", _CATEGORIES)
        for place, row in enumerate(seeded.some(self, topics(seeded))):
            others = [(number, name) for number, name in categories if name != row[4]]
            number, category = others[place % len(others)]
            yield Case(
                f'Move the topic "{row[1]}" to the category {category}, and close it.',
                users={"talk": MODERATOR},
                values={"topic": row[0], "title": row[1], "id": number, "category": category},
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        rows = outcome.query(
            "talk",
            """SELECT t.id, t.category_id, t.is_closed, t.is_removed FROM spirit_topic_topic t
            WHERE t.id IN (SELECT topic_id FROM spirit_comment_comment
                WHERE date >= '2024-06-14 10:30' AND action <> 0)""",
            (),
        )
        return rows == [(case.values["topic"], case.values["id"], 1, 0)] and is_unchanged(outcome)

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from page.click("link", "edit")
        yield from page.select("Category:", text(case, "category"))
        yield from page.click("button", "Update")
        yield from page.click("link", "Moderate")
        yield from page.click("link", "Close topic")
        yield from page.done()


class RemoveSpam(TalkChanging):
    """Remove a comment and say so, as a moderator."""

    name = "talk-remove-and-explain"
    number = 41
    level = 5

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        reported = single_comments(
            seeded,
            "c.id <> (SELECT min(f.id) FROM spirit_comment_comment f WHERE f.topic_id = t.id)"
            " AND u.username NOT IN ('marta_h', 'oswin', 'steward')",
        )
        for row in seeded.some(self, reported):
            said = f"I have removed a comment by {row[3]}. Please stay with the subject."
            yield Case(
                f'In the topic "{row[6]}", delete the comment by {row[3]} and post this comment: '
                f"{said}",
                users={"talk": MODERATOR},
                values={
                    "comment": row[0],
                    "was": row[1],
                    "topic": row[5],
                    "title": row[6],
                    "said": said,
                },
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        removed = outcome.query(
            "talk", "SELECT id FROM spirit_comment_comment WHERE is_removed = 1", ()
        )
        wanted = (case.values["topic"], MODERATOR, case.values["said"])
        return removed == [(case.values["comment"],)] and new_comments(outcome) == [wanted]

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from click_after(page, text(case, "was"), ["delete"])
        yield from post_comment(page, text(case, "said"))
        yield from page.done()


class ReplyAndMessage(TalkChanging):
    """Post a comment in a topic and write to the one who started it."""

    name = "talk-reply-and-message"
    number = 42
    level = 5

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = topics(seeded, "u.username <> 'steward'")
        for place, row in enumerate(seeded.some(self, rows)):
            user = member_of(seeded, place, row[5])
            subject, posted, said = _SUBJECTS[place % 10], remark(place + 1), remark(place + 5)
            yield Case(
                f'Post the comment "{posted}" in the topic "{row[1]}". Then send a private message '
                f'to the member who started that topic, with the title "{subject}" '
                f'and the text "{said}"',
                users={"talk": user},
                values={
                    "topic": row[0],
                    "title": row[1],
                    "to": row[5],
                    "user": user,
                    "posted": posted,
                    "subject": subject,
                    "said": said,
                },
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        wanted = (case.values["topic"], case.values["user"], case.values["posted"])
        is_posted = wanted in new_comments(outcome) and is_unchanged(outcome, comments=2)
        return is_posted and has_message(outcome, case)

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from post_comment(page, text(case, "posted"))
        words = (text(case, name) for name in ("user", "to", "subject", "said"))
        yield from send_message(page, *words)
        yield from page.done()


class LikeTwo(TalkChanging):
    """Like two comments in two topics."""

    name = "talk-like-two"
    number = 43
    level = 5

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.some(self, single_comments(seeded, "c.likes_count = 0"), 40)
        for place, (first, second) in enumerate(zip(rows[::2], rows[1::2], strict=True)):
            user = member_of(seeded, place, first[3], second[3])
            yield Case(
                f'Like the comment by {first[3]} in the topic "{first[6]}" and the one by '
                f'{second[3]} in the topic "{second[6]}".',
                users={"talk": user},
                values={
                    "user": user,
                    "comment 1": first[0],
                    "said 1": first[1],
                    "title 1": first[6],
                    "comment 2": second[0],
                    "said 2": second[1],
                    "title 2": second[6],
                },
            )

    def check(self, case: Case, outcome: Outcome) -> bool:
        numbers = sorted(int(text(case, name)) for name in ("comment 1", "comment 2"))
        return new_likes(outcome) == [(number, case.values["user"]) for number in numbers]

    def expert(self, case: Case, page: Page) -> Script:
        for place in "12":
            yield from find_topic(page, text(case, f"title {place}"))
            yield from click_after(page, text(case, f"said {place}"), ["like"])
        yield from page.done()


TEMPLATES: list[Template] = [
    PostComment(),
    Like(),
    NewTopic(),
    Vote(),
    Message(),
    EditComment(),
    Report(),
    MoveAndClose(),
    RemoveSpam(),
    ReplyAndMessage(),
    LikeTwo(),
]
