"""Pictures of stored rounds: `pictures/<part>/<row>-<round>.jpg` beside the parts of episodes."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentgym_rl.runs.regular_files import MEGABYTE, read_regular
from agentgym_rl.types import Episode

_KINDS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpg"}
"""How a file begins -> its suffix."""
_NAME = re.compile(r"[0-9]{1,9}-[0-9]{1,9}\.(png|jpg)")
_MAX_BYTES = 8 * MEGABYTE


def picture_kind(picture: bytes) -> str | None:
    """Return "png" or "jpg"; None for anything else."""
    return next((kind for start, kind in _KINDS.items() if picture.startswith(start)), None)


def data_address(picture: bytes) -> str:
    """Return a picture as the address of an image that a page can show."""
    kind = "png" if picture_kind(picture) == "png" else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(picture).decode('ascii')}"


def picture_name(row: int, round_index: int, picture: bytes | None) -> str | None:
    """Return the file name of a round's picture in its part; None where it has none."""
    kind = picture_kind(picture) if picture else None
    return f"{row}-{round_index}.{kind}" if kind else None


def write_pictures(folder: Path, part: str, groups: Sequence[Sequence[Episode]]) -> None:
    """Write the pictures of a part, all or nothing, in the place of those it had."""
    place = folder / "pictures" / part
    shutil.rmtree(place, ignore_errors=True)
    named = list(_named(groups))
    if not named:
        return
    temporary = place.with_name(f".{part}.writing")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name, picture in named:
        (temporary / name).write_bytes(picture)
    temporary.rename(place)


def read_picture(folder: Path, part: str, name: str) -> bytes:
    """Return a picture. Raises OSError or ValueError where there is none of this name.

    Anybody may have made the folder: nothing outside of it is read, and nothing but pictures.
    """
    return _checked(folder, part, name)[1]


def picture_path(folder: Path, part: str, name: str) -> Path:
    """Return the file of a picture; raises as `read_picture` does."""
    return _checked(folder, part, name)[0]


def _checked(folder: Path, part: str, name: str) -> tuple[Path, bytes]:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a picture")
    pictures = folder / "pictures"
    if pictures.is_symlink() or (pictures / part).is_symlink():
        raise OSError(f"{pictures / part} is a link")
    file = pictures / part / name
    picture = read_regular(file, max_bytes=_MAX_BYTES)
    if picture_kind(picture) is None:
        raise ValueError(f"{name} is neither PNG nor JPEG")
    return file, picture


def _named(groups: Sequence[Sequence[Episode]]) -> Iterator[tuple[str, bytes]]:
    episodes = (episode for group in groups for episode in group)
    for row, episode in enumerate(episodes):
        for index, item in enumerate(episode.rounds):
            name = picture_name(row, index, item.picture)
            if name and item.picture:
                yield name, item.picture
