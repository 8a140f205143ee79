"""The fixtures of tests with a real browser."""

from browser_site import browsing, site

__all__ = ["browsing", "site"]
