"""Files, commits and branches of a project."""

from __future__ import annotations

from collections import Counter

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from agentgym_rl.envs.scenarios.web.sites.town.code.access import find_project, project_context
from agentgym_rl.envs.scenarios.web.sites.town.code.forms import BranchForm, FileForm
from agentgym_rl.envs.scenarios.web.sites.town.code.history import (
    blame,
    changes_between,
    entries_at,
    head_of,
    last_change,
    log_of,
    text_at,
    write_blob,
    write_commit,
)
from agentgym_rl.envs.scenarios.web.sites.town.code.models import (
    DEVELOPER,
    Branch,
    Commit,
    Project,
)
from agentgym_rl.envs.scenarios.web.sites.town.paging import page_of


def overview(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Show a project: its files and its README."""
    project = find_project(request, space, name)
    head = head_of(project, project.default_branch)
    context = project_context(request, project, "overview") | {
        "ref": project.default_branch,
        "branches": Branch.objects.filter(project=project).order_by("name"),
        "num_forks": Project.objects.filter(forked_from=project).count(),
    }
    if head is not None:
        log = log_of(head)
        context |= {
            "log": log, "last": log[0], "entries": entries_at(log, ""), "folder": "",
            "readme": text_at(log[0], "README.md"),
        }  # fmt: skip
    return render(request, "code/overview.html", context)


def tree(request: HttpRequest, space: str, name: str, ref: str, folder: str = "") -> HttpResponse:
    """Show a folder."""
    project = find_project(request, space, name)
    log = log_of(_commit(project, ref))
    entries = entries_at(log, folder)
    if not entries:
        raise Http404
    context = project_context(request, project, "repository") | {
        "ref": ref, "folder": folder, "entries": entries, "last": log[0], "crumbs": _crumbs(folder),
        "branches": Branch.objects.filter(project=project).order_by("name"),
    }  # fmt: skip
    return render(request, "code/tree.html", context)


def blob(request: HttpRequest, space: str, name: str, ref: str, file: str) -> HttpResponse:
    """Show a file."""
    project = find_project(request, space, name)
    head = _commit(project, ref)
    text = _text(head, file)
    context = project_context(request, project, "repository") | {
        "ref": ref, "file": file, "crumbs": _crumbs(file), "text": text,
        "lines": list(enumerate(text.splitlines(), start=1)), "size": len(text.encode()),
        "is_markdown": file.endswith(".md") and request.GET.get("plain") != "1",
        "last": last_change(log_of(head), [file]),
    }  # fmt: skip
    return render(request, "code/blob.html", context)


def blame_page(request: HttpRequest, space: str, name: str, ref: str, file: str) -> HttpResponse:
    """Show who wrote the lines of a file."""
    project = find_project(request, space, name)
    head = _commit(project, ref)
    _text(head, file)
    context = project_context(request, project, "repository") | {
        "ref": ref, "file": file, "crumbs": _crumbs(file), "lines": blame(log_of(head), file),
    }  # fmt: skip
    return render(request, "code/blame.html", context)


@login_required
def edit(request: HttpRequest, space: str, name: str, ref: str, file: str) -> HttpResponse:
    """Change a file, which makes a commit on a branch."""
    project = find_project(request, space, name, DEVELOPER)
    branch = get_object_or_404(Branch, project=project, name=ref)
    text = _text(branch.head, file)
    form = FileForm(request.POST or None, initial={"text": text, "message": f"Update {file}"})
    if request.method == "POST" and form.is_valid():
        content = form.cleaned_data["text"].replace("\r\n", "\n")
        content = content if content.endswith("\n") else content + "\n"
        made = write_blob(content)
        new = dict(branch.head.tree) | {file: made.id}
        now = timezone.now()
        branch.head = write_commit(
            new, [branch.head], request.user, now, form.cleaned_data["message"]
        )
        branch.save()
        Project.objects.filter(pk=project.pk).update(updated=now)
        messages.success(request, "Your changes were committed.")
        return redirect(f"/{project.full_path}/-/blob/{ref}/{file}")
    context = project_context(request, project, "repository") | {
        "form": form, "ref": ref, "file": file, "crumbs": _crumbs(file),
    }  # fmt: skip
    return render(request, "code/edit_file.html", context)


def commits(request: HttpRequest, space: str, name: str, ref: str, file: str = "") -> HttpResponse:
    """Show the log of a branch, of a file or of one author."""
    project = find_project(request, space, name)
    log = log_of(_commit(project, ref))
    by_id = {one.id: one for one in log}
    if file:
        log = [
            one for one in log
            if not one.second_parent_id and one.tree.get(file)
            != (by_id[one.parent_id].tree.get(file) if one.parent_id else None)
        ]  # fmt: skip
    authors = sorted({one.author.username for one in log})
    author = request.GET.get("author", "")
    words = request.GET.get("q", "").strip()
    log = [one for one in log if author in ("", one.author.username)]
    log = [one for one in log if words.lower() in one.message.lower()]
    context = project_context(request, project, "commits") | {
        "ref": ref, "file": file, "page": page_of(request, log, 20), "authors": authors,
        "author": author, "words": words, "crumbs": _crumbs(file),
        "branches": Branch.objects.filter(project=project).order_by("name"),
    }  # fmt: skip
    return render(request, "code/commits.html", context)


def commit(request: HttpRequest, space: str, name: str, ref: str) -> HttpResponse:
    """Show what a commit changed."""
    project = find_project(request, space, name)
    found = _commit(project, ref)
    before = found.parent.tree if found.parent else {}
    context = project_context(request, project, "commits") | {
        "commit": found, "changes": changes_between(before, found.tree),
    }  # fmt: skip
    return render(request, "code/commit.html", context)


def branches(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Show branches, and make one."""
    project = find_project(request, space, name)
    found = Branch.objects.filter(project=project).select_related("head__author")
    form = BranchForm([one.name for one in found.order_by("name")], request.POST or None)
    if request.method == "POST":
        find_project(request, space, name, DEVELOPER)
        if form.is_valid():
            new = form.cleaned_data["name"]
            if found.filter(name=new).exists():
                form.add_error("name", f"There is a branch {new} already.")
            else:
                source = found.get(name=form.cleaned_data["source"])
                Branch.objects.create(project=project, name=new, head=source.head)
                messages.success(request, f"The branch {new} was created.")
                return redirect(request.path)
    page = page_of(request, found.order_by("-head__created", "name"), 20)
    context = project_context(request, project, "branches") | {"page": page, "form": form}
    return render(request, "code/branches.html", context)


@login_required
@require_POST
def delete_branch(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Delete a branch that is not the default one."""
    project = find_project(request, space, name, DEVELOPER)
    branch = get_object_or_404(Branch, project=project, name=request.POST.get("branch"))
    if branch.name == project.default_branch:
        messages.error(request, "The default branch cannot be deleted.")
    else:
        branch.delete()
        messages.success(request, f"The branch {branch.name} was deleted.")
    return redirect(f"/{project.full_path}/-/branches")


def contributors(request: HttpRequest, space: str, name: str) -> HttpResponse:
    """Show how many commits everybody made."""
    project = find_project(request, space, name)
    log = log_of(_commit(project, project.default_branch))
    counts = Counter(one.author for one in log)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0].username))
    context = project_context(request, project, "contributors") | {
        "people": ranked, "num_commits": len(log), "most": ranked[0][1],
    }  # fmt: skip
    return render(request, "code/contributors.html", context)


def _commit(project: Project, ref: str) -> Commit:
    found = head_of(project, ref)
    if found is None:
        raise Http404
    return found


def _text(head: Commit, file: str) -> str:
    text = text_at(head, file)
    if text is None:
        raise Http404
    return text


def _crumbs(path: str) -> list[tuple[str, str]]:
    """Return (name, path) of every folder on the way."""
    parts = path.split("/") if path else []
    return [(part, "/".join(parts[: place + 1])) for place, part in enumerate(parts)]
