"""A TLS client without a socket, and the options of a listener that a test changes one of."""

from __future__ import annotations

import hmac
import ssl
from hashlib import sha384
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: Options of TLS by their names, each as by default.
TLS_VALUES: Final[dict[str, Any]] = {
    **dict.fromkeys(
        (
            *("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.certificate.chain", "ssl.keystore.key"),
            *("ssl.key.password", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates"),
        )
    ),
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "ssl.client.auth": "none",
    "ssl.enabled.protocols": ["TLSv1.2", "TLSv1.3"],
    "ssl.protocol": "TLSv1.3",
    "ssl.cipher.suites": [],
    "ssl.principal.mapping.rules": "DEFAULT",
    "ssl.handshake.timeout.ms": 10_000,
    "ssl.handshakes.max": 64,
    "ssl.handshakes.max.per.ip": 16,
}


class TlsClient:
    """The client's half of a session: bytes go in and come out."""

    def __init__(
        self, context: ssl.SSLContext, *, session: ssl.SSLSession | None = None, host: str = "localhost"
    ) -> None:
        self.incoming: Final = ssl.MemoryBIO()
        self.outgoing: Final = ssl.MemoryBIO()
        name = host if context.check_hostname else None
        self.tls: Final = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name, session=session)
        self.is_connected = False

    def shake(self, received: bytes = b"") -> bytes:
        """A step of the handshake, with what has come: what is to be sent."""
        self.incoming.write(received)
        try:
            self.tls.do_handshake()
            self.is_connected = True
        except ssl.SSLWantReadError:
            self.is_connected = False
        return self.outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        self.tls.write(data)
        return self.outgoing.read()

    def decrypt(self, received: bytes) -> bytes:
        """What can be read of what has come, and what came before."""
        self.incoming.write(received)
        plain = bytearray()
        try:
            while data := self.tls.read(1 << 20):
                plain += data
        except ssl.SSLWantReadError:
            """There is no more."""
        return bytes(plain)

    def bid_farewell(self) -> bytes:
        """The notice that nothing more comes."""
        try:
            self.tls.unwrap()
        except ssl.SSLWantReadError:
            """The other end has not said so yet."""
        return self.outgoing.read()


class Session:
    """Both ends of a session that have met without a socket."""

    def __init__(
        self, server: ssl.SSLContext, client: ssl.SSLContext, *, session: ssl.SSLSession | None = None
    ) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ours: Final = server.wrap_bio(incoming, outgoing, server_side=True)
        self.client: Final = TlsClient(client, session=session)
        said = self.client.shake()
        for _ in range(4):
            incoming.write(said)
            try:
                self.ours.do_handshake()
            except ssl.SSLWantReadError:
                """The client has the next word."""
            said = self.client.shake(outgoing.read())
        # Tickets of TLS 1.3 come with the first bytes.
        self.ours.write(b".")
        self.client.decrypt(outgoing.read())

    @property
    def session(self) -> ssl.SSLSession | None:
        """What the client may resume."""
        return self.client.tls.session


def connect(server: ssl.SSLContext, client: ssl.SSLContext, *, session: ssl.SSLSession | None = None) -> Session:
    return Session(server, client, session=session)


def shaken(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """The broker's and the client's end after their handshake."""
    session = connect(server, client)
    return session.ours, session.client.tls


def new_keys(key_log: Path, count: int) -> bytes:
    """So many records of a TLS 1.3 client that say no more than that it has a new key, and want one (RFC 8446).

    Python's ssl module cannot send them; the client's log has its first secret. The suite is AES-256-GCM with SHA-384.
    """
    words = dict(line.split()[::2] for line in key_log.read_text().splitlines() if not line.startswith("#"))
    secret = bytes.fromhex(words["CLIENT_TRAFFIC_SECRET_0"])
    # A KeyUpdate that asks for the other's, and the type of a handshake's record.
    message, head = bytes((24, 0, 0, 1, 1, 22)), bytes((23, 3, 3, 0, 22))
    records = bytearray()
    for _ in range(count):
        key, nonce = _expanded(secret, b"key", 32), _expanded(secret, b"iv", 12)
        # Each key is used for one record, whose number is 0.
        records += head + AESGCM(key).encrypt(nonce, message, head)
        secret = _expanded(secret, b"traffic upd", 48)
    return bytes(records)


def _expanded(secret: bytes, label: bytes, size: int) -> bytes:
    label = b"tls13 " + label
    info = size.to_bytes(2, "big") + bytes((len(label),)) + label + b"\0"
    return hmac.digest(secret, info + b"\1", sha384)[:size]
