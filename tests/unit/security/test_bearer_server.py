"""OAUTHBEARER as a broker speaks it."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.security.bearer_server import BearerServer, parse_message
from kohort.security.jwt import NO_KEYS, KeySet, TokenRules, UnverifiedToken, parse_keys
from kohort.security.sasl import BearerExchange, ExchangeFailed
from kohort.security.sasl_server import Challenge, Check, LoginFailed, Step, Success, Wait
from support.peers.token_issuer import AUDIENCE, ISSUER, claims, jwk, jwks, sign

NOW_S = 1_800_000_000


class Provider:
    """Keys, of which some come only when they are asked for."""

    def __init__(self, now: KeySet, later: KeySet | None = None) -> None:
        self.keys = now
        self._later = later
        self.asked_for: list[str | None] = []

    async def fetch(self, token: UnverifiedToken) -> None:
        self.asked_for.append(token.key_id)
        if self._later is not None:
            self.keys = self._later


def keys(*names: str) -> KeySet:
    return parse_keys(jwks(*map(jwk, names)))


def server(provider: Provider, *, scope: tuple[str, ...] = ()) -> BearerServer:
    rules = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), required_scope=scope)
    return BearerServer(provider, rules, lambda: NOW_S * 1000)


def done(step: Step) -> Step:
    """Do what a step asks for beside the loop."""
    while not isinstance(step, Challenge | Success):
        if isinstance(step, Check):
            step = step.work()
        else:
            asyncio.run(_awaited(step))
            step = step.then()
    return step


async def _awaited(step: Wait) -> None:
    await step.until()


def test_good_token_logs_in_for_as_long_as_it_holds() -> None:
    """RFC 7628; KIP-368: the session ends with the token. Extensions (KIP-342) are read."""
    said = BearerExchange(sign(claims(NOW_S)), {"logicalCluster": "lkc-1"}).first()
    step = server(Provider(keys("one"))).step(said)
    assert isinstance(step, Check), "a signature is checked on a thread"
    assert done(step) == Success("alice", lifetime_ms=3_600_000)


def test_refused_token_is_told_by_our_own_client() -> None:
    """RFC 7628 §3.2.2 and §3.2.3: a challenge in JSON, an answer of one byte, and the failure."""
    client = BearerExchange(sign(claims(NOW_S - 7_200)))
    exchange = server(Provider(keys("one")))
    challenge = done(exchange.step(client.first()))
    assert isinstance(challenge, Challenge)
    assert json.loads(challenge.data) == {"status": "invalid_token"}
    assert challenge.refusal == "Authentication failed: the token ended 3600 s ago by the broker's clock"
    answer = client.reply(challenge.data)
    assert answer == b"\x01"
    with pytest.raises(LoginFailed) as caught:
        exchange.step(answer)
    assert str(caught.value) == "Authentication failed: the token ended 3600 s ago by the broker's clock"
    with pytest.raises(ExchangeFailed, match="invalid_token"):
        client.reply(b"")


def test_scope_that_is_missing_is_named() -> None:
    """RFC 6750 §3.1."""
    exchange = server(Provider(keys("one")), scope=("kafka", "read"))
    challenge = done(exchange.step(BearerExchange(sign(claims(NOW_S, scope="read"))).first()))
    assert isinstance(challenge, Challenge)
    assert json.loads(challenge.data) == {"status": "insufficient_scope", "scope": "kafka read"}


def test_unknown_key_is_asked_for_once() -> None:
    provider = Provider(NO_KEYS, keys("one"))
    step = server(provider).step(BearerExchange(sign(claims(NOW_S))).first())
    assert isinstance(step, Wait)
    assert done(step) == Success("alice", lifetime_ms=3_600_000)
    assert provider.asked_for == ["one"]

    nowhere = Provider(keys("two"))
    assert isinstance(done(server(nowhere).step(BearerExchange(sign(claims(NOW_S))).first())), Challenge)
    assert nowhere.asked_for == ["one"]


def test_token_that_is_none_asks_for_no_key() -> None:
    """Neither a signature nor the provider costs anything for it."""
    provider = Provider(NO_KEYS)
    for token in ("x", "a.b.c", "eyJhbGciOiJub25lIn0.e30."):
        exchange = server(provider)
        assert isinstance(exchange.step(BearerExchange(token).first()), Challenge)
        with pytest.raises(LoginFailed):
            exchange.step(b"\x01")
    assert provider.asked_for == []


def test_user_cannot_become_another_one() -> None:
    """CVE-2017-12610."""
    token = sign(claims(NOW_S)).encode()
    assert done(server(Provider(keys("one"))).step(b"n,a=alice,\x01auth=Bearer " + token + b"\x01\x01")) == Success(
        "alice", lifetime_ms=3_600_000
    )
    step = server(Provider(keys("one"))).step(b"n,a=bob,\x01auth=Bearer " + token + b"\x01\x01")
    with pytest.raises(LoginFailed, match="different from the token's principal"):
        done(step)


def test_exchange_is_for_one_login() -> None:
    exchange = server(Provider(keys("one")))
    said = BearerExchange(sign(claims(NOW_S))).first()
    done(exchange.step(said))
    with pytest.raises(LoginFailed, match="says more"):
        exchange.step(said)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer a\x01", b"n,,auth=Bearer a\x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01", b"p=tls,,\x01auth=Bearer a\x01\x01", b"n,,\x01auth=Basic a\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01auth=Bearera\x01\x01", b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer \xc3\xbc\x01\x01", b"n,,\x01\xff\x01\x01", b"n,,\x01a1=b\x01auth=Bearer a\x01\x01",
        b"n,,\x01a=\x01auth=Bearer a\x01\x01", b"n,,\x01auth=Bearer a\x01auth=Bearer b\x01\x01",
        b"n,,\x01auth=Bearer a\x01\x01\x01", b"n,a=x=y,\x01auth=Bearer a\x01\x01", b"n,a=,\x01auth=Bearer a\x01\x01",
        b"n,b=x,\x01auth=Bearer a\x01\x01", b"n,a=x,y,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a\x01" + b"a=b\x01" * 100 + b"\x01", b"\x00alice\x00secret", b"\x01" * 60_000,
    ],
    ids=lambda message: repr(message[:40]),
)  # fmt: skip
def test_malformed_message_is_refused(message: bytes) -> None:
    with pytest.raises(LoginFailed, match="Invalid OAUTHBEARER client first message"):
        server(Provider(keys("one"))).step(message)


@pytest.mark.parametrize(
    ("message", "parsed"),
    [
        (b"n,,\x01auth=Bearer a.b-c_d~e+f/g==\x01\x01", ("a.b-c_d~e+f/g==", "")),
        (b"n,,\x01auth=bEaReR   abc\x01\x01", ("abc", "")),
        (b"n,a=x=2Cy=3Dz,\x01traceId=1 2\t3\x01auth=Bearer abc\x01\x01", ("abc", "x,y=z")),
    ],
)
def test_message_is_read_as_apache_kafka_reads_it(message: bytes, parsed: tuple[str, str]) -> None:
    assert parse_message(message) == parsed


@given(
    st.binary(max_size=200) | st.binary(max_size=60).map(lambda middle: b"n,,\x01auth=Bearer " + middle + b"\x01\x01")
)
def test_any_bytes_are_a_message_or_refused(message: bytes) -> None:
    try:
        token, _ = parse_message(message)
    except LoginFailed as why:
        assert len(str(why)) < 200
    else:
        assert token.isascii()
