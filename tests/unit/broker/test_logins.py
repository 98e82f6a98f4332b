"""Logins at a broker's listener, message by message: what is read before them, what is told, and when they end."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kohort.broker.access import logins
from kohort.broker.access.logins import READ, THREADS, TRANSITIONS, LoginState
from kohort.errors import ErrorCode
from kohort.security.plain_users import LEAST_ITERATIONS, PasswordHash, write_users
from kohort.security.scram import ScramExchange
from kohort.simulation.clients.network import VirtualLoop, run_virtually
from kohort.wire.messages.alter_user_scram_credentials import ScramCredentialDeletion
from kohort.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kohort.wire.messages.sasl_handshake import SaslHandshakeRequest
from kohort.wire.registry import SERVED, ApiKey
from support.dialogues.broker_wire import encode_request, fetch_request, make
from support.dialogues.login_dialogue import SCRAM, LoginDialogue, config_of, upsertion, users_of
from support.dialogues.wired_connection import wired_broker

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
NOT_LOGGED_IN = "invalid credentials with SASL mechanism"
Application = Callable[[Any, Callable[[], LoginDialogue]], Awaitable[None]]


def virtually(application: Application, **more: object) -> None:
    """Run a dialogue in virtual time; nothing in it has a thread."""

    async def play(loop: VirtualLoop) -> None:
        with wired_broker(config_of(**more)) as context:
            context.logins.start()
            try:
                await application(context, lambda: LoginDialogue(context))
            finally:
                context.logins.stop()

    run_virtually(play, Random("logins"))


def really(application: Application, **more: object) -> None:
    """Run a dialogue whose passwords are checked on threads; failed logins have a short pause."""

    async def play() -> None:
        with wired_broker(config_of(connection_failed_authentication_delay_ms=1, **more)) as context:
            context.logins.start()
            try:
                await application(context, lambda: LoginDialogue(context))
            finally:
                context.logins.stop()

    asyncio.run(play())


async def with_alice(connect: Callable[[], LoginDialogue]) -> LoginDialogue:
    """A connection of alice, who has made herself by the log in of PLAIN."""
    client = connect()
    assert (await client.plain("alice", "wonder")).error_code == 0
    return client


def make_users(context: Any, *changes: Any) -> None:
    """Users that are there from the start."""
    from kohort.broker.apis.alter_user_scram_credentials import _user

    plan = context.store.changes.plan_scram_users([_user(each) for each in changes])
    context.store.changes.write([plan])
    context.store.changes.settle(plan)


def test_table_has_each_state_and_leads_out_of_it() -> None:
    """Rule 7: transitions are a constant; only a failed login leads nowhere."""
    assert {state for state, _ in TRANSITIONS} == set(LoginState) - {LoginState.FAILED}
    assert set(TRANSITIONS.values()) == set(LoginState) - {LoginState.NONE}
    assert not {LoginState.CHECKING, LoginState.RECHECKING, LoginState.FAILED} & READ.keys()


def test_plain_logs_in_and_then_is_served() -> None:
    """The principal is the user's, and the gate is gone: a session without end costs no look at each request."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        await client.versions()
        answer = await client.plain("alice", "wonder")
        assert (answer.error_code, answer.error_message, answer.auth_bytes) == (0, "", b"")
        assert answer.session_lifetime_ms == 0
        assert client.connection.principal == "User:alice"
        assert client.connection.gate is None
        assert (await client.metadata()).cluster_id is not None

    really(play)


@pytest.mark.parametrize(("mechanism", "number"), [("SCRAM-SHA-256", 1), ("SCRAM-SHA-512", 2)])
def test_scram_logs_in_and_proves_the_broker(mechanism: str, number: int) -> None:
    """By the API that Kafka's tools use, then by name and password; keys are not described."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        admin = await with_alice(connect)
        assert await admin.change_users(upsertion("carol", "sesame", mechanism=number)) == [("carol", 0, None)]
        client = connect()
        assert (await client.scram("carol", "sesame", mechanism=mechanism)).error_code == 0
        assert client.connection.principal == "User:carol"
        assert [(user.name, user.mechanism) for user in users_of(context)] == [("carol", mechanism)]
        request = DescribeUserScramCredentialsRequest(users=None)
        described = await admin.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request)
        (row,) = described.results
        assert [(info.mechanism, info.iterations) for info in row.credential_infos] == [(number, 4096)]

    really(play)


@pytest.mark.parametrize("key", [key for key in SERVED if key not in READ[LoginState.NONE]])
def test_no_other_api_is_read_before_the_login(key: ApiKey, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is done and nothing is told: the connection ends, and the log says why."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        frame = encode_request(ApiKey.HEARTBEAT, 0, HeartbeatRequest())
        client.feed(frame[:4] + int(key).to_bytes(2, "big") + frame[6:])
        assert client.is_closed
        assert not client.has_written

    with caplog.at_level(logging.WARNING, logger="kohort.broker"):
        virtually(play)
    assert f"a request of {key.name} before the login" in caplog.text


@pytest.mark.parametrize(("name", "password"), [("alice", "wander"), ("mallory", "wonder"), ("alice", "w" * 20_000)])
def test_wrong_plain_login_ends_after_a_pause(name: str, password: str, caplog: pytest.LogCaptureFixture) -> None:
    """One answer for all of them, without the password in any text."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        answer = await client.plain(name, password)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        await client.ends()

    with caplog.at_level(logging.DEBUG):
        really(play)
    assert password not in caplog.text


@pytest.mark.parametrize(("name", "password"), [("carol", "other"), ("mallory", "sesame")])
def test_wrong_scram_login_is_answered_after_100_ms_and_ends(name: str, password: str) -> None:
    """`connection.failed.authentication.delay.ms`; nothing that comes meanwhile is read."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("carol", "sesame"))
        client, loop = connect(), asyncio.get_running_loop()
        await client.choose(SCRAM)
        exchange = ScramExchange(SCRAM, name, password, nonce="ours")
        challenge = await client.say(exchange.first())
        began = loop.time()
        proof = SaslAuthenticateRequest(auth_bytes=exchange.reply(challenge.auth_bytes))
        client.feed(encode_request(ApiKey.SASL_AUTHENTICATE, 2, proof))
        client.send_metadata()
        assert not client.is_closed
        assert not client.has_written
        ((_, answer),) = await client.receive(ApiKey.SASL_AUTHENTICATE, 2)
        assert loop.time() - began == pytest.approx(0.1)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == f"Authentication failed during authentication due to {NOT_LOGGED_IN} {SCRAM}"
        await client.ends()
        assert loop.time() - began == pytest.approx(0.2)
        assert not client.has_written

    virtually(play)


def test_unknown_user_gets_the_salt_that_it_got_before() -> None:
    """Another broker has another one; a known user's is its own."""
    seen = []

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("carol", "sesame"))
        for name in ("mallory", "mallory", "carol", "trudy"):
            client = connect()
            await client.choose(SCRAM)
            challenge = await client.say(ScramExchange(SCRAM, name, "x", nonce="ours").first())
            assert challenge.auth_bytes.endswith(b",i=4096")
            seen.append(challenge.auth_bytes.split(b",")[1])

    virtually(play)
    virtually(play)
    assert seen[0] == seen[1] != seen[2]
    assert seen[3] not in seen[:3]
    assert {len(salt) for salt in seen} == {len(seen[0])}


def test_mechanism_that_is_not_offered_names_those_that_are() -> None:
    """UNSUPPORTED_SASL_MECHANISM, and the end."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        for version in (0, 1):
            client = connect()
            answer = await client.choose("GSSAPI", version)
            assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
            assert answer.mechanisms == MECHANISMS
            await client.ends()

    virtually(play)


def test_messages_out_of_turn_are_refused() -> None:
    """ILLEGAL_SASL_STATE: a proof before its mechanism, a second mechanism; both end the connection."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        early = connect()
        assert (await early.say(b"\0alice\0wonder")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        await early.ends()
        twice = connect()
        await twice.choose(SCRAM)
        assert (await twice.choose("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        await twice.ends()

    virtually(play)


def test_proof_after_the_login_is_told_so() -> None:
    """As in Kafka, and the connection stays."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client = await with_alice(connect)
        answer = await client.say(b"\0alice\0wonder")
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.error_message == "SaslAuthenticate request received after successful authentication"
        assert (await client.metadata()).cluster_id is not None

    really(play)


def test_listener_without_logins_refuses_them() -> None:
    """As before there were any."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        assert (await client.choose("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.say(b"\0alice\0wonder")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert not client.is_closed

    plaintext = {"listeners": "PLAINTEXT://127.0.0.1:9092", "listener.name.sasl_plaintext.plain.sasl.jaas.config": None}

    async def run() -> None:
        config = {name: value for name, value in (config_of() | plaintext).items() if value is not None}
        with wired_broker(config) as context:
            await play(context, lambda: LoginDialogue(context))

    asyncio.run(run())


def test_old_handshake_is_followed_by_messages_without_headers() -> None:
    """SaslHandshake of version 0, which Apache Kafka 4.3 still serves: tokens come as they are, however short."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("u", "p"))
        client = connect()
        assert (await client.choose(SCRAM, 0)).error_code == 0
        exchange = ScramExchange(SCRAM, "u", "p", nonce="ours")
        client.feed(framed(exchange.first()))
        challenge = unframed(client.take_written())
        client.feed(framed(exchange.reply(challenge)))
        assert exchange.reply(unframed(client.take_written())) == b""
        assert client.connection.principal == "User:u"
        assert (await client.metadata()).cluster_id is not None

    virtually(play)


def test_old_plain_login_has_an_empty_answer_and_a_wrong_one_none() -> None:
    """A message of four bytes is shorter than any request."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        for password, written in ((b"wonder", b"\0\0\0\0"), (b"x", b"")):
            client = connect()
            await client.choose("PLAIN", 0)
            client.feed(framed(b"\0alice\0" + password))
            if written:
                assert await client.writes() == written
                assert client.connection.principal == "User:alice"
            else:
                await client.ends()
                assert not client.has_written
        short = connect()
        await short.choose("PLAIN", 0)
        short.feed(framed(b"\0a\0"))
        await short.ends()

    really(play)


def framed(token: bytes) -> bytes:
    return len(token).to_bytes(4, "big") + token


def unframed(data: bytes) -> bytes:
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


def test_what_is_pipelined_behind_a_proof_is_read_after_it() -> None:
    """With the rights that the proof gives."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        client.feed(
            encode_request(ApiKey.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")),
            encode_request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonder")),
            encode_request(ApiKey.METADATA, 9, MetadataRequest(topics=[])),
        )
        written = b""
        # The correlation id of each.
        while written.count(b"\0\0\0\1") < 3:
            written += await client.writes()
        assert client.connection.principal == "User:alice"
        assert not client.is_closed

    really(play)


def test_login_that_takes_too_long_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    """Ten seconds, however much is said in them."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        for _ in range(9):
            await client.versions()
            await asyncio.sleep(1)
        assert not client.is_closed
        await asyncio.sleep(1.1)
        assert client.is_closed

    virtually(play)
    assert "sasl.login.timeout.ms" in caplog.text


def test_long_frame_before_the_login_is_refused_unread() -> None:
    """64 KB; after the login as long as any."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        client.feed((65_537).to_bytes(4, "big") + b"\0" * 100)
        assert client.is_closed
        make_users(context, upsertion("u", "p"))
        client = connect()
        await client.scram("u", "p")
        client.feed((1_000_000).to_bytes(4, "big") + b"\0\1" + b"\0" * 100)
        assert not client.is_closed

    virtually(play)


def test_sixth_failure_of_an_address_waits() -> None:
    """Five a second; the sixth is looked at when a fifth of a second is over, and a right password waits with it."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("u", "p"))
        loop = asyncio.get_running_loop()

        async def try_password(password: str) -> tuple[int, float]:
            return (await connect().scram("u", password)).error_code, round(loop.time(), 2)

        passwords = ["x"] * 12 + ["p"]
        results = await asyncio.gather(*map(try_password, passwords))
        failed = [at for code, at in results if code]
        assert failed[:5] == [0.1] * 5
        assert failed[5:] == pytest.approx([0.3, 0.5, 0.7, 0.9, 1.1, 1.3, 1.5], abs=0.03)
        assert results[-1][0] == 0
        assert results[-1][1] == pytest.approx(1.6, abs=0.03)
        # Logins that succeed cost the address nothing.
        await asyncio.sleep(2)
        began = loop.time()
        assert await asyncio.gather(*map(try_password, ["p"] * 50)) == [(0, round(began, 2))] * 50

    virtually(play)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_user_who_fails_all_the_time_holds_up_no_other_of_the_address(mechanism: str) -> None:
    """A job with an old password and 100 attempts: a right login beside it comes in with the next few of them."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("alice", "wonder"), upsertion("alice", "wonder", mechanism=2))
        loop = asyncio.get_running_loop()

        said = encode_request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0job\0old"))
        for _ in range(100):
            failing = connect()
            await failing.choose("PLAIN")
            failing.feed(said)
        began, client = loop.time(), connect()
        login = (
            client.plain("alice", "wonder")
            if mechanism == "PLAIN"
            else client.scram("alice", "wonder", mechanism=mechanism)
        )
        assert (await login).error_code == 0
        assert loop.time() - began == pytest.approx(0.5, abs=0.4), "not 20 seconds"

    virtually(play)


def test_waiting_attempt_of_a_closed_connection_is_forgotten() -> None:
    """A crowd that leaves does not keep others waiting."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("u", "p"))
        loop = asyncio.get_running_loop()
        clients = [connect() for _ in range(100)]
        for client in clients:
            await client.choose(SCRAM)
            client.feed(encode_request(ApiKey.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"nonsense")))
        for client in clients[5:]:
            client.connection.connection_lost(None)
        began = loop.time()
        assert (await connect().scram("u", "p")).error_code == 0
        assert loop.time() - began == pytest.approx(0.2, abs=0.01)

    virtually(play)


def test_guesses_of_clients_that_are_gone_cost_no_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crowd of many addresses that leaves does not keep a new login waiting, and one that stays no known user."""
    users = {"carol": PasswordHash.of(b"c", iterations=LEAST_ITERATIONS)}
    write_users(tmp_path / "users", users)
    checked: list[bytes] = []
    may_go_on, matches = threading.Event(), PasswordHash.matches

    def checks(known: PasswordHash, password: bytes) -> bool:
        checked.append(password)
        may_go_on.wait(10)
        return matches(known, password)

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        may_go_on.set()
        assert (await connect().plain("carol", "c")).error_code == 0
        monkeypatch.setattr(PasswordHash, "matches", checks)
        may_go_on.clear()
        crowd = [connect() for _ in range(100)]
        for client in crowd:
            await client.choose("PLAIN")
            guess = SaslAuthenticateRequest(auth_bytes=b"\0carol\0guess")
            client.feed(encode_request(ApiKey.SASL_AUTHENTICATE, 2, guess))
        # All threads are busy with the crowd.
        assert (await connect().plain("carol", "c")).error_code == 0
        for client in crowd:
            client.connection.connection_lost(None)
        may_go_on.set()
        assert (await connect().plain("carol", "d")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert len(checked) <= THREADS + 1

    really(play, sasl_plain_users_file=str(tmp_path / "users"), sasl_failures_per_second_per_ip=1_000)


def test_removed_user_is_out_at_once_and_others_stay(caplog: pytest.LogCaptureFixture) -> None:
    """AlterUserScramCredentials: when the removal is in force its connections end, and those of no other mechanism."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        admin = await with_alice(connect)
        await admin.change_users(upsertion("alice", "a"))
        await admin.change_users(upsertion("carol", "c"))
        await admin.change_users(upsertion("carol", "c", mechanism=2))
        clients = [connect() for _ in range(5)]
        await clients[0].scram("alice", "a")
        await clients[1].scram("carol", "c")
        await clients[2].scram("carol", "c")
        await clients[3].scram("carol", "c", mechanism="SCRAM-SHA-512")
        # Her login is under way when she is removed: it does not outlive her.
        exchange = ScramExchange(SCRAM, "carol", "c", nonce="ours")
        await clients[4].choose(SCRAM)
        challenge = await clients[4].say(exchange.first())

        assert await admin.change_users(ScramCredentialDeletion(name="carol", mechanism=1)) == [("carol", 0, None)]

        assert [client.is_closed for client in clients] == [False, True, True, False, False]
        assert not admin.is_closed
        late = await clients[4].say(exchange.reply(challenge.auth_bytes))
        assert late.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    really(play)
    assert "'carol' was removed" in caplog.text


def test_user_of_many_connections_is_out_in_short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served in between; one that is made anew meanwhile is another user, and stays."""
    monkeypatch.setattr(logins, "ENDED_AT_ONCE", 3)

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("bob", "b"))
        clients = [connect() for _ in range(8)]
        for client in clients:
            assert (await client.scram("bob", "b")).error_code == 0

        context.logins._on_scram_gone([("bob", SCRAM)])

        assert sum(client.is_closed for client in clients) == 3
        anew = connect()
        assert (await anew.scram("bob", "b")).error_code == 0
        await asyncio.sleep(0.1)
        assert all(client.is_closed for client in clients)
        assert not anew.is_closed

    virtually(play)


def test_new_password_holds_for_the_next_login() -> None:
    """Who is logged in stays so, as in Apache Kafka."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("u", "old"))
        client = connect()
        await client.scram("u", "old")
        make_users(context, upsertion("u", "new"))
        assert (await client.metadata()).cluster_id is not None
        assert (await connect().scram("u", "new")).error_code == 0
        assert (await connect().scram("u", "old")).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED

    virtually(play)


def test_session_ends_at_its_first_use_after_its_time(caplog: pytest.LogCaptureFixture) -> None:
    """KIP-368: the client is told how long, and goes on if it has logged in again."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("u", "p"), upsertion("v", "p"))
        lazy, good = connect(), connect()
        for client in (lazy, good):
            assert (await client.scram("u", "p")).session_lifetime_ms == 3000
        await asyncio.sleep(2.7)
        assert (await good.scram("u", "p")).session_lifetime_ms == 3000
        await asyncio.sleep(0.4)
        assert not lazy.is_closed
        lazy.send_metadata()
        assert lazy.is_closed
        assert (await good.metadata()).cluster_id is not None
        # After its end it still may log in again, and nothing else.
        await asyncio.sleep(3.1)
        assert (await good.scram("u", "p")).error_code == 0
        assert (await good.metadata()).cluster_id is not None

    virtually(play, connections_max_reauth_ms=3000)
    assert "the session of User:u has ended" in caplog.text


def test_request_that_waits_over_the_end_of_its_session_gets_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A fetch may wait for weeks: what is written after the session is not for it."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("u", "p"))
        admin, waiting, idle = await with_alice(connect), connect(), connect()
        topics = [{"name": "t", "num_partitions": 1, "replication_factor": 1}]
        await admin.ask(ApiKey.CREATE_TOPICS, 7, make(ApiKey.CREATE_TOPICS, topics=topics, timeout_ms=1000))
        for client in (waiting, idle):
            await client.scram("u", "p")
        waiting.feed(encode_request(ApiKey.FETCH, 12, fetch_request("t", max_wait_ms=2**31 - 1)))
        await asyncio.sleep(3.1)
        assert waiting.is_closed
        assert not waiting.has_written
        assert not idle.is_closed

    virtually(play, connections_max_reauth_ms=3000, super_users="User:u;User:alice")
    assert "a request still waits" in caplog.text


def test_session_without_an_end_has_no_later_login() -> None:
    """As in Apache Kafka: it is told so, and goes on."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("u", "p"))
        client = connect()
        await client.scram("u", "p")
        assert (await client.choose(SCRAM)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await client.metadata()).cluster_id is not None

    virtually(play)


@pytest.mark.parametrize("what", ["user", "mechanism", "password", "soon", "request"])
def test_later_login_is_of_the_same_user(what: str) -> None:
    """Kafka's words; all but a handshake too soon after another end the connection."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("u", "p"), upsertion("v", "p"), upsertion("u", "p", mechanism=2))
        client = connect()
        await client.scram("u", "p")
        failed = ErrorCode.SASL_AUTHENTICATION_FAILED
        match what:
            case "user":
                answer = await client.scram("v", "p")
                text = "Cannot change principals during re-authentication from User.u: User.v"
                assert (answer.error_code, answer.error_message) == (failed, text)
            case "mechanism":
                assert (await client.choose("SCRAM-SHA-512")).error_code == 0
                answer = await client.say(b"n,,n=u,r=ours")
                text = (
                    "SASL mechanism 'SCRAM-SHA-512' requested by client is not supported for re-authentication of "
                    "mechanism 'SCRAM-SHA-256'"
                )
                assert (answer.error_code, answer.error_message) == (failed, text)
            case "password":
                answer = await client.scram("u", "x")
                text = f"Authentication failed during re-authentication due to {NOT_LOGGED_IN} {SCRAM}"
                assert (answer.error_code, answer.error_message) == (failed, text)
            case "soon":
                assert (await client.scram("u", "p")).error_code == 0
                assert (await client.choose(SCRAM)).error_code == ErrorCode.ILLEGAL_SASL_STATE
                assert (await client.metadata()).cluster_id is not None
                return
            case "request":
                await client.choose(SCRAM)
                client.send_metadata()
                assert not client.has_written
        await client.ends()
        assert client.connection.principal == "User:u"

    virtually(play, connections_max_reauth_ms=60_000)


def test_thousand_logins_leave_nothing_behind() -> None:
    """Of connections that have closed no login is kept, whether it was whole or not."""

    async def play(context: Any, connect: Callable[[], LoginDialogue]) -> None:
        make_users(context, upsertion("u", "p"))
        for number in range(60):
            client = connect()
            if number % 3 == 0:
                await client.scram("u", "p")
            elif number % 3 == 1:
                await client.choose(SCRAM)
            client.connection.connection_lost(None)
        assert not context.logins._logged_in
        assert not context.connections

    virtually(play)
