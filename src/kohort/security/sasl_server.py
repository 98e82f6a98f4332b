"""The broker's side of SASL: the steps of an exchange, and the exchange of PLAIN.

Laws: an exchange reads no clock and no socket, and passes costly work to its caller. An unknown user and a wrong
password get the same response, after the same work. No error or log line contains a secret of an exchange.
Source: RFC 4422 (SASL), RFC 4616 (PLAIN); Apache Kafka's SaslServerAuthenticator and PlainSaslServer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from typing import Final, Protocol

from kohort.base.values import value
from kohort.security.capabilities.capability import PREFIX, Capability
from kohort.security.capabilities.caveats import CapabilityError

#: The longest name that can log in, bytes. A principal's name is kept per connection, and written to the journal.
LONGEST_NAME_BYTES: Final = 1_024
#: The longest password that is checked, bytes; a longer text is refused without the cost of hashing it.
LONGEST_PASSWORD_BYTES: Final = 16_384


class LoginFailed(Exception):
    """A login that is refused; its text goes to the client and to the log, so it contains no secret.

    `detail` goes to the log only: it may have facts that are for administrators, not for clients; no secret either.
    """

    def __init__(self, text: str, *, detail: str = "") -> None:
        super().__init__(text)
        self.detail: Final = detail


@value(kw_only=False)
class Challenge:
    """A response after which the client has to send another message.

    `refusal` is why the login will fail with the client's next message, which some clients do not send; `None` if it
    may succeed.
    """

    data: bytes = field(repr=False)
    refusal: str | None = None


@value(kw_only=False)
class Success:
    """The end of an exchange: the client has proven that it is the user of this name.

    `lifetime_ms` is the session's lifetime from now on, milliseconds; `None` if the mechanism sets no end.
    """

    principal_name: str
    data: bytes = field(default=b"", repr=False)
    lifetime_ms: int | None = None
    #: The rights of the capability token by which the client has logged in; `None` for other logins.
    capability: Capability | None = field(default=None, repr=False)


@value(kw_only=False)
class Check:
    """Work for the processor, such as PBKDF2, to run on a thread; it returns the next step or raises."""

    work: Callable[[], Step] = field(repr=False)


@value(kw_only=False)
class Wait:
    """Asynchronous work, such as to fetch a key: `until` is awaited, and then `then` is called.

    `until` ends within the login's time or is cancelled. `then` returns the next step or raises `LoginFailed`.
    """

    until: Callable[[], Awaitable[None]] = field(repr=False)
    then: Callable[[], Step] = field(repr=False)


#: Verifies a capability token; raises `CapabilityError` if it is invalid, or not for this client.
AdmitToken = Callable[[str], Success]
#: The name of the user whose password is a capability token.
TOKEN_USER: Final = "token"

#: The next step of an exchange.
Step = Challenge | Success | Check | Wait


class ServerExchange(Protocol):
    """The broker's side of one SASL exchange; it is used for one login."""

    def step(self, message: bytes) -> Step:
        """Process the client's next message; raise `LoginFailed` if the client cannot log in."""


class PlainServer:
    """The broker's side of PLAIN: one message with name and password.

    Args:
        verify: returns whether a user of this name has this password. It is called on a thread, and takes as long for
            a user that does not exist.
        recognises: returns whether that is known at once. Such a user need not wait while the threads check many
            guesses of others.
        admit: verifies the password of the user `token`, if that is a capability token; if `None` no token logs in.

    >>> PlainServer(lambda name, password: (name, password) == ("alice", b"wonder")).step(b"\\0alice\\0wonder").work()
    Success(principal_name='alice', lifetime_ms=None)
    """

    #: Kafka's text, which is the same whether the name or the password is wrong.
    REFUSAL: Final = "Authentication failed: Invalid username or password"

    def __init__(
        self,
        verify: Callable[[str, bytes], bool],
        *,
        recognises: Callable[[str, bytes], bool] = lambda *_: False,
        admit: AdmitToken | None = None,
    ) -> None:
        self._verify: Final = verify
        self._admit: Final = admit
        self._recognises: Final = recognises
        self._is_used = False

    def step(self, message: bytes) -> Step:
        """Parse name and password, and leave the comparison to a thread."""
        if self._is_used:
            raise LoginFailed("the client says more than PLAIN has to say")
        self._is_used = True
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise LoginFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(parts), 100)}")
        authorization, name, password = parts
        if not name:
            raise LoginFailed("Authentication failed: username not specified")
        if not password:
            raise LoginFailed("Authentication failed: password not specified")
        # CVE-2017-12610: a user that has proven its own name must not become another one by naming it.
        if authorization not in (b"", name):
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        username = decoded_name(name)
        if len(password) > LONGEST_PASSWORD_BYTES:
            raise LoginFailed(self.REFUSAL)
        if self._admit is not None and username == TOKEN_USER and password.startswith(PREFIX.encode()):
            return admitted(self._admit, password.decode("ascii", "replace"))
        if self._recognises(username, password):
            return Success(username)
        return Check(lambda: self._compare(username, password))

    def _compare(self, username: str, password: bytes) -> Step:
        if not self._verify(username, password):
            raise LoginFailed(self.REFUSAL)
        return Success(username)


def admitted(admit: AdmitToken, token: str) -> Success:
    """Log a client in by its capability token; raise `LoginFailed` if the token is refused."""
    try:
        return admit(token)
    except CapabilityError as why:
        raise LoginFailed(f"Authentication failed: {why}") from None


def decoded_name(name: bytes) -> str:
    """Return the name of a user from its bytes; `LoginFailed` if it is too long or no text."""
    if len(name) > LONGEST_NAME_BYTES:
        raise LoginFailed(f"Authentication failed: a user's name has {LONGEST_NAME_BYTES} bytes at most")
    try:
        text = name.decode()
    except UnicodeDecodeError:
        raise LoginFailed("Authentication failed: a user's name is UTF-8") from None
    # A name appears in logs, in ACLs and in lists for administrators, where it must not begin a line of its own.
    if not text.isprintable():
        raise LoginFailed("Authentication failed: a user's name has printable characters only")
    return text


def claimed_name(mechanism: str, message: bytes) -> bytes:
    """Return the bytes for the user that an exchange's first message claims; nothing is verified.

    >>> claimed_name("PLAIN", b"\\0alice\\0wonder"), claimed_name("SCRAM-SHA-512", b"n,,n=alice,r=nonce")
    (b'alice', b'alice')
    """
    if mechanism == "PLAIN":
        parts = message.split(b"\0", 2)
        return parts[1] if len(parts) == 3 else b""
    if mechanism.startswith("SCRAM-"):
        parts = message.split(b",", 3)
        return parts[2].removeprefix(b"n=") if len(parts) == 4 else b""
    # Only the check of a token reads its user's name, so the whole message stands for the user.
    return message
