"""Addresses of the forum: Spirit's, at the root."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("", include("spirit.urls"))]
