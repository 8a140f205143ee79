"""What people write in the forum: submissions, comments, votes, subscriptions, profiles."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db.models import F
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from agentgym_rl.envs.scenarios.web.sites.town.accounts.models import Profile
from agentgym_rl.envs.scenarios.web.sites.town.forum.forms import (
    CommentForm,
    EditForm,
    ForumForm,
    ProfileForm,
    SubmissionForm,
)
from agentgym_rl.envs.scenarios.web.sites.town.forum.models import (
    Ban,
    Comment,
    CommentVote,
    Forum,
    Moderator,
    Submission,
    Subscription,
    Vote,
    hot_rank,
)


def address(submission: Submission) -> str:
    """Return where a submission is."""
    return f"/f/{submission.forum.name}/{submission.id}"


@login_required
def submit(request: HttpRequest, name: str = "") -> HttpResponse:
    """Show the form for a submission, or take one."""
    form = SubmissionForm(request.POST or None, initial={"forum": name})
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        if Ban.objects.filter(forum=data["forum"], user=request.user).exists():
            form.add_error("forum", f"You are banned from {data['forum'].name}.")
        else:
            now = timezone.now()
            made = Submission.objects.create(
                forum=data["forum"], author=request.user, title=data["title"], url=data["url"],
                body=data["body"], created=now, hot=hot_rank(1, now),
            )  # fmt: skip
            Vote.objects.create(submission=made, user=request.user, value=1)
            messages.success(request, "Your submission was created.")
            return redirect(address(made))
    return render(request, "forum/submit.html", {"form": form, "name": name})


@login_required
def edit(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Change an own submission."""
    found = _own(request, name, number)
    form = EditForm(request.POST or None, initial={"title": found.title, "body": found.body})
    if request.method == "POST" and form.is_valid():
        found.title, found.body = form.cleaned_data["title"], form.cleaned_data["body"]
        found.edited = timezone.now()
        found.save()
        messages.success(request, "Your submission was changed.")
        return redirect(address(found))
    return render(request, "forum/edit.html", {"form": form, "submission": found})


@login_required
@require_POST
def delete(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Delete an own submission."""
    found = _own(request, name, number)
    found.delete()
    messages.success(request, f"“{found.title}” was deleted.")
    return redirect(f"/f/{name}")


@login_required
@require_POST
def comment(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Take a comment on a submission."""
    found = get_object_or_404(Submission, pk=number, forum__name=name)
    return _take_comment(request, found, None)


@login_required
def reply(request: HttpRequest, number: int) -> HttpResponse:
    """Show the form for an answer to a comment, or take one."""
    parent = get_object_or_404(Comment.objects.select_related("submission__forum"), pk=number)
    if request.method == "POST":
        return _take_comment(request, parent.submission, parent)
    context = {"form": CommentForm(), "parent": parent, "submission": parent.submission}
    return render(request, "forum/reply.html", context)


def _take_comment(request: HttpRequest, found: Submission, parent: Comment | None) -> HttpResponse:
    form = CommentForm(request.POST)
    is_banned = Ban.objects.filter(forum=found.forum, user=request.user).exists()
    if found.is_locked or is_banned:
        reason = "This submission is locked." if found.is_locked else "You are banned here."
        messages.error(request, f"{reason} Your comment was not posted.")
        return redirect(address(found))
    if not form.is_valid():
        messages.error(request, "A comment cannot be empty.")
        return redirect(address(found))
    made = Comment.objects.create(
        submission=found, parent=parent, author=request.user, body=form.cleaned_data["body"],
        created=timezone.now(),
    )  # fmt: skip
    CommentVote.objects.create(comment=made, user=request.user, value=1)
    Submission.objects.filter(pk=found.pk).update(num_comments=F("num_comments") + 1)
    messages.success(request, "Your comment was posted.")
    return redirect(address(found))


@login_required
def edit_comment(request: HttpRequest, number: int) -> HttpResponse:
    """Change an own comment."""
    found = get_object_or_404(Comment, pk=number, author=request.user)
    form = CommentForm(request.POST or None, initial={"body": found.body})
    if request.method == "POST" and form.is_valid():
        found.body, found.edited = form.cleaned_data["body"], timezone.now()
        found.save()
        messages.success(request, "Your comment was changed.")
        return redirect(address(found.submission))
    context = {"form": form, "submission": found.submission, "comment": found}
    return render(request, "forum/edit.html", context)


@login_required
@require_POST
def delete_comment(request: HttpRequest, number: int) -> HttpResponse:
    """Delete an own comment; one with answers stays as an empty place."""
    found = get_object_or_404(Comment, pk=number, author=request.user)
    if Comment.objects.filter(parent=found).exists():
        found.body, found.is_removed = "", True
        found.save()
    else:
        found.delete()
        Submission.objects.filter(pk=found.submission_id).update(num_comments=F("num_comments") - 1)
    messages.success(request, "Your comment was deleted.")
    return redirect(address(found.submission))


@login_required
@require_POST
def vote(request: HttpRequest, kind: str, number: int) -> HttpResponse:
    """Take a vote: 1, -1, or 0 to take one back. Scripts get JSON, forms the page again."""
    if kind not in ("submission", "comment") or request.POST.get("value") not in ("1", "0", "-1"):
        raise Http404
    value = int(request.POST["value"])
    model, votes = (Submission, Vote) if kind == "submission" else (Comment, CommentVote)
    target = get_object_or_404(model, pk=number)
    key = {kind: target, "user": request.user}
    old = votes.objects.filter(**key).first()
    target.score += value - (old.value if old else 0)
    if value == 0:
        votes.objects.filter(**key).delete()
    else:
        votes.objects.update_or_create(**key, defaults={"value": value})
    if isinstance(target, Submission):
        target.hot = hot_rank(target.score, target.created)
    target.save()
    if request.headers.get("x-requested-with") == "fetch":
        return JsonResponse({"score": target.score, "value": value})
    return redirect(request.headers.get("referer", "/"))


@login_required
@require_POST
def subscribe(request: HttpRequest, name: str) -> HttpResponse:
    """Follow a forum, or follow it no more."""
    here = get_object_or_404(Forum, name=name)
    made, is_new = Subscription.objects.get_or_create(forum=here, user=request.user)
    if not is_new:
        made.delete()
    here.num_subscribers = Subscription.objects.filter(forum=here).count()
    here.save()
    text = f"You are {'now subscribed to' if is_new else 'no longer subscribed to'} {name}."
    if request.headers.get("x-requested-with") == "fetch":
        return JsonResponse({"on": is_new, "count": here.num_subscribers})
    messages.success(request, text)
    return redirect(request.headers.get("referer", f"/f/{name}"))


@login_required
def create_forum(request: HttpRequest) -> HttpResponse:
    """Make a forum, which its maker moderates."""
    form = ForumForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        made = Forum.objects.create(**form.cleaned_data, created=timezone.now(), num_subscribers=1)
        Moderator.objects.create(forum=made, user=request.user)
        Subscription.objects.create(forum=made, user=request.user)
        messages.success(request, f"The forum {made.name} was created.")
        return redirect(f"/f/{made.name}")
    return render(request, "forum/create_forum.html", {"form": form})


@login_required
def account(request: HttpRequest) -> HttpResponse:
    """Change the own profile."""
    profile, _ = Profile.objects.get_or_create(user=request.user)
    start = {"bio": profile.bio, "location": profile.location, "website": profile.website}
    form = ProfileForm(request.POST or None, initial=start)
    if request.method == "POST" and form.is_valid():
        for name, value in form.cleaned_data.items():
            setattr(profile, name, value)
        profile.save()
        messages.success(request, "Your profile was saved.")
        return redirect(f"/user/{request.user.username}")
    return render(request, "forum/account.html", {"form": form})


def _own(request: HttpRequest, name: str, number: int) -> Submission:
    return get_object_or_404(Submission, pk=number, forum__name=name, author=request.user)
