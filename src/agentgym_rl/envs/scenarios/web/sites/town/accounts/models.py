"""What the sites know of a person beside Django's user."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class Profile(models.Model):
    """What a person says about themselves; the forum and the code hosting show it."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE)
    bio = models.TextField(blank=True, max_length=500)
    location = models.CharField(blank=True, max_length=60)
    website = models.CharField(blank=True, max_length=80)
    status = models.CharField(blank=True, max_length=80)

    class Meta:
        app_label = "accounts"
