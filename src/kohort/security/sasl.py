"""The client's exchanges of SASL mechanisms, without the connection that carries them.

Laws: an exchange is used once; it ends with `is_done`, or with an exception. No error or log line contains a secret of
an exchange.
Source: RFC 4422 (SASL), RFC 4616 (PLAIN), RFC 7628 (OAUTHBEARER); KIP-342 (its extensions).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Protocol

from kohort.base.jsontext import parse_json

#: The characters of a token, and the names and values of its extensions, as Apache Kafka reads them.
TOKEN: Final = re.compile(r"[-_~+/.A-Za-z0-9]+=*")
EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
#: The longest refusal of a token that is read.
_LONGEST_BYTES: Final = 16_384
#: The longest name, password or token that is sent; Apache Kafka reads messages of twice that.
LONGEST_SECRET_BYTES: Final = 262_144
#: Marks before secrets in the errors of other programs: `client_secret=`, `"access_token":`, `Bearer`, `//user:`.
#: Each matches only at the start of a word and is bounded, because the text that is searched may be anything.
_KEY: Final = r"(?<![\w.-])[\w.-]{0,40}?(?:secret|passw|token|assertion|key)[\w.-]{0,40}"
_SECRETS: Final = (
    re.compile(rf"""(?i)({_KEY}=)[^\s&'",;)]+"""),
    re.compile(rf"""(?i)(["']{_KEY}["']\s?:\s?)(?:"[^"]*(?:"|$)|'[^']*(?:'|$))"""),
    re.compile(r"(?i)(\b(?:bearer|basic) )[-_~+/.=\w]+"),
    re.compile(r"(//)[^/\s@]{1,300}(?=@)"),
    re.compile(r"()(?<![-\w])ey[-\w]+\.[-\w]+\.[-\w]*"),
)
#: The most characters that are kept of another program's error text.
_LONGEST_SAID: Final = 500


class ExchangeFailed(Exception):
    """An exchange that has failed; its text gives the reason and no secret."""


class Exchange(Protocol):
    """The client's side of a SASL exchange."""

    #: Whether the exchange has succeeded.
    is_done: bool

    def first(self) -> bytes:
        """Return the client's first message."""

    def reply(self, challenge: bytes) -> bytes:
        """Return the response to a server's challenge, empty once `is_done`; raise `ExchangeFailed`."""


class PlainExchange:
    """A PLAIN exchange: it sends the password itself, so the connection has to be safe.

    >>> PlainExchange("alice", "wonder").first()
    b'\\x00alice\\x00wonder'
    """

    def __init__(self, username: str, password: str) -> None:
        self._first: Final = f"\0{username}\0{password}".encode()
        self.is_done = False

    def first(self) -> bytes:
        """Return name and password, with an empty authorization identity before them."""
        return self._first

    def reply(self, challenge: bytes) -> bytes:
        """Return an empty response: the server only confirms the login."""
        if self.is_done:
            raise ExchangeFailed("the broker says more than PLAIN has to say")
        self.is_done = True
        return b""


class BearerExchange:
    """An OAUTHBEARER exchange with a provider's token, and extensions that `check_extensions` allows."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        pairs = "".join(f"{name}={value}\x01" for name, value in (extensions or {}).items())
        self._first: Final = f"n,,\x01auth=Bearer {token}\x01{pairs}\x01".encode()
        self.is_done = False
        #: Why the server refuses; it says so before it ends the exchange.
        self._refusal: str | None = None

    def first(self) -> bytes:
        """Return the token and its extensions."""
        return self._first

    def reply(self, challenge: bytes) -> bytes:
        """Respond to a refusal, so that the server ends the exchange; raise the refusal after that."""
        if self.is_done:
            raise ExchangeFailed("the broker says more than OAUTHBEARER has to say")
        if self._refusal is not None:
            raise ExchangeFailed(f"the broker refuses the token: {self._refusal}")
        if challenge:
            self._refusal = _refusal(challenge)
            return b"\x01"
        self.is_done = True
        return b""


def _refusal(challenge: bytes) -> str:
    """Return the server's refusal of a token, from its JSON: a status, and the required scope."""
    try:
        said = parse_json(challenge[:_LONGEST_BYTES])
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return "it does not say why"
    words = [f"{name} {said[name]}" for name in ("status", "scope") if isinstance(said.get(name), str)]
    return ", ".join(words)[:200] or "it does not say why"


def check_token(token: object) -> str:
    """Check a token and return it; `ValueError` names the fault without the token."""
    if not isinstance(token, str) or not token:
        raise ValueError("a token is text that is not empty")
    if len(token) > LONGEST_SECRET_BYTES:
        raise ValueError(f"a token has {LONGEST_SECRET_BYTES} characters at most")
    if TOKEN.fullmatch(token) is None:
        raise ValueError("a token has letters, digits and -_~+/. only, and = at its end")
    return token


def unsendable(text: str) -> str | None:
    """Explain why a name or password cannot be sent, without quoting it; `None` if it can.

    >>> unsendable("a\\0b")
    'has a character 0'
    """
    if "\0" in text:
        return "has a character 0"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "has half a character, and no UTF-8: was it read as text from bytes?"
    return f"is longer than {LONGEST_SECRET_BYTES} bytes" if size > LONGEST_SECRET_BYTES else None


def check_extensions(extensions: Mapping[str, str]) -> dict[str, str]:
    """Check extensions and return them; `ValueError` names the one that cannot be sent."""
    for name, value in extensions.items():
        if not isinstance(name, str) or EXTENSION_NAME.fullmatch(name) is None or name.lower() == "auth":
            raise ValueError(f"{name!r} cannot be the name of an extension: letters are expected, and not auth")
        if not isinstance(value, str) or EXTENSION_VALUE.fullmatch(value) is None:
            raise ValueError(f"the value of the extension {name} cannot be sent: printable ASCII is expected")
    return dict(extensions)


def without_secrets(said: str) -> str:
    """Return another library's error text in one line, without anything that looks like a secret.

    >>> without_secrets("401 for https://id.example/token?client_id=k&client_secret=xyz")
    '401 for https://id.example/token?client_id=k&client_secret=***'
    """
    said = " ".join(said[: 4 * _LONGEST_SAID].split())
    for pattern in _SECRETS:
        said = pattern.sub(r"\1***", said)
    return said[:_LONGEST_SAID]
