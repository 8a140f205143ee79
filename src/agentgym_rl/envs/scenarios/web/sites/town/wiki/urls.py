"""Addresses of the encyclopedia."""

from __future__ import annotations

from django.urls import path

from agentgym_rl.envs.scenarios.web.sites.town.accounts import views as accounts
from agentgym_rl.envs.scenarios.web.sites.town.wiki import views

urlpatterns = [
    path("", views.main),
    path("search", views.search),
    path("random", views.random_article),
    path("categories", views.categories),
    path("watchlist", views.watchlist),
    path("login", accounts.log_in),
    path("logout", accounts.log_out),
    path("category/<path:name>", views.category),
    path("wiki/<path:title>", views.article),
    path("history/<path:title>", views.history),
    path("watch/<path:title>", views.watch),
    path("links/<path:title>", views.links),
    path("talk/<path:title>", views.talk),
]
