"""The TLS of one connection: ciphertext to and from the socket, plain bytes to and from the protocol above.

It is the protocol of the socket's transport, and the transport of the connection above, which begins when the handshake
is done. Python's own layer for event loops keeps a buffer for each connection and does handshakes on the loop.

A record without content, such as a client's new key in TLS 1.3, costs as much as a request, needs no login, and any
number of them fits into one read.

Laws: all connections of a loop share one buffer for bytes that come in. A connection keeps what its last read brought
and the one above had no room for, and no more than a slice of what it sends. What is behind a pause stays unread. No
handshake is done on the loop. Renegotiation is off; an end without notice is an end, as in Kafka. A client that sends
records without content again and again is refused.
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
#: Ciphertext, and plain bytes, that are given to OpenSSL at once; its buffers stay as long as this took.
SLICE_BYTES: Final = 32 * 1024
#: The longest record, and what it has beside its content.
RECORD_BYTES: Final = 16 * 1024
_RECORD_HEAD: Final = 5
#: Records that are given to OpenSSL at once. A new key of the client takes 15 us, and OpenSSL takes all of them in one
#: call.
_RECORDS_AT_ONCE: Final = 64
#: Records without content that a client may send, and one more for so many with content. Clients change their keys
#: once in millions of records.
_MOST_EMPTY: Final = 64
_CONTENT_FOR_EMPTY: Final = 64
#: How the record of a handshake begins: its type, then the major version of every TLS.
_HANDSHAKE: Final = b"\x16\x03"
#: What a client that speaks no TLS is told, as by Apache Kafka: an alert by which other clients know TLS.
_UNEXPECTED_MESSAGE: Final = bytes.fromhex("1503030002020a")
_PLAIN: Final = "the client speaks no TLS: it has to set security.protocol to SSL or SASL_SSL"


class State(Enum):
    """How far a connection is."""

    #: Less than a first record has come.
    NEW = 0
    #: It waits for its place among the handshakes.
    QUEUED = 1
    #: A thread does a step of its handshake.
    STEPPING = 2
    #: The client has the next word of the handshake.
    AWAITED = 3
    OPEN = 4
    CLOSED = 5


class Opened(Protocol):
    """The connection above, as asyncio calls it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return room for plain bytes."""

    def buffer_updated(self, nbytes: int) -> None:
        """Take plain bytes that have come."""

    def pause_writing(self) -> None:
        """Stop writing."""

    def resume_writing(self) -> None:
        """Go on writing."""


class Host(Protocol):
    """The listener's side of handshakes."""

    @property
    def listener(self) -> ListenerSettings:
        """The listener that clients come by."""

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
        """Take note of a new connection; `False`: there is no room for it."""

    def ask(self, connection: TlsProtocol) -> None:
        """Take note of a first record; a step follows, now or when there is a place."""

    def step(self, connection: TlsProtocol) -> None:
        """Do the next step on a thread."""

    def await_client(self, connection: TlsProtocol) -> None:
        """Take note that the client has the next word."""

    def open(self, connection: TlsProtocol, tls: ssl.SSLObject) -> Opened | None:
        """Return the connection above after a handshake; `None`: its client is refused."""

    def refuse(self, connection: TlsProtocol, reason: str) -> None:
        """Tell the log that a client was refused."""

    def end(self, connection: TlsProtocol) -> None:
        """Forget a connection."""


class _Records:
    """The records of one connection, counted by their heads, which are not encrypted."""

    __slots__ = ("_head", "_rest", "begun", "read")

    def __init__(self) -> None:
        #: Records that have begun, and reads that found content.
        self.begun = self.read = 0
        #: Bytes until the next head, and what has come of that head.
        self._rest = 0
        self._head = b""

    @property
    def is_talk(self) -> bool:
        """Whether the client has sent too many records without content."""
        return self.begun - self.read > _MOST_EMPTY + self.read // _CONTENT_FOR_EMPTY

    def cut(self, ciphertext: memoryview, position: int) -> int:
        """Return the end of the next slice, in bytes and in records no longer than may be given at once."""
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
        """Create the layer of a connection that `host` accepts."""
        asyncio.Transport.__init__(self)
        self._host: Final = host
        self.listener: Final = host.listener
        self._raw: asyncio.Transport | None = None
        #: The client's address, for limits and logs.
        self.peer_host, self.peer_port = "", 0
        self.state = State.NEW
        #: Ciphertext that has come and was not given to OpenSSL.
        self._waiting = b""
        self._incoming: Final = ssl.MemoryBIO()
        self._outgoing: Final = ssl.MemoryBIO()
        #: Made by the first step of the handshake.
        self._tls: ssl.SSLObject | None = None
        #: Of the time after the handshake.
        self._records: Final = _Records()
        self._above: Opened | None = None
        #: Whether the connection above wants bytes, and whether the socket is read.
        self._is_wanted, self._is_read = True, True
        self._is_closing = False
        #: Whether `_go_on` is scheduled.
        self._has_turn = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the client's first record (asyncio)."""
        # uvloop's transports have the methods of asyncio's without being of the class.
        raw = cast(asyncio.Transport, transport)
        peer = raw.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer_host, self.peer_port = plain_host(str(peer[0])), int(peer[1])
        self._raw = raw
        if not self._host.begin(self):
            raw.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection above, or the handshake (asyncio)."""
        self.state, self._is_closing = State.CLOSED, True
        self._raw = None
        self._waiting = b""
        above, self._above = self._above, None
        self._host.end(self)
        if above is not None:
            above.connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared buffer, as much of it as there is room for above (asyncio)."""
        del sizehint
        if self._above is None:
            return self._host.received[:RECORD_BYTES]
        # More than has room would have to be kept. A record may have begun, so that one more is read.
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
            # Bytes on their way when reading was paused.
            self._waiting += received

    def eof_received(self) -> bool:
        """Let the transport close (asyncio)."""
        return False

    def pause_writing(self) -> None:
        """Let the connection above pause (asyncio)."""
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        """Let the connection above go on (asyncio)."""
        if self._above is not None:
            self._above.resume_writing()

    def _begin(self) -> None:
        """Ask for a place once the first record is whole; until then a client costs its few bytes."""
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
        """Do the first step, for which there is a place now."""
        self._incoming.write(self._waiting)
        self._waiting = b""
        self._step()

    def _step(self) -> None:
        # Nothing is read meanwhile: what OpenSSL works with on a thread is not touched here.
        self._read_socket(False)
        self.state = State.STEPPING
        self._host.step(self)

    def shake_hands(self) -> bool:
        """Do a step of the handshake, on a thread.

        Returns:
            Whether it is done; if not, the client has the next word.

        Raises:
            ssl.SSLError: the client cannot be spoken with.
        """
        if self._tls is None:
            self._tls = self._host.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def on_step(self, is_done: bool) -> None:
        """Go on after a step, on the loop."""
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
        """Refuse a client after a step that failed; it gets OpenSSL's alert."""
        if self.state is State.CLOSED:
            return
        self._flush()
        self._host.refuse(self, reason)
        self._end()

    def give_up(self, reason: str) -> None:
        """Close at once, and tell the log why."""
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
        # OpenSSL has read whole records: what is left begins with one, and is counted like what comes later.
        self._waiting = self._incoming.read() + self._waiting
        above.connection_made(self)
        # It may have closed, for there were too many.
        if self._raw is not None and not self._raw.is_closing():
            self._go_on()

    def _end(self) -> None:
        """Close after the last words, which the client may take."""
        self._is_closing = True
        if self._raw is not None:
            self._raw.close()

    def _receive(self, ciphertext: memoryview) -> None:
        """Decrypt as much as the connection above takes, and keep the rest."""
        position, size = 0, len(ciphertext)
        tls, incoming, records = self._tls, self._incoming, self._records
        assert tls is not None
        while (above := self._above) is not None and self._is_wanted and not self._is_closing:
            buffer = above.get_buffer(-1)
            room, got, has_ended = len(buffer), 0, False
            try:
                while got < room:
                    # To ask first is cheaper than OpenSSL's exception.
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
                        # One record at most; with a buffer it returns a number.
                        taken = cast(int, tls.read(room - got, buffer[got:]))
                    except ssl.SSLWantReadError:
                        # The record is not whole, and all of this slice is with OpenSSL.
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
            # A client may have asked for new keys.
            self._flush()
        self._read_socket(self._is_wanted and not self._has_more())

    def _refuse_talk(self) -> None:
        self._host.refuse(self, "its TLS records have no content")
        self.abort()

    def _has_more(self) -> bool:
        """Whether there are bytes of earlier reads."""
        tls = self._tls
        return bool(self._waiting or self._incoming.pending or (tls is not None and tls.pending()))

    def _break(self, error: ssl.SSLError) -> None:
        """Close a connection whose bytes are none of its session."""
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
        """Bring no more bytes until `resume_reading`."""
        self._is_wanted = False
        self._read_socket(False)

    def resume_reading(self) -> None:
        """Bring bytes again, those first that came before the pause."""
        if self._is_wanted:
            return
        self._is_wanted = True
        if not self._has_more():
            self._read_socket(True)
        elif not self._has_turn:
            # Not at once: the one above is in the middle of something.
            self._has_turn = True
            self._host.loop.call_soon(self._go_on)

    def is_reading(self) -> bool:
        """Whether bytes are brought."""
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
        """Set the bytes at which the connection above is told to pause, and to go on."""
        if self._raw is not None:
            self._raw.set_write_buffer_limits(high=high, low=low)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that the client has not taken, as ciphertext."""
        return 0 if self._raw is None else self._raw.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Whether the connection is closed, or will be once what was written is taken."""
        return self._is_closing or (self._raw is not None and self._raw.is_closing())

    def close(self) -> None:
        """Send what was written and the notice of the end, then close."""
        if self._is_closing:
            return
        if self._tls is not None and self.state is State.OPEN:
            # It does not wait for the client's notice, as TLS allows.
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
        """Send what OpenSSL has to say."""
        if self._raw is not None and self._outgoing.pending:
            self._raw.write(self._outgoing.read())
