"""The TLS layer of a connection: ciphertext for the socket, plain bytes for the Kafka connection.

`TlsProtocol` is the protocol of the socket's transport. It is also the transport of the Kafka connection (the protocol
above TLS), which begins after the handshake. Python's own TLS layer has a buffer for each connection and does
handshakes on the loop.

A TLS record without content, such as a key update in TLS 1.3, costs as much as a request, needs no login, and any
number of them fits into one read.

Laws: all connections of a loop share one receive buffer. A connection keeps only the received bytes for which the
Kafka connection had no buffer space, and at most a slice of the bytes that it sends. Nothing is read while reading is
paused. No handshake is done on the loop. Renegotiation is off. A closed socket without a close notice is a normal end,
as in Kafka. A client that sends too many records without content is refused.
Source: RFC 8446 (§4.6.3 new keys), RFC 5246; Apache Kafka's `SslTransportLayer`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from contextlib import suppress
from enum import Enum
from typing import Any, Final, Protocol, cast

from kohort.broker.connections.request import Buffer
from kohort.broker.connections.sockets import plain_host
from kohort.broker.options.listeners import ListenerSettings
from kohort.wire.foreign import HTTP_ANSWER, foreign_protocol

#: The longest read of the socket.
RECEIVED_BYTES: Final = 256 * 1024
#: The most ciphertext or plain bytes that OpenSSL gets in one call; OpenSSL's buffers stay as large.
SLICE_BYTES: Final = 32 * 1024
#: The longest TLS record, and the bytes of its header.
RECORD_BYTES: Final = 16 * 1024
_RECORD_HEAD: Final = 5
#: The most records that OpenSSL gets in one call. A key update takes 15 us, and OpenSSL processes all of them in the
#: call.
_RECORDS_AT_ONCE: Final = 64
#: Records without content that a client may send, and records with content that allow one more. Clients update their
#: keys once in millions of records.
_MOST_EMPTY: Final = 64
_CONTENT_FOR_EMPTY: Final = 64
#: The first bytes of a handshake record: its type, then the major version of every TLS.
_HANDSHAKE: Final = b"\x16\x03"
#: The response to a client without TLS, as of Apache Kafka: an alert by which other clients recognize TLS.
_UNEXPECTED_MESSAGE: Final = bytes.fromhex("1503030002020a")
_PLAIN: Final = "the client speaks no TLS: it has to set security.protocol to SSL or SASL_SSL"


class State(Enum):
    """The states of a connection."""

    #: The first record has not arrived completely.
    NEW = 0
    #: The connection waits until another handshake may begin.
    QUEUED = 1
    #: A thread calls OpenSSL for the next part of the handshake.
    STEPPING = 2
    #: The handshake waits for bytes of the client.
    AWAITED = 3
    OPEN = 4
    CLOSED = 5


class Opened(Protocol):
    """The Kafka connection above TLS, with the methods that asyncio calls."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with this transport."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Finish; the connection is closed."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return a buffer for plain bytes."""

    def buffer_updated(self, nbytes: int) -> None:
        """Process plain bytes that were written to the buffer."""

    def pause_writing(self) -> None:
        """Pause writing."""

    def resume_writing(self) -> None:
        """Write again."""


class Host(Protocol):
    """The listener's side of handshakes."""

    @property
    def listener(self) -> ListenerSettings:
        """The listener that accepted the connections."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The broker's loop."""

    @property
    def received(self) -> memoryview:
        """The buffer that all connections of the loop read into."""

    @property
    def context(self) -> ssl.SSLContext:
        """The context of handshakes that begin now."""

    def begin(self, connection: TlsProtocol) -> bool:
        """Count a new connection; return `False` if a connection limit is reached."""

    def ask(self, connection: TlsProtocol) -> None:
        """Begin the handshake of a connection, now or when the limit of handshakes allows another one."""

    def step(self, connection: TlsProtocol) -> None:
        """Run the next part of the handshake in a thread."""

    def await_client(self, connection: TlsProtocol) -> None:
        """Record that the handshake waits for bytes of its client."""

    def open(self, connection: TlsProtocol, tls: ssl.SSLObject) -> Opened | None:
        """Return the Kafka connection after a handshake; `None`: the client is refused."""

    def refuse(self, connection: TlsProtocol, reason: str) -> None:
        """Log that a client was refused."""

    def end(self, connection: TlsProtocol) -> None:
        """Remove a closed connection."""


class _Records:
    """The TLS records of one connection, counted by their headers, which are not encrypted."""

    __slots__ = ("_head", "_rest", "begun", "read")

    def __init__(self) -> None:
        #: Records that have begun, and reads that found content.
        self.begun = self.read = 0
        #: Bytes until the next header, and the received part of that header.
        self._rest = 0
        self._head = b""

    @property
    def is_talk(self) -> bool:
        """Whether the client has sent too many records without content."""
        return self.begun - self.read > _MOST_EMPTY + self.read // _CONTENT_FOR_EMPTY

    def cut(self, ciphertext: memoryview, position: int) -> int:
        """Return the end of the next slice for OpenSSL, which has limited bytes and records."""
        end = min(position + SLICE_BYTES, len(ciphertext))
        at, begun = position + self._rest, 0
        while at < end:
            if begun == _RECORDS_AT_ONCE:
                end = at
                break
            lacking = _RECORD_HEAD - len(self._head)
            self._head += ciphertext[at : min(at + lacking, end)]
            if len(self._head) < _RECORD_HEAD:
                at = end
                break
            at += lacking + int.from_bytes(self._head[3:], "big")
            self._head = b""
            begun += 1
        self._rest = at - end
        self.begun += begun
        return end


class TlsProtocol(asyncio.BufferedProtocol, asyncio.Transport):
    """One connection with TLS."""

    def __init__(self, host: Host) -> None:
        """Create the TLS layer of a connection to the listener of `host`."""
        asyncio.Transport.__init__(self)
        self._host: Final = host
        self.listener: Final = host.listener
        self._raw: asyncio.Transport | None = None
        #: The client's address, for limits and logs.
        self.peer_host, self.peer_port = "", 0
        self.state = State.NEW
        #: Received ciphertext that OpenSSL has not got yet.
        self._waiting = b""
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        #: OpenSSL's object; created by the first part of the handshake.
        self._tls: ssl.SSLObject | None = None
        #: The records that were received after the handshake.
        self._records: Final = _Records()
        self._above: Opened | None = None
        #: Whether the Kafka connection reads, and whether the socket is read.
        self._is_wanted, self._is_read = True, True
        self._is_closing = False
        #: Whether `_go_on` is scheduled.
        self._has_turn = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the client's first record (asyncio)."""
        # uvloop's transports have the methods of asyncio's class, but are not subclasses of it.
        raw = cast(asyncio.Transport, transport)
        peer = raw.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer_host, self.peer_port = plain_host(str(peer[0])), int(peer[1])
        self._raw = raw
        if not self._host.begin(self):
            raw.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the Kafka connection, or the handshake (asyncio)."""
        self.state, self._is_closing = State.CLOSED, True
        self._raw = None
        self._waiting = b""
        above, self._above = self._above, None
        self._host.end(self)
        if above is not None:
            above.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the part of the shared buffer for which the Kafka connection has space (asyncio)."""
        del sizehint
        if self._above is None:
            return self._host.received[:RECORD_BYTES]
        # More bytes would have to be kept. One record more is read, because the last one may be incomplete.
        room = len(self._above.get_buffer(-1)) + RECORD_BYTES
        return self._host.received if room >= RECEIVED_BYTES else self._host.received[:room]

    def buffer_updated(self, nbytes: int) -> None:
        """Take ciphertext out of the shared buffer (asyncio)."""
        received = self._host.received[:nbytes]
        if self._above is not None:
            self._receive(received)
        elif self.state is State.NEW:
            self._waiting += received
            self._begin()
        elif self.state is State.AWAITED:
            self._incoming.write(received)
            self._step()
        else:
            # These bytes were in flight when reading was paused.
            self._waiting += received

    def eof_received(self) -> bool:
        """Let the transport close (asyncio)."""
        return False

    def pause_writing(self) -> None:
        """Pause the writing of the Kafka connection (asyncio)."""
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """Resume the writing of the Kafka connection (asyncio)."""
        if self._above is not None:
            self._above.resume_writing()

    def _begin(self) -> None:
        """Request the handshake once the first record is complete; until then only its bytes are kept."""
        start = self._waiting
        if len(start) < _RECORD_HEAD:
            return
        size = int.from_bytes(start[3:5], "big")
        if not start.startswith(_HANDSHAKE) or not 0 < size <= RECORD_BYTES:
            self._refuse_foreign(start[:4])
        elif len(start) >= min(_RECORD_HEAD + size, RECORD_BYTES):
            self._read_socket(False)
            self.state = State.QUEUED
            self._host.ask(self)

    def _refuse_foreign(self, start: bytes) -> None:
        assert self._raw is not None
        is_http = foreign_protocol(start) == "HTTP"
        self._raw.write(HTTP_ANSWER if is_http else _UNEXPECTED_MESSAGE)
        self._host.refuse(self, "it looks like HTTP, and TLS is spoken here" if is_http else _PLAIN)
        self._end()

    def begin_handshake(self) -> None:
        """Begin the handshake; called when the limit of handshakes allows it."""
        self._incoming.write(self._waiting)
        self._waiting = b""
        self._step()

    def _step(self) -> None:
        # Nothing is read meanwhile, because a thread uses the OpenSSL object and its buffers.
        self._read_socket(False)
        self.state = State.STEPPING
        self._host.step(self)

    def shake_hands(self) -> bool:
        """Run the next part of the handshake; called in a thread.

        Returns:
            Whether the handshake is done; if not, it waits for bytes of the client.

        Raises:
            ssl.SSLError: the handshake has failed.
        """
        if self._tls is None:
            self._tls = self._host.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def on_step(self, is_done: bool) -> None:
        """Continue after a part of the handshake; called on the loop."""
        if self.state is State.CLOSED:
            return
        self._flush()
        if is_done:
            self._open()
        elif self._waiting:
            self.begin_handshake()
        else:
            self.state = State.AWAITED
            self._host.await_client(self)
            self._read_socket(True)

    def fail(self, reason: str) -> None:
        """Refuse a client after a failed handshake; OpenSSL's alert is sent to the client."""
        if self.state is State.CLOSED:
            return
        self._flush()
        self._host.refuse(self, reason)
        self._end()

    def give_up(self, reason: str) -> None:
        """Close at once, and log the reason."""
        if self._raw is not None:
            self._host.refuse(self, reason)
            self.abort()

    def _open(self) -> None:
        tls, raw = self._tls, self._raw
        assert tls is not None and raw is not None
        self.state = State.OPEN
        above = self._host.open(self, tls)
        if above is None:
            self._end()
            return
        self._above = above
        # OpenSSL has read whole records. The rest begins with a record, and is counted like bytes received later.
        self._waiting = self._incoming.read() + self._waiting
        above.connection_made(self)
        # The Kafka connection may have been refused and closed, because there were too many.
        if self._raw is not None and not self._raw.is_closing():
            self._go_on()

    def _end(self) -> None:
        """Close after the bytes that were written, which the client may still read."""
        self._is_closing = True
        if self._raw is not None:
            self._raw.close()

    def _receive(self, ciphertext: memoryview) -> None:
        """Decrypt as many bytes as the Kafka connection accepts, and keep the rest."""
        position, size = 0, len(ciphertext)
        tls, incoming, records = self._tls, self._incoming, self._records
        assert tls is not None
        while (above := self._above) is not None and self._is_wanted and not self._is_closing:
            buffer = above.get_buffer(-1)
            room, got, has_ended = len(buffer), 0, False
            try:
                while got < room:
                    # This check is cheaper than OpenSSL's exception.
                    if not incoming.pending and not tls.pending():
                        if position == size:
                            break
                        if records.is_talk:
                            self._refuse_talk()
                            return
                        end = records.cut(ciphertext, position)
                        incoming.write(ciphertext[position:end])
                        position = end
                    try:
                        # This reads one record at most. With a buffer, `read` returns the number of bytes.
                        taken = cast(int, tls.read(room - got, buffer[got:]))
                    except ssl.SSLWantReadError:
                        # The record is incomplete, and OpenSSL has all of this slice.
                        if position == size:
                            break
                        continue
                    if not taken:
                        has_ended = True
                        break
                    got += taken
                    records.read += 1
            except ssl.SSLZeroReturnError:
                has_ended = True
            except ssl.SSLError as error:
                self._break(error)
                return
            if got:
                above.buffer_updated(got)
            if has_ended:
                self.close()
            if got < room or not room:
                break
        self._waiting = bytes(ciphertext[position:])
        if self._outgoing.pending:
            # The client may have requested new keys.
            self._flush()
        self._read_socket(self._is_wanted and not self._has_more())

    def _refuse_talk(self) -> None:
        self._host.refuse(self, "its TLS records have no content")
        self.abort()

    def _has_more(self) -> bool:
        """Return whether bytes of earlier reads are left."""
        tls = self._tls
        return bool(self._waiting or self._incoming.pending or (tls is not None and tls.pending()))

    def _break(self, error: ssl.SSLError) -> None:
        """Close a connection after an error of its TLS session."""
        reason = (error.reason or "unknown").replace("_", " ").lower()
        self._host.refuse(self, f"the TLS session broke: {reason}")
        self._flush()
        self._end()

    def _go_on(self) -> None:
        self._has_turn = False
        if self.state is State.OPEN and not self._is_closing:
            waiting, self._waiting = self._waiting, b""
            self._receive(memoryview(waiting))

    def _read_socket(self, wanted: bool) -> None:
        raw = self._raw
        if raw is None or wanted is self._is_read or raw.is_closing():
            return
        self._is_read = wanted
        if wanted:
            raw.resume_reading()
        else:
            raw.pause_reading()

    def pause_reading(self) -> None:
        """Deliver no more bytes until `resume_reading`."""
        self._is_wanted = False
        self._read_socket(False)

    def resume_reading(self) -> None:
        """Deliver bytes again, first those that were received before the pause."""
        if self._is_wanted:
            return
        self._is_wanted = True
        if not self._has_more():
            self._read_socket(True)
        elif not self._has_turn:
            # Not within this call: the Kafka connection is in the middle of its own work.
            self._has_turn = True
            self._host.loop.call_soon(self._go_on)

    def is_reading(self) -> bool:
        """Return whether bytes are delivered."""
        return self._is_wanted and not self._is_closing

    def write(self, data: Buffer) -> None:
        """Encrypt and send."""
        tls, raw = self._tls, self._raw
        if self._is_closing or tls is None or raw is None or not data:
            return
        try:
            if len(data) <= SLICE_BYTES:
                tls.write(data)
                raw.write(self._outgoing.read())
                return
            view = memoryview(data)
            for at in range(0, len(view), SLICE_BYTES):
                tls.write(view[at : at + SLICE_BYTES])
                raw.write(self._outgoing.read())
        except ssl.SSLError as error:
            self._break(error)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Encrypt and send parts; short ones share a record."""
        parts = list(list_of_data)
        if sum(map(len, parts)) <= SLICE_BYTES:
            self.write(b"".join(parts))
            return
        for part in parts:
            self.write(part)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the buffered bytes at which the Kafka connection pauses writing, and resumes."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes of ciphertext that are not sent yet."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or will be once the written bytes are sent."""
        return self._is_closing or (self._raw is not None and self._raw.is_closing())

    def close(self) -> None:
        """Send the written bytes and a close notice, then close."""
        if self._is_closing:
            return
        if self._tls is not None and self.state is State.OPEN:
            # The client's close notice is not waited for, as TLS allows.
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        self._end()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        if self._raw is not None:
            self._raw.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return facts of the session (`ssl_object`, `peercert`, `cipher`) or of the socket."""
        tls = self._tls
        if tls is not None and name == "ssl_object":
            return tls
        if tls is not None and name in ("peercert", "cipher"):
            return tls.getpeercert() if name == "peercert" else tls.cipher()
        return default if self._raw is None else self._raw.get_extra_info(name, default)

    def _flush(self) -> None:
        """Send the bytes that OpenSSL has produced."""
        if self._raw is not None and self._outgoing.pending:
            self._raw.write(self._outgoing.read())
