"""Reads and writes git history: logs, folders, differences, who wrote a line, merges."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser

from agentgym_rl.envs.scenarios.web.sites.town.code.git_objects import (
    blob_sha,
    commit_sha,
    tree_sha,
)
from agentgym_rl.envs.scenarios.web.sites.town.code.models import Blob, Branch, Commit, Project

_LOG = """
WITH RECURSIVE log(id) AS (
    SELECT %s UNION SELECT parent_id FROM code_commit c JOIN log ON log.id = c.id
        WHERE parent_id IS NOT NULL
    UNION SELECT second_parent_id FROM code_commit c JOIN log ON log.id = c.id
        WHERE second_parent_id IS NOT NULL
)
SELECT code_commit.* FROM code_commit JOIN log ON log.id = code_commit.id
ORDER BY created DESC, code_commit.id DESC
"""
_CONTEXT = 3


@dataclass(frozen=True)
class Entry:
    """A file or folder in a list of files."""

    name: str
    path: str
    is_folder: bool
    last: Commit


@dataclass(frozen=True)
class Line:
    """A line of a difference: kind is " ", "+", "-" or "@"."""

    kind: str
    old: int | None
    new: int | None
    text: str


@dataclass(frozen=True)
class FileChange:
    """What happened to a file."""

    path: str
    status: str
    lines: Sequence[Line]
    num_added: int
    num_removed: int


def log_of(head: Commit) -> list[Commit]:
    """Return a commit and all before it, the youngest first, with authors."""
    found = list(Commit.objects.raw(_LOG, [head.id]).prefetch_related("author"))
    return found


def head_of(project: Project, ref: str) -> Commit | None:
    """Return the commit that a branch or an id means."""
    branch = Branch.objects.filter(project=project, name=ref).select_related("head__author").first()
    if branch is not None:
        return branch.head
    if len(ref) < 7:
        return None
    return Commit.objects.filter(sha__startswith=ref).select_related("author").first()


def entries_at(log: Sequence[Commit], folder: str) -> list[Entry]:
    """Return the files and folders of a folder at the first commit of a log, folders first."""
    tree = log[0].tree
    prefix = f"{folder}/" if folder else ""
    names: dict[str, list[str]] = {}
    for path in tree:
        if path.startswith(prefix):
            names.setdefault(path.removeprefix(prefix).partition("/")[0], []).append(path)
    entries = [
        Entry(name, prefix + name, prefix + name not in tree, last_change(log, paths))
        for name, paths in names.items()
    ]
    return sorted(entries, key=lambda entry: (not entry.is_folder, entry.name))


def last_change(log: Sequence[Commit], paths: Sequence[str]) -> Commit:
    """Return the last commit of a log that changed any of some files."""
    by_id = {commit.id: commit for commit in log}
    here = log[0]
    while here.parent_id is not None:
        before = by_id.get(here.second_parent_id) if here.second_parent_id else None
        parent = before or by_id[here.parent_id]
        if any(parent.tree.get(path) != here.tree.get(path) for path in paths):
            return here
        here = parent
    return here


def text_at(commit: Commit, path: str) -> str | None:
    """Return the content of a file."""
    number = commit.tree.get(path)
    return Blob.objects.get(pk=number).text if number is not None else None


def changes_between(old: Mapping[str, int], new: Mapping[str, int]) -> list[FileChange]:
    """Return the differences of two trees."""
    paths = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
    wanted = [tree[path] for path in paths for tree in (old, new) if path in tree]
    texts = {blob.id: blob.text for blob in Blob.objects.filter(pk__in=wanted)}
    changes = []
    for path in paths:
        before = texts[old[path]].splitlines() if path in old else []
        after = texts[new[path]].splitlines() if path in new else []
        status = "added" if path not in old else "deleted" if path not in new else "changed"
        lines = _difference(before, after)
        changes.append(
            FileChange(
                path, status, lines, sum(line.kind == "+" for line in lines),
                sum(line.kind == "-" for line in lines),
            )
        )  # fmt: skip
    return changes


def _difference(before: list[str], after: list[str]) -> list[Line]:
    lines: list[Line] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        first, last = group[0], group[-1]
        head = f"@@ -{first[1] + 1},{last[2] - first[1]} +{first[3] + 1},{last[4] - first[3]} @@"
        lines.append(Line("@", None, None, head))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [Line(" ", i1 + n + 1, j1 + n + 1, before[i1 + n]) for n in range(i2 - i1)]
            else:
                lines += [Line("-", i + 1, None, before[i]) for i in range(i1, i2)]
                lines += [Line("+", None, j + 1, after[j]) for j in range(j1, j2)]
    return lines


def blame(log: Sequence[Commit], path: str) -> list[tuple[Commit, str]]:
    """Return each line of a file with the commit that brought it."""
    by_id = {commit.id: commit for commit in log}
    here: Commit | None = log[0]
    versions: list[Commit] = []
    while here is not None and path in here.tree:
        parent = by_id.get(here.second_parent_id or here.parent_id or 0)
        if parent is None or parent.tree.get(path) != here.tree.get(path):
            versions.append(here)
        here = parent
    texts = Blob.objects.in_bulk([commit.tree[path] for commit in versions])
    owned: list[tuple[Commit, str]] = []
    for commit in reversed(versions):
        new = texts[commit.tree[path]].text.splitlines()
        matcher = difflib.SequenceMatcher(None, [line for _, line in owned], new, autojunk=False)
        fresh = [(commit, line) for line in new]
        for i, j, size in matcher.get_matching_blocks():
            fresh[j : j + size] = owned[i : i + size]
        owned = fresh
    return owned


def merged_tree(base: Commit, ours: Commit, theirs: Commit) -> dict[str, int] | None:
    """Return the tree of a merge; None where both sides changed the same file differently."""
    tree = dict(ours.tree)
    for path in base.tree.keys() | theirs.tree.keys():
        was, now, here = base.tree.get(path), theirs.tree.get(path), ours.tree.get(path)
        if now in (was, here):
            continue
        if here != was:
            return None
        if now is None:
            tree.pop(path, None)
        else:
            tree[path] = now
    return tree


def write_commit(
    tree: Mapping[str, int],
    parents: Sequence[Commit],
    author: AbstractBaseUser,
    created: datetime,
    message: str,
) -> Commit:
    """Store a commit under the id that git would give it."""
    shas = dict(Blob.objects.filter(pk__in=set(tree.values())).values_list("id", "sha"))
    who = (author.get_full_name() or author.username, author.email)
    sha = commit_sha(
        tree_sha({path: shas[number] for path, number in tree.items()}),
        [one.sha for one in parents], who, created, message,
    )  # fmt: skip
    first, second = (*parents, None, None)[:2]
    return Commit.objects.create(
        sha=sha, message=message, author=author, created=created, parent=first,
        second_parent=second, tree=dict(sorted(tree.items())),
    )  # fmt: skip


def write_blob(text: str) -> Blob:
    """Store the content of a file, once."""
    return Blob.objects.get_or_create(sha=blob_sha(text), defaults={"text": text})[0]
