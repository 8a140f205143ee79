"""Addresses of the map."""

from __future__ import annotations

from django.urls import path

from agentgym_rl.envs.scenarios.web.sites.town.accounts import views as accounts
from agentgym_rl.envs.scenarios.web.sites.town.map import saving, views

urlpatterns = [
    path("", views.start),
    path("search", views.search),
    path("place/<int:number>", views.place),
    path("place/<int:number>/nearby", views.nearby),
    path("directions", views.directions),
    path("saved", saving.lists),
    path("saved/<int:number>", saving.one_list),
    path("saved/<int:number>/remove", saving.remove),
    path("place/<int:number>/save", saving.save),
    path("login", accounts.log_in),
    path("logout", accounts.log_out),
]
