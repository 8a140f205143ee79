"""Fills the forum: `seed`. Who writes what and when, and who likes it, is drawn from one seed."""

from __future__ import annotations

import random
import tomllib
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path

from django.contrib.auth import get_user_model
from django.db.models import F
from djconfig.models import Config as ConfigModel
from spirit.category.models import Category
from spirit.comment.flag.models import CommentFlag, Flag
from spirit.comment.like.models import CommentLike
from spirit.comment.models import Comment
from spirit.comment.poll.models import CommentPoll, CommentPollChoice, CommentPollVote
from spirit.core.utils.markdown import Markdown
from spirit.topic.favorite.models import TopicFavorite
from spirit.topic.models import Topic
from spirit.topic.notification.models import TopicNotification
from spirit.topic.private.models import TopicPrivate
from spirit.user.models import UserProfile

from agentgym_rl.envs.scenarios.web.projects import NOW
from agentgym_rl.envs.scenarios.web.sites.spirit.search import create_index

_HERE = Path(__file__).parent
_TOPICS_PER_CATEGORY = 50
_NUM_LETTERS = 70
_FIRST = datetime(2023, 2, 1, 8, tzinfo=NOW.tzinfo)
_NUM_REPLIES = [0, 1, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 11, 14, 17, 24, 29]


class Writer:
    """Draws members, moments and texts."""

    def __init__(self) -> None:
        self.draws = random.Random("talk")
        self.content = tomllib.loads((_HERE / "content.toml").read_text())
        self.members: list = []
        self.weights: list[int] = []
        self.comments: list[Comment] = []

    def member(self):
        return self.draws.choices(self.members, self.weights)[0]

    def pick(self, texts: list[str], **slots: str) -> str:
        text = self.draws.choice(texts)
        place = self.draws.choice(self.content["places"])
        said = text.replace("{place}", place)
        for name, value in slots.items():
            said = said.replace(". {" + name + "}", f". {_capital(value)}")
            said = said.replace("{" + name + "}", value)
        return _capital(said)

    def later(self, moment: datetime, hours: int) -> datetime:
        """Return a moment some hours after another, not in the future."""
        next_one = moment + timedelta(seconds=self.draws.randint(120, hours * 3600))
        return min(next_one, NOW - timedelta(minutes=self.draws.randint(5, 3000)))

    def write(self, topic: Topic, user: object, text: str, date: datetime) -> Comment:
        comment = Comment(
            topic=topic, user=user, comment=text, comment_html=Markdown().render(text), date=date
        )
        self.comments.append(comment)
        return comment


def seed() -> None:
    writer = Writer()
    ConfigModel.objects.create(key="site_name", value="Commons")
    ConfigModel.objects.create(key="site_description", value="The neighbourhood's board")
    _members(writer)
    categories = _categories(writer)
    topics = [
        _topic(writer, categories[kind["title"]], title, x, kind)
        for kind, title, x in _titles(writer)
    ]
    polls = [_poll(writer, categories[poll["category"]], poll) for poll in writer.content["polls"]]
    for _ in range(_NUM_LETTERS):
        _letter(writer)
    spam = _spam(writer, topics)
    _store(writer)
    for topic, poll in polls:
        _votes(writer, topic, poll)
    _likes(writer)
    _flags(writer, spam)
    _marks(writer, topics)
    _pin_and_close(topics)
    _count()
    create_index()


def _members(writer: Writer) -> None:
    people = tomllib.loads((_HERE / "people.toml").read_text())
    for number, member in enumerate(people["members"]):
        user = get_user_model().objects.create(
            username=member["name"],
            email=f"{member['name']}@talk.example",
            password="!",
            date_joined=_FIRST - timedelta(days=400 - 9 * number),
        )
        UserProfile.objects.filter(user=user).update(
            location=member["location"],
            is_verified=True,
            is_moderator=member["name"] in (*people["moderators"], people["administrator"]),
            is_administrator=member["name"] == people["administrator"],
        )
        writer.members.append(user)
        writer.weights.append(member["weight"])


def _categories(writer: Writer) -> dict[str, Category]:
    Category.objects.create(id=1, title="Private", slug="private", is_private=True)
    return {
        kind["title"]: Category.objects.create(
            title=kind["title"], description=kind["description"], color=kind["color"], sort=number
        )
        for number, kind in enumerate(writer.content["categories"], 1)
    }


def _titles(writer: Writer) -> list[tuple[dict, str, str]]:
    """Return (category, title, subject) of all topics, in the order in which they are begun."""
    found = []
    for kind in writer.content["categories"]:
        every = [(title, x) for title in kind["titles"] for x in kind["subjects"]]
        for title, x in writer.draws.sample(every, _TOPICS_PER_CATEGORY):
            said = title.replace("{x}", x)
            found.append((kind, _capital(said), x))
    writer.draws.shuffle(found)
    return found


def _topic(writer: Writer, category: Category, title: str, x: str, kind: dict) -> Topic:
    begun = _FIRST + timedelta(seconds=writer.draws.random() * (NOW - _FIRST).total_seconds())
    begun = min(begun, NOW - timedelta(hours=3))
    content = writer.content
    topic = Topic(user=writer.member(), category=category, title=title, date=begun)
    opening = [writer.pick(content["greetings"]), writer.pick(kind["openings"], x=x)]
    opening.append(writer.pick(content["thanks"]))
    writer.write(topic, topic.user, " ".join(opening), begun)
    said, moment = set(opening), begun
    for _ in range(writer.draws.choice(_NUM_REPLIES)):
        moment = writer.later(moment, 60)
        sentences = [writer.pick(kind["replies"], x=x)]
        if writer.draws.random() < 0.6:
            sentences.append(writer.pick(content["general"]))
        writer.draws.shuffle(sentences)
        fresh = [sentence for sentence in sentences if sentence not in said]
        said.update(fresh)
        if fresh:
            writer.write(topic, writer.member(), " ".join(fresh), moment)
    return topic


def _poll(writer: Writer, category: Category, poll: dict) -> tuple[Topic, dict]:
    begun = NOW - timedelta(days=writer.draws.randint(2, 90), minutes=writer.draws.randint(1, 900))
    topic = Topic(user=writer.member(), category=category, title=poll["title"], date=begun)
    choices = "\n".join(f"{number}. {one}" for number, one in enumerate(poll["choices"], 1))
    text = f"Please vote, it takes a second.\n\n[poll name=choice]\n# {poll['question']}\n"
    writer.write(topic, topic.user, f"{text}{choices}\n[/poll]", begun)
    moment = begun
    for _ in range(writer.draws.randint(1, 6)):
        moment = writer.later(moment, 40)
        writer.write(topic, writer.member(), writer.pick(writer.content["general"]), moment)
    return topic, poll


def _letter(writer: Writer) -> None:
    letter = writer.draws.choice(writer.content["letters"])
    sender, receiver = writer.draws.sample(writer.members, 2)
    thing = writer.draws.choice(letter["things"])
    begun = NOW - timedelta(hours=writer.draws.randint(5, 4000))
    title = letter["subject"].replace("{thing}", thing)
    topic = Topic(user=sender, category_id=1, title=title, date=begun)
    lines = letter["lines"][: writer.draws.randint(1, len(letter["lines"]))]
    moment = begun
    for number, line in enumerate(lines):
        user = (sender, receiver)[number % 2]
        said = line.replace("{thing}", thing).replace("{to}", receiver.username)
        writer.write(topic, user, said, moment)
        moment = writer.later(moment, 20)
    topic.readers = (sender, receiver)  # kept until the topic has a number, see _store


def _spam(writer: Writer, topics: list[Topic]) -> list[Comment]:
    return [
        writer.write(
            topic,
            writer.member(),
            writer.draws.choice(writer.content["spam"]["lines"]),
            writer.later(topic.date, 300),
        )
        for topic in writer.draws.sample(topics, 18)
    ]


def _store(writer: Writer) -> None:
    """Give topics and comments their numbers, in the order of time."""
    writer.comments.sort(key=lambda comment: comment.date)
    topics = list({id(comment.topic): comment.topic for comment in writer.comments}.values())
    said = defaultdict(list)
    for comment in writer.comments:
        said[id(comment.topic)].append(comment)
    for topic in topics:
        dates = [comment.date for comment in said[id(topic)]]
        topic.last_active = topic.reindex_at = max(dates)
        topic.comment_count = len(dates)
        topic.view_count = len(dates) * writer.draws.randint(4, 30) + writer.draws.randint(3, 40)
    topics.sort(key=lambda topic: topic.date)
    Topic.objects.bulk_create(topics)
    Comment.objects.bulk_create(writer.comments)
    TopicPrivate.objects.bulk_create(
        TopicPrivate(topic=topic, user=user, date=topic.date)
        for topic in topics
        for user in getattr(topic, "readers", ())
    )


def _votes(writer: Writer, topic: Topic, poll: dict) -> None:
    comment = next(one for one in writer.comments if one.topic is topic)  # the one that opens it
    made = CommentPoll.objects.create(
        comment=comment, name="choice", title=poll["question"], created_at=comment.date
    )
    choices = [
        CommentPollChoice.objects.create(poll=made, number=number, description=text)
        for number, text in enumerate(poll["choices"], 1)
    ]
    voters = writer.draws.sample(writer.members[3:], writer.draws.randint(14, 30))
    favour = [writer.draws.randint(1, 9) for _ in choices]
    for voter in voters:
        choice = writer.draws.choices(choices, favour)[0]
        CommentPollVote.objects.create(
            voter=voter, choice=choice, created_at=writer.later(comment.date, 100)
        )
        CommentPollChoice.objects.filter(id=choice.pk).update(vote_count=F("vote_count") + 1)


def _likes(writer: Writer) -> None:
    likes = []
    for comment in writer.comments:
        if comment.topic.category_id == 1:
            continue
        number = writer.draws.choice([0, 0, 0, 0, 0, 1, 1, 2, 3, 6])
        drawn = writer.draws.sample(writer.members, number)
        fans = [user for user in drawn if user.pk != comment.user_id]
        comment.likes_count = len(fans)
        likes += [
            CommentLike(user=fan, comment=comment, date=writer.later(comment.date, 200))
            for fan in fans
        ]
    CommentLike.objects.bulk_create(likes)
    Comment.objects.bulk_update(
        [comment for comment in writer.comments if comment.likes_count], ["likes_count"], 500
    )


def _flags(writer: Writer, spam: list[Comment]) -> None:
    for comment in spam[:-3]:  # the last ones nobody has reported yet
        user = writer.draws.choice([one for one in writer.members if one.pk != comment.user_id])
        date = writer.later(comment.date, 50)
        CommentFlag.objects.create(comment=comment, date=date)
        Flag.objects.create(user=user, comment=comment, date=date, reason=0, body="This is spam.")


def _marks(writer: Writer, topics: list[Topic]) -> None:
    """Let members follow topics and mark some as favourites."""
    last = {comment.topic_id: comment for comment in writer.comments}
    for user in writer.members:
        for topic in writer.draws.sample(topics, 12):
            comment = last[topic.pk]
            TopicNotification.objects.create(
                user=user,
                topic=topic,
                comment=comment,
                date=comment.date,
                action=TopicNotification.COMMENT,
                is_read=comment.date < NOW - timedelta(days=60),
                is_active=True,
            )
        for topic in writer.draws.sample(topics, 5):
            TopicFavorite.objects.create(user=user, topic=topic, date=writer.later(topic.date, 400))


def _pin_and_close(topics: list[Topic]) -> None:
    by_date = sorted(topics, key=lambda topic: topic.date)
    for topic in by_date[5:400:45]:
        Topic.objects.filter(id=topic.pk).update(is_pinned=True)
    for topic in by_date[2:300:25]:
        Topic.objects.filter(id=topic.pk).update(is_closed=True)
    Topic.objects.filter(id=by_date[-30].pk).update(is_globally_pinned=True)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _count() -> None:
    for profile in UserProfile.objects.all():
        mine = Comment.objects.filter(user_id=profile.user_id)
        last = mine.order_by("-date").first()
        UserProfile.objects.filter(id=profile.pk).update(
            comment_count=mine.count(),
            topic_count=Topic.objects.filter(user_id=profile.user_id).count(),
            last_seen=last.date if last else _FIRST,
        )
