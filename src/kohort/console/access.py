"""Which requests the console answers: names of this machine, origins of forms, logins and their sessions.

Laws: on a loopback address Host has to name this machine, so that a page in a browser cannot read the console under a
name of its own (DNS rebinding). Beyond it no page is without a login. Every answer forbids scripts and frames of
others. A form is taken from this console's own pages only: Origin is ours, and the session's token is in it.
Source: requirement J3; the header Origin of RFC 6454, Fetch metadata of W3C.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from kohort.broker.connections.sockets import plain_host
from kohort.broker.http import HEAD_SECONDS
from kohort.errors import KohortError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from kohort.console.reader import ClusterReader

#: open: no login; users: those of the cluster; token: that of the console's start.
Mode = Literal["open", "users", "token"]
COOKIE: Final = "kohort_console"
#: Sessions at a time, and how long one lasts without a request.
_MOST_SESSIONS: Final = 64
_SESSION_SECONDS: Final = 12 * 3600.0
#: Bytes of a form.
_FORM_BYTES: Final = 64 * 1024
#: Paths without a login: health checks have none, and the page of the login needs its style.
_FREE: Final = ("/login", "/healthz", "/readyz", "/static/")
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(slots=True)
class Session:
    """A login: its name, the reader of its own rights, and the token of its forms."""

    name: str
    reader: ClusterReader
    form_token: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    used_at: float = field(default_factory=time.monotonic)


class Access:
    """The sessions of a console.

    `open_reader`: connects with a user's name and password, and raises `KohortError` where the cluster refuses them;
    without them, with the console's own login.
    """

    def __init__(
        self,
        mode: Mode,
        open_reader: Callable[..., ClusterReader],
        *,
        is_loopback: bool,
        token: str = "",
        free: Sequence[str] = (),
    ) -> None:
        """Create it; `free`: further paths that need no login."""
        self.mode: Final = mode
        self._open_reader: Final = open_reader
        self._is_loopback: Final = is_loopback
        self.token: Final = token
        self.free: Final = (*_FREE, *free)
        self._sessions: Final[dict[str, Session]] = {}
        #: Logins that the cluster is asked about at a time.
        self._trying: Final = asyncio.Semaphore(2)
        self._own: Session | None = None

    def own(self) -> Session:
        """Return the session of the console's own login, which needs no cookie."""
        if self._own is None:
            self._own = Session("", self._open_reader())
        return self._own

    def session_of(self, headers: Headers) -> Session | None:
        """Find the session of a request; `None`: it has to log in."""
        if self.mode == "open":
            return self.own()
        if self.mode == "token" and self.is_token(headers.get("authorization", "").removeprefix("Bearer ")):
            return self.own()
        jar: SimpleCookie = SimpleCookie()
        with contextlib.suppress(CookieError):
            jar.load(headers.get("cookie", ""))
        found = self._sessions.get(jar[COOKIE].value) if COOKIE in jar else None
        if found is None or time.monotonic() - found.used_at > _SESSION_SECONDS:
            return None
        found.used_at = time.monotonic()
        return found

    def is_token(self, given: str) -> bool:
        """Compare a token with the console's, in constant time."""
        return bool(self.token) and secrets.compare_digest(given.encode(), self.token.encode())

    async def log_in(self, name: str, password: str) -> str:
        """Open a session of a user of the cluster, and return its cookie.

        Raises:
            KohortError: the cluster refuses the login, or does not answer.
        """
        async with self._trying:
            session = await asyncio.to_thread(self._try, name, password)
        return self._add(session)

    def _try(self, name: str, password: str) -> Session:
        reader = self._open_reader(name, password)
        try:
            reader.admin.describe_cluster()
        except BaseException:
            reader.admin.close()
            raise
        return Session(name, reader)

    def take_token(self, given: str) -> str | None:
        """Open a session of the console's own login for its token, and return its cookie."""
        return self._add(Session("", self.own().reader)) if self.is_token(given) else None

    def log_out(self, headers: Headers) -> None:
        """End the session of a request; call it on a thread, as its client may wait for its last answers."""
        found = self.session_of(headers)
        for key in [key for key, each in self._sessions.items() if each is found]:
            self._end(key)

    def _add(self, session: Session) -> str:
        limit = time.monotonic() - _SESSION_SECONDS
        for old in [each for each, found in self._sessions.items() if found.used_at < limit]:
            self._end(old)
        if len(self._sessions) >= _MOST_SESSIONS:
            self._end(min(self._sessions, key=lambda key: self._sessions[key].used_at))
        key = secrets.token_urlsafe(32)
        self._sessions[key] = session
        return key

    def _end(self, key: str) -> None:
        ended = self._sessions.pop(key)
        if ended.name:
            ended.reader.close()

    def close(self) -> None:
        """End all sessions."""
        for key in list(self._sessions):
            self._end(key)
        if self._own is not None:
            self._own.reader.close()

    def why_foreign(self, headers: Headers, method: str) -> str:
        """Say why a request comes from a page of others; empty if it does not."""
        host = headers.get("host", "")
        if self._is_loopback and not _names_this_machine(host):
            return "the header Host names another machine"
        origin = headers.get("origin")
        # A proxy in front may speak TLS where this console does not: the host alone is compared.
        if method not in ("GET", "HEAD") and origin is not None and origin.partition("://")[2] != host:
            return "the form is of another page"
        site, mode = headers.get("sec-fetch-site", ""), headers.get("sec-fetch-mode", "")
        if site in ("cross-site", "same-site") and (method not in ("GET", "HEAD") or mode != "navigate"):
            return "the request is of another page"
        return ""


def _names_this_machine(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(plain_host(name))
        return True
    return False


class Guard:
    """Lets requests in that may come in, and puts the policy into the head of each answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app: Final = app
        self._access: Final = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                sent = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    sent[name] = value
                if "cache-control" not in sent:
                    sent["Cache-Control"] = "no-store"
            await send(message)

        refusal = self._refuse(scope, headers)
        await (refusal or self._app)(scope, receive, send_with_policy)

    def _refuse(self, scope: Scope, headers: Headers) -> Response | None:
        why = self._access.why_foreign(headers, scope["method"])
        if why:
            return PlainTextResponse(f"{why}\n", 403)
        path: str = scope["path"]
        # A token in the URL becomes a cookie, so that it stands in no history and no Referer.
        given = dict(parse_qsl(scope["query_string"].decode("latin-1"))).get("token", "")
        cookie = self._access.take_token(given) if given else None
        if cookie is not None:
            return with_cookie(RedirectResponse(path, 303), cookie, scheme=scope["scheme"])
        session = self._access.session_of(headers)
        scope.setdefault("state", {})["session"] = session
        if session is not None or path.startswith(self._access.free):
            return None
        if path.endswith(".json") or path in ("/events", "/metrics"):
            return PlainTextResponse("log in first\n", 401, {"WWW-Authenticate": "Bearer"})
        return RedirectResponse("/login", 303)


def with_cookie(response: Response, value: str, *, scheme: str) -> Response:
    """Set the cookie of a session; an empty one ends it."""
    response.set_cookie(
        COOKIE, value, max_age=None if value else 0, httponly=True, samesite="strict", secure=scheme == "https"
    )
    return response


async def form_of(request: Request) -> Mapping[str, str]:
    """Read the fields of a form.

    Raises:
        FormError: it is too large, no form, or not of a page of this session.
    """
    body = b""
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            async for piece in request.stream():
                body += piece
                if len(body) > _FORM_BYTES:
                    raise FormError(413, f"a form may have {_FORM_BYTES} bytes")
    except (TimeoutError, ClientDisconnect):
        raise FormError(408, "the form did not come") from None
    try:
        fields = dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError:
        raise FormError(400, "the form cannot be read") from None
    return fields


def check_form_token(fields: Mapping[str, Any], session: Session) -> None:
    """Refuse a form that no page of the session had.

    Raises:
        FormError: its token is another one.
    """
    if not secrets.compare_digest(str(fields.get("form_token", "")).encode(), session.form_token.encode()):
        raise FormError(403, "the form is of another session: open the page again")


class FormError(KohortError):
    """A form that is not taken."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status: Final = status
