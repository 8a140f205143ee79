"""Addresses of the code hosting. Paths of projects come last: they could be anything."""

from __future__ import annotations

from django.urls import path

from agentgym_rl.envs.scenarios.web.sites.town.accounts import views as accounts
from agentgym_rl.envs.scenarios.web.sites.town.code import (
    browsing,
    issues,
    managing,
    reviewing,
    spaces,
)

_IN = "<str:space>/<str:name>/-/"

urlpatterns = [
    path("", spaces.dashboard),
    path("explore", spaces.explore),
    path("explore/groups", spaces.groups),
    path("search", spaces.search),
    path("dashboard/issues", spaces.my_issues),
    path("dashboard/merge_requests", spaces.my_requests),
    path("profile", spaces.edit_profile),
    path("login", accounts.log_in),
    path("logout", accounts.log_out),
    path("projects/new", managing.new_project),
    path("groups/new", managing.new_group),
    path(_IN + "tree/<str:ref>", browsing.tree),
    path(_IN + "tree/<str:ref>/<path:folder>", browsing.tree),
    path(_IN + "blob/<str:ref>/<path:file>", browsing.blob),
    path(_IN + "blame/<str:ref>/<path:file>", browsing.blame_page),
    path(_IN + "edit/<str:ref>/<path:file>", browsing.edit),
    path(_IN + "commits/<str:ref>", browsing.commits),
    path(_IN + "commits/<str:ref>/<path:file>", browsing.commits),
    path(_IN + "commit/<str:ref>", browsing.commit),
    path(_IN + "branches", browsing.branches),
    path(_IN + "branches/delete", browsing.delete_branch),
    path(_IN + "contributors", browsing.contributors),
    path(_IN + "issues", issues.listing),
    path(_IN + "issues/new", issues.new),
    path(_IN + "issues/<int:iid>", issues.show),
    path(_IN + "issues/<int:iid>/edit", issues.edit),
    path(_IN + "issues/<int:iid>/act", issues.act),
    path(_IN + "labels", issues.labels),
    path(_IN + "milestones", issues.milestones),
    path(_IN + "milestones/<int:number>", issues.milestone),
    path(_IN + "merge_requests", reviewing.listing),
    path(_IN + "merge_requests/new", reviewing.new),
    path(_IN + "merge_requests/<int:iid>", reviewing.show, {"part": "overview"}),
    path(_IN + "merge_requests/<int:iid>/commits", reviewing.show, {"part": "commits"}),
    path(_IN + "merge_requests/<int:iid>/changes", reviewing.show, {"part": "changes"}),
    path(_IN + "merge_requests/<int:iid>/act", reviewing.act),
    path(_IN + "members", managing.members),
    path(_IN + "members/<int:number>", managing.member),
    path(_IN + "settings", managing.settings),
    path(_IN + "settings/delete", managing.delete),
    path(_IN + "star", managing.star),
    path(_IN + "starrers", managing.starrers),
    path(_IN + "forks/new", managing.fork),
    path("<str:space>", spaces.space),
    path("<str:space>/<str:name>", browsing.overview),
]
