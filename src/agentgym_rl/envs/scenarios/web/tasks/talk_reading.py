"""Questions that are answered on the held-out forum."""

from __future__ import annotations

from collections.abc import Iterable

from agentgym_rl.envs.scenarios.web.page import Page, Script
from agentgym_rl.envs.scenarios.web.tasks.talk_steps import (
    TalkReading,
    find_topic,
    member_of,
    single_comments,
    text,
    topics,
)
from agentgym_rl.envs.scenarios.web.templates import Case, Row, Seeded, Template

_WORDS = ("flyer", "autumn", "neighbour", "weekend", "patience", "library", "council", "budget")
_WORDS += ("meeting", "children", "cake", "frost", "storm", "bus", "light", "coffee", "message")


class NumComments(TalkReading):
    """How many comments does a topic have, in the list of its category?"""

    name = "talk-num-comments"
    number = 1
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        first = "t.last_active > '2024-05-25' AND t.is_pinned = 0"
        for row in seeded.some(self, topics(seeded, first)):
            _, title, _, number, category, _, place, slug = row
            yield Case(
                f'How many comments does the topic "{title}" in {category} have?',
                str(number),
                path=f"/category/{place}/{slug}/",
                users={"talk": member_of(seeded, 0)},
                values={"title": title},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.answer(case.answer, shown=text(case, "title"))


class LikesHere(TalkReading):
    """How many likes does somebody's comment have, on the page that is open?"""

    name = "talk-likes-here"
    number = 2
    level = 1

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        liked = single_comments(seeded, "c.likes_count > 1")
        for place, row in enumerate(seeded.some(self, liked)):
            _, said, likes, author, _, topic, _, slug = row
            yield Case(
                f"How many likes does the comment by {author} on this page have?",
                str(likes),
                path=f"/topic/{topic}/{slug}/",
                users={"talk": member_of(seeded, place, author)},
                values={"said": said},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.read(text(case, "said"))
        yield from page.answer(case.answer, shown=f"like ({case.answer})")


class CategoryOf(TalkReading):
    """Which category is a topic in?"""

    name = "talk-category-of"
    number = 3
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, topics(seeded))):
            yield Case(
                f'Find the topic "{row[1]}". Which category is it in?',
                str(row[4]),
                users={"talk": member_of(seeded, place)},
                values={"title": row[1]},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from page.answer(case.answer)


class StarterOf(TalkReading):
    """Who started a topic?"""

    name = "talk-starter-of"
    number = 4
    level = 2

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        for place, row in enumerate(seeded.some(self, topics(seeded))):
            yield Case(
                f'Which member started the topic "{row[1]}"?',
                str(row[5]),
                users={"talk": member_of(seeded, place, row[5])},
                values={"title": row[1]},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from page.answer(case.answer)


class PollLeader(TalkReading):
    """Which choice of a poll has most votes?"""

    name = "talk-poll-leader"
    number = 5
    level = 3

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "talk",
            """SELECT t.title, p.title, c.description, c.vote_count
            FROM spirit_comment_poll_commentpollchoice c
            JOIN spirit_comment_poll_commentpoll p ON p.id = c.poll_id
            JOIN spirit_comment_comment m ON m.id = p.comment_id
            JOIN spirit_topic_topic t ON t.id = m.topic_id
            WHERE NOT EXISTS (SELECT 1 FROM spirit_comment_poll_commentpollchoice o
                WHERE o.poll_id = c.poll_id AND o.id <> c.id AND o.vote_count >= c.vote_count)
            ORDER BY t.id""",
        )
        for title, question, choice, _ in seeded.some(self, rows):
            yield Case(
                f'Look at the results of the poll in the topic "{title}". '
                f'Which choice leads for "{question}"?',
                str(choice),
                users={"talk": "oswin"},  # who has not voted anywhere
                values={"title": title},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from page.click("link", "Show results")
        yield from page.answer(case.answer)


class SearchInCategory(TalkReading):
    """How many topics of a category mention a word?"""

    name = "talk-search-in-category"
    number = 6
    level = 3

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        found = list[Row]()
        for word in _WORDS:
            found += seeded.rows(
                "talk",
                """SELECT ?, k.title, count(*) FROM talk_search s
                JOIN spirit_topic_topic t ON t.id = s.rowid
                JOIN spirit_category_category k ON k.id = t.category_id
                WHERE talk_search MATCH ? GROUP BY k.id HAVING count(*) BETWEEN 2 AND 12
                ORDER BY k.id""",
                word,
                f'"{word}"',
            )
        for word, category, number in seeded.some(self, found):
            yield Case(
                f'Search only the category {category} for "{word}". How many topics are found?',
                str(number),
                path="/search/",
                users={"talk": member_of(seeded, 3)},
                values={"word": word, "category": category},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.check(text(case, "category"))
        yield from page.type("textbox", "", text(case, "word"))
        yield from page.answer(case.answer, shown="Results")


class LatestOfStarter(TalkReading):
    """Which topic did the one who started a topic start last?"""

    name = "talk-latest-of-starter"
    number = 7
    level = 3

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "talk",
            """SELECT t.title, u.username, l.title FROM spirit_topic_topic t
            JOIN auth_user u ON u.id = t.user_id
            JOIN spirit_topic_topic l ON l.user_id = t.user_id AND l.category_id <> 1
            WHERE t.category_id <> 1 AND t.id <> l.id AND l.date = (SELECT max(o.date)
                FROM spirit_topic_topic o WHERE o.user_id = t.user_id AND o.category_id <> 1)
            ORDER BY t.id""",
        )
        for place, (title, author, latest) in enumerate(seeded.some(self, rows)):
            yield Case(
                f'Find out who started the topic "{title}". '
                "What is the title of the topic that this member has started most recently?",
                str(latest),
                users={"talk": member_of(seeded, place, author)},
                values={"title": title, "author": author},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from page.click("link", text(case, "author"))
        yield from page.click("link", "Topics")
        yield from page.answer(case.answer)


class LikesThere(TalkReading):
    """How many likes does somebody's comment in a topic have?"""

    name = "talk-likes-there"
    number = 8
    level = 3

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        liked = single_comments(seeded, "c.likes_count > 1")
        for place, row in enumerate(seeded.some(self, liked)):
            yield Case(
                f'How many likes does the comment by {row[3]} in the topic "{row[6]}" have?',
                str(row[2]),
                users={"talk": member_of(seeded, place, row[3])},
                values={"said": row[1], "title": row[6]},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from find_topic(page, text(case, "title"))
        yield from page.read(text(case, "said"))
        yield from page.answer(case.answer, shown=f"like ({case.answer})")


class LetterFrom(TalkReading):
    """Who sent a private message?"""

    name = "talk-letter-from"
    number = 9
    level = 3

    def cases(self, seeded: Seeded) -> Iterable[Case]:
        rows = seeded.rows(
            "talk",
            """SELECT t.title, a.username, r.username FROM spirit_topic_topic t
            JOIN auth_user a ON a.id = t.user_id
            JOIN spirit_topic_private_topicprivate p ON p.topic_id = t.id
                AND p.user_id <> t.user_id
            JOIN auth_user r ON r.id = p.user_id
            WHERE (SELECT count(*) FROM spirit_topic_private_topicprivate q
                JOIN spirit_topic_topic o ON o.id = q.topic_id
                WHERE q.user_id = p.user_id AND o.title = t.title) = 1 ORDER BY t.id""",
        )
        for title, author, reader in seeded.some(self, rows):
            yield Case(
                f'Who started your private topic "{title}"?',
                str(author),
                users={"talk": str(reader)},
                values={"title": title, "reader": reader},
            )

    def expert(self, case: Case, page: Page) -> Script:
        yield from page.click("link", text(case, "reader"))
        yield from page.click("link", "Private topics")
        yield from page.click("link", text(case, "title"))
        yield from page.answer(case.answer)


TEMPLATES: list[Template] = [
    NumComments(),
    LikesHere(),
    CategoryOf(),
    StarterOf(),
    PollLeader(),
    SearchInCategory(),
    LatestOfStarter(),
    LikesThere(),
    LetterFrom(),
]
