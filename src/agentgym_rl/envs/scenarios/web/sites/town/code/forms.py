"""Forms of the code hosting."""

from __future__ import annotations

from django import forms
from django.contrib.auth import get_user_model
from django.db.models import Q

from agentgym_rl.envs.scenarios.web.sites.town.code.models import (
    ROLES,
    VISIBILITIES,
    Branch,
    Group,
    Label,
    Milestone,
    Project,
)

_AREA = {"rows": 5}
_DAY = forms.DateInput(attrs={"type": "date"})
_SLUG = r"^[a-z0-9][a-z0-9_.-]{1,38}$"


class IssueForm(forms.Form):
    """A new issue, or another text of one."""

    title = forms.CharField(max_length=200)
    description = forms.CharField(
        required=False, max_length=10_000, widget=forms.Textarea(attrs=_AREA)
    )
    assignee = forms.ModelChoiceField(
        get_user_model().objects.none(), required=False, empty_label="Nobody",
        to_field_name="username",
    )  # fmt: skip
    milestone = forms.ModelChoiceField(
        Milestone.objects.none(), required=False, empty_label="None", to_field_name="title"
    )
    labels = forms.ModelMultipleChoiceField(
        Label.objects.none(), required=False, to_field_name="name",
        widget=forms.CheckboxSelectMultiple,
    )  # fmt: skip
    due = forms.DateField(required=False, label="Due date", widget=_DAY)

    def __init__(self, project: Project, people: list[object], *args: object, **kw: object) -> None:
        super().__init__(*args, **kw)
        users = get_user_model().objects.filter(pk__in=[one.pk for one in people])
        self.fields["assignee"].queryset = users.order_by("username")
        self.fields["assignee"].label_from_instance = lambda user: user.username
        present = self.initial.get("milestone")  # is kept, also when it is closed
        is_offered = Q(is_closed=False) | Q(pk=present.pk if present else None)
        self.fields["milestone"].queryset = Milestone.objects.filter(is_offered, project=project)
        self.fields["milestone"].label_from_instance = lambda one: one.title
        self.fields["labels"].queryset = Label.objects.filter(project=project)
        self.fields["labels"].label_from_instance = lambda one: one.name


class MergeRequestForm(forms.Form):
    """A new merge request."""

    source = forms.ModelChoiceField(
        Branch.objects.none(), label="Source branch", to_field_name="name", empty_label="Choose"
    )
    target = forms.ModelChoiceField(
        Branch.objects.none(), label="Target branch", to_field_name="name", empty_label=None
    )
    title = forms.CharField(max_length=200)
    description = forms.CharField(
        required=False, max_length=10_000, widget=forms.Textarea(attrs=_AREA)
    )
    reviewer = forms.ModelChoiceField(
        get_user_model().objects.none(), required=False, empty_label="Nobody",
        to_field_name="username",
    )  # fmt: skip

    def __init__(self, project: Project, people: list[object], *args: object, **kw: object) -> None:
        super().__init__(*args, **kw)
        branches = Branch.objects.filter(project=project).order_by("name")
        for name in ("source", "target"):
            self.fields[name].queryset = branches
            self.fields[name].label_from_instance = lambda branch: branch.name
        users = get_user_model().objects.filter(pk__in=[one.pk for one in people])
        self.fields["reviewer"].queryset = users.order_by("username")
        self.fields["reviewer"].label_from_instance = lambda user: user.username

    def clean(self) -> dict[str, object]:
        data = super().clean()
        if data.get("source") and data.get("source") == data.get("target"):
            raise forms.ValidationError("Choose two different branches.")
        return data


class NoteForm(forms.Form):
    """A comment."""

    body = forms.CharField(
        label="Comment", max_length=10_000, widget=forms.Textarea(attrs={"rows": 4})
    )


class ProjectForm(forms.Form):
    """A new project."""

    namespace = forms.ChoiceField()
    name = forms.RegexField(_SLUG, label="Project name", help_text="Small letters, digits, dashes.")
    description = forms.CharField(required=False, max_length=250)
    visibility = forms.ChoiceField(choices=list(VISIBILITIES.items()), initial="private")
    readme = forms.BooleanField(required=False, initial=True, label="Add a README")

    def __init__(self, namespaces: list[tuple[str, str]], *args: object, **kw: object) -> None:
        super().__init__(*args, **kw)
        self.fields["namespace"].choices = namespaces

    def clean(self) -> dict[str, object]:
        data = super().clean()
        path = f"{data.get('namespace')}/{data.get('name')}"
        if Project.objects.filter(full_path=path).exists():
            raise forms.ValidationError(f"There is a project {path} already.")
        return data


class GroupForm(forms.Form):
    """A new group."""

    name = forms.CharField(label="Group name", max_length=60)
    path = forms.RegexField(_SLUG, label="Group path", help_text="Small letters, digits, dashes.")
    description = forms.CharField(required=False, max_length=200)
    visibility = forms.ChoiceField(choices=list(VISIBILITIES.items()), initial="private")

    def clean_path(self) -> str:
        path = self.cleaned_data["path"]
        is_taken = Group.objects.filter(path=path).exists()
        if is_taken or get_user_model().objects.filter(username=path).exists():
            raise forms.ValidationError(f"The path {path} is taken.")
        return path


class SettingsForm(forms.Form):
    """What maintainers may change."""

    name = forms.CharField(label="Project name", max_length=50)
    description = forms.CharField(required=False, max_length=250)
    visibility = forms.ChoiceField(choices=list(VISIBILITIES.items()))


class MemberForm(forms.Form):
    """Somebody new with a role."""

    username = forms.CharField(max_length=60)
    role = forms.TypedChoiceField(
        coerce=int, choices=[(key, name) for key, name in ROLES.items() if key < 50]
    )

    def clean_username(self) -> str:
        name = self.cleaned_data["username"]
        if not get_user_model().objects.filter(username=name).exists():
            raise forms.ValidationError(f"There is no user called {name}.")
        return name


class LabelForm(forms.Form):
    """A new label."""

    name = forms.CharField(max_length=40)
    color = forms.RegexField(r"^#[0-9a-fA-F]{6}$", initial="#6699cc", help_text="Such as #6699cc.")
    description = forms.CharField(required=False, max_length=150)


class MilestoneForm(forms.Form):
    """A new milestone."""

    title = forms.CharField(max_length=60)
    description = forms.CharField(required=False, max_length=250)
    due = forms.DateField(required=False, label="Due date", widget=_DAY)


class BranchForm(forms.Form):
    """A new branch."""

    name = forms.RegexField(r"^[\w./-]{1,60}$", label="Branch name")
    source = forms.ChoiceField(label="Create from")

    def __init__(self, branches: list[str], *args: object, **kw: object) -> None:
        super().__init__(*args, **kw)
        self.fields["source"].choices = [(name, name) for name in branches]


class FileForm(forms.Form):
    """Another content of a file."""

    text = forms.CharField(
        label="Content", strip=False, widget=forms.Textarea(attrs={"rows": 14, "class": "mono"})
    )
    message = forms.CharField(label="Commit message", max_length=200)


class ProfileForm(forms.Form):
    """What a person says about themselves."""

    status = forms.CharField(required=False, max_length=80, label="Status")
    bio = forms.CharField(required=False, max_length=500, widget=forms.Textarea(attrs={"rows": 3}))
    location = forms.CharField(required=False, max_length=60)
    website = forms.CharField(required=False, max_length=80)
