"""Damaged OAUTHBEARER messages, tokens and sets of keys: each is read, or refused in a sentence.

Laws: no bytes raise anything but a refusal; no changed token logs anybody in; a refusal is short and says no token.
"""

from __future__ import annotations

import json
import random
from base64 import urlsafe_b64encode

import jwt
import pytest

from kohort.security.bearer_server import BearerServer, parse_message
from kohort.security.jwt import KeySet, TokenRules, UnverifiedToken, parse_keys
from kohort.security.sasl_server import Challenge, Check, LoginFailed, Step, Success
from support.depth import SEED, at_depth
from support.peers.token_issuer import AUDIENCE, ISSUER, claims, jwk, jwks, private_key, sign

NOW_S = 1_800_000_000
SEEDS = range(SEED, SEED + 4)
MESSAGES = at_depth(2_000, 250_000)
#: What a message of the mechanism and a token are made of.
PIECES = [
    b"\x01",
    b"n,,",
    b"n,a=",
    b"auth=",
    b"Bearer ",
    b".",
    b"=",
    b",",
    b"=2C",
    b"\x00",
    b"\xff",
    b"ey",
    b"{}",
    b"A" * 99,
]
#: What claims and headers are made of.
VALUES = [
    None, True, 0, -1, 1e308, float("nan"), 10**400, "", "x", "\ud800", "\x00", "a" * 3_000, [], {}, [[]], [None],
    ISSUER, AUDIENCE, NOW_S, NOW_S + 60, "none", "HS256", "ES256", "EdDSA", "one",
]  # fmt: skip


class Keys:
    """The provider's keys; no other ones come."""

    def __init__(self, keys: KeySet) -> None:
        self.keys = keys

    async def fetch(self, token: UnverifiedToken) -> None:
        """Find nothing."""


KEYS = Keys(parse_keys(jwks(jwk("one", "EdDSA"))))
RULES = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,))


def outcome(message: bytes) -> Step | str:
    """What a broker makes of a first message: the last step, or why there is none."""
    try:
        step = BearerServer(KEYS, RULES, lambda: NOW_S * 1000).step(message)
        while not isinstance(step, Challenge | Success):
            step = step.work() if isinstance(step, Check) else step.then()
        return step
    except LoginFailed as why:
        assert len(str(why)) < 300
        return str(why)


def damaged(message: bytes, chance: random.Random) -> bytes:
    """The message with a few changes: bytes that are others, gone, doubled, or pieces put in."""
    made = bytearray(message)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        at = chance.randrange(len(made) + 1)
        match chance.randrange(5):
            case 0 if at < len(made):
                made[at] ^= 1 << chance.randrange(8)
            case 1:
                del made[at : at + chance.choice((1, 1, 10, 1_000))]
            case 2:
                made[at:at] = chance.choice(PIECES)
            case 3:
                made[at:at] = made[at : at + chance.choice((1, 30))]
            case _:
                made = made[:at]
    return bytes(made)


def odd_token(chance: random.Random, signed: bool) -> str:
    """A token with odd claims that the issuer itself has signed, or with an odd header."""
    if signed:
        said = claims(NOW_S)
        said[chance.choice(["iss", "aud", "sub", "exp", "iat", "nbf", "scope"])] = chance.choice(VALUES)
        return sign_odd(json.dumps(said).encode())
    header = {
        "alg": "EdDSA",
        "kid": "one",
        chance.choice(["alg", "kid", "typ", "crit", "b64", "jwk"]): chance.choice(VALUES),
    }
    _, payload, signature = GOOD.split(".")
    return f"{urlsafe_b64encode(json.dumps(header).encode()).decode().rstrip('=')}.{payload}.{signature}"


def sign_odd(payload: bytes) -> str:
    """The issuer's signature below any bytes."""
    return jwt.PyJWS().encode(payload, private_key("one", "EdDSA"), algorithm="EdDSA", headers={"kid": "one"})


GOOD = sign(claims(NOW_S), "one", "EdDSA")


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_message_is_refused(seed: int) -> None:
    """Only what a client may write in another way logs in: the scheme's letters, spaces, extensions."""
    chance = random.Random(seed)
    message = b"n,a=alice,\x01traceId=7\x01auth=Bearer " + GOOD.encode() + b"\x01\x01"
    assert isinstance(outcome(message), Success)
    for _ in range(MESSAGES):
        changed = damaged(message, chance)
        found = outcome(changed)
        if isinstance(found, Success):
            assert found.principal_name == "alice"
            token, identity = parse_message(changed)
            assert (token.rstrip("="), identity) in ((GOOD, "alice"), (GOOD, ""))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("signed", [True, False])
def test_odd_claims_and_headers_are_refused(seed: int, signed: bool) -> None:
    """Whatever an issuer signs, and whatever stands in a header that it has not signed."""
    chance = random.Random(seed)
    for _ in range(MESSAGES // 4):
        token = odd_token(chance, signed)
        found = outcome(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        assert signed or not isinstance(found, Success)


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_set_of_keys_is_refused_or_read(seed: int) -> None:
    """A provider that answers nonsense raises what the fetch expects, and nothing else."""
    chance = random.Random(seed)
    text = jwks(jwk("one"), jwk("two", "EdDSA"), jwk("three", "RS"))
    for _ in range(MESSAGES // 10):
        changed = damaged(text, chance)
        try:
            keys = parse_keys(changed)
        except ValueError as why:
            assert len(str(why)) < 200
        else:
            assert 1 <= len(keys) <= 3
