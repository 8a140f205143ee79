"""What the map keeps for a person: lists of places."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class PlaceList(models.Model):
    """Places that a person has saved under one name."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    name = models.CharField(max_length=40)

    class Meta:
        app_label = "map"
        unique_together = (("user", "name"),)


class KnownWay(models.Model):
    """What the map says about some ways, written when the template is built: tasks ask for it."""

    start = models.CharField(max_length=120)
    end = models.CharField(max_length=120)
    mode = models.CharField(max_length=4)
    distance = models.CharField(max_length=20)
    time = models.CharField(max_length=20)
    num_steps = models.IntegerField()

    class Meta:
        app_label = "map"


class SavedPlace(models.Model):
    """A place on a list; `place` is its number in the reference."""

    place_list = models.ForeignKey(PlaceList, models.CASCADE)
    place = models.IntegerField()
    note = models.CharField(blank=True, max_length=200)

    class Meta:
        app_label = "map"
        unique_together = (("place_list", "place"),)
