"""Django's settings for the four own sites. One project; the host of a request chooses the site."""

from __future__ import annotations

from pathlib import Path

from agentgym_rl.envs.scenarios.web.sites.base_settings import (  # noqa: F401
    ALLOWED_HOSTS,
    CACHES,
    DATABASES,
    DEBUG,
    DEFAULT_AUTO_FIELD,
    EMAIL_BACKEND,
    IS_BUILDING,
    LANGUAGE_CODE,
    LANGUAGES,
    LOGGING,
    MEDIA_URL,
    MIGRATION_MODULES,
    PASSWORD_HASHERS,
    SECRET_KEY,
    STATIC_URL,
    STORAGES,
    TIME_ZONE,
    USE_TZ,
)

_FOLDER = Path(__file__).parent
_HERE = __name__.rpartition(".")[0]

ROOT_URLCONF = f"{_HERE}.forum.urls"  # hosts.py puts in that of the site
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    *(f"{_HERE}.{name}" for name in ("accounts", "forum", "code", "map", "wiki")),
]
MIDDLEWARE = [
    f"{_HERE}.hosts.SiteByHost",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [_FOLDER / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": [f"{_HERE}.tags"],
        },
    }
]
STATICFILES_DIRS = [_FOLDER / "static"]
SESSION_COOKIE_AGE = 10 * 365 * 86400
MESSAGE_STORAGE = "django.contrib.messages.storage.session.SessionStorage"
LOGIN_URL = "/login"
LOGIN_REDIRECT_URL = "/"
APPEND_SLASH = False
USE_I18N = False
