"""Issues, labels and milestones of a project."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Max, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from agentgym_rl.envs.scenarios.web.sites.town.code.access import (
    find_project,
    people_of,
    project_context,
)
from agentgym_rl.envs.scenarios.web.sites.town.code.forms import (
    IssueForm,
    LabelForm,
    MilestoneForm,
    NoteForm,
)
from agentgym_rl.envs.scenarios.web.sites.town.code.models import (
    DEVELOPER,
    REPORTER,
    Issue,
    Label,
    MergeRequest,
    Milestone,
    Note,
    Project,
)
from agentgym_rl.envs.scenarios.web.sites.town.paging import page_of

ORDERS = {
    "created": "Created date",
    "updated": "Last updated",
    "oldest": "Oldest",
    "notes": "Comments",
}
_FIELDS = {
    "created": ("-created", "-id"),
    "updated": ("-updated", "-id"),
    "oldest": ("created", "id"),
    "notes": ("-num_notes", "-id"),
}


def listing(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Show the issues of a project that fit the filters."""
    project = find_project(request, space, name)
    everything = Issue.objects.filter(project=project)
    state = request.GET.get("state", "open")
    found = filtered(request, everything)
    counts = {
        "open": found.filter(is_open=True).count(), "closed": found.filter(is_open=False).count()
    }  # fmt: skip
    if state in counts:
        found = found.filter(is_open=state == "open")
    order = request.GET.get("sort", "created")
    found = found.annotate(num_notes=Count("note", filter=Q(note__is_system=False)))
    found = found.select_related("author", "assignee", "milestone").prefetch_related("labels")
    page = page_of(request, found.order_by(*_FIELDS.get(order, _FIELDS["created"])), 20)
    context = project_context(request, project, "issues") | filters(project) | {
        "page": page, "state": state, "counts": counts, "order": order, "orders": ORDERS,
        "chosen": request.GET,
    }  # fmt: skip
    return render(request, "code/issues.html", context)


def filtered(
    request: HttpRequest, found: QuerySet[Issue] | QuerySet[MergeRequest]
) -> QuerySet[Issue]:
    """Narrow a list by what the request asks for."""
    for key, field in (
        ("label", "labels__name"), ("assignee", "assignee__username"),
        ("author", "author__username"), ("milestone", "milestone__title"),
    ):  # fmt: skip
        if request.GET.get(key):
            found = found.filter(**{field: request.GET[key]})
    words = request.GET.get("q", "").strip()
    if words:
        found = found.filter(Q(title__icontains=words) | Q(description__icontains=words))
    return found


def filters(project: Project) -> dict[str, object]:
    """Return what the lists of filters offer."""
    return {
        "all_labels": Label.objects.filter(project=project),
        "all_people": people_of(project),
        "all_milestones": Milestone.objects.filter(project=project),
    }


def show(request: HttpRequest, space: str, name: str, iid: int) -> HttpResponse:
    """Show an issue with its comments."""
    project = find_project(request, space, name)
    issue = get_object_or_404(
        Issue.objects.select_related("author", "assignee", "milestone"), project=project, iid=iid
    )
    context = project_context(request, project, "issues") | {
        "issue": issue, "notes": Note.objects.filter(issue=issue).select_related("author"),
        "form": NoteForm(), "may_edit": _may_edit(request, project, issue),
    }  # fmt: skip
    return render(request, "code/issue.html", context)


@login_required
def new(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Open an issue."""
    project = find_project(request, space, name)
    form = IssueForm(project, people_of(project), request.POST or None)
    if request.method == "POST" and form.is_valid():
        last = Issue.objects.filter(project=project).aggregate(last=Max("iid"))["last"] or 0
        now = timezone.now()
        data = form.cleaned_data
        chosen = data.pop("labels")
        made = Issue.objects.create(
            project=project, iid=last + 1, author=request.user, created=now, updated=now, **data
        )
        made.labels.set(chosen)
        messages.success(request, f"Issue #{made.iid} was created.")
        return redirect(f"/{project.full_path}/-/issues/{made.iid}")
    context = project_context(request, project, "issues") | {"form": form, "heading": "New issue"}
    return render(request, "code/issue_form.html", context)


@login_required
def edit(request: HttpRequest, space: str, name: str, iid: int) -> HttpResponse:
    """Change an issue."""
    project = find_project(request, space, name)
    issue = get_object_or_404(Issue, project=project, iid=iid)
    if not _may_edit(request, project, issue):
        raise PermissionDenied("Your role in this project does not allow this.")
    start = {
        "title": issue.title, "description": issue.description, "due": issue.due,
        "assignee": issue.assignee, "milestone": issue.milestone, "labels": issue.labels.all(),
    }  # fmt: skip
    form = IssueForm(project, people_of(project), request.POST or None, initial=start)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        issue.labels.set(data.pop("labels"))
        for field, value in data.items():
            setattr(issue, field, value)
        issue.updated = timezone.now()
        issue.save()
        messages.success(request, "The issue was saved.")
        return redirect(f"/{project.full_path}/-/issues/{iid}")
    heading = f"Edit issue #{iid}"
    context = project_context(request, project, "issues") | {"form": form, "heading": heading}
    return render(request, "code/issue_form.html", context)


@login_required
@require_POST
def act(request: HttpRequest, space: str, name: str, iid: int) -> HttpResponse:
    """Comment on an issue, close it or open it again."""
    project = find_project(request, space, name)
    issue = get_object_or_404(Issue, project=project, iid=iid)
    action, body = request.POST.get("action"), request.POST.get("body", "").strip()
    now = timezone.now()
    if body:
        Note.objects.create(issue=issue, author=request.user, body=body, created=now)
        messages.success(request, "Your comment was added.")
    elif action == "comment":
        messages.error(request, "A comment cannot be empty.")
    if action in ("close", "reopen"):
        if not _may_edit(request, project, issue):
            raise PermissionDenied("Your role in this project does not allow this.")
        issue.is_open = action == "reopen"
        issue.closed = None if issue.is_open else now
        done = "reopened" if issue.is_open else "closed"
        Note.objects.create(
            issue=issue, author=request.user, body=f"{done} this issue", is_system=True, created=now
        )
        messages.success(request, f"The issue was {done}.")
    issue.updated = now
    issue.save()
    return redirect(f"/{project.full_path}/-/issues/{iid}")


def labels(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Show labels, and make one."""
    project = find_project(request, space, name)
    form = LabelForm(request.POST or None)
    if request.method == "POST":
        find_project(request, space, name, REPORTER)
        if form.is_valid():
            if Label.objects.filter(project=project, name=form.cleaned_data["name"]).exists():
                form.add_error("name", "There is such a label already.")
            else:
                Label.objects.create(project=project, **form.cleaned_data)
                messages.success(request, "The label was created.")
                return redirect(request.path)
    found = Label.objects.filter(project=project).annotate(
        num_open=Count("issue", filter=Q(issue__is_open=True))
    )
    context = project_context(request, project, "labels") | {"labels": found, "form": form}
    return render(request, "code/labels.html", context)


def milestones(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Show milestones, and make one."""
    project = find_project(request, space, name)
    form = MilestoneForm(request.POST or None)
    if request.method == "POST":
        find_project(request, space, name, DEVELOPER)
        if form.is_valid():
            Milestone.objects.create(project=project, **form.cleaned_data)
            messages.success(request, "The milestone was created.")
            return redirect(request.path)
    found = Milestone.objects.filter(project=project).annotate(
        num_issues=Count("issue", distinct=True),
        num_closed=Count("issue", filter=Q(issue__is_open=False), distinct=True),
    )
    context = project_context(request, project, "milestones") | {"milestones": found, "form": form}
    return render(request, "code/milestones.html", context)


def milestone(request: HttpRequest, space: str, name: str, number: int) -> HttpResponse:
    """Show the issues of a milestone; developers close it."""
    project = find_project(request, space, name)
    found = get_object_or_404(Milestone, project=project, pk=number)
    if request.method == "POST":
        find_project(request, space, name, DEVELOPER)
        found.is_closed = not found.is_closed
        found.save()
        messages.success(
            request, f"The milestone was {'closed' if found.is_closed else 'reopened'}."
        )
        return redirect(request.path)
    issues = Issue.objects.filter(milestone=found).select_related("author", "assignee")
    context = project_context(request, project, "milestones") | {
        "milestone": found, "issues": issues.prefetch_related("labels").order_by("iid"),
    }  # fmt: skip
    return render(request, "code/milestone.html", context)


def _may_edit(request: HttpRequest, project: Project, issue: Issue) -> bool:
    return project.my_role >= REPORTER or issue.author_id == request.user.id
