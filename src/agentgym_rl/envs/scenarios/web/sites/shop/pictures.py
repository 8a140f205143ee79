"""Pictures of products: shown as they are (`AsItIs`), because they are drawn in the right size."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.files.storage import default_storage
from oscar.core.thumbnails import AbstractThumbnailer


@dataclass(frozen=True, slots=True)
class Picture:
    """What Oscar's pages need of a picture."""

    name: str

    @property
    def url(self) -> str:
        return default_storage.url(self.name)


class AsItIs(AbstractThumbnailer):
    """Oscar's thumbnailer, without thumbnails."""

    def generate_thumbnail(self, source, **opts):
        return Picture(str(source))

    def delete_thumbnails(self, source):
        pass
