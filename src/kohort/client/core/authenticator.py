"""The login of one connection: its mechanism, its SASL messages, and its lifetime.

Laws: no other request is sent before the login has succeeded, or while it is renewed. A refused login is not repeated
on the same connection. No error message or log line has a secret.
Source: KIP-152 (SaslAuthenticate), KIP-368 (sessions end, and are renewed on the same connection).
"""

from __future__ import annotations

import asyncio
import inspect
import math
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from kohort.client.securityoptions import SaslSettings
from kohort.errors import ErrorCode
from kohort.security import sasl
from kohort.security.scram import ScramExchange
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

#: A session is renewed after a percentage of its lifetime between these two, which each connection draws.
FIRST_RENEWAL_PERCENT: Final = 85
LAST_RENEWAL_PERCENT: Final = 95
#: Shortest pause before a failed renewal is tried again.
LEAST_REPEAT_MS: Final = 10

Request = SaslHandshakeRequest | SaslAuthenticateRequest
Response = SaslHandshakeResponse | SaslAuthenticateResponse


class AuthenticationRefused(Exception):
    """The broker has refused the login, or has failed to authenticate itself; the message has advice."""


class Authenticator:
    """One login: its SASL exchange, without I/O."""

    def __init__(self, mechanism: str, exchange: sasl.Exchange) -> None:
        self._mechanism: Final = mechanism
        self._exchange: Final = exchange
        #: The lifetime of the session, ms; 0: it does not end. Known once `on_answer` has returned `None`.
        self.lifetime_ms = 0

    def start(self) -> Request:
        """Return the first request."""
        return SaslHandshakeRequest(mechanism=self._mechanism)

    def on_answer(self, answer: Response) -> Request | None:
        """Take a response, and return the next request; `None`: the login has succeeded.

        Raises:
            AuthenticationRefused: the broker has refused the login, or has failed to authenticate itself.
        """
        if isinstance(answer, SaslHandshakeResponse):
            self._check_handshake(answer)
            return SaslAuthenticateRequest(auth_bytes=self._exchange.first())
        code = ErrorCode.of(answer.error_code)
        if code is not ErrorCode.NONE:
            said = (answer.error_message or code.name).strip()[:500]
            raise AuthenticationRefused(f"the broker does not let this client in by {self._mechanism}: {said}")
        try:
            reply = self._exchange.reply(bytes(answer.auth_bytes))
        except sasl.ExchangeFailed as why:
            raise AuthenticationRefused(str(why)) from None
        if not self._exchange.is_done:
            return SaslAuthenticateRequest(auth_bytes=reply)
        self.lifetime_ms = max(0, answer.session_lifetime_ms)
        return None

    def _check_handshake(self, answer: SaslHandshakeResponse) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms[:20])[:500] or "none"
            raise AuthenticationRefused(
                f"the broker does not offer {self._mechanism}, but {offered}: set sasl.mechanism to one"
            )
        if code is ErrorCode.ILLEGAL_SASL_STATE:
            raise AuthenticationRefused(
                "no login is wanted there: set security.protocol to PLAINTEXT or SSL, or name the port"
            )
        if code is not ErrorCode.NONE:
            raise AuthenticationRefused(f"the broker refuses the login: {code.name}")


def renewal_ms(lifetime_ms: int, draw: int) -> int:
    """Return the age at which to renew a session; `draw`, any number, spreads the clients.

    >>> renewal_ms(1000, 0), renewal_ms(1000, 10)
    (850, 950)
    """
    percent = FIRST_RENEWAL_PERCENT + draw % (LAST_RENEWAL_PERCENT - FIRST_RENEWAL_PERCENT + 1)
    return lifetime_ms * percent // 100


def repeat_ms(left_ms: int) -> int | None:
    """Return the pause before a failed renewal is repeated; the session lasts another `left_ms`.

    `None`: it is not repeated. The broker ends the session, and the next connection logs in from the beginning.

    >>> repeat_ms(60_000), repeat_ms(1_000), repeat_ms(30)
    (15000, 250, None)
    """
    pause_ms = left_ms // 4
    return pause_ms if pause_ms >= LEAST_REPEAT_MS else None


#: A token is not used any more if it ends within so many seconds, or within this part of its lifetime.
_LEAST_LEFT_S: Final = 10.0
_LEAST_LEFT: Final = 0.2
#: A later end, after the year 5138, was given in milliseconds by mistake.
_LATEST_END_S: Final = 1e11
#: The most calls of the function that have not returned; then the function is not called again.
_MOST_HANGING: Final = 8


class TokenFailed(Exception):
    """The application's function has returned no token; the message has the reason."""


class Credentials:
    """The logins of one client's connections, with their nonces and tokens.

    Laws: one token is requested at a time, for all connections. A token is used until shortly before its end, or until
    a broker refuses it.
    Source: KIP-255 (tokens from the application); librdkafka's oauth_cb, kafka-python's token provider.
    """

    def __init__(self, settings: SaslSettings) -> None:
        self._settings: Final = settings
        self._token: tuple[str, dict[str, str]] | None = None
        #: The time until which the token is used, seconds since 1970.
        self._fresh_until_s = -math.inf
        #: Threads whose call of the function has not returned.
        self._calls: list[threading.Thread] = []
        self._lock: Final = asyncio.Lock()

    async def sign_in(self) -> Authenticator:
        """Build a login for one connection, to be used once.

        Raises:
            TokenFailed: there is no token.
        """
        settings = self._settings
        match settings.mechanism:
            case "PLAIN":
                return Authenticator("PLAIN", sasl.PlainExchange(settings.username, settings.password))
            case "OAUTHBEARER":
                return Authenticator("OAUTHBEARER", sasl.BearerExchange(*await self._fresh_token()))
            case scram:
                exchange = ScramExchange(
                    scram,
                    settings.username,
                    settings.password,
                    nonce=secrets.token_urlsafe(24),
                    extensions=dict(settings.extensions),
                )
                return Authenticator(scram, exchange)

    def forget_token(self) -> None:
        """Drop the token, because a broker has refused it; the next login requests another one."""
        self._token = None

    async def _fresh_token(self) -> tuple[str, dict[str, str]]:
        async with self._lock:
            if self._token is None or time.time() >= self._fresh_until_s:
                self._token, self._fresh_until_s = await self._ask()
            return self._token

    async def _ask(self) -> tuple[tuple[str, dict[str, str]], float]:
        provider = self._settings.token_provider
        assert provider is not None, "OAUTHBEARER has a function that makes tokens"
        made, error = await self._in_thread(provider)
        if error is None:
            try:
                if inspect.isawaitable(made):
                    made = await made
                token, until_s, extensions = _read(made)
            except Exception as why:
                error = why
        if error is not None:
            said = f"{type(error).__name__}: {sasl.without_secrets(str(error))}"
            raise TokenFailed(f"sasl.oauth.token.provider made no token: {said}")
        return (token, extensions), until_s - max(_LEAST_LEFT_S, (until_s - time.time()) * _LEAST_LEFT)

    async def _in_thread(self, call: Callable[[], object]) -> tuple[Any, BaseException | None]:
        """Call a function in a daemon thread; return its result or its exception."""
        # The function gets its own thread, so that no heartbeat waits for it, and closing waits for no call that hangs.
        self._calls = [each for each in self._calls if each.is_alive()]
        if len(self._calls) >= _MOST_HANGING:
            return None, RuntimeError(f"{len(self._calls)} calls of it have not returned")
        loop = asyncio.get_running_loop()
        end: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

        def settle(outcome: tuple[Any, BaseException | None]) -> None:
            if not end.done():
                end.set_result(outcome)

        def run() -> None:
            try:
                outcome: tuple[Any, BaseException | None] = call(), None
            except BaseException as why:
                outcome = None, why
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(settle, outcome)

        # A daemon, so that a function that hangs does not keep the program alive.
        thread = threading.Thread(target=run, name="kohort-token", daemon=True)
        try:
            thread.start()
        except RuntimeError as why:
            # A program that is ending cannot start a thread.
            return None, why
        self._calls.append(thread)
        return await end


def _read(made: object) -> tuple[str, float, dict[str, str]]:
    """Read a token: a text, or the tuple of librdkafka (token, end in s, principal, extensions).

    The end is in seconds since 1970. A token without an end is requested again for each login.
    """
    if not isinstance(made, tuple):
        return sasl.check_token(made), -math.inf, {}
    if not 1 <= len(made) <= 4:
        raise ValueError("a token is expected, or a pair of token and end")
    token, until_s, _, extensions = (*made, *(None, None, None))[:4]
    if until_s is not None and (isinstance(until_s, bool) or not isinstance(until_s, int | float)):
        raise ValueError("the end of a token is a number of seconds since 1970")
    if extensions is not None and not isinstance(extensions, Mapping):
        raise ValueError("extensions are a mapping of names to values")
    if until_s is not None and until_s >= _LATEST_END_S:
        raise ValueError("the end of a token is in seconds since 1970, and this one looks like milliseconds")
    if until_s is not None and not until_s > time.time():
        raise ValueError("the token has ended already")
    end_s = -math.inf if until_s is None else float(until_s)
    return sasl.check_token(token), end_s, sasl.check_extensions(extensions or {})
