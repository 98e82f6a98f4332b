"""Logins by SASL: the states of a connection from its first byte to its principal, and afterwards.

Laws: before its login only ApiVersions and SASL requests of a connection are read. While credentials are checked
nothing is read. A failed login is refused after a pause, with a message that does not show whether the user exists,
and the connection is closed. Re-authentication (a later login of a connection) is of the same user by the same
mechanism. Slow checks run in threads.
Source: KIP-43, KIP-152, KIP-368; Apache Kafka's SaslServerAuthenticator and its delayed close of failed logins.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from kohort.base.clock import Clock
from kohort.broker.access.authorization import Authorization
from kohort.broker.access.capabilities import PRINCIPAL, Capabilities, CapabilityRights
from kohort.broker.access.login_attempts import LoginAttempts
from kohort.broker.access.rights import Rights
from kohort.broker.options.first_users import FirstUser
from kohort.broker.options.listeners import ListenerSettings
from kohort.broker.scheduling import BlockingWork, CooperativeWork
from kohort.errors import ErrorCode, RemoteProtocolError
from kohort.security.capabilities.capability import Capability
from kohort.security.sasl_server import (
    Challenge,
    Check,
    LoginFailed,
    ServerExchange,
    Step,
    Success,
    Wait,
    claimed_name,
)
from kohort.security.scram import HASHES, salted_password
from kohort.storage.catalog import ScramUser
from kohort.storage.topics import TopicChanges
from kohort.wire.registry import ApiKey, api_key_of

if TYPE_CHECKING:
    # This import loads an HTTP client for keys of other hosts, which few brokers need.
    from kohort.broker.access.mechanisms import Mechanisms

log = logging.getLogger("kohort.broker.access")

#: The mechanism whose users belong to a listener, not to the broker.
PLAIN: Final = "PLAIN"

#: Stands for the mechanism in the keys of logins with a token, whichever mechanism they used.
_TOKEN: Final = "token"

#: Threads that check credentials. A check takes a processor for up to 40 ms, and the loop needs a processor, too.
THREADS: Final = max(1, min(4, (os.cpu_count() or 1) // 2))
#: Kafka's least pause between two re-authentications of a connection.
AGAIN_SECONDS: Final = 1.0
#: Seconds for the client to read the refusal before the connection is closed.
_LINGER_SECONDS: Final = 0.1
#: Shortest request header: API key, version, correlation id, length of the client id.
_HEADER_BYTES: Final = 10
#: Salt bytes and iterations for users that a broker is started with, as many as `kohort user set-password` uses.
_SALT_BYTES: Final = 32
_ITERATIONS: Final = 8_192
_NO_END: Final = float("inf")
#: Part of a session after which the broker delays no heartbeat of the client. Clients re-authenticate at 85 to 95 %
#: (Java) or 90 % (librdkafka) of a session, librdkafka only when no request is in flight.
_UNHELD_FROM: Final = 0.8
#: Connections that are closed in one turn of the loop; each takes some 65 us, most of them for its log line.
ENDED_AT_ONCE: Final = 100


class LoginState(IntEnum):
    """The states of a connection's login."""

    #: The client has sent nothing, or only ApiVersions.
    NONE = 0
    #: A mechanism is chosen, and the next SASL message of the client is expected.
    AUTHENTICATING = 1
    #: The client's SASL message is being checked, perhaps by a thread or with keys of another host.
    CHECKING = 2
    AUTHENTICATED = 3
    #: As 1 and 2 during re-authentication; the connection keeps its principal.
    REAUTHENTICATING = 4
    RECHECKING = 5
    #: The login is refused; the connection is closed after the response.
    FAILED = 6


class LoginEvent(IntEnum):
    """The events of a login."""

    #: The client has chosen a mechanism.
    CHOOSE = 0
    #: The client has sent a SASL message.
    SPEAK = 1
    #: The client has to send another SASL message.
    CHALLENGE = 2
    SUCCEED = 3
    FAIL = 4


#: (state, event) -> next state; a pair that is missing is a bug.
TRANSITIONS: Final = {
    (LoginState.NONE, LoginEvent.CHOOSE): LoginState.AUTHENTICATING,
    (LoginState.NONE, LoginEvent.FAIL): LoginState.FAILED,
    (LoginState.AUTHENTICATING, LoginEvent.SPEAK): LoginState.CHECKING,
    (LoginState.AUTHENTICATING, LoginEvent.FAIL): LoginState.FAILED,
    (LoginState.CHECKING, LoginEvent.CHALLENGE): LoginState.AUTHENTICATING,
    (LoginState.CHECKING, LoginEvent.SUCCEED): LoginState.AUTHENTICATED,
    (LoginState.CHECKING, LoginEvent.FAIL): LoginState.FAILED,
    (LoginState.AUTHENTICATED, LoginEvent.CHOOSE): LoginState.REAUTHENTICATING,
    (LoginState.AUTHENTICATED, LoginEvent.FAIL): LoginState.FAILED,
    (LoginState.REAUTHENTICATING, LoginEvent.SPEAK): LoginState.RECHECKING,
    (LoginState.REAUTHENTICATING, LoginEvent.FAIL): LoginState.FAILED,
    (LoginState.RECHECKING, LoginEvent.CHALLENGE): LoginState.REAUTHENTICATING,
    (LoginState.RECHECKING, LoginEvent.SUCCEED): LoginState.AUTHENTICATED,
    (LoginState.RECHECKING, LoginEvent.FAIL): LoginState.FAILED,
}
#: State -> API keys that are read in it; a state that is missing has none.
READ: Final[Mapping[LoginState, Collection[int]]] = {
    LoginState.NONE: {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE},
    LoginState.AUTHENTICATING: {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE},
    LoginState.REAUTHENTICATING: {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE},
}

#: Sends the response to the choice of a mechanism (SaslHandshake).
AnswerChoice = Callable[[ErrorCode], None]


class AnswerProof(Protocol):
    """The response to a SASL message of the client (SaslAuthenticate)."""

    def __call__(self, code: ErrorCode, text: str | None, data: bytes, lifetime_ms: int) -> None:
        """Respond with a SASL message, or with an error code and its message."""


class Client(Protocol):
    """The methods of a connection that its login uses."""

    listener: ListenerSettings
    principal: str
    rights: Rights
    peer_host: str

    @property
    def peer(self) -> str:
        """The client's address and port, for logs."""

    @property
    def is_served(self) -> bool:
        """Whether the client waits for a response of this broker."""

    def guard(self, gate: Callable[[memoryview], bool] | None, *, least: int | None, most: int | None) -> None:
        """Pass each frame of `least` to `most` bytes to `gate` first; `None`: the defaults of connections."""

    def hold(self) -> None:
        """Read no request until `release`."""

    def release(self) -> None:
        """Read requests again."""

    def open_token(self) -> Callable[[bytes], None]:
        """Reserve the position of a response without a header, and return a function that sends it."""

    def finish(self) -> None:
        """Read no request any more; responses that are ready are still sent."""

    def close(self) -> None:
        """Write the ready responses, then close."""

    def allow_holds(self, is_allowed: bool) -> None:
        """Allow delayed heartbeats, or respond to the delayed ones and forbid others."""

    def abort(self) -> None:
        """Close without waiting for a client that does not read."""

    def give_up(self, reason: str) -> None:
        """Close at once, and log the reason."""


class Login:
    """The login of one connection, and its re-authentications."""

    def __init__(self, door: _Door, client: Client) -> None:
        """Let the connection send only its login, and close it if that takes too long."""
        self._door: Final = door
        self._client: Final = client
        #: Moves along `TRANSITIONS` only.
        self.state: LoginState = LoginState.NONE
        #: The mechanism that was chosen first, and the user that has logged in with it; empty before.
        self.mechanism = self.username = ""
        #: The exchange in progress; `None` if re-authentication chose another mechanism, which is refused.
        self._exchange: ServerExchange | None = None
        #: The verified token that the client has logged in with; `None`: no login yet, or one without a token.
        self.capability: Capability | None = None
        self._wrong_mechanism = ""
        #: Whether the exchange waits for its first message.
        self._is_begin = True
        #: Whether SASL messages have no headers, as after a handshake of version 0.
        self._is_raw = False
        #: The SASL message to be checked, and the function that sends the response to it.
        self._message = b""
        self._answer: AnswerProof = _no_answer
        #: A number that stands for the user that the exchange claims, for the order of attempts.
        self.claimed_user = 0
        #: Whether `LoginAttempts` counts an attempt of this login that has not ended.
        self._has_attempt = False
        #: Whether the refusal was sent as a challenge, and one more SASL message is expected before the end.
        self._is_refused = False
        #: The end of the session, and the start of the last re-authentication, in the loop's seconds.
        self._expires_s = _NO_END
        self._again_s = -_NO_END
        #: The timer that ends a login that takes too long, or a failed login after its pause.
        self._timer: asyncio.TimerHandle | None = None
        #: The timer that closes the connection at the end of the session if a request waits.
        self._end_timer: asyncio.TimerHandle | None = None
        #: The timer that ends delayed heartbeats before the session ends, so that the client can re-authenticate.
        self._unhold_timer: asyncio.TimerHandle | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._is_closed = False
        client.guard(self._admit, least=None, most=door.most_bytes)
        self._expect()

    @property
    def has_succeeded(self) -> bool:
        """Whether the connection has a principal."""
        return bool(self.username)

    @property
    def mechanisms(self) -> list[str]:
        """The mechanisms that the client may choose from."""
        return self._door.mechanisms.names

    def choose(self, mechanism: str, *, has_headers: bool, answer: AnswerChoice) -> None:
        """Take the client's choice of a mechanism (SaslHandshake).

        `has_headers`: whether SASL messages follow in SaslAuthenticate requests.
        """
        now_s = self._door.loop.time()
        is_too_soon = self._expires_s == _NO_END or now_s - self._again_s < AGAIN_SECONDS
        if self.state is LoginState.AUTHENTICATED and is_too_soon:
            # As in Apache Kafka, a session without an end cannot re-authenticate, and the connection stays open.
            answer(ErrorCode.ILLEGAL_SASL_STATE)
            return
        if self.state not in (LoginState.NONE, LoginState.AUTHENTICATED):
            self._fail(lambda: answer(ErrorCode.ILLEGAL_SASL_STATE), "a second mechanism is chosen during a login")
            return
        self._exchange = exchange = self._door.mechanisms.exchange(mechanism, self._client.peer_host)
        self._is_begin = True
        if exchange is None:
            reason = f"mechanism {mechanism[:40]!r} is not offered"
            self._fail(lambda: answer(ErrorCode.UNSUPPORTED_SASL_MECHANISM), reason)
            return
        if self.has_succeeded:
            self._again_s = now_s
            if mechanism != self.mechanism:
                # As in Kafka the client is refused by the response to its SASL message, which is not checked.
                self._exchange, self._wrong_mechanism = None, mechanism
            self._client.guard(self._admit, least=None, most=None)
            self._expect()
        else:
            self.mechanism = mechanism
        self._advance(LoginEvent.CHOOSE)
        self._is_raw = not has_headers
        if self._is_raw:
            # A SASL message may be shorter than any request.
            self._client.guard(self._admit, least=0, most=self._door.most_bytes)
        answer(ErrorCode.NONE)

    def speak(self, message: bytes, answer: AnswerProof) -> None:
        """Take a SASL message (SaslAuthenticate)."""
        if self.state is LoginState.AUTHENTICATED:
            text = "SaslAuthenticate request received after successful authentication"
            answer(ErrorCode.ILLEGAL_SASL_STATE, text, b"", 0)
            return
        if self.state is LoginState.NONE:
            text = "SaslAuthenticate request received before SaslHandshake"
            self._fail(lambda: answer(ErrorCode.ILLEGAL_SASL_STATE, text, b"", 0), text)
            return
        self._message, self._answer = message, answer
        if self._is_begin:
            # Only the first message has the name of the user. The name may be long, so only its hash is kept.
            self._is_begin = False
            self.claimed_user = hash(claimed_name(self.mechanism, message))
        self._advance(LoginEvent.SPEAK)
        # Requests that are pipelined behind the login are read later, with the rights of the login.
        self._client.hold()
        self._door.attempts.begin(self._client.peer_host, self)

    def closed(self) -> None:
        """Drop everything in progress; the connection is closed."""
        self._is_closed = True
        self._message, self._answer = b"", _no_answer
        for timer in (self._timer, self._end_timer, self._unhold_timer):
            if timer is not None:
                timer.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
            # The task is cancelled and does not end its attempt, so the attempt is ended here.
            self._end_attempt(has_failed=False)
        self._door.attempts.cancel(self._client.peer_host, self)
        self._door.forget(self)

    def end(self, reason: str) -> None:
        """Close the connection of a removed user or revoked token; an empty reason logs nothing."""
        if self._is_closed:
            return
        if reason:
            self._client.give_up(reason)
        else:
            self._client.abort()

    def _admit(self, frame: memoryview) -> bool:
        """Take a frame without a header; raise `RemoteProtocolError` for a request that is not allowed now."""
        if self._is_raw and self.state in (LoginState.AUTHENTICATING, LoginState.REAUTHENTICATING):
            self._take_token(bytes(frame))
            return True
        if len(frame) < _HEADER_BYTES:
            raise RemoteProtocolError("an incomplete request header")
        key = int.from_bytes(frame[:2], "big", signed=True)
        if self.state is LoginState.AUTHENTICATED:
            # KIP-368: after the end of the session, any request but a re-authentication closes the connection.
            if key != ApiKey.SASL_HANDSHAKE and self._door.loop.time() >= self._expires_s:
                raise RemoteProtocolError(
                    f"the session of {self._client.principal} has ended, and its client has not re-authenticated"
                )
            return False
        if key not in READ.get(self.state, ()):
            known = api_key_of(key)
            shown = f"API {key}" if known is None else known.name
            raise RemoteProtocolError(f"a request of {shown} before the login that this listener requires")
        return False

    def _take_token(self, token: bytes) -> None:
        reply = self._client.open_token()

        def answer(code: ErrorCode, text: str | None, data: bytes, lifetime_ms: int) -> None:
            del text, lifetime_ms
            # A response without a header has no field for an error; the connection is closed.
            if code is ErrorCode.NONE:
                reply(data)

        self.speak(token, answer)

    def start_attempt(self) -> None:
        """Check the client's SASL message; called when a failure of its address is allowed."""
        self._has_attempt = True
        message, self._message = self._message, b""
        exchange = self._exchange
        if exchange is None:
            text = (
                f"SASL mechanism '{self._wrong_mechanism[:40]}' requested by client is not supported for "
                f"re-authentication of mechanism '{self.mechanism}'"
            )
            self._refuse(LoginFailed(text))
            return
        self._carry_out(lambda: exchange.step(message))

    def _carry_out(self, work: Callable[[], Step]) -> None:
        try:
            step = work()
        except LoginFailed as why:
            self._refuse(why)
            return
        self._take(step)

    def _take(self, step: Step) -> None:
        match step:
            case Challenge(data, refusal):
                # The failure is counted now, and once: also of a client that disconnects before the refusal ends.
                self._end_attempt(has_failed=refusal is not None)
                if refusal is not None:
                    self._is_refused = True
                    self._note_failure(refusal)
                self._advance(LoginEvent.CHALLENGE)
                self._reply(data, 0)
            case Success():
                self._succeed(step)
            case Check(work):
                self._door.threads.submit(lambda: None if self._is_closed else work(), self._on_checked)
            case Wait():
                self._waiting = self._door.loop.create_task(self._wait(step))
            case _:
                assert_never(step)

    def _on_checked(self, result: Step | Exception | None) -> None:
        """Go on with the result of a check; `None`: the client had disconnected, and nothing was checked."""
        if self._is_closed or result is None:
            # An attempt still counts if its client has not waited for the result.
            self._end_attempt(has_failed=isinstance(result, Exception))
        elif isinstance(result, LoginFailed):
            self._refuse(result)
        elif isinstance(result, Exception):
            log.error("event=login_broken peer=%s error=%r", self._client.peer, type(result).__name__, exc_info=result)
            self._refuse(LoginFailed("the login could not be carried out"))
        else:
            self._take(result)

    async def _wait(self, step: Wait) -> None:
        try:
            await step.until()
            found: Step | Exception = step.then()
        except Exception as why:
            found = why
        self._waiting = None
        self._on_checked(found)

    def _succeed(self, success: Success) -> None:
        name, is_again, capability = success.principal_name, self.has_succeeded, success.capability
        if is_again and (name != self.username or (capability is None) != (self.capability is None)):
            text = f"Cannot change principals during re-authentication from User.{self.username}: User.{name}"
            self._refuse(LoginFailed(text))
            return
        if capability is None and not self._door.mechanisms.knows(self.mechanism, name):
            self._refuse(LoginFailed(_refusal_of(self.mechanism), detail="the user was removed during its login"))
            return
        self._end_attempt(has_failed=False)
        self._advance(LoginEvent.SUCCEED)
        self._exchange = None
        if self._timer is not None:
            self._timer.cancel()
        client, lifetime_ms = self._client, self._door.lifetime_ms(self.mechanism, success)
        self._set_end(lifetime_ms)
        if not is_again:
            self.username = name
            client.principal = f"User:{name}" if capability is None else f"{PRINCIPAL}{name}"
        if capability is not None:
            # The token of a re-authentication has the same id but may have another lease and fewer rights.
            client.rights = self._door.rights_of_token(capability, client.peer_host)
        elif not is_again:
            client.rights = self._door.rights_of(client.principal, client.peer_host)
        self.capability = capability
        if not is_again:
            self._door.note(self)
        log.debug(
            "event=%s peer=%s listener=%s mechanism=%s principal=%r",
            "logged_in_again" if is_again else "logged_in",
            client.peer, client.listener.name, self.mechanism, client.principal,
        )  # fmt: skip
        # In a session without an end requests need no check.
        client.guard(self._admit if lifetime_ms else None, least=None, most=None)
        self._reply(success.data, lifetime_ms)

    def _set_end(self, lifetime_ms: int) -> None:
        """Let the session end after `lifetime_ms`; 0: never."""
        loop = self._door.loop
        self._expires_s = loop.time() + lifetime_ms / 1000 if lifetime_ms else _NO_END
        for timer in (self._end_timer, self._unhold_timer):
            if timer is not None:
                timer.cancel()
        self._end_timer = self._unhold_timer = None
        if lifetime_ms:
            self._end_timer = loop.call_at(self._expires_s, self._on_end)
            unheld_s = loop.time() + lifetime_ms / 1000 * _UNHELD_FROM
            self._unhold_timer = loop.call_at(unheld_s, self._client.allow_holds, False)
            self._client.allow_holds(True)

    def _on_end(self) -> None:
        """Close the connection if a request still waits: its response would leave after the session."""
        if self.state is LoginState.AUTHENTICATED and self._client.is_served:
            self._client.give_up(f"the session of {self._client.principal} has ended, and a request still waits")

    def _reply(self, data: bytes, lifetime_ms: int) -> None:
        answer, self._answer = self._answer, _no_answer
        answer(ErrorCode.NONE, None, data, lifetime_ms)
        self._client.release()

    def _refuse(self, why: LoginFailed) -> None:
        """Refuse the client's SASL message."""
        text, answer = str(why), self._answer
        if self.has_succeeded:
            text = text.replace("during authentication", "during re-authentication")
        self._end_attempt(has_failed=not self._is_refused)
        reason = f"{text} ({why.detail})" if why.detail else text
        self._fail(lambda: answer(ErrorCode.SASL_AUTHENTICATION_FAILED, text, b"", 0), reason)

    def _fail(self, answer: Callable[[], None], reason: str) -> None:
        """Respond after a pause and close, so that guessing passwords takes long."""
        client = self._client
        self._advance(LoginEvent.FAIL)
        if not self._is_refused:
            self._note_failure(reason)
        self._exchange, self._answer = None, _no_answer
        client.hold()
        if self._timer is not None:
            self._timer.cancel()

        def conclude() -> None:
            client.finish()
            answer()
            # A client that reads response and end of the connection together may ignore the response (kafka-python).
            self._timer = self._door.loop.call_later(_LINGER_SECONDS, client.close)

        self._timer = self._door.loop.call_later(self._door.delay_s, conclude)

    def _note_failure(self, reason: str) -> None:
        client = self._client
        log.warning(
            "event=login_failed peer=%s listener=%s mechanism=%s reason=%r",
            client.peer, client.listener.name, self.mechanism or None, reason,
        )  # fmt: skip

    def _advance(self, event: LoginEvent) -> None:
        self.state = TRANSITIONS[self.state, event]

    def _expect(self) -> None:
        """Close the connection if the login has not succeeded within `sasl.login.timeout.ms`."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._door.loop.call_later(self._door.timeout_s, self._give_up)

    def _give_up(self) -> None:
        self._client.give_up("the login has taken too long (sasl.login.timeout.ms)")

    def _end_attempt(self, *, has_failed: bool) -> None:
        if self._has_attempt:
            self._has_attempt = False
            self._door.attempts.end(self._client.peer_host, has_failed=has_failed)


def _no_answer(code: ErrorCode, text: str | None, data: bytes, lifetime_ms: int) -> None:
    """Send no response."""


def _refusal_of(mechanism: str) -> str:
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"


class _Door:
    """The options, threads and open connections that all logins at one listener share."""

    def __init__(
        self,
        listener: ListenerSettings,
        loop: asyncio.AbstractEventLoop,
        *,
        threads: BlockingWork,
        mechanisms: Mechanisms,
        rights_of: Callable[[str, str], Rights],
        rights_of_token: Callable[[Capability, str], Rights],
        logged_in: dict[tuple[str, str, str], set[Login]],
    ) -> None:
        values = listener.values
        self.loop: Final = loop
        self.threads: Final = threads
        self.mechanisms: Final = mechanisms
        self.rights_of: Final = rights_of
        self.rights_of_token: Final = rights_of_token
        self.most_bytes: Final[int] = values["sasl.server.max.receive.size"]
        self.delay_s: Final[float] = values["connection.failed.authentication.delay.ms"] / 1000
        self.timeout_s: Final[float] = values["sasl.login.timeout.ms"] / 1000
        self.attempts: Final = LoginAttempts(loop, failures_per_second=values["sasl.failures.per.second.per.ip"])
        self._listener: Final = listener
        self._logged_in: Final = logged_in

    def lifetime_ms(self, mechanism: str, success: Success) -> int:
        """Return the lifetime of a session, milliseconds; 0: as long as its connection."""
        values, name = self._listener.values, "connections.max.reauth.ms"
        # A mechanism may have its own limit.
        most = values.get(f"{mechanism.lower()}.{name}", values[name])
        ends = [each for each in (most or None, success.lifetime_ms) if each is not None]
        # 0 would mean that the session has no end.
        return max(1, min(ends)) if ends else 0

    def note(self, login: Login) -> None:
        """Add a connection that has logged in."""
        self._logged_in.setdefault(self._key(login), set()).add(login)

    def forget(self, login: Login) -> None:
        """Remove a closed connection."""
        key = self._key(login)
        if key in self._logged_in:
            self._logged_in[key].discard(login)
            if not self._logged_in[key]:
                del self._logged_in[key]

    def _key(self, login: Login) -> tuple[str, str, str]:
        # Users of PLAIN belong to their listener, users of other mechanisms to the broker.
        is_local = login.mechanism == PLAIN and login.capability is None
        return login.username, login.mechanism if login.capability is None else _TOKEN, self._listener.name * is_local


def prepare_users(changes: TopicChanges, listeners: Sequence[ListenerSettings], given: Sequence[FirstUser]) -> None:
    """Create the users that a broker is started with, and the secret of its responses to unknown users.

    An existing user keeps its password, which may have been changed since.
    """
    plans = []
    mechanisms = {
        name for each in listeners if each.protocol.has_sasl for name in each.values["sasl.enabled.mechanisms"]
    }
    if not changes.catalog.login_secret and mechanisms & HASHES.keys():
        plans.append(changes.plan_login_secret())
    made = [_first_user(each) for each in given if (each.name, each.mechanism) not in changes.catalog.scram_users]
    if made:
        plans.append(changes.plan_scram_users(made))
    if plans:
        changes.write(plans)
        for plan in plans:
            changes.settle(plan)
    for user in given:
        is_new = any(each.key == (user.name, user.mechanism) for each in made)
        log.info("event=first_user name=%r mechanism=%s is_new=%s", user.name, user.mechanism, is_new)


def _first_user(user: FirstUser) -> ScramUser:
    salt = os.urandom(_SALT_BYTES)
    salted = salted_password(user.mechanism, user.password.value, salt=salt, iterations=_ITERATIONS)
    # Few brokers are given users.
    from kohort.security.scram_server import ScramCredential

    found = ScramCredential.of(user.mechanism, salted, salt=salt, iterations=_ITERATIONS)
    return ScramUser(
        name=user.name,
        mechanism=user.mechanism,
        iterations=found.iterations,
        salt=salt,
        stored_key=found.stored_key,
        server_key=found.server_key,
    )


class Logins:
    """The logins of one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listeners: Sequence[ListenerSettings],
        clock: Clock,
        *,
        changes: TopicChanges,
        rights: Authorization,
        capabilities: Capabilities,
    ) -> None:
        """Read the mechanisms and users of every listener; raise `ConfigError` if something is missing."""
        self._changes: Final = changes
        self._capabilities: Final = capabilities
        self._loop: Final = loop
        self._threads: Final = BlockingWork(loop, threads=THREADS, name="kohort-login")
        self._work: Final = CooperativeWork(loop)
        #: (user or token id, mechanism or `_TOKEN`, listener of PLAIN) -> logins of open connections.
        self._logged_in: Final[dict[tuple[str, str, str], set[Login]]] = {}
        self._doors: Final[dict[str, _Door]] = {}
        for listener in listeners:
            if listener.protocol.has_sasl:
                from kohort.broker.access.mechanisms import Mechanisms

                mechanisms = Mechanisms(
                    listener,
                    loop=loop,
                    now_ms=clock.now_ms,
                    catalog=lambda: changes.catalog,
                    threads=self._threads,
                    on_gone=self._plain_gone(listener.name),
                    capabilities=capabilities,
                )
                self._doors[listener.name] = _Door(
                    listener,
                    loop,
                    threads=self._threads,
                    mechanisms=mechanisms,
                    rights_of=rights.rights_of,
                    rights_of_token=partial(_rights_of_token, capabilities, rights),
                    logged_in=self._logged_in,
                )

    def start(self) -> None:
        """Follow changes of users, files and keys."""
        if self._doors:
            self._capabilities.start(self._loop)
        if self._doors and self._on_scram_gone not in self._changes.on_users_gone:
            self._changes.on_users_gone.append(self._on_scram_gone)
        for name, door in self._doors.items():
            door.mechanisms.start()
            if door.mechanisms.lacks_users():
                log.warning(
                    "event=no_users listener=%s action='make one by kohort up --scram-user NAME=@FILE, or by kohort "
                    "user set-password at another listener'",
                    name,
                )

    def stop(self) -> None:
        """Stop following changes, and stop the threads."""
        if self._on_scram_gone in self._changes.on_users_gone:
            self._changes.on_users_gone.remove(self._on_scram_gone)
        self._capabilities.stop()
        for door in self._doors.values():
            door.mechanisms.stop()
            door.attempts.stop()
        self._threads.stop()

    def begin(self, client: Client) -> Login | None:
        """Return the login of a new connection; `None` if its listener has no logins."""
        door = self._doors.get(client.listener.name) if client.listener.protocol.has_sasl else None
        if door is None:
            assert not client.listener.protocol.has_sasl, "a listener that was not there at the start"
            return None
        return Login(door, client)

    def end_tokens(self) -> None:
        """Close the connections whose token is revoked."""
        is_revoked = self._capabilities.is_revoked
        due = [
            (login, "")
            for (_, mechanism, _), logins in self._logged_in.items()
            if mechanism == _TOKEN
            for login in logins
            if login.capability is not None and is_revoked(login.capability)
        ]
        if due:
            # One log line for all: a thousand lines would take longer than closing the connections.
            log.warning("event=tokens_revoked connections=%d", len(due))
            self._work.run(_end_all(due))

    def _plain_gone(self, listener: str) -> Callable[[Collection[str]], None]:
        return lambda names: self._end([(name, PLAIN, listener) for name in names])

    def _on_scram_gone(self, keys: Sequence[tuple[str, str]]) -> None:
        self._end([(name, mechanism, "") for name, mechanism in keys])

    def _end(self, keys: Collection[tuple[str, str, str]]) -> None:
        """Close the connections of removed users."""
        # The connections are collected first: a new user of the same name may log in meanwhile.
        due = [(login, key[0]) for key in keys for login in self._logged_in.get(key, ())]
        self._work.run(_end_all(due))


def _rights_of_token(capabilities: Capabilities, rights: Authorization, capability: Capability, host: str) -> Rights:
    return CapabilityRights(capability, host, rights.authorizer, capabilities.now_ms)


def _end_all(due: Sequence[tuple[Login, str]]) -> Iterator[None]:
    for number, (login, name) in enumerate(due, start=1):
        login.end(f"the user {name!r} was removed" if name else "")
        if number % ENDED_AT_ONCE == 0:
            yield
