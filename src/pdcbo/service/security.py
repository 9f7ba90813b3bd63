"""The gate that every request passes: host, origin, token, size; and the headers that every answer carries.

Host     must be a name that the service was told it has, so that no foreign name can be pointed at it (DNS rebinding)
Origin   where a browser sends one, it must be the page's own
token    a bearer token, or the session cookie that the sign-in page gives for one; only hashes are kept
size     a body above the limit is refused before it is read
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from pdcbo.service.telemetry import Metrics
from pdcbo.store import SchemaError, StoreError
from pdcbo.store.journal import hash_token

Scope = dict[str, Any]
Headers = dict[bytes, bytes]
log = logging.getLogger("pdcbo.service")

COOKIE = "pdcbo_session"
SESSION_SECONDS = 12 * 3600.0
OPEN_PATHS = ("/healthz", "/login", "/static/")
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        b"connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
]


class Sessions:
    """Browser sessions: random names, kept as hashes, forgotten after half a day or with the token they came by."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def create(self, token: str) -> str:
        """Return the name of a new session that a token was given for."""
        name = secrets.token_urlsafe(32)
        with self._lock:
            now = time.monotonic()
            self._known = {k: v for k, v in self._known.items() if v[0] > now}
            self._known[hash_token(name)] = now + SESSION_SECONDS, hash_token(token)
        return name

    def valid(self, name: str, hashes: Callable[[], dict[str, str]]) -> bool:
        """Tell whether a session is there and not too old, and its token still among those whose hashes are stored."""
        with self._lock:
            until, token = self._known.get(hash_token(name), (0.0, ""))
        return until > time.monotonic() and token in hashes().values()


def token_is_known(token: str, hashes: Callable[[], dict[str, str]]) -> bool:
    """Compare a token with every stored hash in constant time."""
    given = hash_token(token)
    return any([hmac.compare_digest(given, known) for known in hashes().values()])  # no short cut: constant time


class Gate:
    """ASGI middleware; see the module.

    Args:
        app: what is behind it.
        hosts: names that the service answers to, without port.
        max_body: bytes.
        metrics: counts every request.
        hashes: returns the stored token hashes, or None where no token is needed.
        sessions: of browsers.
    """

    def __init__(
        self,
        app: Any,
        *,
        hosts: frozenset[str],
        max_body: int,
        metrics: Metrics,
        hashes: Callable[[], dict[str, str]] | None,
        sessions: Sessions,
    ) -> None:
        self.app, self.hosts, self.max_body = app, hosts, max_body
        self.metrics, self.hashes, self.sessions = metrics, hashes, sessions

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Let a request pass, or say why not."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        request = secrets.token_hex(8)
        seen = {"read": 0}

        async def sending(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                message = {**message, "headers": [*message["headers"], *HEADERS, (b"x-request-id", request.encode())]}
            await send(message)

        async def receiving() -> Any:
            message = await receive()
            seen["read"] += len(message.get("body", b""))
            if seen["read"] > self.max_body:
                raise TooLargeError(self.max_body)
            return message

        try:
            headers = {name.lower(): value for name, value in scope["headers"]}
            scope["unknown"] = partial(self._unknown, scope["path"], headers)  # a stream asks again while it lasts
            refusal = self._refusal(headers) or await scope["unknown"]()
            if refusal is not None:
                await _refuse(sending, scope, *refusal)
            else:
                await self.app(scope, receiving, sending)
        except asyncio.CancelledError:  # the service stops and has waited long enough
            if "status" not in seen:
                await _refuse(sending, scope, 503, "the service is stopping; repeat the call")
            raise
        finally:
            seconds, status = time.perf_counter() - started, seen.get("status", 500)
            route = getattr(scope.get("route"), "path", None) or "other"
            self.metrics.observe(scope["method"], route, status, seconds)
            level = logging.WARNING if status >= 500 else logging.INFO
            fields = {"request": request, "method": scope["method"], "path": scope["path"], "status": status,
                      "ms": round(seconds * 1e3, 3), "client": (scope.get("client") or ["?"])[0]}  # fmt: skip
            log.log(level, "request", extra={"fields": fields})

    def _refusal(self, headers: Headers) -> tuple[int, str] | None:
        host = headers.get(b"host", b"").decode("latin-1")
        if _host_name(host) not in self.hosts:
            return 403, "this service does not answer to that Host; start it with --allow-host NAME"
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
            return 403, "the request comes from another origin"
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > self.max_body:
            return 413, too_large(self.max_body)
        return None

    async def _unknown(self, path: str, headers: Headers) -> tuple[int, str] | None:
        """Refuse whom the store does not know; it is asked in a thread, so that nobody else waits for it."""
        if self.hashes is None or path.startswith(OPEN_PATHS):
            return None
        try:
            if await run_in_threadpool(self._known, headers):
                return None
        except (StoreError, SchemaError) as error:
            log.error("unavailable", extra={"fields": {"error": str(error)}})
            return 503, str(error)[:2000]
        problem = "this token is not known" if b"authorization" in headers else "a bearer token is needed"
        return 401, f"{problem}; create one with: pdcbo token NAME --store URL"

    def _known(self, headers: Headers) -> bool:
        kind, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        assert self.hashes is not None
        if kind.lower() == "bearer":
            return token_is_known(token.strip(), self.hashes)
        cookies: SimpleCookie = SimpleCookie()
        try:
            cookies.load(headers.get(b"cookie", b"").decode("latin-1"))
        except Exception:
            return False
        return COOKIE in cookies and self.sessions.valid(cookies[COOKIE].value, self.hashes)


class TooLargeError(HTTPException):
    """The body went beyond the limit while it was read; whoever reads it passes this on."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, too_large(limit))


def too_large(limit: int) -> str:
    """Say what to do about a body that is too large."""
    return f"the body is larger than {limit} bytes; send a table in parts, or start the service with --max-body"


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


async def _refuse(send: Any, scope: Scope, status: int, error: str) -> None:
    """Answer with an error; a browser without a session is sent to the sign-in page."""
    accept = next((v for k, v in scope["headers"] if k.lower() == b"accept"), b"")
    headers = [(b"content-type", b"application/json")]
    if status == 503:
        headers.append((b"retry-after", b"1"))
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
        if b"text/html" in accept and scope["method"] == "GET":
            status, headers = 303, [(b"location", b"/login")]
    body = json.dumps({"error": error, "fields": [], "kind": None}).encode()
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
