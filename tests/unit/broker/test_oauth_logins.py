"""Logins by tokens at a broker's listener, message by message: sessions, refusals, and what they cost an address."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kohort.errors import ErrorCode
from kohort.security.sasl import BearerExchange
from kohort.simulation.clients.network import VirtualLoop, run_virtually
from support.dialogues.login_dialogue import LoginDialogue
from support.dialogues.wired_connection import wired_broker
from support.peers.token_issuer import AUDIENCE, ISSUER, claims, jwk, jwks, sign

Application = Callable[[Callable[[], LoginDialogue]], Awaitable[None]]


@pytest.fixture
def config(tmp_path: Path) -> dict[str, object]:
    """A broker whose users log in by tokens."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(jwks(jwk("one")))
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "super.users": "User:alice",
    }


def really(config: dict[str, object], application: Application) -> None:
    """Run a dialogue whose signatures are checked on threads."""

    async def play() -> None:
        with wired_broker({**config, "connection.failed.authentication.delay.ms": 1}) as context:
            context.logins.start()
            try:
                await application(lambda: LoginDialogue(context))
            finally:
                context.logins.stop()

    asyncio.run(play())


def virtually(config: dict[str, object], application: Application) -> None:
    """Run a dialogue in virtual time; nothing in it has a thread."""

    async def play(loop: VirtualLoop) -> None:
        with wired_broker(config) as context:
            context.logins.start()
            try:
                await application(lambda: LoginDialogue(context))
            finally:
                context.logins.stop()

    run_virtually(play, Random("tokens"))


async def bear(client: LoginDialogue, token: str) -> Any:
    """Choose the mechanism and send the token; the answer."""
    assert (await client.choose("OAUTHBEARER")).error_code == 0
    return await client.say(BearerExchange(token).first())


def test_session_is_as_long_as_the_token(config: dict[str, object]) -> None:
    """KIP-368: the client is told, so that it logs in again before the end."""

    async def play(connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        answer = await bear(client, sign(claims(exp=time.time() + 1_000_000)))
        assert (answer.error_code, answer.auth_bytes) == (0, b"")
        assert round(answer.session_lifetime_ms, -7) == 1_000_000_000
        assert client.connection.principal == "User:alice"
        assert (await client.metadata()).cluster_id is not None

    really(config, play)


def test_session_is_no_longer_than_the_listener_allows(config: dict[str, object]) -> None:
    async def play(connect: Callable[[], LoginDialogue]) -> None:
        assert (await bear(connect(), sign(claims()))).session_lifetime_ms == 60_000

    really({**config, "connections.max.reauth.ms": 60_000}, play)


def test_refused_token_is_challenged_then_failed_and_logged_once(
    config: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """RFC 7628 §3.2.2."""

    async def play(connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        answer = await bear(client, sign(claims(aud="mail")))
        assert answer.error_code == 0
        assert json.loads(answer.auth_bytes) == {"status": "invalid_token"}
        end = await client.say(b"\x01")
        assert end.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert end.error_message == "Authentication failed: the token is for another audience"
        await client.ends()

    with caplog.at_level(logging.WARNING, "kohort.broker"):
        really(config, play)
    assert caplog.text.count("the token is for another audience") == 1


def test_client_that_goes_away_at_the_refusal_has_failed_as_well(
    config: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    """Five a second and address, whether they hear the refusal out or not."""

    async def play(connect: Callable[[], LoginDialogue]) -> None:
        loop = asyncio.get_running_loop()

        async def try_token() -> float:
            client = connect()
            assert b"invalid_token" in (await bear(client, "no.token.")).auth_bytes
            client.connection.connection_lost(None)
            return round(loop.time(), 2)

        found = sorted(await asyncio.gather(*(try_token() for _ in range(10))))
        assert found[:5] == [0.0] * 5
        assert found[5:] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0], abs=0.03)

    virtually(config, play)
    assert caplog.text.count("event=login_failed") == 10


def test_request_in_place_of_the_answer_to_a_refusal_ends_the_connection(config: dict[str, object]) -> None:
    """aiokafka takes the refusal for the end of its login, and asks for topics."""

    async def play(connect: Callable[[], LoginDialogue]) -> None:
        client = connect()
        await bear(client, "no.token.")
        client.send_metadata()
        assert client.is_closed

    virtually(config, play)
