"""Which addresses an episode may reach."""

from __future__ import annotations

import pytest

from agentgym_rl.browser.host import Names
from agentgym_rl.browser.origins import Origins

ORIGINS = Origins(("http://shop.test", "https://forum.test:8443", "file:///srv/pages/"))


@pytest.mark.parametrize(
    "url",
    [
        "http://shop.test",
        "http://shop.test/",
        "http://shop.test:80/a?b#c",
        "https://forum.test:8443/x",
        "file:///srv/pages/a.html",
        "file:///srv/pages/deep/b.html",
        "about:blank",
    ],
)
def test_sites_of_the_task_are_allowed(url: str):
    assert ORIGINS.allows(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "shop.test",
        "http://shop.test:8000/",
        "https://shop.test/",
        "http://shop.test.evil.test/",
        "http://shop.test@evil.test/",
        "http://evil.test/http://shop.test/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://[broken/",
        "ftp://shop.test/",
        "file:///etc/passwd",
        "file:///srv/pages/../secret",
        "file:///srv/pages/%2e%2e/secret",
        "file:///srv/pages2/a.html",
        "data:text/html,<h1>x",
        "javascript:alert(1)",
        "blob:http://shop.test/1",
        "view-source:http://shop.test/",
        "chrome://version",
        "about:config",
    ],
)
def test_nothing_else_is(url: str):
    assert not ORIGINS.allows(url)


def test_no_other_name_can_be_resolved():
    names = Names((("shop.test", "127.0.0.1:8001"),))
    assert names.rules == "MAP shop.test 127.0.0.1:8001, MAP * ~NOTFOUND"


def test_whatever_is_not_allowed_goes_to_a_proxy_that_does_not_exist():
    proxy = Origins(("http://shop.test", "https://forum.test:8443", "http://[::1]:80")).proxy
    assert proxy is not None and proxy["server"] == "http://blocked.invalid:1"
    assert proxy["bypass"] == "http://shop.test:80,https://forum.test:8443,http://[::1]:80"
    assert ORIGINS.proxy is None  # folders are not behind the network
