"""Projects, groups, members, stars and forks: what is done with a project as a whole."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from agentgym_rl.envs.scenarios.web.sites.town.code.access import (
    find_project,
    namespaces_of,
    project_context,
)
from agentgym_rl.envs.scenarios.web.sites.town.code.forms import (
    GroupForm,
    MemberForm,
    ProjectForm,
    SettingsForm,
)
from agentgym_rl.envs.scenarios.web.sites.town.code.history import write_blob, write_commit
from agentgym_rl.envs.scenarios.web.sites.town.code.models import (
    MAINTAINER,
    OWNER,
    ROLES,
    Branch,
    Group,
    GroupMember,
    Label,
    Member,
    Project,
    Star,
)


@login_required
def new_project(request: HttpRequest) -> HttpResponse:
    """Make a project."""
    form = ProjectForm(namespaces_of(request), request.POST or None)
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        project = _create(
            request, data["namespace"], data["name"], data["description"], data["visibility"]
        )
        if data["readme"]:
            text = f"# {project.name}\n\n{project.description}\n"
            head = write_commit(
                {"README.md": write_blob(text).id}, [], request.user, timezone.now(),
                "Initial commit",
            )  # fmt: skip
            Branch.objects.create(project=project, name="main", head=head)
        messages.success(request, f"The project {project.name} was created.")
        return redirect(f"/{project.full_path}")
    return render(request, "code/new.html", {"form": form, "heading": "New project"})


@login_required
def new_group(request: HttpRequest) -> HttpResponse:
    """Make a group."""
    form = GroupForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        group = Group.objects.create(**form.cleaned_data, created=timezone.now())
        GroupMember.objects.create(group=group, user=request.user, role=OWNER)
        messages.success(request, f"The group {group.name} was created.")
        return redirect(f"/{group.path}")
    return render(request, "code/new.html", {"form": form, "heading": "New group"})


@login_required
def fork(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Copy a project into another namespace."""
    project = find_project(request, space, name)
    start = {"name": project.slug, "description": project.description, "visibility": "public"}
    form = ProjectForm(namespaces_of(request), request.POST or None, initial=start)
    del form.fields["readme"]
    if request.method == "POST" and form.is_valid():
        data = form.cleaned_data
        made = _create(
            request, data["namespace"], data["name"], data["description"], data["visibility"]
        )
        made.forked_from, made.language = project, project.language
        made.save()
        for branch in Branch.objects.filter(project=project):
            Branch.objects.create(project=made, name=branch.name, head=branch.head)
        messages.success(request, f"{project.full_path} was forked.")
        return redirect(f"/{made.full_path}")
    context = project_context(request, project, "overview") | {"form": form}
    return render(request, "code/fork.html", context)


def _create(
    request: HttpRequest, namespace: str, name: str, description: str, visibility: str
) -> Project:
    group = Group.objects.filter(path=namespace).first()
    now = timezone.now()
    project = Project.objects.create(
        full_path=f"{namespace}/{name}", name=name, group=group,
        owner=None if group else request.user, description=description, visibility=visibility,
        created=now, updated=now,
    )  # fmt: skip
    Member.objects.create(project=project, user=request.user, role=OWNER, created=now)
    for label, color in (("bug", "#d1242f"), ("feature", "#1a7f37")):
        Label.objects.create(project=project, name=label, color=color)
    return project


@login_required
@require_POST
def star(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Give a star, or take it back."""
    project = find_project(request, space, name)
    made, is_new = Star.objects.get_or_create(project=project, user=request.user)
    if not is_new:
        made.delete()
    count = Star.objects.filter(project=project).count()
    Project.objects.filter(pk=project.pk).update(num_stars=count)
    if request.headers.get("x-requested-with") == "fetch":
        return JsonResponse({"on": is_new, "count": count})
    return redirect(f"/{project.full_path}")


def starrers(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Show who gave a star."""
    project = find_project(request, space, name)
    found = get_user_model().objects.filter(star__project=project).order_by("username")
    context = project_context(request, project, "overview") | {"people": found}
    return render(request, "code/starrers.html", context)


def members(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Show who takes part; maintainers invite people."""
    project = find_project(request, space, name)
    form = MemberForm(request.POST or None)
    if request.method == "POST":
        find_project(request, space, name, MAINTAINER)
        if form.is_valid():
            user = get_user_model().objects.get(username=form.cleaned_data["username"])
            _, is_new = Member.objects.get_or_create(
                project=project, user=user,
                defaults={"role": form.cleaned_data["role"], "created": timezone.now()},
            )  # fmt: skip
            if is_new:
                messages.success(request, f"{user.username} was added.")
                return redirect(request.path)
            form.add_error("username", f"{user.username} is a member already.")
    inherited = []
    if project.group_id:
        inherited = GroupMember.objects.filter(group_id=project.group_id).select_related("user")
        inherited = inherited.order_by("-role", "user__username")
    own = Member.objects.filter(project=project).select_related("user")
    context = project_context(request, project, "members") | {
        "members": own.order_by("-role", "user__username"), "inherited": inherited, "form": form,
        "roles": ROLES,
    }  # fmt: skip
    return render(request, "code/members.html", context)


@login_required
@require_POST
def member(request: HttpRequest, space: str, name: str, number: int) -> HttpResponse:
    """Give a member another role, or remove them."""
    project = find_project(request, space, name, MAINTAINER)
    found = get_object_or_404(Member.objects.select_related("user"), project=project, pk=number)
    if found.role == OWNER:
        messages.error(request, "The owner stays.")
    elif request.POST.get("action") == "remove":
        found.delete()
        messages.success(request, f"{found.user.username} was removed.")
    elif request.POST.get("role", "").isdecimal() and int(request.POST["role"]) in ROLES:
        found.role = int(request.POST["role"])
        found.save()
        messages.success(request, f"{found.user.username} is now {ROLES[found.role]}.")
    return redirect(f"/{project.full_path}/-/members")


@login_required
def settings(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Change name, description and visibility; archive."""
    project = find_project(request, space, name, MAINTAINER)
    start = {
        "name": project.name, "description": project.description, "visibility": project.visibility
    }  # fmt: skip
    form = SettingsForm(None, initial=start)
    if request.method == "POST" and "archive" in request.POST:
        project.is_archived = not project.is_archived
        project.save()
        done = "archived" if project.is_archived else "taken out of the archive"
        messages.success(request, f"The project was {done}.")
        return redirect(f"/{project.full_path}")
    if request.method == "POST":
        form = SettingsForm(request.POST)
        if form.is_valid():
            for field, value in form.cleaned_data.items():
                setattr(project, field, value)
            project.save()
            messages.success(request, "The settings were saved.")
            return redirect(f"/{project.full_path}/-/settings")
    context = project_context(request, project, "settings") | {"form": form}
    return render(request, "code/settings.html", context)


@login_required
@require_POST
def delete(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Delete a project, when its name was typed."""
    project = find_project(request, space, name, OWNER)
    if request.POST.get("confirm") != project.slug:
        messages.error(request, "The name does not match. Nothing was deleted.")
        return redirect(f"/{project.full_path}/-/settings")
    project.delete()
    messages.success(request, f"The project {project.name} was deleted.")
    return redirect("/")
