"""The broker's side of OAUTHBEARER: the client's message, the check of its token, and the refusal of a token.

Laws: the exchange does no I/O: it leaves signatures to a thread and missing keys to its caller. A refused token gets
the error of RFC 7628 as a challenge; the login fails with the client's next message. Extensions are read and not used.
Source: RFC 7628 (OAUTHBEARER), RFC 6750 (the words of its errors); Apache Kafka's OAuthBearerSaslServer; KIP-342.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from kohort.security.capabilities.capability import PREFIX
from kohort.security.capabilities.caveats import CapabilityError
from kohort.security.jwt import KeySet, TokenRefused, TokenRules, UnverifiedToken, parse_token, verify_token
from kohort.security.sasl import EXTENSION_NAME, EXTENSION_VALUE, TOKEN
from kohort.security.sasl_server import AdmitToken, Challenge, Check, LoginFailed, Step, Success, Wait

#: Kafka's words before every reason.
_FAILED: Final = "Authentication failed: "
#: `=2C` and `=3D` are the only escapes of a name (RFC 5801).
_AUTHORIZATION: Final = re.compile(r"(?:[^\x00=,]|=2C|=3D)+")
#: The most extensions that are read; Kafka's tools send two.
_MOST_PAIRS: Final = 64


class KeySource(Protocol):
    """The broker's cache of the identity provider's keys."""

    @property
    def keys(self) -> KeySet:
        """The keys that are cached now."""

    async def fetch(self, token: UnverifiedToken) -> None:
        """Fetch the provider's keys to find the token's; return in bounded time, even if it is not found."""


class BearerServer:
    """The broker's side of one OAUTHBEARER exchange.

    Args:
        keys: the provider's keys.
        rules: the listener's requirements for a token.
        now_ms: returns the wall-clock time, milliseconds since 1970.
        admit: verifies capability tokens, which are no JWT; if `None` they cannot log in.
    """

    def __init__(
        self, keys: KeySource, rules: TokenRules, now_ms: Callable[[], int], *, admit: AdmitToken | None = None
    ) -> None:
        self._keys: Final = keys
        self._rules: Final = rules
        self._now_ms: Final = now_ms
        self._admit: Final = admit
        self._is_used = False
        #: Why the token was refused; a challenge has said so to the client.
        self._refusal: str | None = None

    def step(self, message: bytes) -> Step:
        """Process the client's message: its token, or its response to the refusal."""
        if self._refusal is not None:
            # RFC 7628 §3.2.3: the client answers with one byte 1. Whatever it says, the login has failed.
            raise LoginFailed(self._refusal)
        if self._is_used:
            raise LoginFailed(f"{_FAILED}the client says more than OAUTHBEARER has to say")
        self._is_used = True
        text, authorization = parse_message(message)
        if self._admit is not None and text.startswith(PREFIX):
            try:
                return self._admit(text)
            except CapabilityError as why:
                self._refusal = f"{_FAILED}{why}"
                return Challenge(b'{"status":"invalid_token"}', refusal=self._refusal)
        try:
            token = parse_token(text)
        except TokenRefused as why:
            return self._refuse(why)
        if self._keys.keys.knows(token):
            return Check(lambda: self._check(token, authorization))
        return Wait(self._fetch(token), lambda: Check(lambda: self._check(token, authorization)))

    def _fetch(self, token: UnverifiedToken) -> Callable[[], Awaitable[None]]:
        return lambda: self._keys.fetch(token)

    def _check(self, token: UnverifiedToken, authorization: str) -> Step:
        try:
            verified = verify_token(token, self._keys.keys, self._rules, now_ms=self._now_ms())
        except TokenRefused as why:
            return self._refuse(why)
        if authorization not in ("", verified.name):
            # CVE-2017-12610: a user that has proven its own name must not become another one by naming it.
            raise LoginFailed(
                f"{_FAILED}Client requested an authorization id that is different from the token's principal name"
            )
        return Success(verified.name, lifetime_ms=verified.lifetime_ms)

    def _refuse(self, why: TokenRefused) -> Challenge:
        self._refusal = f"{_FAILED}{why}"
        said = {"status": why.status}
        if self._rules.required_scope:
            said["scope"] = " ".join(self._rules.required_scope)
        return Challenge(json.dumps(said).encode(), refusal=self._refusal)


def parse_message(message: bytes) -> tuple[str, str]:
    r"""Return token and authorization identity from a client's first message; `LoginFailed` if malformed.

    >>> parse_message(b"n,a=alice,\x01auth=Bearer ey.J.x\x01traceId=7\x01\x01")
    ('ey.J.x', 'alice')
    """
    try:
        header, *parts = message.decode().split("\x01")
    except UnicodeDecodeError:
        raise LoginFailed("Invalid OAUTHBEARER client first message: it is not UTF-8") from None
    # `n`: no channel binding. Two empty parts: the pairs end with one mark, and the message with another.
    flag, mark, identity = header.partition(",")
    if flag != "n" or not mark or not identity.endswith(",") or parts[-2:] != ["", ""]:
        raise LoginFailed("Invalid OAUTHBEARER client first message")
    authorization = identity[:-1].removeprefix("a=")
    if identity != "," and (not identity.startswith("a=") or _AUTHORIZATION.fullmatch(authorization) is None):
        raise LoginFailed("Invalid OAUTHBEARER client first message: its authorization id is malformed")
    if len(parts) > _MOST_PAIRS:
        raise LoginFailed(f"Invalid OAUTHBEARER client first message: it has more than {_MOST_PAIRS} pairs")
    token = ""
    for pair in parts[:-2]:
        name, _, value = pair.partition("=")
        if EXTENSION_NAME.fullmatch(name) is None or EXTENSION_VALUE.fullmatch(value) is None:
            raise LoginFailed("Invalid OAUTHBEARER client first message: an extension is malformed")
        if name == "auth":
            # A message with two tokens is refused, since different readers may take either one.
            token = "" if token else _bearer(value)
            if not token:
                break
    if not token:
        raise LoginFailed("Invalid OAUTHBEARER client first message: it has not one 'auth' with a bearer token")
    return token, authorization.replace("=2C", ",").replace("=3D", "=")


def _bearer(value: str) -> str:
    """Return the token of `Bearer ...`, empty if the value has another form."""
    scheme, _, token = value.partition(" ")
    token = token.strip(" ")
    return token if scheme.lower() == "bearer" and TOKEN.fullmatch(token) else ""
