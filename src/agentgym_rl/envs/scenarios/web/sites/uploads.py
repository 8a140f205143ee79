"""Where files of users are: what an episode uploads is in its own folder (`EpisodeStorage`).

What the template brings, such as pictures of products, is read by all and changed by none.
"""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings
from django.core.files.storage import FileSystemStorage
from django.utils._os import safe_join

from agentgym_rl.envs.scenarios.web.sites.episodes import current


class EpisodeStorage(FileSystemStorage):
    """The current episode's folder, over the template's, which is read-only.

    Outside of an episode, and while a template is built, it is the template's folder.
    """

    @property
    def base_location(self) -> str:
        own = self._own("")
        return settings.MEDIA_ROOT if own is None else own

    @property
    def location(self) -> str:
        return os.path.abspath(self.base_location)

    def path(self, name: str) -> str:
        own = self._own(name)
        shared = safe_join(settings.MEDIA_ROOT, name)
        return shared if own is None or (not Path(own).exists() and Path(shared).exists()) else own

    def _own(self, name: str) -> str | None:
        """Return where the current episode keeps a file of this name."""
        episode = current.get()
        is_template = episode is None or settings.IS_BUILDING
        return None if is_template else safe_join(str(episode.folder), name)

    def delete(self, name: str) -> None:
        own = self._own(name)
        if own is None or Path(own).exists():
            super().delete(name)


def key_of_cache(key: object, prefix: str, version: int) -> str:
    """Return a key of the cache with its episode, for Django's KEY_FUNCTION."""
    episode = current.get()
    return f"{episode.key if episode else ''}:{prefix}:{version}:{key}"
