"""Settings of Django that every project needs for episodes; a project's settings.py imports them.

A project adds SECRET_KEY (any constant), INSTALLED_APPS, MIDDLEWARE, TEMPLATES, ROOT_URLCONF, and
whatever its applications ask for. serve.py and build.py set MEDIA_ROOT and IS_BUILDING.
"""

from __future__ import annotations

_HERE = "agentgym_rl.envs.scenarios.web.sites"

SECRET_KEY = "sites that only an episode's own browser can reach"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
LANGUAGES = [("en-us", "English")]
"""One: a chooser would cost more tokens than the page."""
DATABASES = {
    "default": {"ENGINE": f"{_HERE}.sqlite_backend", "NAME": "episode", "ATOMIC_REQUESTS": True}
}
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "KEY_FUNCTION": f"{_HERE}.uploads.key_of_cache",
        "TIMEOUT": None,
        "OPTIONS": {"MAX_ENTRIES": 100_000},
    }
}
STORAGES = {
    "default": {"BACKEND": f"{_HERE}.uploads.EpisodeStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
STATIC_URL = "/static/"
MEDIA_URL = "/media/"
IS_BUILDING = False
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
"""Fast, and there is nothing to protect."""
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
LOGGING = {
    "version": 1,
    "disable_existing_loggers": True,
    "handlers": {"errors": {"class": "logging.StreamHandler", "level": "ERROR"}},
    "root": {"handlers": ["errors"], "level": "ERROR"},
}


class _NoMigrations(dict):
    """Every application has none."""

    def __contains__(self, app: object) -> bool:
        return True

    def __getitem__(self, app: str) -> None:
        return None


MIGRATION_MODULES = _NoMigrations()
"""Tables are made from the models, which takes a fortieth of the time."""
