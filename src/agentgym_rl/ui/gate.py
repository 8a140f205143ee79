"""What every request to the UI passes first: who asks, and with what headers answers leave.

The server listens on this machine, and any page in a browser here can send it requests. So it
answers only its own pages: a foreign `Origin` is refused, and so is a `Host` that is a name (of
somebody else's domain, made to point here) instead of an address. A link on another site may lead
to the page, never into its API, and what does more than read is asked for with JSON, which another
site cannot send unasked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentgym_rl.serving.gate import FOREIGN_PAGE, declares_more_than, is_foreign_page
from agentgym_rl.ui.answers import refusal

MAX_BODY_BYTES = 1_000_000

# Plotly writes style elements of its own, and offers pictures of plots as blobs.
_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "font-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class UiGate:
    """Refuses what other pages send, and bodies over the limit; adds the headers."""

    def __init__(self, app: ASGIApp, *, names: Collection[str] = ()) -> None:
        """`names` are the names of this machine, beside "localhost" and plain addresses."""
        self._app, self._names = app, {"localhost", *names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [pair for pair in message["headers"] if pair[0] not in dict(_HEADERS)]
                # Without a word about it browsers would keep old modules, and old answers.
                fresh = () if b"cache-control" in dict(own) else ((b"cache-control", b"no-cache"),)
                message = {**message, "headers": [*own, *fresh, *_HEADERS]}
            await send(message)

        headers = dict(scope["headers"])
        reason = self._reason_against(headers, scope["method"], scope["path"])
        if reason:
            await refusal(403, reason)(scope, receive, guarded)
            return
        is_known = headers.get(b"content-length", b"0").isdigit()
        is_known = is_known and b"transfer-encoding" not in headers
        if not is_known or declares_more_than(MAX_BODY_BYTES, headers):
            await refusal(413, f"a body has at most {MAX_BODY_BYTES} bytes, of a known length")(
                scope, receive, guarded
            )
            return
        await self._app(scope, receive, guarded)

    def _reason_against(self, headers: dict[bytes, bytes], method: str, path: str) -> str:
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_own(_without_port(host)):
            return f"the UI is not at {host!r}: use its address, such as http://127.0.0.1:PORT"
        if is_foreign_page(headers):
            return FOREIGN_PAGE
        is_reading = method in ("GET", "HEAD")
        # "same-site" is another port of this machine: somebody else's page as well. Browsers that
        # do not send the header send `Origin` with whatever is no GET.
        if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
            is_link = (
                headers.get(b"sec-fetch-mode") == b"navigate"
                and headers.get(b"sec-fetch-dest") == b"document"
            )
            if not (is_reading and is_link and not path.startswith("/api")):
                return "pages of other sites are refused"
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if not is_reading and kind != b"application/json":
            return "send application/json: what does more than read takes nothing else"
        return ""

    def _is_own(self, name: str) -> bool:
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()
