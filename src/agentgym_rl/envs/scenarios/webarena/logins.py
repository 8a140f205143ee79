"""How an episode is logged in to the sites of its task: `Logins`.

States come from files that WebArena's login script made, or from logging in here, by the sites' own
forms and WebArena's public accounts. A login is made once and given to every episode until it is
old. Sites on one host share its cookies whatever their ports are, so a file for several sites
together is preferred where there is one.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

from playwright.async_api import Error as PlaywrightError

from agentgym_rl.browser.browsing import Browsing
from agentgym_rl.browser.session import BrowserOptions, BrowserSession
from agentgym_rl.envs.scenarios.webarena.options import FORMS, NO_LOGIN
from agentgym_rl.errors import EnvError

_MAX_AGE_S = 1200.0
_LOGIN_S = 90.0
_FIELD_MS = 3_000
_ENTER_MS = 20_000
"""Until the form is gone; a busy site takes seconds."""


@dataclass(frozen=True, slots=True)
class Form:
    """Where a site is entered and with what; names as the page shows them."""

    path: str
    user_field: str
    password_field: str
    button: str
    user: str
    password: str
    """Public: the same in every WebArena."""


FORMS_OF_SITES = {
    "shopping": Form(
        "/customer/account/login/",
        "#email",
        "#pass",
        "button[name=send], button.login",
        "emma.lopez@gmail.com",
        "Password.123",
    ),
    "shopping_admin": Form(
        "",
        "input[placeholder='user name']",
        "input[placeholder=password]",
        "button:has-text('Sign in')",
        "admin",
        "admin1234",
    ),
    "reddit": Form(
        "/login",
        "input[name=_username]",
        "input[name=_password]",
        "button:has-text('Log in')",
        "MarvelsGrantMan136",
        "test1234",
    ),
    "gitlab": Form(
        "/users/sign_in",
        "[data-testid=username-field], #user_login",
        "[data-testid=password-field], #user_password",
        "[data-testid=sign-in-button], button[type=submit]",
        "byteblaze",
        "hello1234",
    ),
}
"""Sites that have accounts."""


@dataclass(frozen=True)
class LoginState:
    """What a browser holds after logging in, as Playwright writes it."""

    cookies: tuple[dict[str, object], ...] = ()
    storage: tuple[dict[str, object], ...] = ()


@dataclass
class _Kept:
    lock: threading.Lock = field(default_factory=threading.Lock)
    state: LoginState | None = None
    made_at: float = 0.0


class Logins:
    """The logins of this process. Safe for many threads. Make one with `logins_of`."""

    def __init__(self, way: str) -> None:
        self._way = way
        self._kept = {site: _Kept() for site in FORMS_OF_SITES}

    def state(self, addresses: dict[str, str], options: BrowserOptions) -> LoginState:
        """Return the login to these sites together; `options` are for a browser that makes it."""
        sites = [site for site in addresses if site in FORMS_OF_SITES]
        if self._way == NO_LOGIN or not sites:
            return LoginState()
        if self._way != FORMS:
            return _read_states(Path(self._way).expanduser(), sites)
        states = [self._by_form(site, addresses[site], options) for site in sites]
        return _joined(states)

    def forget_if_changed(self, state: LoginState, held: Sequence[Mapping[str, object]]) -> None:
        """Make the next episode log in anew where an episode ended with another session.

        Its agent has logged out then, which ends the session for everybody.
        """
        kept = {_key(cookie): cookie.get("value") for cookie in held}
        if all(kept.get(_key(one)) == one["value"] for one in state.cookies if one.get("httpOnly")):
            return
        for one in self._kept.values():
            with one.lock:
                if one.state is not None and set(map(_key, one.state.cookies)) & set(
                    map(_key, state.cookies)
                ):
                    one.state = None

    def _by_form(self, site: str, address: str, options: BrowserOptions) -> LoginState:
        kept = self._kept[site]
        with kept.lock:
            if kept.state is None or time.monotonic() - kept.made_at > _MAX_AGE_S:
                kept.state = _log_in(site, address, options)
                kept.made_at = time.monotonic()
            return kept.state


@cache
def logins_of(way: str, addresses: tuple[tuple[str, str], ...]) -> Logins:
    """Return this process's logins of one kind to these sites."""
    return Logins(way)


def _log_in(site: str, address: str, options: BrowserOptions) -> LoginState:
    """Fill a site's form in a context of its own. Raises EnvError when that does not help."""
    form = FORMS_OF_SITES[site]
    browsing = Browsing(options)
    try:
        browsing.load(f"{address}{form.path}")
        state = browsing.run(partial(_fill, form), _LOGIN_S)
    finally:
        browsing.close()
    if state is None:
        raise EnvError(
            f"logging in to {site} at {address}{form.path} as {form.user} failed: check the "
            f"address, or give states of WebArena's login script as env.options.login=FOLDER"
        )
    return state


async def _fill(form: Form, session: BrowserSession) -> LoginState | None:
    """Return the state after logging in; None where the form is missing or still there."""
    page = session.tab.page
    try:
        await page.locator(form.user_field).first.fill(form.user, timeout=_FIELD_MS)
        await page.locator(form.password_field).first.fill(form.password, timeout=_FIELD_MS)
        await page.locator(form.button).first.click(timeout=_FIELD_MS)
        gone = page.locator(form.password_field).first
        await gone.wait_for(state="detached", timeout=_ENTER_MS)
    except PlaywrightError:
        return None
    await session.tab.settle()
    return _state(await page.context.storage_state())


def _read_states(folder: Path, sites: Sequence[str]) -> LoginState:
    together = folder / f"{'.'.join(sorted(sites))}_state.json"
    if together.is_file():
        return _read_state(together)
    return _joined([_read_state(folder / f"{site}_state.json") for site in sites])


def _read_state(file: Path) -> LoginState:
    try:
        return _state(json.loads(file.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EnvError(f"the login state {file} cannot be read: {error}") from error


def _state(table: Any) -> LoginState:  # Playwright's, or of a file
    return LoginState(
        tuple(cast(Sequence[dict[str, object]], table["cookies"])),
        tuple(cast(Sequence[dict[str, object]], table.get("origins", ()))),
    )


def _key(cookie: Mapping[str, object]) -> tuple[object, ...]:
    return cookie.get("name"), cookie.get("domain"), cookie.get("path")


def _joined(states: Sequence[LoginState]) -> LoginState:
    return LoginState(
        tuple(cookie for state in states for cookie in state.cookies),
        tuple(origin for state in states for origin in state.storage),
    )
