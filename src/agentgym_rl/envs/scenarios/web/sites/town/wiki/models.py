"""What the encyclopedia keeps beside its articles: watchlists and discussions."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class WatchedArticle(models.Model):
    """A person watches an article."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    title = models.CharField(max_length=150)

    class Meta:
        app_label = "wiki"
        unique_together = (("user", "title"),)


class Topic(models.Model):
    """Something that people discuss about an article."""

    title = models.CharField(max_length=150, db_index=True)
    """Of the article."""
    heading = models.CharField(max_length=100)
    created = models.DateTimeField()

    class Meta:
        app_label = "wiki"


class Post(models.Model):
    """What somebody says in a discussion."""

    topic = models.ForeignKey(Topic, models.CASCADE)
    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    body = models.TextField(max_length=3000)
    created = models.DateTimeField()

    class Meta:
        app_label = "wiki"
