"""Logins over a real socket: what is said in which order, what is refused, and what follows when a session ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort.client.core.requests import Failure
from kohort.errors import ConfigError
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kohort.wire.registry import VERSIONS, ApiKey
from kohort.wire.schema import Message
from support.dialogues.rig import Rig
from support.dialogues.scripted_broker import ScriptedBroker

LOGIN = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}
SECRET = "open-sesame"
BEAT = HeartbeatRequest(group_id="g")


class Guard:
    """A broker's side of PLAIN: lets in who knows the password; `codes` are answered first."""

    def __init__(self, *, lifetime_ms: int = 0, handshake: SaslHandshakeResponse | None = None) -> None:
        self.lifetime_ms = lifetime_ms
        self.handshake = handshake or SaslHandshakeResponse(mechanisms=["PLAIN"])
        self.said: list[bytes] = []
        self.again = threading.Event()

    def __call__(self, api: ApiKey, version: int, request: Message) -> Message:
        if isinstance(request, SaslHandshakeRequest):
            return self.handshake
        if isinstance(request, SaslAuthenticateRequest):
            self.said.append(bytes(request.auth_bytes))
            if len(self.said) > 1:
                self.again.set()
            if not request.auth_bytes.endswith(SECRET.encode()):
                return SaslAuthenticateResponse(error_code=58, error_message="Invalid username or password")
            return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)
        return HeartbeatResponse()


@pytest.fixture
def rigged() -> Iterator[Callable[..., Rig]]:
    """Makes clients that are closed at the end."""
    made: list[Rig] = []

    def make(**options: Any) -> Rig:
        made.append(Rig(**options))
        return made[-1]

    yield make
    for each in made:
        each.thread.stop()


def asked(broker: ScriptedBroker, connection: int = 1) -> list[ApiKey]:
    """The APIs that one connection has asked for, in order."""
    return [api for number, api, _, _ in broker.requests if number == connection]


def test_login_comes_before_everything_else(rigged: Callable[..., Rig]) -> None:
    """KIP-152: the mechanism first, then what is said in it."""
    rig, guard = rigged(**LOGIN, sasl_password=SECRET), Guard()
    with ScriptedBroker(guard) as broker:
        rig.send(broker.endpoint, BEAT)
        rig.response()

        assert asked(broker) == [
            ApiKey.API_VERSIONS,
            ApiKey.SASL_HANDSHAKE,
            ApiKey.SASL_AUTHENTICATE,
            ApiKey.HEARTBEAT,
        ]
    assert guard.said == [b"\0alice\0" + SECRET.encode()]
    assert SECRET not in repr(broker.requests)


@pytest.mark.parametrize(
    ("guard", "says"),
    [
        (
            Guard(handshake=SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI"])),
            "does not offer PLAIN, but GSSAPI",
        ),
        (Guard(handshake=SaslHandshakeResponse(error_code=34)), "no login is wanted there: set security.protocol"),
        (Guard(handshake=SaslHandshakeResponse(error_code=35)), "refuses the login: UNSUPPORTED_VERSION"),
        (Guard(), "does not let this client in by PLAIN: Invalid username or password"),
    ],
    ids=["mechanism", "no login", "refused", "password"],
)
def test_refused_login_says_why_and_no_secret(rigged: Callable[..., Rig], guard: Guard, says: str) -> None:
    """And nothing is asked of that broker."""
    rig = rigged(**LOGIN, sasl_password="close-sesame")
    with ScriptedBroker(guard) as broker:
        rig.send(broker.endpoint, BEAT)
        failed = rig.failure()

        assert failed.failure is Failure.NOT_AUTHENTICATED
        assert says in failed.detail
        assert "close-sesame" not in repr(failed)
        assert ApiKey.HEARTBEAT not in asked(broker)


def test_broker_without_logins_is_told_apart(rigged: Callable[..., Rig]) -> None:
    """As one of ours, which announces no such API."""
    versions = {key: each for key, each in VERSIONS.items() if key is not ApiKey.SASL_HANDSHAKE}
    rig = rigged(**LOGIN, sasl_password=SECRET)
    with ScriptedBroker(Guard(), versions=versions) as broker:
        rig.send(broker.endpoint, BEAT)
        failed = rig.failure()

    assert failed.failure is Failure.NOT_AUTHENTICATED
    assert "no login is possible there" in failed.detail


def test_session_is_begun_anew_on_the_same_connection(rigged: Callable[..., Rig]) -> None:
    """KIP-368: before it ends, and what is asked afterwards is answered as before."""
    rig, guard = rigged(**LOGIN, sasl_password=SECRET), Guard(lifetime_ms=50)
    with ScriptedBroker(guard) as broker:
        rig.send(broker.endpoint, BEAT)
        rig.response()
        assert guard.again.wait(10)
        rig.send(broker.endpoint, BEAT)
        rig.response()

        assert broker.connection_count == 1
        handshakes = asked(broker).count(ApiKey.SASL_HANDSHAKE)
        assert handshakes == asked(broker).count(ApiKey.SASL_AUTHENTICATE) >= 2


def test_request_waits_while_the_session_is_begun_anew(rigged: Callable[..., Rig]) -> None:
    """A broker that is asked anything between the two messages of a login closes the connection."""
    may_answer, is_asked, count = threading.Event(), threading.Event(), [0]

    def guard(api: ApiKey, version: int, request: Message) -> Message:
        if isinstance(request, SaslHandshakeRequest):
            count[0] += 1
            if count[0] == 2:
                is_asked.set()
                may_answer.wait(10)
            return SaslHandshakeResponse(mechanisms=["PLAIN"])
        if isinstance(request, SaslAuthenticateRequest):
            return SaslAuthenticateResponse(session_lifetime_ms=50 if count[0] == 1 else 0)
        return HeartbeatResponse()

    rig = rigged(**LOGIN, sasl_password=SECRET)
    with ScriptedBroker(guard) as broker:
        rig.send(broker.endpoint, BEAT)
        rig.response()
        assert is_asked.wait(10)
        rig.send(broker.endpoint, BEAT)
        may_answer.set()
        rig.response()

        assert asked(broker)[-3:] == [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.HEARTBEAT]


@pytest.mark.parametrize(
    ("first", "final", "says"),
    [
        (b"r=%s,s=c2FsdA==,i=1000000000", b"", "asks for 1000000000 rounds of SCRAM"),
        (b"r=other,s=c2FsdA==,i=4096", b"", "nonce does not continue ours"),
        (b"r=%s,s=c2FsdA==,i=4096", b"v=bGllcw==", "does not know the password itself"),
        (b"r=%s,s=c2FsdA==,i=4096", b"e=unknown-user", "the broker refuses: unknown-user"),
    ],
    ids=["a billion rounds", "another's nonce", "a lie", "unknown user"],
)
def test_broker_that_lies_in_scram(rigged: Callable[..., Rig], first: bytes, final: bytes, says: str) -> None:
    """The client leaves without having said anything more."""

    def guard(api: ApiKey, version: int, request: Message) -> Message:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"])
        assert isinstance(request, SaslAuthenticateRequest)
        said = bytes(request.auth_bytes)
        if said.startswith(b"n,,"):
            return SaslAuthenticateResponse(auth_bytes=first.replace(b"%s", said.rpartition(b"r=")[2] + b"more"))
        return SaslAuthenticateResponse(auth_bytes=final)

    rig = rigged(**{**LOGIN, "sasl_mechanism": "SCRAM-SHA-256"}, sasl_password=SECRET)
    with ScriptedBroker(guard) as broker:
        rig.send(broker.endpoint, BEAT)
        failed = rig.failure()

    assert failed.failure is Failure.NOT_AUTHENTICATED
    assert says in failed.detail


def test_session_that_is_refused_ends_in_time_and_begins_when_it_may(rigged: Callable[..., Rig]) -> None:
    """The password was changed: what was asked before is answered, what waits fails at once, the next says why."""
    may_answer, is_asked, allowed = threading.Event(), threading.Event(), [True]

    def guard(api: ApiKey, version: int, request: Message) -> Message:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(mechanisms=["PLAIN"])
        if not isinstance(request, SaslAuthenticateRequest):
            return HeartbeatResponse()
        if allowed[0]:
            allowed[0] = False
            return SaslAuthenticateResponse(session_lifetime_ms=50)
        if not is_asked.is_set():
            is_asked.set()
            may_answer.wait(10)
        return SaslAuthenticateResponse(error_code=58, error_message="Invalid username or password")

    rig = rigged(**LOGIN, sasl_password=SECRET)
    with ScriptedBroker(guard) as broker:
        rig.send(broker.endpoint, BEAT)
        rig.response()
        assert is_asked.wait(10)
        rig.send(broker.endpoint, BEAT)
        may_answer.set()
        waiting = rig.failure()
        rig.send(broker.endpoint, BEAT)
        refused = rig.failure()
        allowed[0] = True
        rig.send(broker.endpoint, BEAT)
        rig.response()

    assert waiting.failure is Failure.DISCONNECTED
    assert refused.failure is Failure.NOT_AUTHENTICATED
    assert "by PLAIN: Invalid username or password" in refused.detail


def test_broker_that_leaves_in_the_middle_of_a_login(rigged: Callable[..., Rig]) -> None:
    """Not every broker says why; it is no question of TLS or of protocols any more."""

    def guard(api: ApiKey, version: int, request: Message) -> Message | None:
        if isinstance(request, SaslHandshakeRequest):
            return SaslHandshakeResponse(mechanisms=["PLAIN"])
        broker.drop_connections()
        return None

    rig = rigged(**LOGIN, sasl_password=SECRET)
    with ScriptedBroker(guard) as broker:
        rig.send(broker.endpoint, BEAT)
        assert "in the middle of the login" in rig.failure().detail


@pytest.mark.parametrize(
    ("name", "password", "says"),
    [
        ("a\0b", SECRET, "sasl.username cannot be sent by PLAIN: it has a character 0"),
        ("alice", SECRET + "\ud800", "sasl.password cannot be sent by PLAIN: it has half a character"),
        ("alice", SECRET * 100_000, "sasl.password cannot be sent by PLAIN: it is longer than 262144 bytes"),
        ("", SECRET, "sasl.username cannot be empty"),
        ("alice", "", "sasl.password cannot be empty"),
        ("alice", b"open", "sasl.password cannot be what it is: text is expected"),
    ],
)
def test_name_and_password_that_cannot_be_sent(name: str, password: str, says: str) -> None:
    """When the client is made, and without them."""
    with pytest.raises(ConfigError, match=says) as told:
        Rig(**{**LOGIN, "sasl_username": name}, sasl_password=password)
    assert SECRET not in str(told.value)


@pytest.mark.parametrize("name", ["a\r\nb", "ä, b=c", " "])
def test_any_other_name_is_sent_as_it_is(rigged: Callable[..., Rig], name: str) -> None:
    """As in Apache Kafka: what a name means is the broker's business."""
    rig, guard = rigged(**{**LOGIN, "sasl_username": name}, sasl_password=SECRET), Guard()
    with ScriptedBroker(guard) as broker:
        rig.send(broker.endpoint, BEAT)
        rig.response()
    assert guard.said == [f"\0{name}\0{SECRET}".encode()]
