"""SCRAM as a client speaks it, with the vectors of the RFCs and with servers that lie."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.security.sasl import ExchangeFailed
from kohort.security.scram import LEAST_ITERATIONS, MOST_ITERATIONS, ScramExchange

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"


def pencil() -> ScramExchange:
    """The client of RFC 7677's example."""
    return ScramExchange("SCRAM-SHA-256", "user", "pencil", nonce=NONCE)


class Server:
    """The other half, which knows the password."""

    def __init__(self, mechanism: str, password: str, *, salt: bytes = b"salt", iterations: int = 4096) -> None:
        self.hash = "sha256" if mechanism == "SCRAM-SHA-256" else "sha512"
        self.salted = hashlib.pbkdf2_hmac(self.hash, password.encode(), salt, iterations)
        self.salt, self.iterations = salt, iterations

    def first(self, client_first: bytes) -> bytes:
        self.bare = client_first.removeprefix(b"n,,")
        nonce = dict(part.split(b"=", 1) for part in self.bare.split(b","))[b"r"] + b"more"
        self.said = b"r=" + nonce + b",s=" + b64encode(self.salt) + b",i=%d" % self.iterations
        return self.said

    def final(self, client_final: bytes) -> bytes:
        without, _, proof = client_final.rpartition(b",p=")
        signed = b",".join((self.bare, self.said, without))
        key = hmac.digest(self.salted, b"Client Key", self.hash)
        stored = hashlib.new(self.hash, key).digest()
        signature = hmac.digest(stored, signed, self.hash)
        claimed = bytes(left ^ right for left, right in zip(b64decode(proof), signature, strict=True))
        if hashlib.new(self.hash, claimed).digest() != stored:
            return b"e=invalid-proof"
        return b"v=" + b64encode(hmac.digest(hmac.digest(self.salted, b"Server Key", self.hash), signed, self.hash))


def test_example_of_the_rfc() -> None:
    """RFC 7677, section 3."""
    exchange = pencil()

    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.reply(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert exchange.reply(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") == b""
    assert exchange.is_done


@pytest.mark.large
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@given(
    username=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20),
    password=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20),
)
def test_any_name_and_password_prove_themselves(mechanism: str, username: str, password: str) -> None:
    """Commas and equals signs in a name are written in another way, as RFC 5802 asks."""
    server = Server(mechanism, password)
    exchange = ScramExchange(mechanism, username, password, nonce="abc", extensions={"tokenauth": "true"})

    exchange.reply(server.final(exchange.reply(server.first(exchange.first()))))

    assert exchange.is_done


def test_wrong_password_is_what_the_broker_says() -> None:
    exchange = ScramExchange("SCRAM-SHA-512", "user", "pen", nonce="abc")
    server = Server("SCRAM-SHA-512", "pencil")

    with pytest.raises(ExchangeFailed, match="the broker refuses: invalid-proof"):
        exchange.reply(server.final(exchange.reply(server.first(exchange.first()))))


@pytest.mark.parametrize("count", [0, 1, LEAST_ITERATIONS - 1, MOST_ITERATIONS + 1, 1_000_000_000])
def test_rounds_out_of_bounds_get_no_proof(count: int) -> None:
    """Too few give the password away, too many take the processor (CVE-2026-10143)."""
    with pytest.raises(ExchangeFailed, match="rounds of SCRAM"):
        pencil().reply(SERVER_FIRST.replace(b"i=4096", b"i=%d" % count))


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        SERVER_FIRST.replace(b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", b""),
        SERVER_FIRST.replace(b"W22ZaJ0SNY7soEsUEjb6gQ==", b""),
        SERVER_FIRST.replace(b"W22Z", b"*22Z"),
        SERVER_FIRST.replace(b"i=4096", b"i=-4096"),
        SERVER_FIRST.replace(b"i=4096", b"i=" + b"9" * 5000),
        SERVER_FIRST.replace(b"i=4096", b"i=\xc2\xb2"),
        b"m=ext," + SERVER_FIRST,
        b"r",
        b"," * 100,
        SERVER_FIRST + b"," + b"x=" + b"y" * 10_000,
    ],
)
def test_first_message_that_is_none_gets_no_proof(first: bytes) -> None:
    """CVE-2024-56128 was a nonce that nobody compared."""
    with pytest.raises(ExchangeFailed):
        pencil().reply(first)


#: The proof of the RFC's server without its last bytes.
SHORT_PROOF = b"v=" + b64encode(b64decode(b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")[:3])


@pytest.mark.parametrize("final", [b"", b"v=", b"v=AAAA", b"e=other-error", b"v=!", b"x=1", SHORT_PROOF])
def test_broker_that_proves_nothing_is_not_believed(final: bytes) -> None:
    """It does not know the password: it may stand in another's place."""
    exchange = pencil()
    exchange.reply(SERVER_FIRST)

    with pytest.raises(ExchangeFailed):
        exchange.reply(final)
    assert not exchange.is_done


def test_nothing_is_answered_when_all_is_said() -> None:
    exchange = pencil()
    exchange.reply(SERVER_FIRST)
    exchange.reply(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")

    with pytest.raises(ExchangeFailed, match="more than SCRAM"):
        exchange.reply(SERVER_FIRST)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_one_kind_of_error(noise: bytes) -> None:
    with pytest.raises(ExchangeFailed):
        pencil().reply(noise)


def test_password_is_in_no_text() -> None:
    assert "pencil" not in repr(pencil())
