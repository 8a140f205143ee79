"""What the code hosting keeps: groups, projects, git history, issues, merge requests, members.

History is git's: the ids of blobs and commits are those that git would give the same content, and
a tree is the files of a commit (`Commit.tree`, path -> Blob). Folders exist through paths only.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models

_USER = settings.AUTH_USER_MODEL

GUEST, REPORTER, DEVELOPER, MAINTAINER, OWNER = 10, 20, 30, 40, 50
ROLES = {
    GUEST: "Guest",
    REPORTER: "Reporter",
    DEVELOPER: "Developer",
    MAINTAINER: "Maintainer",
    OWNER: "Owner",
}
VISIBILITIES = {"public": "Public", "internal": "Internal", "private": "Private"}


class Group(models.Model):
    """Projects that belong together."""

    path = models.CharField(max_length=40, unique=True)
    name = models.CharField(max_length=60)
    description = models.CharField(blank=True, max_length=200)
    visibility = models.CharField(default="public", max_length=10)
    created = models.DateTimeField()

    class Meta:
        app_label = "code"


class GroupMember(models.Model):
    """A person's role in all projects of a group."""

    group = models.ForeignKey(Group, models.CASCADE)
    user = models.ForeignKey(_USER, models.CASCADE)
    role = models.IntegerField()

    class Meta:
        app_label = "code"
        unique_together = (("group", "user"),)


class Blob(models.Model):
    """The content of a file. Blobs are never changed."""

    sha = models.CharField(max_length=40, unique=True)
    text = models.TextField()

    class Meta:
        app_label = "code"


class Commit(models.Model):
    """A commit with the files that it leaves behind."""

    sha = models.CharField(max_length=40, unique=True)
    message = models.TextField()
    author = models.ForeignKey(_USER, models.CASCADE)
    created = models.DateTimeField()
    parent = models.ForeignKey("self", models.CASCADE, null=True, related_name="+", db_index=False)
    second_parent = models.ForeignKey(
        "self", models.CASCADE, null=True, related_name="+", db_index=False
    )
    tree = models.JSONField()
    """Path -> id of the Blob."""

    class Meta:
        app_label = "code"

    @property
    def title(self) -> str:
        return self.message.partition("\n")[0]

    @property
    def short(self) -> str:
        return self.sha[:8]


class Project(models.Model):
    """A repository with issues, merge requests and members. Its path is "namespace/name"."""

    full_path = models.CharField(max_length=90, unique=True)
    name = models.CharField(max_length=50)
    group = models.ForeignKey(Group, models.CASCADE, null=True)
    owner = models.ForeignKey(_USER, models.CASCADE, null=True, related_name="own_projects")
    description = models.CharField(blank=True, max_length=250)
    visibility = models.CharField(default="public", max_length=10)
    language = models.CharField(blank=True, max_length=20)
    created = models.DateTimeField()
    updated = models.DateTimeField()
    default_branch = models.CharField(default="main", max_length=60)
    forked_from = models.ForeignKey("self", models.SET_NULL, null=True)
    is_archived = models.BooleanField(default=False)
    num_stars = models.IntegerField(default=0)

    class Meta:
        app_label = "code"

    @property
    def namespace(self) -> str:
        return self.full_path.partition("/")[0]

    @property
    def slug(self) -> str:
        return self.full_path.partition("/")[2]


class Branch(models.Model):
    """A name for a commit."""

    project = models.ForeignKey(Project, models.CASCADE)
    name = models.CharField(max_length=60)
    head = models.ForeignKey(Commit, models.CASCADE)

    class Meta:
        app_label = "code"
        unique_together = (("project", "name"),)


class Member(models.Model):
    """A person's role in one project."""

    project = models.ForeignKey(Project, models.CASCADE)
    user = models.ForeignKey(_USER, models.CASCADE)
    role = models.IntegerField()
    created = models.DateTimeField()

    class Meta:
        app_label = "code"
        unique_together = (("project", "user"),)


class Star(models.Model):
    """A person likes a project."""

    project = models.ForeignKey(Project, models.CASCADE)
    user = models.ForeignKey(_USER, models.CASCADE)

    class Meta:
        app_label = "code"
        unique_together = (("project", "user"),)


class Label(models.Model):
    """A word that sorts issues and merge requests of a project."""

    project = models.ForeignKey(Project, models.CASCADE)
    name = models.CharField(max_length=40)
    color = models.CharField(max_length=7)
    description = models.CharField(blank=True, max_length=150)

    class Meta:
        app_label = "code"
        unique_together = (("project", "name"),)
        ordering = ("name",)


class Milestone(models.Model):
    """What should be done by a day."""

    project = models.ForeignKey(Project, models.CASCADE)
    title = models.CharField(max_length=60)
    description = models.CharField(blank=True, max_length=250)
    due = models.DateField(null=True)
    is_closed = models.BooleanField(default=False)

    class Meta:
        app_label = "code"
        ordering = ("title",)


class Issue(models.Model):
    """Something to be done; `iid` is its number within the project."""

    project = models.ForeignKey(Project, models.CASCADE)
    iid = models.IntegerField()
    title = models.CharField(max_length=200)
    description = models.TextField(blank=True, max_length=10_000)
    author = models.ForeignKey(_USER, models.CASCADE, related_name="+")
    assignee = models.ForeignKey(_USER, models.SET_NULL, null=True, related_name="+")
    milestone = models.ForeignKey(Milestone, models.SET_NULL, null=True)
    labels = models.ManyToManyField(Label)
    is_open = models.BooleanField(default=True)
    due = models.DateField(null=True)
    created = models.DateTimeField()
    updated = models.DateTimeField()
    closed = models.DateTimeField(null=True)

    class Meta:
        app_label = "code"
        unique_together = (("project", "iid"),)


class MergeRequest(models.Model):
    """The wish to merge one branch into another; `iid` is its number within the project."""

    project = models.ForeignKey(Project, models.CASCADE)
    iid = models.IntegerField()
    title = models.CharField(max_length=200)
    description = models.TextField(blank=True, max_length=10_000)
    author = models.ForeignKey(_USER, models.CASCADE, related_name="+")
    assignee = models.ForeignKey(_USER, models.SET_NULL, null=True, related_name="+")
    reviewer = models.ForeignKey(_USER, models.SET_NULL, null=True, related_name="+")
    milestone = models.ForeignKey(Milestone, models.SET_NULL, null=True)
    labels = models.ManyToManyField(Label)
    state = models.CharField(default="open", max_length=8)
    """open, merged or closed."""
    source = models.CharField(max_length=60)
    target = models.CharField(max_length=60)
    head = models.ForeignKey(Commit, models.CASCADE, related_name="+")
    base = models.ForeignKey(Commit, models.CASCADE, related_name="+")
    """The commit that both branches come from."""
    merged_by = models.ForeignKey(_USER, models.SET_NULL, null=True, related_name="+")
    created = models.DateTimeField()
    updated = models.DateTimeField()
    finished = models.DateTimeField(null=True)

    class Meta:
        app_label = "code"
        unique_together = (("project", "iid"),)


class Approval(models.Model):
    """A person agrees with a merge request."""

    merge_request = models.ForeignKey(MergeRequest, models.CASCADE)
    user = models.ForeignKey(_USER, models.CASCADE)

    class Meta:
        app_label = "code"
        unique_together = (("merge_request", "user"),)


class Note(models.Model):
    """A comment on an issue or a merge request, or a record of what was done to it."""

    issue = models.ForeignKey(Issue, models.CASCADE, null=True)
    merge_request = models.ForeignKey(MergeRequest, models.CASCADE, null=True)
    author = models.ForeignKey(_USER, models.CASCADE)
    body = models.TextField(max_length=10_000)
    is_system = models.BooleanField(default=False)
    created = models.DateTimeField()

    class Meta:
        app_label = "code"
        ordering = ("created", "id")
