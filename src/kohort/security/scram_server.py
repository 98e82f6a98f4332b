"""The broker's side of SCRAM-SHA-256 and SCRAM-SHA-512.

Laws: the broker has keys, from which neither a password nor a client's proof can be made. The nonce of the last message
must be the one that the broker has sent (CVE-2024-56128). An unknown user gets the same kind of response as a known
one, with a salt that is always the same for that name, so that no response shows which names exist.
Source: RFC 5802, RFC 7677; KIP-84; Apache Kafka's ScramSaslServer and ScramFormatter.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Final, NoReturn

from kohort.base.values import value
from kohort.security.sasl_server import Challenge, LoginFailed, Step, Success, decoded_name
from kohort.security.scram import HASHES, LEAST_ITERATIONS

#: Kafka's most rounds of a stored credential; each round is work for the client.
MOST_STORED_ITERATIONS: Final = 16_384
#: The size of an unknown user's salt if there is no known user to imitate.
_SALT_BYTES: Final = 26
#: A nonce has no commas and no blanks; those of clients have about 25 characters.
_NONCE: Final = re.compile(rb"[\x21-\x2b\x2d-\x7e]{1,256}")
_EXTENSION: Final = re.compile(rb"([A-Za-z]{1,64})=([^,]*)")
#: Kafka's tools salt with the digits and letters of numbers in base 36.
_BASE_36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


@value(kw_only=False)
class ScramCredential:
    """The keys by which a broker checks a user's proof; they are secret, and not shown."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of(cls, mechanism: str, salted_password: bytes, *, salt: bytes, iterations: int) -> ScramCredential:
        """Derive the keys from a salted password, which is as good as the password and is not kept.

        Source: RFC 5802, section 3.
        """
        name = HASHES[mechanism]
        client_key = hmac.digest(salted_password, b"Client Key", name)
        return cls(
            salt=salt,
            stored_key=hashlib.new(name, client_key).digest(),
            server_key=hmac.digest(salted_password, b"Server Key", name),
            iterations=iterations,
        )


class Decoys:
    """Credentials that no password fits, for users that do not exist.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        secret: bytes that only this broker has; they stay the same over restarts, or a restart would change only the
            salts of decoys, and so show them.
        known: the credentials of real users, which decoys look like.
    """

    def __init__(self, mechanism: str, secret: bytes, known: Iterable[ScramCredential]) -> None:
        self._mechanism: Final = mechanism
        self._secret: Final = secret
        # A count of rounds or a form of salt that real users never have would show that it is a decoy.
        shapes = Counter((each.iterations, len(each.salt), _is_base_36(each.salt)) for each in known)
        # Of equally common shapes the smallest is used, so that the order of users does not matter.
        best = min(shapes.items(), key=lambda item: (-item[1], item[0]), default=None)
        self._iterations, self._size, self._is_base_36 = (
            (LEAST_ITERATIONS, _SALT_BYTES, True) if best is None else best[0]
        )

    def credential(self, username: str) -> ScramCredential:
        """Return the decoy of a name, always the same one."""
        salt = self._stream(b"salt", username)
        if self._is_base_36:
            salt = bytes(_BASE_36[byte % 36] for byte in salt)
        size = hashlib.new(HASHES[self._mechanism]).digest_size
        keys = self._stream(b"keys", username, most=2 * size)
        return ScramCredential(salt, keys[:size], keys[size:], self._iterations)

    def _stream(self, purpose: bytes, username: str, most: int | None = None) -> bytes:
        size = self._size if most is None else most
        seed = b"\0".join((purpose, self._mechanism.encode(), username.encode()))
        key = hmac.digest(self._secret, seed, "sha512")
        blocks = (hmac.digest(key, b"%d" % number, "sha512") for number in range(size // 64 + 1))
        return b"".join(blocks)[:size]


class ScramServer:
    """The broker's side of one SCRAM exchange.

    Args:
        mechanism: SCRAM-SHA-256 or SCRAM-SHA-512.
        credential_of: returns the credential of a user, or the decoy of an unknown one.
        nonce: printable text without a comma that was never used before.
    """

    def __init__(self, mechanism: str, credential_of: Callable[[str], ScramCredential], *, nonce: str) -> None:
        self._mechanism: Final = mechanism
        self._hash: Final = HASHES[mechanism]
        self._credential_of: Final = credential_of
        self._own_nonce: Final = nonce.encode()
        #: The name, and two parts of the client's first message that the proof covers.
        self._username = ""
        self._header = self._first = b""
        #: The broker's first message, and the joined nonce of both sides in it; empty before.
        self._said = self._nonce = b""
        #: Set by the first message.
        self._credential: ScramCredential | None = None
        self._is_over = False

    def step(self, message: bytes) -> Step:
        """Respond to the client's first message with a salt, and to its last with the broker's proof."""
        if self._is_over:
            self._refuse("the client says more than SCRAM has to say")
        if self._credential is None:
            return self._challenge(message)
        self._is_over = True
        return self._conclude(message, self._credential)

    def _challenge(self, message: bytes) -> Step:
        parts = message.split(b",", 2)
        if len(parts) != 3:
            self._refuse("the first message has no header")
        binding, authorization, bare = parts
        if binding.startswith(b"p="):
            self._refuse("the client wants channel binding, which is not offered")
        # `y`: the client supports channel binding, but has seen that the broker does not offer it.
        if binding not in (b"n", b"y"):
            self._refuse("the header is not SCRAM's")
        fields = bare.split(b",")
        if len(fields) < 2 or not fields[0].startswith(b"n=") or not fields[1].startswith(b"r="):
            # RFC 5802: `m` in the place of a name is an extension that the broker would have to know.
            self._refuse("the first message does not begin with a name and a nonce")
        self._username = self._name(fields[0][2:])
        if authorization and (not authorization.startswith(b"a=") or self._name(authorization[2:]) != self._username):
            raise LoginFailed(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        nonce = fields[1][2:]
        if _NONCE.fullmatch(nonce) is None:
            self._refuse("the client's nonce is empty, long or unprintable")
        self._check_extensions(fields[2:])
        self._header, self._first = binding + b"," + authorization + b",", bare
        self._credential = credential = self._credential_of(self._username)
        self._nonce = nonce + self._own_nonce
        self._said = b"r=%s,s=%s,i=%d" % (self._nonce, b64encode(credential.salt), credential.iterations)
        return Challenge(self._said)

    def _check_extensions(self, fields: list[bytes]) -> None:
        """Ignore extensions, as the RFC asks; refuse `tokenauth`, which means a delegation token."""
        for each in fields:
            found = _EXTENSION.fullmatch(each)
            if found is None or found[1] == b"m":
                self._refuse("an extension is not SCRAM's")
            if found[1] == b"tokenauth" and found[2].lower() == b"true":
                # KIP-48: the name is that of a delegation token, and must not be treated as a user's.
                raise LoginFailed("Authentication failed: delegation tokens are not served by this broker")

    def _conclude(self, message: bytes, credential: ScramCredential) -> Step:
        without_proof, mark, proof_text = message.rpartition(b",p=")
        fields = without_proof.split(b",")
        if not mark or len(fields) < 2 or not fields[0].startswith(b"c=") or not fields[1].startswith(b"r="):
            self._refuse("the last message is not SCRAM's")
        self._check_extensions(fields[2:])
        # A header that differs from that of the first message was changed on the way.
        if self._decoded(fields[0][2:]) != self._header:
            self._refuse("the header of the last message is another than that of the first")
        if not hmac.compare_digest(fields[1][2:], self._nonce):
            self._refuse("the nonce of the last message is another than that which was said")
        proof = self._decoded(proof_text)
        signed = b",".join((self._first, self._said, without_proof))
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            self._refuse("the proof has another length than the hash")
        client_key = bytes(left ^ right for left, right in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key):
            self._refuse("the proof does not hold")
        if self._credential_of(self._username) != credential:
            # Otherwise an exchange that began before a change of the password could log in with the old one.
            self._refuse("the user was changed during the login")
        return Success(self._username, b"v=" + b64encode(hmac.digest(credential.server_key, signed, self._hash)))

    def _name(self, escaped: bytes) -> str:
        r"""Return a name from its escaped form, in which `=2C` is a comma and `=3D` an equals sign."""
        if re.search(rb"=(?!2C|3D)", escaped):
            self._refuse("the name has an = that escapes nothing")
        name = escaped.replace(b"=2C", b",").replace(b"=3D", b"=")
        if not name:
            self._refuse("the name is empty")
        return decoded_name(name)

    def _decoded(self, text: bytes) -> bytes:
        try:
            found = b64decode(text, validate=True)
        except Base64Error:
            self._refuse("what should be base64 is not")
        if b64encode(found) != text:
            # Bits without meaning are set: only one way to write a proof is accepted.
            self._refuse("what should be base64 has bits to spare")
        return found

    def _refuse(self, detail: str) -> NoReturn:
        """Raise `LoginFailed` with Kafka's text, which does not show whether the user exists."""
        self._is_over = True
        raise LoginFailed(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism "
            f"{self._mechanism}",
            detail=detail,
        )


def _is_base_36(salt: bytes) -> bool:
    return all(byte in _BASE_36 for byte in salt)
