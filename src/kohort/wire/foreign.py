"""The recognition of other protocols by the first four bytes, which are the frame's length in Kafka's.

Laws: for callers that have found these bytes to be an impossible length, or one that no expected frame has; this
module cannot decide whether they are a length.
Source: RFC 9112 (request methods, status line), RFC 9113 (preface), RFC 8446 (record layer: handshake 22, alert 21).
"""

from __future__ import annotations

from typing import Final

from kohort.errors import ForeignProtocolError, RemoteProtocolError

#: The first bytes of HTTP: of a request, of the preface of HTTP/2, of a response.
_HTTP: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ", b"HTTP")
#: A TLS record that may come first, with the major version of every TLS: an alert, a handshake.
_TLS: Final = (b"\x15\x03", b"\x16\x03")

#: The response to a browser, or curl, that connects to a broker.
HTTP_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This is a Kafka broker, not a web server: connect with a Kafka client.\n"
)


def foreign_protocol(start: bytes) -> str | None:
    """Return the protocol that begins with these four bytes: HTTP, TLS, or `None` for an unknown one.

    >>> foreign_protocol(b"HTTP"), foreign_protocol(bytes.fromhex("15030100")), foreign_protocol(bytes(4))
    ('HTTP', 'TLS', None)
    """
    if start.startswith(_HTTP):
        return "HTTP"
    # A TLS client begins with a handshake record, or an alert.
    return "TLS" if start.startswith(_TLS) else None


def impossible_length(start: bytes | memoryview, *, least: int, most: int) -> RemoteProtocolError:
    """Return the error for four bytes that cannot be the length of a frame."""
    protocol = foreign_protocol(bytes(start))
    if protocol is not None:
        return ForeignProtocolError(protocol)
    size = int.from_bytes(start, "big", signed=True)
    return RemoteProtocolError(f"a frame of {size} bytes; {least} to {most} are allowed")
