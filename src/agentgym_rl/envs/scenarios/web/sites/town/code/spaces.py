"""Pages above projects: dashboard, lists, groups, people, search."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_required
from django.db.models import Count, Q, QuerySet, Value
from django.db.models.functions import Concat
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from agentgym_rl.envs.scenarios.web.sites.town.accounts.models import Profile
from agentgym_rl.envs.scenarios.web.sites.town.code.forms import ProfileForm
from agentgym_rl.envs.scenarios.web.sites.town.code.history import head_of
from agentgym_rl.envs.scenarios.web.sites.town.code.models import (
    ROLES,
    Blob,
    Commit,
    Group,
    GroupMember,
    Issue,
    MergeRequest,
    Project,
)
from agentgym_rl.envs.scenarios.web.sites.town.paging import page_of

_ORDERS = {
    "updated": ("-updated", "full_path"),
    "stars": ("-num_stars", "full_path"),
    "name": ("name", "full_path"),
    "created": ("-created", "full_path"),
}
ORDER_NAMES = {"updated": "Last updated", "stars": "Most stars", "name": "Name",
               "created": "Newest"}  # fmt: skip
SCOPES = {"projects": "Projects", "issues": "Issues", "merge_requests": "Merge requests",
          "commits": "Commits", "code": "Code", "users": "Users"}  # fmt: skip


def visible_projects(request: HttpRequest) -> QuerySet[Project]:
    """Return the projects that the user may see."""
    user = request.user
    found = Project.objects.all()
    if not user.is_authenticated:
        return found.filter(visibility="public")
    is_in = Q(member__user=user) | Q(owner=user) | Q(group__groupmember__user=user)
    mine = Project.objects.filter(is_in).values("id")
    return found.filter(~Q(visibility="private") | Q(id__in=mine))


def dashboard(request: HttpRequest) -> HttpResponse:
    """Show the user's own projects; visitors explore."""
    if not request.user.is_authenticated:
        return redirect("/explore")
    tab = request.GET.get("tab", "yours")
    found = visible_projects(request)
    if tab == "starred":
        found = found.filter(star__user=request.user)
    elif tab == "personal":
        found = found.filter(owner=request.user)
    else:
        found = found.filter(Q(member__user=request.user) | Q(owner=request.user)).distinct()
    return _project_list(request, found, {"tab": tab, "heading": "Projects", "is_own": True})


def explore(request: HttpRequest) -> HttpResponse:
    """Show all projects."""
    return _project_list(request, visible_projects(request), {"heading": "Explore projects"})


def _project_list(
    request: HttpRequest, found: QuerySet[Project], more: dict[str, object]
) -> HttpResponse:
    order = request.GET.get("sort", "updated")
    words, language = request.GET.get("q", "").strip(), request.GET.get("language", "")
    if words:
        found = found.filter(Q(full_path__icontains=words) | Q(description__icontains=words))
    if language:
        found = found.filter(language=language)
    found = found.annotate(
        num_issues=Count("issue", filter=Q(issue__is_open=True), distinct=True),
        num_forks=Count("project", distinct=True),
    )
    context = more | {
        "page": page_of(request, found.order_by(*_ORDERS.get(order, _ORDERS["updated"])), 20),
        "order": order, "orders": ORDER_NAMES, "words": words, "language": language,
        "languages": ["Go", "JavaScript", "Markdown", "Python"],
    }  # fmt: skip
    return render(request, "code/projects.html", context)


def groups(request: HttpRequest) -> HttpResponse:
    """Show all groups."""
    found = Group.objects.annotate(
        num_projects=Count("project", distinct=True),
        num_members=Count("groupmember", distinct=True),
    ).filter(Q(visibility="public") | Q(groupmember__user=request.user.id))
    context = {"page": page_of(request, found.distinct().order_by("name"), 20)}
    return render(request, "code/groups.html", context)


def space(request: HttpRequest, space: str) -> HttpResponse:
    """Show a group or a person."""
    group = Group.objects.filter(path=space).first()
    projects = visible_projects(request).order_by("-num_stars", "name")
    if group is not None:
        context = {
            "group": group, "projects": projects.filter(group=group), "roles": ROLES,
            "members": GroupMember.objects.filter(group=group).select_related("user")
            .order_by("-role", "user__username"),
        }  # fmt: skip
        return render(request, "code/group.html", context)
    person = get_user_model().objects.filter(username=space).first()
    if person is None:
        raise Http404
    context = {
        "person": person, "profile": Profile.objects.filter(user=person).first(),
        "projects": projects.filter(owner=person),
        "contributed": projects.filter(member__user=person).exclude(owner=person),
        "groups": Group.objects.filter(groupmember__user=person).order_by("name"),
        "starred": projects.filter(star__user=person)[:10],
    }  # fmt: skip
    return render(request, "code/person.html", context)


@login_required
def my_issues(request: HttpRequest) -> HttpResponse:
    """Show the issues that wait for the user."""
    state = request.GET.get("state", "open")
    found = Issue.objects.filter(assignee=request.user, is_open=state == "open")
    found = found.select_related("project", "author", "milestone").prefetch_related("labels")
    context = {"page": page_of(request, found.order_by("-created"), 20), "state": state}
    return render(request, "code/my_issues.html", context)


@login_required
def my_requests(request: HttpRequest) -> HttpResponse:
    """Show the merge requests that wait for the user's review, or that are the user's own."""
    state = request.GET.get("state", "open")
    found = MergeRequest.objects.filter(
        Q(author=request.user) | Q(assignee=request.user) | Q(reviewer=request.user), state=state
    )
    found = found.select_related("project", "author").prefetch_related("labels")
    context = {"page": page_of(request, found.order_by("-created"), 20), "state": state}
    return render(request, "code/my_requests.html", context)


@login_required
def edit_profile(request: HttpRequest) -> HttpResponse:
    """Change the own profile."""
    profile, _ = Profile.objects.get_or_create(user=request.user)
    start = {name: getattr(profile, name) for name in ("status", "bio", "location", "website")}
    form = ProfileForm(request.POST or None, initial=start)
    if request.method == "POST" and form.is_valid():
        for name, value in form.cleaned_data.items():
            setattr(profile, name, value)
        profile.save()
        messages.success(request, "Your profile was saved.")
        return redirect(f"/{request.user.username}")
    return render(request, "code/new.html", {"form": form, "heading": "Edit profile"})


def search(request: HttpRequest) -> HttpResponse:
    """Show what fits a query, in one kind of thing, everywhere or in one project."""
    words, scope = request.GET.get("q", "").strip(), request.GET.get("scope", "projects")
    projects = visible_projects(request)
    project = projects.filter(full_path=request.GET.get("project", "")).first()
    inside = projects.filter(pk=project.pk) if project else projects
    found: object = []
    if words and scope == "projects":
        found = projects.filter(Q(full_path__icontains=words) | Q(description__icontains=words))
        found = found.order_by("-num_stars", "full_path")
    elif words and scope in ("issues", "merge_requests"):
        model = Issue if scope == "issues" else MergeRequest
        found = model.objects.filter(
            Q(title__icontains=words) | Q(description__icontains=words), project__in=inside
        )
        found = found.select_related("project", "author").order_by("-created")
    elif words and scope == "commits":
        found = Commit.objects.filter(message__icontains=words).select_related("author")
        found = found.order_by("-created")
    elif words and scope == "users":
        people = get_user_model().objects.annotate(
            full=Concat("first_name", Value(" "), "last_name")
        )
        found = people.filter(
            Q(username__icontains=words) | Q(full__icontains=words), member__isnull=False
        )
        found = found.distinct().order_by("username")
    elif words and scope == "code" and project:
        found = _lines_with(project, words)
    context = {
        "q": words, "scope": scope, "scopes": SCOPES, "page": page_of(request, found, 20),
        "within": project,
    }  # fmt: skip
    return render(request, "code/search.html", context)


def _lines_with(project: Project, words: str) -> list[tuple[str, int, str]]:
    """Return (path, number, line) of the lines of the default branch that have some words."""
    head = head_of(project, project.default_branch)
    tree = head.tree if head else {}
    texts = {blob.id: blob.text for blob in Blob.objects.filter(pk__in=tree.values())}
    return [
        (path, number, line.strip())
        for path, blob in tree.items()
        for number, line in enumerate(texts[blob].splitlines(), start=1)
        if words.lower() in line.lower()
    ]
