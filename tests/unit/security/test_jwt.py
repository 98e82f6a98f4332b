"""Tokens and keys of an identity provider: what counts, and every way in which one does not."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping

import jwt as library
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given
from hypothesis import strategies as st

from kohort.security.jwt import (
    LONGEST_TOKEN_BYTES,
    KeySet,
    TokenRefused,
    TokenRules,
    VerifiedToken,
    parse_keys,
    parse_token,
    verify_token,
)
from support.peers.token_issuer import AUDIENCE, ISSUER, claims, jwk, jwks, private_key, sign

NOW_S = 1_800_000_000
RULES = TokenRules(issuer=ISSUER, audiences=("other", AUDIENCE))
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def keys() -> KeySet:
    return parse_keys(jwks(jwk("one"), jwk("rsa", "RS")))


def verify(token: str, keys: KeySet, rules: TokenRules = RULES, *, now_s: float = NOW_S) -> VerifiedToken:
    return verify_token(parse_token(token), keys, rules, now_ms=int(now_s * 1000))


def refusal(token: str, keys: KeySet, rules: TokenRules = RULES, *, now_s: float = NOW_S) -> str:
    with pytest.raises(TokenRefused) as caught:
        verify(token, keys, rules, now_s=now_s)
    said = str(caught.value)
    # No part of a token is in a text, nor in what led to it.
    assert all(part not in said for part in token.split(".") if len(part) > 12)
    assert caught.value.__cause__ is None
    return said


def unsigned(header: Mapping[str, object], said: Mapping[str, object], signature: bytes = b"x") -> str:
    parts = (json.dumps(header).encode(), json.dumps(said).encode(), signature)
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


@pytest.mark.parametrize(
    ("kind", "algorithm"),
    [
        *(("RS", f"RS{bits}") for bits in (256, 384, 512)),
        *(("RS", f"PS{bits}") for bits in (256, 384, 512)),
        *((f"ES{bits}", f"ES{bits}") for bits in (256, 384, 512)),
        ("EdDSA", "EdDSA"),
        ("Ed448", "EdDSA"),
    ],
)
@pytest.mark.parametrize("is_named", [True, False])
def test_signatures_of_public_keys_count(kind: str, algorithm: str, is_named: bool) -> None:
    """RFC 7518 and 8037; a key need not be named, nor bound to an algorithm."""
    row = jwk(f"key of {kind}", kind)
    row.pop("alg", None)
    if not is_named:
        del row["kid"]
    more = {} if is_named else {"kid": None}
    token = sign(claims(NOW_S), f"key of {kind}", kind, algorithm=algorithm, **more)
    assert verify(token, parse_keys(jwks(row))) == VerifiedToken("alice", HOUR_MS)


def test_unsigned_token_is_refused(keys: KeySet) -> None:
    """RFC 8725 §3.1: `none`, in whatever letters."""
    for algorithm in ("none", "None", "NONE", "nOnE", "", None, 0, ["ES256"]):
        for signature in (b"", b"x"):
            said = refusal(unsigned({"alg": algorithm, "kid": "one"}, claims(NOW_S), signature), keys)
            assert said.startswith("the token is not signed by one of RS, PS, ES")


def test_public_key_is_no_secret(keys: KeySet) -> None:
    """RFC 8725 §2.1: HS256 with the public key's text as secret, which everybody has."""
    public = private_key("rsa", "RS").public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    header = {"alg": "HS256", "kid": "rsa"}
    signed = unsigned(header, claims(NOW_S)).rpartition(".")[0]
    mac = library.get_algorithm_by_name("HS256")
    signature = urlsafe_b64encode(mac.sign(signed.encode(), pem)).decode().rstrip("=")
    assert "not signed by one of" in refusal(f"{signed}.{signature}", keys)
    # A provider's secret among its keys does not help.
    secret = {"kty": "oct", "k": urlsafe_b64encode(b"s" * 32).decode(), "kid": "oct", "alg": "HS256"}
    with pytest.raises(ValueError, match="no key that verifies"):
        parse_keys(jwks(secret))


def test_another_key_is_refused(keys: KeySet) -> None:
    foreign = sign(claims(NOW_S), "foreign", kid="one")
    assert refusal(foreign, keys) == "the token is signed by no key of the issuer"
    assert refusal(sign(claims(NOW_S), "foreign"), keys) == "the token is signed by no key of the issuer"
    # The name of a key of another kind.
    assert "no key" in refusal(sign(claims(NOW_S), "one", kid="rsa"), keys)


def test_key_of_the_token_itself_is_not_looked_at(keys: KeySet) -> None:
    """RFC 8725 §3.10: `jwk`, `jku` and `x5u` are of the attacker's choice."""
    brought = {"jwk": jwk("foreign"), "jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/chain"}
    for name, value in brought.items():
        assert "no key of the issuer" in refusal(sign(claims(NOW_S), "foreign", kid=None, **{name: value}), keys)


def test_key_bound_to_another_algorithm_is_not_used() -> None:
    bound = parse_keys(jwks(jwk("rsa", "RS", alg="PS256")))
    assert "no key" in refusal(sign(claims(NOW_S), "rsa", "RS", algorithm="RS256"), bound)
    assert verify(sign(claims(NOW_S), "rsa", "RS", algorithm="PS256"), bound).name == "alice"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"iss": "https://id.example"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"iss": ["https://id.example/"]}, "another issuer"),
        ({"aud": "kafk"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": ["x", 1, {"kafka": 1}]}, "another audience"),
        ({"aud": "kafka other"}, "another audience"),
        ({"exp": None}, "claim exp is missing"),
        ({"exp": "1900000000"}, "claim exp is missing or no time"),
        ({"exp": True}, "claim exp is missing or no time"),
        ({"exp": 10**300}, "claim exp is no time of this age"),
        ({"exp": 1e308}, "claim exp is no time of this age"),
        ({"exp": float("nan")}, "claim exp is no time of this age"),
        ({"exp": float("inf")}, "claim exp is no time of this age"),
        ({"exp": -1}, "claim exp is no time of this age"),
        ({"iat": None}, "claim iat is missing"),
        ({"iat": {}}, "claim iat is missing or no time"),
        ({"nbf": []}, "claim nbf is missing or no time"),
        ({"nbf": NOW_S + 100}, "begins in 100 s"),
        ({"iat": NOW_S + 31}, "begins in 31 s"),
        ({"exp": NOW_S - 30}, "ended 30 s ago"),
        ({"exp": NOW_S + 5, "nbf": NOW_S + 5}, "ends before it begins"),
        ({"sub": None}, "names no user"),
        ({"sub": ""}, "names no user"),
        ({"sub": 7}, "names no user"),
        ({"sub": ["alice"]}, "names no user"),
        ({"sub": "a\nb"}, "printable"),
        ({"sub": "a" * 10_000}, "bytes at most"),
        ({"sub": "\ud800"}, "names no user"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_claims_are_checked(keys: KeySet, changed: dict[str, object], why: str) -> None:
    # The library's own encoder refuses some of these, which an attacker's does not.
    token = library.PyJWS().encode(
        json.dumps(claims(NOW_S, **changed)).encode(), private_key("one"), algorithm="ES256", headers={"kid": "one"}
    )
    assert why in refusal(token, keys)


def test_clocks_may_differ_a_little_and_not_an_hour(keys: KeySet) -> None:
    token = sign(claims(NOW_S), "one")
    assert verify(token, keys, now_s=NOW_S - 30) == VerifiedToken("alice", HOUR_MS + 30_000)
    assert "begins in 3600 s" in refusal(token, keys, now_s=NOW_S - 3_600)
    # One that has just ended is good for a moment, and never for ever: 0 would be without an end.
    assert verify(token, keys, now_s=NOW_S + 3_629) == VerifiedToken("alice", 1_000)
    assert "ended 3600 s ago" in refusal(token, keys, now_s=NOW_S + 7_200)
    strict = TokenRules(clock_skew_ms=0)
    assert "ended 0 s ago" in refusal(token, keys, strict, now_s=NOW_S + 3_600)


@pytest.mark.parametrize(("scope", "is_enough"), [
    ("read kafka", True), (["kafka", "read"], True), ("kafka", False), ("kafkaread", False), (None, False),
    (["kafka read"], False), (7, False), ({"kafka": 1, "read": 1}, False), ("read\tkafka write", True),
])  # fmt: skip
def test_scope_is_text_or_a_list(keys: KeySet, scope: object, is_enough: bool) -> None:
    """RFC 8693 §4.2 has words in one text; some providers have a list."""
    rules = TokenRules(required_scope=("kafka", "read"), scope_claim="scp")
    token = sign(claims(NOW_S, scp=scope))
    if is_enough:
        assert verify(token, keys, rules).name == "alice"
        return
    with pytest.raises(TokenRefused, match="scp lacks") as caught:
        verify(token, keys, rules)
    assert caught.value.status == "insufficient_scope"


def test_user_may_be_named_by_another_claim(keys: KeySet) -> None:
    rules = TokenRules(name_claim="client_id")
    assert verify(sign(claims(NOW_S, client_id="svc-7")), keys, rules).name == "svc-7"


def test_token_without_a_rule_for_it_is_taken(keys: KeySet) -> None:
    """Without an issuer and audiences any will do, as in Apache Kafka."""
    assert verify(sign(claims(NOW_S, iss=None, aud=None)), keys, TokenRules()).name == "alice"


@pytest.mark.parametrize(
    "token",
    [
        "", ".", "..", "a.b", "a.b.c", "a.b.c.d.e", "....", "ey.ey.ey", f"{'a' * 9_000}.b.c", f"a.b.{'c' * 50_000}",
        unsigned({"alg": "ES256", "kid": "k" * 1_001}, {}), unsigned({"alg": "ES256", "kid": 7}, {}),
        unsigned({"alg": "ES256", "b64": False, "crit": ["b64"]}, {}),
        urlsafe_b64encode(b"[" * 5_000).decode() + ".b.c", urlsafe_b64encode(b"[]").decode() + ".b.c", "ü.b.c",
    ],
    ids=lambda token: token[:20],
)  # fmt: skip
def test_what_is_no_token_is_refused(keys: KeySet, token: str) -> None:
    refusal(token, keys)


def test_critical_extension_that_is_unknown_is_refused(keys: KeySet) -> None:
    """RFC 7515 §4.1.11."""
    assert refusal(sign(claims(NOW_S), crit=["of-mine"], **{"of-mine": 1}), keys) == "the token is no signed JWT"


def test_claims_that_are_huge_are_refused_quickly(keys: KeySet) -> None:
    for said in (b"[" * 20_000, b'{"exp": ' + b"9" * 20_000 + b"}", b'{"a": ' * 5_000, b"[]", b"\xff\xfe", b""):
        token = library.PyJWS().encode(said, private_key("one"), algorithm="ES256", headers={"kid": "one"})
        assert refusal(token, keys) == "the token's claims are no JSON object"
    assert "longer than" in refusal(sign(claims(NOW_S, more="x" * LONGEST_TOKEN_BYTES)), keys)


@given(st.data())
def test_token_that_was_changed_anywhere_is_refused(data: st.DataObject) -> None:
    keys = parse_keys(jwks(jwk("one", "EdDSA")))
    token = sign(claims(NOW_S), "one", "EdDSA")
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.sampled_from(sorted(set("AZaz09-_.=+/") - {token[at]})))
    with pytest.raises(TokenRefused):
        verify(token[:at] + other + token[at + 1 :], keys)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "not JSON"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"  <Error>", "HTML"),
        (b"[]", "no list"),
        (b'{"keys": {}}', "no list"),
        (b'{"keys": []}', "no key that verifies"),
        (b'{"keys": [1, null, [], "x", {}]}', "no key that verifies"),
        (b"[" * 100_000, "not JSON"),
        (b"x" * 1_000_001, "more than 1000000 bytes"),
        (b'{"keys": [' + b",".join([b"{}"] * 257) + b"]}", "more than 256 keys"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_set_of_keys_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_keys(text)


@pytest.mark.parametrize(
    "changed",
    [
        {"use": "enc"}, {"use": 7}, {"key_ops": ["encrypt"]}, {"alg": "RSA-OAEP"}, {"alg": 7}, {"kid": 7},
        {"kid": "k" * 1_001}, {"x": "AAAA"}, {"x": None}, {"crv": "secp256k1"}, {"crv": None}, {"kty": "oct"},
        {"kty": ["EC"]}, {"kty": "RSA"}, {"y": 5}, {"y": "!!"},
    ],
    ids=str,
)  # fmt: skip
def test_row_that_is_no_key_for_signatures_is_left_out(changed: dict[str, object]) -> None:
    """One broken row does not cost the others."""
    keys = parse_keys(jwks({**jwk("bad"), **changed}, jwk("one")))
    assert len(keys) == 1
    assert verify(sign(claims(NOW_S)), keys).name == "alice"


def test_short_rsa_key_is_left_out() -> None:
    """RFC 7518 §3.3."""
    short = rsa.generate_private_key(65_537, 1_024).public_key()
    row = json.loads(library.get_algorithm_by_name("RS256").to_jwk(short))
    assert len(parse_keys(jwks({**row, "kid": "short"}, jwk("one")))) == 1


def test_private_key_that_slipped_into_the_set_is_read_as_its_public_half() -> None:
    row = json.loads(library.get_algorithm_by_name("ES256").to_jwk(private_key("one")))
    assert "d" in row
    keys = parse_keys(jwks({**row, "kid": "one"}))
    assert verify(sign(claims(NOW_S)), keys).name == "alice"
    assert row["d"] not in repr(keys)
