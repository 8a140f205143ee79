"""The forum's forms."""

from __future__ import annotations

from django import forms
from django.contrib.auth import get_user_model

from agentgym_rl.envs.scenarios.web.sites.town.forum.models import Forum


class SubmissionForm(forms.Form):
    """A text, a link, or both."""

    forum = forms.ModelChoiceField(
        Forum.objects.order_by("name"), to_field_name="name", empty_label="Choose a forum"
    )
    title = forms.CharField(max_length=200)
    url = forms.URLField(
        label="URL", required=False, max_length=300, assume_scheme="https",
        help_text="Leave empty for a text post.",
    )  # fmt: skip
    body = forms.CharField(
        label="Body", required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 6})
    )

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.fields["forum"].label_from_instance = lambda forum: forum.name


class EditForm(forms.Form):
    """The text of a submission that exists."""

    title = forms.CharField(max_length=200)
    body = forms.CharField(
        required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 6})
    )


class CommentForm(forms.Form):
    """An answer."""

    body = forms.CharField(
        label="Comment", max_length=5000, widget=forms.Textarea(attrs={"rows": 4})
    )


class ForumForm(forms.Form):
    """A new forum."""

    name = forms.RegexField(
        r"^\w{3,25}$", help_text="3 to 25 letters, digits or underscores.", max_length=25
    )
    title = forms.CharField(max_length=60)
    description = forms.CharField(max_length=200)
    sidebar = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(attrs={"rows": 4})
    )

    def clean_name(self) -> str:
        name = self.cleaned_data["name"]
        if Forum.objects.filter(name__iexact=name).exists():
            raise forms.ValidationError(f"There is a forum called {name} already.")
        return name


class ForumSettingsForm(forms.Form):
    """What moderators may change."""

    title = forms.CharField(max_length=60)
    description = forms.CharField(max_length=200)
    sidebar = forms.CharField(
        required=False, max_length=2000, widget=forms.Textarea(attrs={"rows": 4})
    )


class BanForm(forms.Form):
    """Who may not write any more."""

    username = forms.CharField(max_length=60)
    reason = forms.CharField(max_length=200)
    expires = forms.DateField(
        required=False, label="Expires", widget=forms.DateInput(attrs={"type": "date"}),
        help_text="Leave empty for a permanent ban.",
    )  # fmt: skip

    def clean_username(self) -> str:
        name = self.cleaned_data["username"]
        if not get_user_model().objects.filter(username=name).exists():
            raise forms.ValidationError(f"There is no user called {name}.")
        return name


class RuleForm(forms.Form):
    """A rule of a forum."""

    title = forms.CharField(max_length=80)
    text = forms.CharField(required=False, max_length=300)


class ProfileForm(forms.Form):
    """What a person says about themselves."""

    bio = forms.CharField(required=False, max_length=500, widget=forms.Textarea(attrs={"rows": 4}))
    location = forms.CharField(required=False, max_length=60)
    website = forms.CharField(required=False, max_length=80)
