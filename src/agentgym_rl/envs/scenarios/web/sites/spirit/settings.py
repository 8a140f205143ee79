"""Django's settings for the forum: what Spirit's own project template sets, over episodes."""

from __future__ import annotations

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

_HERE = __name__.rpartition(".")[0]

ROOT_URLCONF = f"{_HERE}.urls"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "spirit.core",
    "spirit.admin",
    "spirit.search",
    "spirit.user",
    "spirit.user.admin",
    "spirit.user.auth",
    "spirit.category",
    "spirit.category.admin",
    "spirit.topic",
    "spirit.topic.admin",
    "spirit.topic.favorite",
    "spirit.topic.moderate",
    "spirit.topic.notification",
    "spirit.topic.private",
    "spirit.topic.unread",
    "spirit.comment",
    "spirit.comment.bookmark",
    "spirit.comment.flag",
    "spirit.comment.flag.admin",
    "spirit.comment.history",
    "spirit.comment.like",
    "spirit.comment.poll",
    "djconfig",
    "haystack",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "spirit.user.middleware.TimezoneMiddleware",
    "spirit.user.middleware.LastIPMiddleware",
    "spirit.user.middleware.LastSeenMiddleware",
    "spirit.user.middleware.ActiveUserMiddleware",
    "spirit.core.middleware.PrivateForumMiddleware",
    "djconfig.middleware.DjConfigMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.contrib.auth.context_processors.auth",
                "django.template.context_processors.i18n",
                "django.template.context_processors.media",
                "django.template.context_processors.static",
                "django.template.context_processors.tz",
                "django.template.context_processors.request",
                "django.contrib.messages.context_processors.messages",
                "djconfig.context_processors.config",
            ]
        },
    }
]
AUTHENTICATION_BACKENDS = [
    "spirit.user.auth.backends.UsernameAuthBackend",
    "spirit.user.auth.backends.EmailAuthBackend",
]
USE_I18N = True
LOGIN_URL = "spirit:user:auth:login"
LOGIN_REDIRECT_URL = "spirit:user:update"
LOGOUT_REDIRECT_URL = "spirit:index"
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": f"{_HERE}.search.Engine"}}
HAYSTACK_SIGNAL_PROCESSOR = "haystack.signals.BaseSignalProcessor"
ASK_FOR_TIME = ("spirit.core.tags.time",)
"""Modules that ask `datetime` for the time, by themselves."""

ST_SITE_URL = "http://talk.test/"
ST_RATELIMIT_ENABLE = False
"""It goes by the machine's clock, and an agent posts faster than a person."""
ST_RATELIMIT_CACHE = "default"
