"""The recognition of other protocols by the four bytes in place of a frame's length.

Laws: says nothing about bytes that may be a length; callers have found that they are an impossible one, or that
no frame of that length is to be expected there.
Source: RFC 9112 (request methods, status line), RFC 9113 (preface), RFC 8446 (record layer: handshake 22, alert 21).
"""

from __future__ import annotations

from typing import Final

from kohort.errors import ForeignProtocolError, RemoteProtocolError

#: How HTTP begins: a request, the preface of HTTP/2, an answer.
_HTTP: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ", b"HTTP")
#: A TLS record that may come first, with the major version of every TLS: an alert, a handshake.
_TLS: Final = (b"\x15\x03", b"\x16\x03")

#: The answer to a browser, or curl, that has been pointed at a broker.
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
    """Return the error for four bytes that are no length of a frame."""
    protocol = foreign_protocol(bytes(start))
    if protocol is not None:
        return ForeignProtocolError(protocol)
    size = int.from_bytes(start, "big", signed=True)
    return RemoteProtocolError(f"a frame of {size} bytes; {least} to {most} are allowed")
