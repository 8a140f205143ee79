"""What the forum keeps: forums, submissions, comments, votes, subscriptions, moderation."""

from __future__ import annotations

import math
from datetime import datetime

from django.conf import settings
from django.db import models

_USER = settings.AUTH_USER_MODEL
_HOT_S = 45_000
"""This much younger is worth ten times the score."""


class Forum(models.Model):
    """A place for one subject."""

    name = models.CharField(max_length=30, unique=True)
    title = models.CharField(max_length=60)
    description = models.CharField(max_length=200)
    sidebar = models.TextField(blank=True, max_length=2000)
    created = models.DateTimeField()
    num_subscribers = models.IntegerField(default=0)

    class Meta:
        app_label = "forum"


class Subscription(models.Model):
    """A user follows a forum."""

    user = models.ForeignKey(_USER, models.CASCADE)
    forum = models.ForeignKey(Forum, models.CASCADE)

    class Meta:
        app_label = "forum"
        unique_together = (("user", "forum"),)


class Moderator(models.Model):
    """A user looks after a forum."""

    user = models.ForeignKey(_USER, models.CASCADE)
    forum = models.ForeignKey(Forum, models.CASCADE)

    class Meta:
        app_label = "forum"
        unique_together = (("forum", "user"),)


class Rule(models.Model):
    """A rule of a forum."""

    forum = models.ForeignKey(Forum, models.CASCADE)
    position = models.IntegerField()
    title = models.CharField(max_length=80)
    text = models.CharField(blank=True, max_length=300)

    class Meta:
        app_label = "forum"
        ordering = ("position", "id")


class Ban(models.Model):
    """A user may not write in a forum."""

    forum = models.ForeignKey(Forum, models.CASCADE)
    user = models.ForeignKey(_USER, models.CASCADE)
    by = models.ForeignKey(_USER, models.CASCADE, related_name="+")
    reason = models.CharField(max_length=200)
    created = models.DateTimeField()
    expires = models.DateField(null=True)

    class Meta:
        app_label = "forum"
        unique_together = (("forum", "user"),)


class Submission(models.Model):
    """A text or a link that people vote and comment on."""

    forum = models.ForeignKey(Forum, models.CASCADE)
    author = models.ForeignKey(_USER, models.CASCADE)
    title = models.CharField(max_length=200)
    url = models.CharField(blank=True, max_length=300)
    body = models.TextField(blank=True, max_length=10_000)
    created = models.DateTimeField(db_index=True)
    edited = models.DateTimeField(null=True)
    score = models.IntegerField(default=1)
    num_comments = models.IntegerField(default=0)
    hot = models.FloatField(db_index=True)
    is_locked = models.BooleanField(default=False)
    is_sticky = models.BooleanField(default=False)
    is_removed = models.BooleanField(default=False)

    class Meta:
        app_label = "forum"


class Comment(models.Model):
    """An answer to a submission or to another comment."""

    submission = models.ForeignKey(Submission, models.CASCADE)
    parent = models.ForeignKey("self", models.CASCADE, null=True, db_index=False)
    author = models.ForeignKey(_USER, models.CASCADE)
    body = models.TextField(max_length=5000)
    created = models.DateTimeField()
    edited = models.DateTimeField(null=True)
    score = models.IntegerField(default=1)
    is_removed = models.BooleanField(default=False)

    class Meta:
        app_label = "forum"


class Vote(models.Model):
    """+1 or -1 of a user for a submission."""

    submission = models.ForeignKey(Submission, models.CASCADE, db_index=False)
    user = models.ForeignKey(_USER, models.CASCADE, db_index=False)
    value = models.SmallIntegerField()

    class Meta:
        app_label = "forum"
        unique_together = (("submission", "user"),)


class CommentVote(models.Model):
    """+1 or -1 of a user for a comment."""

    comment = models.ForeignKey(Comment, models.CASCADE, db_index=False)
    user = models.ForeignKey(_USER, models.CASCADE, db_index=False)
    value = models.SmallIntegerField()

    class Meta:
        app_label = "forum"
        unique_together = (("comment", "user"),)


class ModerationAction(models.Model):
    """One line of the public log of a forum's moderators."""

    forum = models.ForeignKey(Forum, models.CASCADE)
    moderator = models.ForeignKey(_USER, models.CASCADE)
    text = models.CharField(max_length=300)
    created = models.DateTimeField()

    class Meta:
        app_label = "forum"


def hot_rank(score: int, created: datetime) -> float:
    """Return the place of a submission under "Hot": young and liked ones are first."""
    size = math.log10(max(abs(score), 1))
    sign = 1 if score > 0 else -1 if score < 0 else 0
    return round(sign * size + created.timestamp() / _HOT_S, 7)
