"""What the forum shows."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta

from django.contrib.auth import get_user_model
from django.db import connection
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone

from agentgym_rl.envs.scenarios.web.sites.town.accounts.models import Profile
from agentgym_rl.envs.scenarios.web.sites.town.forum.forms import CommentForm
from agentgym_rl.envs.scenarios.web.sites.town.forum.models import (
    Ban,
    Comment,
    CommentVote,
    Forum,
    Moderator,
    Rule,
    Submission,
    Subscription,
    Vote,
)
from agentgym_rl.envs.scenarios.web.sites.town.full_text import match_query
from agentgym_rl.envs.scenarios.web.sites.town.paging import page_of

SORTS = {"hot": "Hot", "new": "New", "top": "Top", "most_commented": "Most commented"}
_ORDERS = {
    "hot": ("-hot", "-id"),
    "new": ("-created", "-id"),
    "top": ("-score", "-id"),
    "most_commented": ("-num_comments", "-id"),
}
PERIODS = {"all": "All time", "year": "Past year", "month": "Past month", "week": "Past week",
           "day": "Past 24 hours"}  # fmt: skip
_DAYS = {"year": 365, "month": 30, "week": 7, "day": 1}
_PAGE_SIZE = 25


def front(request: HttpRequest, scope: str) -> HttpResponse:
    """Show the submissions of all forums, or of those that the user follows."""
    found = _visible()
    forums = []
    if scope == "subscribed" and request.user.is_authenticated:
        forums = list(Forum.objects.filter(subscription__user=request.user).order_by("name"))
        found = found.filter(forum__in=forums)
    context = _listing(request, found) | {"scope": scope, "followed": forums}
    return render(request, "forum/front.html", context)


def forum(request: HttpRequest, name: str) -> HttpResponse:
    """Show one forum."""
    here = get_object_or_404(Forum, name=name)
    found = _visible().filter(forum=here)
    context = _listing(request, found, pins=True) | sidebar(request, here)
    return render(request, "forum/forum.html", context)


def submission(request: HttpRequest, name: str, number: int) -> HttpResponse:
    """Show a submission with its comments."""
    found = get_object_or_404(
        Submission.objects.select_related("forum", "author"), pk=number, forum__name=name
    )
    order = request.GET.get("sort", "top")
    context = sidebar(request, found.forum) | {
        "submission": found,
        "comments": _thread(found, order),
        "comment_sort": order,
        "form": CommentForm(),
        "my_votes": _my_votes(request, [found]),
        "my_comment_votes": _my_comment_votes(request, found),
    }
    return render(request, "forum/submission.html", context)


def forums(request: HttpRequest) -> HttpResponse:
    """Show all forums."""
    order = request.GET.get("sort", "name")
    fields = {"name": ("name",), "subscribers": ("-num_subscribers", "name"),
              "submissions": ("-num_submissions", "name")}  # fmt: skip
    found = Forum.objects.annotate(num_submissions=Count("submission"))
    found = found.order_by(*fields.get(order, ("name",)))
    mine = set[int]()
    if request.user.is_authenticated:
        mine = set(
            Subscription.objects.filter(user=request.user).values_list("forum_id", flat=True)
        )
    context = {"page": page_of(request, found, 12), "mine": mine, "sort": order}
    return render(request, "forum/forums.html", context)


def user(request: HttpRequest, name: str, tab: str) -> HttpResponse:
    """Show a person's profile and what they wrote."""
    person = get_object_or_404(get_user_model(), username=name)
    submissions = _visible().filter(author=person).order_by("-created", "-id")
    comments = (
        Comment.objects.filter(author=person, is_removed=False)
        .select_related("submission", "submission__forum", "author")
        .order_by("-created", "-id")
    )
    entries: object = comments if tab == "comments" else submissions
    page = page_of(request, entries, _PAGE_SIZE)
    context = {
        "person": person, "profile": Profile.objects.filter(user=person).first(), "tab": tab,
        "page": page, "num_submissions": submissions.count(), "num_comments": comments.count(),
        "my_votes": _my_votes(request, page.object_list) if tab != "comments" else {},
        "latest_comments": comments[:5] if tab == "overview" else [],
        "moderated": Forum.objects.filter(moderator__user=person).order_by("name"),
    }  # fmt: skip
    return render(request, "forum/user.html", context)


def search(request: HttpRequest) -> HttpResponse:
    """Show what fits a query: submissions, comments or forums."""
    text = request.GET.get("q", "").strip()
    kind = request.GET.get("kind", "submissions")
    query = match_query(text)
    entries: object = []
    if query and kind == "comments":
        entries = _ranked(
            Comment.objects.select_related("submission", "submission__forum", "author"),
            "forum_comment_search", query,
        )  # fmt: skip
    elif text and kind == "forums":
        entries = Forum.objects.filter(name__icontains=text) | Forum.objects.filter(
            description__icontains=text
        )
        entries = entries.order_by("name")
    elif query:
        entries = _ranked(_visible(), "forum_submission_search", query)
    page = page_of(request, entries, _PAGE_SIZE)
    votes = _my_votes(request, page.object_list) if kind == "submissions" else {}
    context = {"q": text, "kind": kind, "page": page, "my_votes": votes}
    return render(request, "forum/search.html", context)


def sidebar(request: HttpRequest, here: Forum) -> dict[str, object]:
    """Return what the column beside a forum's pages needs."""
    user = request.user
    is_in = user.is_authenticated
    return {
        "forum": here,
        "rules": Rule.objects.filter(forum=here),
        "moderators": Moderator.objects.filter(forum=here).select_related("user").order_by("id"),
        "is_subscribed": is_in and Subscription.objects.filter(forum=here, user=user).exists(),
        "is_moderator": is_in and Moderator.objects.filter(forum=here, user=user).exists(),
        "is_banned": is_in and Ban.objects.filter(forum=here, user=user).exists(),
    }


def _visible() -> QuerySet[Submission]:
    return Submission.objects.filter(is_removed=False).select_related("forum", "author")


def _listing(
    request: HttpRequest, found: QuerySet[Submission], *, pins: bool = False
) -> dict[str, object]:
    sort = request.GET.get("sort", "hot")
    sort = sort if sort in SORTS else "hot"
    period = request.GET.get("t", "all")
    if sort in ("top", "most_commented") and period in _DAYS:
        found = found.filter(created__gte=timezone.now() - timedelta(days=_DAYS[period]))
    order = ("-is_sticky", *_ORDERS[sort]) if pins and sort == "hot" else _ORDERS[sort]
    page = page_of(request, found.order_by(*order), _PAGE_SIZE)
    return {
        "page": page, "sort": sort, "sorts": SORTS, "period": period, "periods": PERIODS,
        "my_votes": _my_votes(request, page.object_list),
    }  # fmt: skip


def _ranked(found: QuerySet[Submission], index: str, query: str) -> list[Submission]:
    """Return what an index finds, the best first."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT rowid FROM {index} WHERE {index} MATCH %s ORDER BY rank, rowid LIMIT 200",
            [query],
        )
        numbers = [row[0] for row in cursor.fetchall()]
    by_id = found.in_bulk(numbers)
    return [by_id[number] for number in numbers if number in by_id and not by_id[number].is_removed]


def _my_votes(request: HttpRequest, submissions: object) -> dict[int, int]:
    if not request.user.is_authenticated:
        return {}
    return dict(
        Vote.objects.filter(user=request.user, submission__in=submissions).values_list(
            "submission_id", "value"
        )
    )


def _my_comment_votes(request: HttpRequest, found: Submission) -> dict[int, int]:
    if not request.user.is_authenticated:
        return {}
    return dict(
        CommentVote.objects.filter(user=request.user, comment__submission=found).values_list(
            "comment_id", "value"
        )
    )


def _thread(found: Submission, order: str) -> list[tuple[Comment, int]]:
    """Return the comments with their depths, answers below what they answer."""
    by_parent: dict[int | None, list[Comment]] = defaultdict(list)
    for one in Comment.objects.filter(submission=found).select_related("author"):
        by_parent[one.parent_id].append(one)
    keys = {"new": lambda one: (one.created, one.id), "old": lambda one: (-one.id,)}
    key = keys.get(order, lambda one: (one.score, -one.id))
    thread: list[tuple[Comment, int]] = []

    def add(parent: int | None, depth: int) -> None:
        for one in sorted(by_parent[parent], key=key, reverse=True):
            thread.append((one, min(depth, 6)))
            add(one.id, depth + 1)

    add(None, 0)
    return thread
