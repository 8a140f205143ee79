"""What moderators do, and the public record of it."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from agentgym_rl.envs.scenarios.web.sites.town.forum.forms import (
    BanForm,
    ForumSettingsForm,
    RuleForm,
)
from agentgym_rl.envs.scenarios.web.sites.town.forum.models import (
    Ban,
    Comment,
    Forum,
    ModerationAction,
    Moderator,
    Rule,
    Submission,
)
from agentgym_rl.envs.scenarios.web.sites.town.forum.views import sidebar
from agentgym_rl.envs.scenarios.web.sites.town.paging import page_of

_SWITCHES = {
    "lock": ("is_locked", True, "locked"),
    "unlock": ("is_locked", False, "unlocked"),
    "pin": ("is_sticky", True, "pinned"),
    "unpin": ("is_sticky", False, "unpinned"),
    "remove": ("is_removed", True, "removed"),
    "restore": ("is_removed", False, "restored"),
}


@login_required
@require_POST
def moderate(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Lock, pin or remove a submission, or undo it."""
    here = _moderated(request, name)
    found = get_object_or_404(Submission, pk=number, forum=here)
    if request.POST.get("action") in _SWITCHES:
        field, value, done = _SWITCHES[request.POST["action"]]
        setattr(found, field, value)
        found.save()
        _record(request, here, f"{done} “{found.title}”")
        messages.success(request, f"The submission was {done}.")
    return redirect(f"/f/{name}/{number}")


@login_required
@require_POST
def remove_comment(request: HttpRequest, number: int) -> HttpResponse:
    """Take a comment out of sight."""
    found = get_object_or_404(Comment.objects.select_related("submission__forum"), pk=number)
    here = _moderated(request, found.submission.forum.name)
    found.is_removed = True
    found.save()
    _record(request, here, f"removed a comment by {found.author.username}")
    messages.success(request, "The comment was removed.")
    return redirect(f"/f/{here.name}/{found.submission_id}")


@login_required
def bans(request: HttpRequest, name: str) -> HttpResponse:
    """Show who is banned, and ban somebody."""
    here = _moderated(request, name)
    form = BanForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        user = get_user_model().objects.get(username=data["username"])
        Ban.objects.update_or_create(
            forum=here, user=user,
            defaults={"by": request.user, "reason": data["reason"], "expires": data["expires"],
                      "created": timezone.now()},
        )  # fmt: skip
        _record(request, here, f"banned {user.username}: {data['reason']}")
        messages.success(request, f"{user.username} was banned.")
        return redirect(f"/f/{name}/bans")
    found = Ban.objects.filter(forum=here).select_related("user", "by").order_by("-created")
    context = sidebar(request, here) | {"page": page_of(request, found, 20), "form": form}
    return render(request, "forum/bans.html", context)


@login_required
@require_POST
def unban(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Let somebody write again."""
    here = _moderated(request, name)
    ban = get_object_or_404(Ban.objects.select_related("user"), forum=here, pk=number)
    ban.delete()
    _record(request, here, f"unbanned {ban.user.username}")
    messages.success(request, f"{ban.user.username} is no longer banned.")
    return redirect(f"/f/{name}/bans")


@login_required
def settings(request: HttpRequest, name: str) -> HttpResponse:
    """Change title, description and sidebar."""
    here = _moderated(request, name)
    start = {"title": here.title, "description": here.description, "sidebar": here.sidebar}
    form = ForumSettingsForm(request.POST or None, initial=start)
    if request.method == "POST" and form.is_valid():
        for field, value in form.cleaned_data.items():
            setattr(here, field, value)
        here.save()
        _record(request, here, "changed the settings of the forum")
        messages.success(request, "The settings were saved.")
        return redirect(f"/f/{name}")
    return render(request, "forum/settings.html", sidebar(request, here) | {"form": form})


@login_required
def rules(request: HttpRequest, name: str) -> HttpResponse:
    """Show the rules; moderators add and delete them."""
    here = get_object_or_404(Forum, name=name)
    form = RuleForm(request.POST or None)
    if request.method == "POST":
        here = _moderated(request, name)
        if "delete" in request.POST:
            get_object_or_404(Rule, forum=here, pk=request.POST["delete"]).delete()
            messages.success(request, "The rule was deleted.")
            return redirect(f"/f/{name}/rules")
        if form.is_valid():
            last = Rule.objects.filter(forum=here).last()
            Rule.objects.create(
                forum=here, position=last.position + 1 if last else 1, **form.cleaned_data
            )
            _record(request, here, f"added the rule “{form.cleaned_data['title']}”")
            messages.success(request, "The rule was added.")
            return redirect(f"/f/{name}/rules")
    return render(request, "forum/rules.html", sidebar(request, here) | {"form": form})


def log(request: HttpRequest, name: str) -> HttpResponse:
    """Show what moderators did."""
    here = get_object_or_404(Forum, name=name)
    found = ModerationAction.objects.filter(forum=here).select_related("moderator")
    page = page_of(request, found.order_by("-created", "-id"), 20)
    return render(request, "forum/log.html", sidebar(request, here) | {"page": page})


def _moderated(request: HttpRequest, name: str) -> Forum:
    here = get_object_or_404(Forum, name=name)
    if not Moderator.objects.filter(forum=here, user=request.user).exists():
        raise PermissionDenied(f"You do not moderate {name}.")
    return here


def _record(request: HttpRequest, here: Forum, text: str) -> None:
    ModerationAction.objects.create(
        forum=here, moderator=request.user, text=text[:300], created=timezone.now()
    )
