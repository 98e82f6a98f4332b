"""A TLS client without a socket, and the options of a listener that a test changes one of."""

from __future__ import annotations

import ssl
from typing import Any, Final

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
