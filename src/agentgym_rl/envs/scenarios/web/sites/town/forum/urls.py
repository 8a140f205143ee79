"""Addresses of the forum."""

from __future__ import annotations

from django.urls import path

from agentgym_rl.envs.scenarios.web.sites.town.accounts import views as accounts
from agentgym_rl.envs.scenarios.web.sites.town.forum import moderation, views, writing

urlpatterns = [
    path("", views.front, {"scope": "subscribed"}),
    path("all", views.front, {"scope": "all"}),
    path("forums", views.forums),
    path("search", views.search),
    path("login", accounts.log_in),
    path("logout", accounts.log_out),
    path("submit", writing.submit),
    path("create_forum", writing.create_forum),
    path("account", writing.account),
    path("user/<str:name>", views.user, {"tab": "overview"}),
    path("user/<str:name>/submissions", views.user, {"tab": "submissions"}),
    path("user/<str:name>/comments", views.user, {"tab": "comments"}),
    path("f/<str:name>", views.forum),
    path("f/<str:name>/submit", writing.submit),
    path("f/<str:name>/subscribe", writing.subscribe),
    path("f/<str:name>/moderation_log", moderation.log),
    path("f/<str:name>/bans", moderation.bans),
    path("f/<str:name>/bans/<int:number>/remove", moderation.unban),
    path("f/<str:name>/settings", moderation.settings),
    path("f/<str:name>/rules", moderation.rules),
    path("f/<str:name>/<int:number>", views.submission),
    path("f/<str:name>/<int:number>/comment", writing.comment),
    path("f/<str:name>/<int:number>/edit", writing.edit),
    path("f/<str:name>/<int:number>/delete", writing.delete),
    path("f/<str:name>/<int:number>/moderate", moderation.moderate),
    path("comment/<int:number>/reply", writing.reply),
    path("comment/<int:number>/edit", writing.edit_comment),
    path("comment/<int:number>/delete", writing.delete_comment),
    path("comment/<int:number>/remove", moderation.remove_comment),
    path("vote/<str:kind>/<int:number>", writing.vote),
]
