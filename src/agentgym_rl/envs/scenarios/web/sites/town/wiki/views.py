"""What the encyclopedia shows."""

from __future__ import annotations

import json
import random
from functools import cache

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from agentgym_rl.envs.scenarios.web.sites.town.full_text import match_query
from agentgym_rl.envs.scenarios.web.sites.town.paging import page_of
from agentgym_rl.envs.scenarios.web.sites.town.reference import row, rows
from agentgym_rl.envs.scenarios.web.sites.town.wiki.models import Post, Topic, WatchedArticle
from agentgym_rl.envs.scenarios.web.sites.town.wiki.text import address, linked

_FEATURED = ("Norway", "Casablanca (1942 film)", "Kyoto", "Akira Kurosawa")


def main(request: HttpRequest) -> HttpResponse:
    """Show the main page."""
    return render(request, "wiki/main.html", _front())


@cache
def _front() -> dict[str, object]:
    """Return what the main page shows, which never changes."""
    marks = ",".join("?" * len(_FEATURED))
    found = rows(f"SELECT title, lead FROM article WHERE title IN ({marks})", _FEATURED)
    latest = rows(
        "SELECT title, editor, revision.created AS created, comment FROM revision"
        " JOIN article ON article.id = article_id ORDER BY revision.created DESC, revision.id"
        " LIMIT 8"
    )
    counts = rows("SELECT kind, count(*) AS num FROM article GROUP BY kind ORDER BY kind")
    return {
        "featured": [dict(one) | {"url": address(one["title"])} for one in found],
        "latest": [dict(one) | {"url": address(one["title"])} for one in latest],
        "counts": {one["kind"]: one["num"] for one in counts},
        "total": sum(one["num"] for one in counts),
    }


def article(request: HttpRequest, title: str) -> HttpResponse:
    """Show an article."""
    found = _article(title)
    name = found["title"]
    sections = [
        {"level": level, "heading": heading, "id": f"s{place}",
         "paragraphs": [linked(part) for part in text.split("\n") if part]}
        for place, (level, heading, text) in enumerate(json.loads(found["sections"]))
    ]  # fmt: skip
    chapters = [one for one in sections if one["level"] == 2]
    categories = rows(
        "SELECT category FROM article_category WHERE title = ? ORDER BY category", [name]
    )
    context = _context(request, name, "article") | {
        "lead": sections[0], "sections": sections[1:],
        "contents": chapters if len(chapters) > 2 else [],
        "facts": [(key, linked(value)) for key, value in json.loads(found["facts"])],
        "categories": [one["category"] for one in categories],
    }  # fmt: skip
    return render(request, "wiki/article.html", context)


def history(request: HttpRequest, title: str) -> HttpResponse:
    """Show the revisions of an article."""
    found = _article(title)
    revisions = rows(
        "SELECT editor, created, comment, size FROM revision WHERE article_id = ?"
        " ORDER BY created DESC, id DESC",
        [found["id"]],
    )
    context = _context(request, found["title"], "history") | {"revisions": revisions}
    return render(request, "wiki/history.html", context)


def links(request: HttpRequest, title: str) -> HttpResponse:
    """Show which articles link to this one."""
    found = _article(title)
    hits = rows(
        "SELECT source FROM article_link WHERE target = ? ORDER BY source", [found["title"]]
    )
    entries = [(one["source"], address(one["source"])) for one in hits]
    context = _context(request, found["title"], "links") | {"page": page_of(request, entries, 50)}
    return render(request, "wiki/links.html", context)


def search(request: HttpRequest) -> HttpResponse:
    """Show what fits a query; an exact title is opened at once."""
    words = request.GET.get("q", "").strip()
    exact = row("SELECT title FROM article WHERE title = ? COLLATE NOCASE", [words])
    if exact is not None and request.GET.get("full") != "1":
        return redirect(address(exact["title"]))
    query = match_query(words)
    hits = []
    if query:
        hits = rows(
            "SELECT rowid AS id FROM article_search WHERE article_search MATCH ?"
            " ORDER BY bm25(article_search, 8.0, 1.0), rowid LIMIT 200",
            [query],
        )
    page = page_of(request, [one["id"] for one in hits], 15)
    marks = ",".join("?" * len(page.object_list))
    by_id = {
        one["id"]: {"title": one["title"], "lead": one["lead"], "url": address(one["title"])}
        for one in rows(
            f"SELECT id, title, lead FROM article WHERE id IN ({marks})", page.object_list
        )
    }
    results = [by_id[number] for number in page.object_list]
    context = {"q": words, "page": page, "results": results}
    return render(request, "wiki/search.html", context)


def random_article(request: HttpRequest) -> HttpResponse:
    """Open some article: another one after every visit, the same ones in every episode."""
    visits = request.session.get("visits", 0)
    request.session["visits"] = visits + 1
    total = row("SELECT max(id) AS last FROM article")
    assert total is not None
    number = random.Random(f"article {visits}").randrange(1, total["last"] + 1)
    found = row("SELECT title FROM article WHERE id = ?", [number])
    assert found is not None
    return redirect(address(found["title"]))


def categories(request: HttpRequest) -> HttpResponse:
    """Show all categories."""
    words = request.GET.get("q", "").strip()
    found = rows(
        "SELECT category, count(*) AS num FROM article_category WHERE category LIKE ?"
        " GROUP BY category ORDER BY category",
        [f"%{words}%"],
    )
    context = {"page": page_of(request, found, 40), "words": words}
    return render(request, "wiki/categories.html", context)


def category(request: HttpRequest, name: str) -> HttpResponse:
    """Show the articles of a category."""
    found = rows("SELECT title FROM article_category WHERE category = ? ORDER BY title", [name])
    if not found:
        raise Http404
    entries = [(one["title"], address(one["title"])) for one in found]
    context = {"name": name, "page": page_of(request, entries, 60)}
    return render(request, "wiki/category.html", context)


@login_required
def watchlist(request: HttpRequest) -> HttpResponse:
    """Show what the user watches."""
    titles = WatchedArticle.objects.filter(user=request.user).order_by("title")
    entries = [(one.title, address(one.title)) for one in titles]
    return render(request, "wiki/watchlist.html", {"entries": entries})


@login_required
@require_POST
def watch(request: HttpRequest, title: str) -> HttpResponse:
    """Watch an article, or watch it no more."""
    name = _article(title)["title"]
    made, is_new = WatchedArticle.objects.get_or_create(user=request.user, title=name)
    if not is_new:
        made.delete()
    where = "added to" if is_new else "removed from"
    messages.success(request, f"“{name}” was {where} your watchlist.")
    return redirect(request.POST.get("next") or address(name))


def talk(request: HttpRequest, title: str) -> HttpResponse:
    """Show the discussions about an article, and take part."""
    name = _article(title)["title"]
    error = ""
    if request.method == "POST" and request.user.is_authenticated:
        error = _take_post(request, name)
        if not error:
            messages.success(request, "Your post was added.")
            return redirect(request.path)
    topics = Topic.objects.filter(title=name).prefetch_related("post_set__author").order_by("id")
    context = _context(request, name, "talk") | {"topics": topics, "error": error}
    return render(request, "wiki/talk.html", context)


def _take_post(request: HttpRequest, name: str) -> str:
    """Write a post; return why not where it cannot be."""
    body, heading = request.POST.get("body", "").strip(), request.POST.get("heading", "").strip()
    topic = Topic.objects.filter(title=name, pk=request.POST.get("topic") or 0).first()
    if not body or len(body) > 3000:
        return "Write a text of at most 3000 characters."
    if topic is None:
        if not heading or len(heading) > 100:
            return "Write a heading of at most 100 characters."
        topic = Topic.objects.create(title=name, heading=heading, created=timezone.now())
    Post.objects.create(topic=topic, author=request.user, body=body, created=timezone.now())
    return ""


def _article(title: str):  # type: ignore[no-untyped-def]  # a row of sqlite3
    found = row(
        "SELECT id, title, sections, facts FROM article WHERE title = ?", [title.replace("_", " ")]
    )
    if found is None:
        raise Http404
    return found


def _context(request: HttpRequest, name: str, tab: str) -> dict[str, object]:
    user = request.user
    is_watched = user.is_authenticated and WatchedArticle.objects.filter(user=user, title=name)
    return {
        "name": name, "tab": tab, "path": address(name).removeprefix("/wiki/"),
        "is_watched": bool(is_watched) and is_watched.exists(),
    }  # fmt: skip
