"""The ids that git gives to blobs, trees and commits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime


def blob_sha(text: str) -> str:
    """Return the id of a file's content."""
    return _sha("blob", text.encode())


def tree_sha(files: Mapping[str, str]) -> str:
    """Return the id of a folder with all below; `files` is path -> id of its blob."""
    entries: dict[str, str | dict[str, str]] = {}
    for path, sha in files.items():
        head, _, rest = path.partition("/")
        if rest:
            folder = entries.setdefault(head, {})
            assert isinstance(folder, dict), f"{head} is a file and a folder"
            folder[rest] = sha
        else:
            entries[head] = sha
    content = b""
    # git sorts a folder as if its name ended with a slash
    for name, entry in sorted(
        entries.items(), key=lambda pair: pair[0] + "/" * isinstance(pair[1], dict)
    ):
        is_folder = isinstance(entry, dict)
        sha = tree_sha(entry) if isinstance(entry, dict) else entry
        content += f"{'40000' if is_folder else '100644'} {name}\0".encode() + bytes.fromhex(sha)
    return _sha("tree", content)


def commit_sha(
    tree: str, parents: Sequence[str], author: tuple[str, str], created: datetime, message: str
) -> str:
    """Return the id of a commit; `author` is a name and an address."""
    moment = created if created.tzinfo else created.replace(tzinfo=UTC)
    who = f"{author[0]} <{author[1]}> {int(moment.timestamp())} +0000"
    lines = [f"tree {tree}", *(f"parent {one}" for one in parents)]
    lines += [f"author {who}", f"committer {who}", "", message.rstrip("\n")]
    return _sha("commit", "\n".join(lines).encode() + b"\n")


def _sha(kind: str, content: bytes) -> str:
    header = f"{kind} {len(content)}\0".encode()
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
