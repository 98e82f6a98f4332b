"""Tokens over a real socket: who makes them, when another one is asked for, and what is said when there is none."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kohort.client.core.actions import Lane
from kohort.client.core.requests import Failure
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kohort.wire.registry import ApiKey
from kohort.wire.schema import Message
from support.dialogues.rig import Rig
from support.dialogues.scripted_broker import ScriptedBroker

BEAT = HeartbeatRequest(group_id="g")
SECRET = "open-sesame"
FAR_S = 4e9
BEARER = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


@pytest.fixture
def rigged() -> Iterator[Callable[..., Rig]]:
    """Makes clients that are closed at the end, and that log in with the tokens of a function."""
    made: list[Rig] = []

    def make(provider: Callable[[], object], **options: Any) -> Rig:
        made.append(Rig(**BEARER, sasl_oauth_token_provider=provider, **options))
        return made[-1]

    yield make
    for each in made:
        each.thread.stop()


def bearer(api: ApiKey, version: int, request: Message) -> Message:
    if isinstance(request, SaslHandshakeRequest):
        return SaslHandshakeResponse(mechanisms=["OAUTHBEARER"])
    if isinstance(request, SaslAuthenticateRequest):
        return SaslAuthenticateResponse()
    return HeartbeatResponse()


@pytest.mark.parametrize(
    "made",
    ["abc", ("abc", FAR_S), ("abc", FAR_S, "alice", {"pool": "p"}), ("abc", None)],
    ids=["text", "pair", "librdkafka's four", "without an end"],
)
def test_token_is_sent(rigged: Callable[..., Rig], made: object) -> None:
    rig = rigged(lambda: made)
    with ScriptedBroker(bearer) as broker:
        rig.send(broker.endpoint, BEAT)
        rig.response()

        said = next(each for *_, each in broker.requests if isinstance(each, SaslAuthenticateRequest))
    assert b"auth=Bearer abc\x01" in said.auth_bytes


def test_coroutine_and_object_of_others_make_tokens(rigged: Callable[..., Rig]) -> None:
    """aiokafka's providers have a coroutine, kafka-python's a method."""

    class Provider:
        async def token(self) -> str:
            return "abc"

    rig = rigged(Provider())
    with ScriptedBroker(bearer) as broker:
        rig.send(broker.endpoint, BEAT)
        rig.response()


def test_function_of_confluent_kafka_is_given_what_it_takes(rigged: Callable[..., Rig]) -> None:
    """Its oauth_cb has one parameter: sasl.oauthbearer.config, None where that is not set."""
    given: list[object] = []

    def oauth_cb(config: object) -> tuple[str, float]:
        given.append(config)
        return "abc", FAR_S

    rig = rigged(oauth_cb)
    with ScriptedBroker(bearer) as broker:
        rig.send(broker.endpoint, BEAT)
        rig.response()
    assert given == [None]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: 1 // 0, "ZeroDivisionError"),
        (lambda: "a b", "letters, digits"),
        (lambda: ("abc", 1.0), "has ended already"),
        (lambda: ("abc", "soon"), "a number of seconds"),
        (lambda: ("abc", FAR_S, "alice", {"auth": "x"}), "cannot be the name of an extension"),
        (lambda: (), "a pair of token and end"),
        (lambda: None, "a token is text"),
        (lambda: ("abc", 4e12), "looks like milliseconds"),
        (lambda: ("abc", math.nan), "has ended already"),
        (lambda: "a" * 300_000, "262144 characters at most"),
        (lambda: {"access_token": "abc"}, "a token is text"),
        (lambda: next(iter(())), "StopIteration"),
        (sys.exit, "SystemExit"),
    ],
)
def test_function_that_makes_no_token(rigged: Callable[..., Rig], made: Callable[[], object], says: str) -> None:
    rig = rigged(made)
    with ScriptedBroker(bearer) as broker:
        rig.send(broker.endpoint, BEAT)
        failed = rig.failure()

    assert failed.failure is Failure.NOT_AUTHENTICATED
    assert "sasl.oauth.token.provider made no token" in failed.detail
    assert says in failed.detail


def test_client_ends_though_a_function_does_not(rigged: Callable[..., Rig]) -> None:
    """Its thread is left alone."""
    is_asked, may_end = threading.Event(), threading.Event()

    def made() -> str:
        is_asked.set()
        may_end.wait(30)
        return "abc"

    rig = rigged(made)
    with ScriptedBroker(bearer) as broker:
        rig.send(broker.endpoint, BEAT)
        assert is_asked.wait(10)
        rig.thread.stop()
        assert not rig.thread.is_running
    may_end.set()


def test_one_token_serves_all_connections(rigged: Callable[..., Rig]) -> None:
    """As long as it is not about to end."""
    made: list[int] = []

    def make() -> tuple[str, float]:
        made.append(1)
        return "abc", FAR_S

    rig = rigged(make)
    with ScriptedBroker(bearer) as broker:
        for lane in (Lane.CONTROL, Lane.FETCH, Lane.COORDINATOR):
            rig.send(broker.endpoint, BEAT, lane=lane)
        for _ in range(3):
            rig.response()
        assert broker.connection_count == 3
    assert len(made) == 1


class Issuer:
    """A broker that takes some tokens only, each for so long."""

    def __init__(self, *taken: str, lifetime_ms: int = 0) -> None:
        self.taken = set(taken)
        self.lifetime_ms = lifetime_ms
        self.logins: list[str] = []
        self.again = threading.Event()

    def __call__(self, api: ApiKey, version: int, request: Message) -> Message:
        if not isinstance(request, SaslAuthenticateRequest):
            return bearer(api, version, request)
        if request.auth_bytes == b"\x01":
            return SaslAuthenticateResponse(error_code=58, error_message="it was taken back")
        token = bytes(request.auth_bytes).partition(b"Bearer ")[2].partition(b"\x01")[0].decode()
        self.logins.append(token)
        if len(self.logins) > 1:
            self.again.set()
        if token not in self.taken:
            return SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')
        return SaslAuthenticateResponse(session_lifetime_ms=self.lifetime_ms)


def test_refused_token_is_not_used_again(rigged: Callable[..., Rig]) -> None:
    """However long it should have lasted: whoever has made it out has taken it back."""
    made = iter(["old", "new"])
    rig = rigged(lambda: (next(made), FAR_S))
    with ScriptedBroker(Issuer("new")) as broker:
        rig.send(broker.endpoint, BEAT)
        assert "by OAUTHBEARER: it was taken back" in rig.failure().detail
        rig.send(broker.endpoint, BEAT)
        rig.response()


def test_function_that_fails_once_is_asked_again_before_the_session_ends(rigged: Callable[..., Rig]) -> None:
    """On the connection that is open: nobody notices that somebody else's service was away for a moment."""
    asked: list[int] = []

    def make() -> str:
        asked.append(1)
        if len(asked) == 2:
            raise ConnectionError("the identity provider is away")
        return "abc"

    rig, issuer = rigged(make), Issuer("abc", lifetime_ms=1_000)
    with ScriptedBroker(issuer) as broker:
        rig.send(broker.endpoint, BEAT)
        rig.response()
        assert issuer.again.wait(10)
        rig.send(broker.endpoint, BEAT)
        rig.response()

        assert broker.connection_count == 1
    assert len(asked) >= 3


def test_what_others_say_of_a_failure_is_told_without_secrets(rigged: Callable[..., Rig]) -> None:
    """Libraries repeat the address that they have asked, and what they were answered."""

    def make() -> str:
        raise RuntimeError(
            f"POST https://me:{SECRET}@id.example/token?client_secret={SECRET}&scope=kafka\n"
            f'failed, "refresh_token": "{SECRET}", Authorization: Bearer {SECRET}'
        )

    rig = rigged(make)
    with ScriptedBroker(bearer) as broker:
        rig.send(broker.endpoint, BEAT)
        failed = rig.failure()

    assert "RuntimeError: POST https://***@id.example/token?client_secret=***&scope=kafka failed" in failed.detail
    assert SECRET not in repr(failed)


def test_function_that_hangs_is_not_called_for_ever(rigged: Callable[..., Rig]) -> None:
    """Each call that does not return keeps a thread; a service that comes back is found by the next one."""
    may_end, asked = threading.Event(), []

    def make() -> str:
        asked.append(1)
        may_end.wait(30)
        return "abc"

    rig = rigged(make, request_timeout_ms=20)
    with ScriptedBroker(bearer) as broker:
        said = []
        for _ in range(10):
            rig.send(broker.endpoint, BEAT)
            said.append(rig.failure().detail)
        assert "made no token within 0.02 s" in said[0]
        assert "8 calls of it have not returned" in said[-1]
        assert len(asked) == 8
    may_end.set()
