"""Django's settings for the shop: Oscar's own defaults, and what Oscar leaves to a shop."""

from __future__ import annotations

import oscar
from django.urls import reverse_lazy
from oscar.defaults import *  # noqa: F403 - this is how Oscar is set up

from agentgym_rl.envs.scenarios.web.sites.base_settings import (  # noqa: F401
    ALLOWED_HOSTS,
    CACHES,
    DATABASES,
    DEBUG,
    DEFAULT_AUTO_FIELD,
    EMAIL_BACKEND,
    IS_BUILDING,
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
SITE_ID = 1
INSTALLED_APPS = oscar.INSTALLED_APPS
MIDDLEWARE = [
    "django.middleware.common.CommonMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.contrib.flatpages.middleware.FlatpageFallbackMiddleware",
    "oscar.apps.basket.middleware.BasketMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.i18n",
                "django.template.context_processors.media",
                "django.template.context_processors.static",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "oscar.apps.search.context_processors.search_form",
                "oscar.apps.checkout.context_processors.checkout",
                "oscar.apps.communication.notifications.context_processors.notifications",
                "oscar.core.context_processors.metadata",
            ]
        },
    }
]
AUTHENTICATION_BACKENDS = [
    "oscar.apps.customer.auth_backends.EmailBackend",
    "django.contrib.auth.backends.ModelBackend",
]
USE_I18N = True
LANGUAGE_CODE = "en-gb"
LANGUAGES = [("en-gb", "English")]
HAYSTACK_CONNECTIONS = {"default": {"ENGINE": f"{_HERE}.search.Engine"}}
HAYSTACK_SIGNAL_PROCESSOR = "haystack.signals.BaseSignalProcessor"

OSCAR_SHOP_NAME = "Harbour & Hill"
OSCAR_SHOP_TAGLINE = "Everyday goods"
OSCAR_HOMEPAGE = reverse_lazy("catalogue:index")
OSCAR_DEFAULT_CURRENCY = "GBP"
OSCAR_IMAGE_FOLDER = "images/products"
OSCAR_THUMBNAILER = f"{_HERE}.pictures.AsItIs"
OSCAR_MISSING_IMAGE_URL = "image_not_found.jpg"
OSCAR_MODERATE_REVIEWS = True
OSCAR_ALLOW_ANON_REVIEWS = False
OSCAR_SEND_REGISTRATION_EMAIL = False
OSCAR_SAVE_SENT_EMAILS_TO_DB = False
OSCAR_EAGER_ALERTS = False
OSCAR_INITIAL_ORDER_STATUS = "Pending"
OSCAR_INITIAL_LINE_STATUS = "Pending"
OSCAR_ORDER_STATUS_PIPELINE = {
    "Pending": ("Being processed", "Cancelled"),
    "Being processed": ("Shipped", "Cancelled"),
    "Shipped": ("Delivered", "Returned"),
    "Delivered": ("Returned",),
    "Returned": (),
    "Cancelled": (),
}
OSCAR_LINE_STATUS_PIPELINE = OSCAR_ORDER_STATUS_PIPELINE
