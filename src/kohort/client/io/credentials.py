"""The logins of one client's connections, with their nonces and tokens.

Laws: one token is asked for at a time, for all connections. It is used until it is about to end or is refused. The
application's function runs in a thread of its own, so that no heartbeat waits for it. No text has a secret.
Source: KIP-255 (tokens from the application), KIP-368; librdkafka's oauth_cb, kafka-python's token provider.
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

from kohort.client.authenticator import SignIn
from kohort.client.securityoptions import SaslSettings
from kohort.security.sasl import BearerExchange, PlainExchange, check_extensions, check_token, without_secrets
from kohort.security.scram import ScramExchange

#: A token with so little time left, in seconds or as a part of its life, is not used any more.
_LEAST_LEFT_S: Final = 10.0
_LEAST_LEFT: Final = 0.2
#: A later end, behind the year 5138, was meant in milliseconds.
_LATEST_END_S: Final = 1e11
#: Most calls that have not returned; with more, the function is not called again.
_MOST_HANGING: Final = 8


class TokenFailed(Exception):
    """The application's function made no token; the text says why."""


class Credentials:
    """The logins of one client."""

    def __init__(self, settings: SaslSettings) -> None:
        self._settings: Final = settings
        self._token: tuple[str, dict[str, str]] | None = None
        #: Until when the token is used, seconds of `time.time`.
        self._fresh_until_s = -math.inf
        #: Threads in which the function runs, or hangs.
        self._calls: list[threading.Thread] = []
        self._lock: Final = asyncio.Lock()

    async def sign_in(self) -> SignIn:
        """Build a login for one connection, to be used once.

        Raises:
            TokenFailed: there is no token.
        """
        settings = self._settings
        match settings.mechanism:
            case "PLAIN":
                return SignIn("PLAIN", PlainExchange(settings.username, settings.password))
            case "OAUTHBEARER":
                return SignIn("OAUTHBEARER", BearerExchange(*await self._fresh_token()))
            case scram:
                exchange = ScramExchange(
                    scram,
                    settings.username,
                    settings.password,
                    nonce=secrets.token_urlsafe(24),
                    extensions=dict(settings.extensions),
                )
                return SignIn(scram, exchange)

    def forget_token(self) -> None:
        """Forget the token, because a broker has refused it; the next login asks for another one."""
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
            said = f"{type(error).__name__}: {without_secrets(str(error))}"
            raise TokenFailed(f"sasl.oauth.token.provider made no token: {said}")
        return (token, extensions), until_s - max(_LEAST_LEFT_S, (until_s - time.time()) * _LEAST_LEFT)

    async def _in_thread(self, call: Callable[[], object]) -> tuple[Any, BaseException | None]:
        """Call a function in a daemon thread; return its result or its exception."""
        # The end of the client does not wait for a call that hangs.
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

    The end is in seconds since 1970. A token without an end is asked for anew with each login.
    """
    if not isinstance(made, tuple):
        return check_token(made), -math.inf, {}
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
    return check_token(token), end_s, check_extensions(extensions or {})
