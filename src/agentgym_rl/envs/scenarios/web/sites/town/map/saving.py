"""Lists of places that a person keeps."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.views.decorators.http import require_POST

from agentgym_rl.envs.scenarios.web.sites.town.map.models import PlaceList, SavedPlace
from agentgym_rl.envs.scenarios.web.sites.town.map.views import require_place, show
from agentgym_rl.envs.scenarios.web.sites.town.reference import rows

_EUROPE = (49.5, 9.0)


@login_required
def lists(request: HttpRequest) -> HttpResponse:
    """Show the user's lists, and make one."""
    error = ""
    if request.method == "POST":
        name = request.POST.get("name", "").strip()
        if not name or len(name) > 40:
            error = "Write a name of at most 40 characters."
        elif PlaceList.objects.filter(user=request.user, name=name).exists():
            error = f"You have a list {name} already."
        else:
            PlaceList.objects.create(user=request.user, name=name)
            messages.success(request, f"The list {name} was created.")
            return redirect("/saved")
    found = PlaceList.objects.filter(user=request.user).annotate(num=Count("savedplace"))
    context: dict[str, object] = {"lists": found.order_by("name"), "error": error}
    return show(request, "map/lists.html", context, _EUROPE, 4)


@login_required
def one_list(request: HttpRequest, number: int) -> HttpResponse:
    """Show the places of a list; the list can be deleted."""
    found = get_object_or_404(PlaceList, pk=number, user=request.user)
    if request.method == "POST":
        found.delete()
        messages.success(request, f"The list {found.name} was deleted.")
        return redirect("/saved")
    saved = list(SavedPlace.objects.filter(place_list=found).order_by("id"))
    marks = ",".join("?" * len(saved))
    places = {
        one["id"]: one
        for one in rows(f"SELECT * FROM place WHERE id IN ({marks})", [one.place for one in saved])
    }
    entries = [(one, places[one.place]) for one in saved if one.place in places]
    pins = [(place["lat"], place["lon"], "") for _, place in entries]
    context: dict[str, object] = {"list": found, "entries": entries, "pins": pins}
    return show(request, "map/list.html", context, _EUROPE, 4)


@login_required
@require_POST
def save(request: HttpRequest, number: int) -> HttpResponse:
    """Put a place on a list."""
    place = require_place(number)
    chosen = get_object_or_404(PlaceList, pk=request.POST.get("list") or 0, user=request.user)
    note = request.POST.get("note", "").strip()[:200]
    SavedPlace.objects.update_or_create(place_list=chosen, place=number, defaults={"note": note})
    messages.success(request, f"{place['name']} was saved to {chosen.name}.")
    return redirect(f"/place/{number}")


@login_required
@require_POST
def remove(request: HttpRequest, number: int) -> HttpResponse:
    """Take a place off a list."""
    saved = get_object_or_404(SavedPlace, pk=number, place_list__user=request.user)
    saved.delete()
    messages.success(request, "The place was removed from the list.")
    return redirect(f"/saved/{saved.place_list_id}")
