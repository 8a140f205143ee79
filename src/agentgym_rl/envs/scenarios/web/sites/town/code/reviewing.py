"""Merge requests of a project."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.db.models import Count, Max, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from agentgym_rl.envs.scenarios.web.sites.town.code.access import (
    find_project,
    people_of,
    project_context,
)
from agentgym_rl.envs.scenarios.web.sites.town.code.forms import MergeRequestForm
from agentgym_rl.envs.scenarios.web.sites.town.code.history import (
    changes_between,
    log_of,
    merged_tree,
    write_commit,
)
from agentgym_rl.envs.scenarios.web.sites.town.code.issues import filtered, filters
from agentgym_rl.envs.scenarios.web.sites.town.code.models import (
    DEVELOPER,
    Approval,
    Branch,
    Commit,
    MergeRequest,
    Note,
    Project,
)
from agentgym_rl.envs.scenarios.web.sites.town.paging import page_of

ORDERS = {"created": "Created date", "updated": "Last updated", "oldest": "Oldest"}
_FIELDS = {
    "created": ("-created", "-id"),
    "updated": ("-updated", "-id"),
    "oldest": ("created", "id"),
}
_STATES = ("open", "merged", "closed")


def listing(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Show the merge requests of a project that fit the filters."""
    project = find_project(request, space, name)
    found = filtered(request, MergeRequest.objects.filter(project=project))
    state = request.GET.get("state", "open")
    counts = {one: found.filter(state=one).count() for one in _STATES}
    if state in counts:
        found = found.filter(state=state)
    order = request.GET.get("sort", "created")
    found = found.annotate(num_notes=Count("note", filter=Q(note__is_system=False)))
    found = found.select_related("author", "assignee", "milestone").prefetch_related("labels")
    page = page_of(request, found.order_by(*_FIELDS.get(order, _FIELDS["created"])), 20)
    context = project_context(request, project, "requests") | filters(project) | {
        "page": page, "state": state, "counts": counts, "order": order, "orders": ORDERS,
        "chosen": request.GET,
    }  # fmt: skip
    return render(request, "code/requests.html", context)


def show(request: HttpRequest, space: str, name: str, iid: int, part: str) -> HttpResponse:
    """Show a merge request: discussion, commits or changes."""
    project = find_project(request, space, name)
    found = get_object_or_404(
        MergeRequest.objects.select_related("author", "assignee", "reviewer", "merged_by"),
        project=project, iid=iid,
    )  # fmt: skip
    before = {one.id for one in log_of(found.base)}
    own = [one for one in log_of(found.head) if one.id not in before]
    changes = changes_between(found.base.tree, found.head.tree)
    approvals = list(Approval.objects.filter(merge_request=found).select_related("user"))
    context = project_context(request, project, "requests") | {
        "request_": found, "part": part, "commits": own, "changes": changes,
        "notes": Note.objects.filter(merge_request=found).select_related("author"),
        "approvals": approvals, "is_mine": any(one.user == request.user for one in approvals),
        "has_conflict": found.state == "open" and _merged(project, found) is None,
    }  # fmt: skip
    return render(request, "code/request.html", context)


@login_required
def new(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Open a merge request."""
    project = find_project(request, space, name, DEVELOPER)
    start = {"target": project.default_branch, "source": request.GET.get("source", "")}
    form = MergeRequestForm(project, people_of(project), request.POST or None, initial=start)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        source, target = data["source"], data["target"]
        last = MergeRequest.objects.filter(project=project).aggregate(last=Max("iid"))["last"] or 0
        now = timezone.now()
        made = MergeRequest.objects.create(
            project=project, iid=last + 1, title=data["title"], description=data["description"],
            author=request.user, reviewer=data["reviewer"], source=source.name, target=target.name,
            head=source.head, base=_base(source.head, target.head), created=now, updated=now,
        )  # fmt: skip
        messages.success(request, f"Merge request !{made.iid} was created.")
        return redirect(f"/{project.full_path}/-/merge_requests/{made.iid}")
    context = project_context(request, project, "requests") | {"form": form}
    return render(request, "code/request_form.html", context)


@login_required
@require_POST
def act(request: HttpRequest, space: str, name: str, iid: int) -> HttpResponse:
    """Comment, approve, merge, close or open again."""
    project = find_project(request, space, name)
    found = get_object_or_404(MergeRequest, project=project, iid=iid)
    action, body = request.POST.get("action", ""), request.POST.get("body", "").strip()
    if body:
        Note.objects.create(
            merge_request=found, author=request.user, body=body, created=timezone.now()
        )
        messages.success(request, "Your comment was added.")
    elif action == "comment":
        messages.error(request, "A comment cannot be empty.")
    if action in ("approve", "merge", "close", "reopen"):
        if project.my_role < DEVELOPER and found.author != request.user:
            raise PermissionDenied("Your role in this project does not allow this.")
        steps = {"approve": _approve, "merge": _merge, "close": _close, "reopen": _reopen}
        steps[action](request, project, found)
    found.updated = timezone.now()
    found.save()
    return redirect(f"/{project.full_path}/-/merge_requests/{iid}")


def _approve(request: HttpRequest, project: Project, found: MergeRequest) -> None:
    """Approve, or take the approval back."""
    made, is_new = Approval.objects.get_or_create(merge_request=found, user=request.user)
    if not is_new:
        made.delete()
    _record(request, found, "approved this merge request" if is_new else "took the approval back")
    messages.success(request, "You approved it." if is_new else "Your approval was taken back.")


def _merge(request: HttpRequest, project: Project, found: MergeRequest) -> None:
    tree = _merged(project, found)
    if found.state != "open" or tree is None:
        messages.error(request, "This cannot be merged.")
        return
    target = Branch.objects.get(project=project, name=found.target)
    title = f"Merge branch '{found.source}' into '{found.target}'\n\n{found.title}"
    now = timezone.now()
    target.head = write_commit(tree, [target.head, found.head], request.user, now, title)
    target.save()
    if request.POST.get("delete_source"):
        Branch.objects.filter(project=project, name=found.source).delete()
    found.state, found.merged_by, found.finished = "merged", request.user, now
    Project.objects.filter(pk=project.pk).update(updated=now)
    _record(request, found, "merged this merge request")
    messages.success(request, f"Merged into {found.target}.")


def _close(request: HttpRequest, project: Project, found: MergeRequest) -> None:
    if found.state == "open":
        found.state, found.finished = "closed", timezone.now()
        _record(request, found, "closed this merge request")
        messages.success(request, "The merge request was closed.")


def _reopen(request: HttpRequest, project: Project, found: MergeRequest) -> None:
    if found.state == "closed":
        found.state, found.finished = "open", None
        _record(request, found, "reopened this merge request")
        messages.success(request, "The merge request was reopened.")


def _record(request: HttpRequest, found: MergeRequest, text: str) -> None:
    Note.objects.create(
        merge_request=found, author=request.user, body=text, is_system=True, created=timezone.now()
    )


def _merged(project: Project, found: MergeRequest) -> dict[str, int] | None:
    target = (
        Branch.objects.filter(project=project, name=found.target).select_related("head").first()
    )
    return merged_tree(found.base, target.head, found.head) if target else None


def _base(source: Commit, target: Commit) -> Commit:
    """Return the youngest commit that two have in common."""
    reached = {one.id for one in log_of(target)}
    return next((one for one in log_of(source) if one.id in reached), target)
