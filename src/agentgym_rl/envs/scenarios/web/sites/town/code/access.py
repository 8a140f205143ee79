"""Finds projects and says what a person may do with them."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest

from agentgym_rl.envs.scenarios.web.sites.town.code.models import (
    DEVELOPER,
    MAINTAINER,
    OWNER,
    Group,
    GroupMember,
    Issue,
    Member,
    MergeRequest,
    Project,
    Star,
)


def role_in(request: HttpRequest, project: Project) -> int:
    """Return the highest role that the user has in a project; 0 is none."""
    user = request.user
    if not user.is_authenticated:
        return 0
    if project.owner_id == user.id:
        return OWNER
    roles = list(Member.objects.filter(project=project, user=user).values_list("role", flat=True))
    if project.group_id:
        found = GroupMember.objects.filter(group_id=project.group_id, user=user)
        roles += found.values_list("role", flat=True)
    return max(roles, default=0)


def find_project(request: HttpRequest, space: str, name: str, needs: int = 0) -> Project:
    """Return a project that the user may see. Raises PermissionDenied below a role."""
    found = Project.objects.select_related("group", "owner", "forked_from").filter(
        full_path=f"{space}/{name}"
    )
    project = found.first()
    if project is None:
        raise Http404
    project.my_role = role_in(request, project)
    if project.visibility == "private" and not project.my_role:
        raise Http404
    if project.my_role < needs:
        raise PermissionDenied("Your role in this project does not allow this.")
    return project


def project_context(request: HttpRequest, project: Project, tab: str) -> dict[str, object]:
    """Return what every page of a project needs."""
    user = request.user
    return {
        "project": project,
        "tab": tab,
        "is_starred": user.is_authenticated
        and Star.objects.filter(project=project, user=user).exists(),
        "num_open_issues": Issue.objects.filter(project=project, is_open=True).count(),
        "num_open_requests": MergeRequest.objects.filter(project=project, state="open").count(),
        "may_write": project.my_role >= DEVELOPER,
        "may_manage": project.my_role >= MAINTAINER,
    }


def people_of(project: Project) -> list[object]:
    """Return the users who take part in a project, by name."""
    users = get_user_model().objects
    found = users.filter(member__project=project)
    if project.group_id:
        found |= users.filter(groupmember__group_id=project.group_id)
    if project.owner_id:
        found |= users.filter(pk=project.owner_id)
    return list(found.distinct().order_by("username"))


def namespaces_of(request: HttpRequest) -> list[tuple[str, str]]:
    """Return where the user may create projects: (path, label)."""
    groups = Group.objects.filter(
        groupmember__user=request.user, groupmember__role__gte=MAINTAINER
    ).order_by("path")
    return [
        (request.user.username, request.user.username),
        *((group.path, group.path) for group in groups),
    ]
