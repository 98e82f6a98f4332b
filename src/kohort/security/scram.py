"""The client's side of SCRAM-SHA-256 and SCRAM-SHA-512, which proves a password without sending it.

Laws: the server's nonce must begin with the client's; the server's own proof is checked before anything else is sent; a
server that asks for fewer rounds than are safe, or for more than any server needs, gets no proof. Names and passwords
are bytes of UTF-8 as they are, without SASLprep, as in Apache Kafka and librdkafka.
Source: RFC 5802, RFC 7677; KIP-84 (SCRAM in Kafka), KIP-48 (`tokenauth`).
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from typing import Final

from kohort.security.sasl import ExchangeFailed

#: The least rounds that RFC 7677 asks of a server.
LEAST_ITERATIONS: Final = 4_096
#: A server that asks for more rounds would only waste the client's processor time.
MOST_ITERATIONS: Final = 1_000_000
#: The longest message of a server that is parsed; usual ones have about 100 bytes.
_LONGEST_BYTES: Final = 8_192
#: Mechanism -> the name of its hash.
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
#: Mechanism -> its number in Kafka's requests about users (KIP-554).
NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
#: No channel binding, and no authorization identity: `n,,`.
_HEADER: Final = b"n,,"


def salted_password(mechanism: str, password: str, *, salt: bytes, iterations: int) -> bytes:
    """Compute the salted password, from which the keys that a broker stores are derived.

    It is as good as the password to an attacker that has it.

    Source: RFC 5802, `Hi`.
    """
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


class ScramExchange:
    """A SCRAM exchange with one server.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        nonce: printable text without a comma that was never used before.
        extensions: further pairs in the first message, such as `tokenauth`.

    >>> exchange = ScramExchange("SCRAM-SHA-256", "user", "pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    >>> exchange.first()
    b'n,,n=user,r=rOprNGfwEbeRWgbNEkqO'
    """

    def __init__(
        self, mechanism: str, username: str, password: str, *, nonce: str, extensions: dict[str, str] | None = None
    ) -> None:
        assert nonce and "," not in nonce, "a nonce is printable text without a comma"
        self._hash: Final = HASHES[mechanism]
        self._mechanism: Final = mechanism
        self._password: Final = password
        self._nonce: Final = nonce.encode()
        name = username.replace("=", "=3D").replace(",", "=2C").encode()
        more = "".join(f",{key}={value}" for key, value in (extensions or {}).items()).encode()
        self._first: Final = b"n=" + name + b",r=" + self._nonce + more
        #: The signature that the server has to prove; `None` before the client's proof was sent.
        self._expected: bytes | None = None
        #: Whether both sides have proven their identity.
        self.is_done = False

    def first(self) -> bytes:
        """Return the client's first message."""
        return _HEADER + self._first

    def reply(self, challenge: bytes) -> bytes:
        """Return the response to a challenge, empty once `is_done`; `ExchangeFailed` for an unsafe one."""
        if self.is_done or len(challenge) > _LONGEST_BYTES:
            raise ExchangeFailed("the broker says more than SCRAM has to say")
        if self._expected is None:
            return self._prove(challenge)
        said = _attributes(challenge)
        if "e" in said:
            raise ExchangeFailed(f"the broker refuses: {said['e'].decode(errors='replace')}")
        if not hmac.compare_digest(_decoded(said.get("v", b"")), self._expected):
            raise ExchangeFailed("the broker does not know the password itself: another host may stand in its place")
        self.is_done = True
        return b""

    def _prove(self, challenge: bytes) -> bytes:
        said = _attributes(challenge)
        nonce, salt = said.get("r", b""), _decoded(said.get("s", b""))
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise ExchangeFailed("the broker's nonce does not continue ours: another host may stand in between")
        rounds = said.get("i", b"")
        if not rounds.isdigit() or len(rounds) > 12:
            raise ExchangeFailed("the broker does not say how many rounds its SCRAM has")
        count = int(rounds)
        if not LEAST_ITERATIONS <= count <= MOST_ITERATIONS:
            raise ExchangeFailed(
                f"the broker asks for {count} rounds of SCRAM, and {LEAST_ITERATIONS} to {MOST_ITERATIONS} are "
                "allowed: is it yours?"
            )
        salted = salted_password(self._mechanism, self._password, salt=salt, iterations=count)
        without_proof = b"c=" + b64encode(_HEADER) + b",r=" + nonce
        signed = b",".join((self._first, challenge, without_proof))
        key = self._hmac(salted, b"Client Key")
        signature = self._hmac(hashlib.new(self._hash, key).digest(), signed)
        proof = bytes(left ^ right for left, right in zip(key, signature, strict=True))
        self._expected = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return without_proof + b",p=" + b64encode(proof)

    def _hmac(self, key: bytes, text: bytes) -> bytes:
        return hmac.digest(key, text, self._hash)


def _attributes(message: bytes) -> dict[str, bytes]:
    """Parse `r=...,s=...` to letter -> value; refuse an `m`."""
    said: dict[str, bytes] = {}
    for part in message.split(b","):
        letter, mark, value = part.partition(b"=")
        # The RFC reserves `m` for mandatory extensions, of which none is defined.
        if len(letter) != 1 or not mark or letter == b"m":
            raise ExchangeFailed("the broker's answer is not SCRAM's")
        said.setdefault(letter.decode("latin-1"), value)
    return said


def _decoded(text: bytes) -> bytes:
    try:
        found = b64decode(text, validate=True)
    except Base64Error:
        found = b""
    if not found:
        raise ExchangeFailed("the broker's answer is not SCRAM's")
    return found
