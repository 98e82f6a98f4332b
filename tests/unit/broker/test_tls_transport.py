"""The TLS of a connection, its socket and its client in the hands of a test: every cut, every pause, every end."""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
import trustme

from kohort.broker.connections import handshakes
from kohort.broker.connections.handshakes import FILES_SECONDS, LOOK_SECONDS, PATIENCE_SECONDS, Handshakes
from kohort.broker.connections.tls_transport import RECORD_BYTES, SLICE_BYTES, State, TlsProtocol
from kohort.broker.options.listeners import ListenerSettings
from support.dialogues.tls_client import TLS_VALUES, TlsClient, new_keys
from support.peers.certificates import Certificates

T = TypeVar("T")
ROOM: Final = 40_000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def store(certificates: Certificates) -> Path:
    return certificates.store("localhost", "127.0.0.1")


class LateLoop(asyncio.SelectorEventLoop):
    """A loop whose clock a test moves."""

    later_s = 0.0

    def time(self) -> float:
        return super().time() + self.later_s


class Socket(asyncio.Transport):
    """What was written to a client, and whether it is read."""

    def __init__(self, host: str) -> None:
        super().__init__({"peername": (host, 50_000), "sockname": ("127.0.0.1", 9092)})
        self.written = bytearray()
        self.is_read, self.is_ended, self.is_aborted = True, False, False
        self.limits: tuple[int | None, int | None] = (None, None)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_ended
        self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = high, low

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def is_closing(self) -> bool:
        return self.is_ended

    def pause_reading(self) -> None:
        assert self.is_read
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_read
        self.is_read = True

    def close(self) -> None:
        self.is_ended = True

    def abort(self) -> None:
        self.is_ended = self.is_aborted = True


class Taker(asyncio.BufferedProtocol):
    """The connection above: it takes bytes as far as it has room."""

    def __init__(self, principal: str | None) -> None:
        self.principal = principal
        self.transport: asyncio.Transport
        self.taken = bytearray()
        #: The bytes that it takes before it pauses.
        self.appetite = 1 << 40
        self.room = memoryview(bytearray(ROOM))
        self.is_lost = False
        self.heard: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.room

    def buffer_updated(self, nbytes: int) -> None:
        assert self.transport.is_reading()
        self.taken += self.room[:nbytes]
        self.appetite -= nbytes
        if self.appetite <= 0:
            self.transport.pause_reading()

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")


class Crowd:
    """The counter of connections of a test."""

    def __init__(self) -> None:
        self.inside: set[TlsProtocol] = set()
        self.has_room = True

    def enter(self, guest: TlsProtocol) -> bool:
        if self.has_room:
            self.inside.add(guest)
        return self.has_room

    def leave(self, guest: TlsProtocol) -> None:
        self.inside.remove(guest)


class Door:
    """A listener with TLS, without a socket."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, LateLoop)
        self.loop = loop
        self.crowd = Crowd()
        self.takers: list[Taker] = []
        listener = ListenerSettings(name="SSL", host="127.0.0.1", port=9093, values={**TLS_VALUES, **values})
        self.handshakes = Handshakes(loop, listener, admission=self.crowd, connect=self._connect)

    def _connect(self, principal: str | None) -> Taker:
        self.takers.append(Taker(principal))
        return self.takers[-1]

    def later(self, seconds: float) -> None:
        """So much time passes, before the next turn of the loop."""
        self.loop.later_s += seconds


class Wire:
    """A client, and the broker's end of its connection."""

    def __init__(self, door: Door, context: ssl.SSLContext, *, host: str = "10.0.0.1") -> None:
        self.door = door
        self.client = TlsClient(context)
        self.socket = Socket(host)
        self.ours = door.handshakes.protocol()
        self.ours.connection_made(self.socket)
        self.above: Taker

    def send(self, data: bytes, cut: int | None = None) -> None:
        """Bytes that come by one read or several, each of `cut` bytes at most."""
        while data:
            assert self.socket.is_read
            room = self.ours.get_buffer(-1)
            size = min(len(room), len(data), cut or len(data))
            room[:size] = data[:size]
            data = data[size:]
            self.ours.buffer_updated(size)

    def take(self) -> bytes:
        """What was written to the client since the last call."""
        written = bytes(self.socket.written)
        self.socket.written.clear()
        return written

    async def shake_hands(self, cut: int | None = None) -> None:
        """The whole handshake, the client's words in pieces of `cut` bytes."""
        said = self.client.shake()
        while said:
            for at in range(0, len(said), cut or len(said)):
                await settled(lambda: self.socket.is_read)
                self.send(said[at : at + (cut or len(said))])
            await settled(lambda: self.socket.written or self.ours.state in (State.OPEN, State.CLOSED))
            said = self.client.shake(self.take())
        await settled(lambda: self.ours.state is State.OPEN)
        self.above = self.door.takers[-1]

    def lose(self) -> None:
        """The connection is gone."""
        self.ours.connection_lost(None)


async def settled(is_so: Callable[[], object]) -> None:
    """Turns of the loop until it is so; a thread may be at work."""
    for _ in range(200_000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come so far")


def client_context(
    certificates: Certificates, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, own: Path | None = None
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.minimum_version = context.maximum_version = version
    if own is not None:
        context.load_cert_chain(own)
    return context


def played(story: Callable[[Door], Awaitable[T]], **values: Any) -> T:
    """What a story tells that happens at a door with these options."""

    async def play() -> T:
        with open_door(values) as door:
            return await story(door)

    with asyncio.Runner(loop_factory=LateLoop) as runner:
        return runner.run(play())


@contextmanager
def open_door(values: Mapping[str, Any]) -> Iterator[Door]:
    door = Door(
        {
            f"ssl.{name.replace('_', '.')}": str(value) if isinstance(value, Path) else value
            for name, value in values.items()
        }
    )
    try:
        yield door
    finally:
        door.handshakes.stop()


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@VERSIONS
@pytest.mark.parametrize("cut", [1, 7, None])
def test_handshake_in_any_pieces(
    certificates: Certificates, store: Path, version: ssl.TLSVersion, cut: int | None
) -> None:
    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates, version))
        assert door.crowd.inside == {wire.ours}
        await wire.shake_hands(cut)
        assert not door.crowd.inside
        wire.send(wire.client.encrypt(b"hello"))
        assert wire.above.taken == b"hello"
        wire.above.transport.write(b"world")
        assert wire.client.decrypt(wire.take()) == b"world"
        assert wire.above.principal is None
        assert wire.ours.get_extra_info("ssl_object").version() == wire.client.tls.version()
        assert wire.ours.get_extra_info("peername") == ("10.0.0.1", 50_000)
        assert wire.ours.get_extra_info("cipher") == wire.client.tls.cipher()

    played(story, keystore_location=store)


def test_records_in_two_pieces_cut_anywhere(certificates: Certificates, store: Path) -> None:
    """At each place of three records; the last cut is one that does not cut."""

    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates))
        await wire.shake_hands()
        messages = [b"one", b"second", b"the third"]
        for at in range(200):
            sealed = b"".join(map(wire.client.encrypt, messages))
            wire.send(sealed[:at])
            wire.send(sealed[at:])
            assert wire.above.taken == b"".join(messages), at
            wire.above.taken.clear()
        assert at > len(sealed)

    played(story, keystore_location=store)


@VERSIONS
def test_long_bytes_both_ways(certificates: Certificates, store: Path, version: ssl.TLSVersion) -> None:
    """Longer than every buffer, in pieces of any size; what is sent is sealed slice by slice."""

    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates, version))
        await wire.shake_hands()
        data = os.urandom(5 * ROOM + 17)
        for cut in (1_000, RECORD_BYTES, SLICE_BYTES + 1, None):
            wire.send(wire.client.encrypt(data), cut)
            assert wire.above.taken == data
            wire.above.taken.clear()
        for parts in ([data], [b"a", data, b"b"], [b"x"] * 50, [b"", b"y"], [memoryview(data)[5:]], [bytearray(data)]):
            wire.above.transport.writelines(parts)
            assert wire.client.decrypt(wire.take()) == b"".join(parts)
        wire.above.transport.write(b"")
        assert not wire.take()

    played(story, keystore_location=store)


def test_records_without_content_are_refused(
    certificates: Certificates, store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """New keys again and again, by a client that needs no login for them."""

    async def story(door: Door) -> None:
        context = client_context(certificates)
        context.keylog_filename = str(tmp_path / "keys")
        wire = Wire(door, context)
        await wire.shake_hands()
        sealed, size = new_keys(tmp_path / "keys", 1_000), 27
        # Some are let through, in any pieces.
        wire.send(sealed[: 60 * size + 13], cut=11)
        assert not wire.socket.is_ended
        wire.send(sealed[60 * size + 13 :])
        assert wire.socket.is_aborted
        assert "its TLS records have no content" in caplog.text

    played(story, keystore_location=store)


def test_short_records_with_content_are_read_however_many(certificates: Certificates, store: Path) -> None:
    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates))
        await wire.shake_hands()
        for cut in (1, 5, 97, None):
            wire.above.taken.clear()
            wire.send(b"".join(wire.client.encrypt(b"x") for _ in range(1_000)), cut)
            assert wire.above.taken == b"x" * 1_000, cut

    played(story, keystore_location=store)


@pytest.mark.parametrize("appetite", [1, 5, ROOM - 1, ROOM, ROOM + 1, 3 * ROOM])
def test_pause_keeps_what_came_and_reads_no_more(certificates: Certificates, store: Path, appetite: int) -> None:
    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates))
        await wire.shake_hands()
        data = os.urandom(4 * ROOM)
        sealed = wire.client.encrypt(data)
        wire.above.appetite = appetite
        while sealed:
            if not wire.socket.is_read:
                # It is not read, and nothing comes while it pauses, however often the loop turns.
                taken = len(wire.above.taken)
                await asyncio.sleep(0)
                assert len(wire.above.taken) == taken
                assert not wire.above.transport.is_reading()
                wire.above.appetite = appetite
                wire.above.transport.resume_reading()
                await asyncio.sleep(0)
                continue
            room = wire.ours.get_buffer(-1)
            # Little more is read than there is room for.
            assert len(room) <= ROOM + RECORD_BYTES
            size = min(len(room), len(sealed))
            room[:size] = sealed[:size]
            sealed = sealed[size:]
            wire.ours.buffer_updated(size)
        while len(wire.above.taken) < len(data):
            assert not wire.socket.is_read
            wire.above.appetite = appetite
            wire.above.transport.resume_reading()
            await asyncio.sleep(0)
        assert wire.above.taken == data
        wire.above.transport.resume_reading()
        await asyncio.sleep(0)
        assert wire.socket.is_read

    played(story, keystore_location=store)


def test_first_request_may_come_with_the_end_of_the_handshake(certificates: Certificates, store: Path) -> None:
    """The last words of a client of TLS 1.3, and its first bytes, by one read."""

    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates))
        wire.send(wire.client.shake())
        await settled(lambda: wire.socket.written)
        wire.send(wire.client.shake(wire.take()) + wire.client.encrypt(b"request"))
        await settled(lambda: door.takers and door.takers[0].taken)
        assert door.takers[0].taken == b"request"

    played(story, keystore_location=store)


def test_words_about_writing_go_through(certificates: Certificates, store: Path) -> None:
    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates))
        wire.ours.pause_writing()
        wire.ours.resume_writing()
        await wire.shake_hands()
        wire.above.transport.set_write_buffer_limits(high=9, low=5)
        assert wire.socket.limits == (9, 5)
        wire.ours.pause_writing()
        wire.ours.resume_writing()
        assert wire.above.heard == ["pause", "resume"]
        wire.above.transport.write(b"x")
        assert wire.above.transport.get_write_buffer_size() == len(wire.socket.written) > 0

    played(story, keystore_location=store)


def test_close_tells_the_client_that_nothing_more_comes(certificates: Certificates, store: Path) -> None:
    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates))
        await wire.shake_hands()
        wire.above.transport.write(b"last")
        wire.above.transport.close()
        assert wire.above.transport.is_closing() and wire.socket.is_ended and not wire.socket.is_aborted
        assert wire.client.decrypt(wire.take()) == b"last"
        assert wire.client.tls.read(10) == b"", "the notice of the end"
        wire.above.transport.write(b"more")
        wire.above.transport.close()
        assert not wire.take()
        wire.lose()
        assert wire.above.is_lost

    played(story, keystore_location=store)


def test_notice_of_the_client_ends_the_connection(certificates: Certificates, store: Path) -> None:
    """What came before it is taken."""

    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates))
        await wire.shake_hands()
        wire.send(wire.client.encrypt(b"last") + wire.client.bid_farewell())
        assert wire.above.taken == b"last"
        assert wire.socket.is_ended

    played(story, keystore_location=store)


def test_abort_says_nothing(certificates: Certificates, store: Path) -> None:
    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates))
        await wire.shake_hands()
        wire.above.transport.abort()
        assert wire.socket.is_aborted and not wire.take()
        wire.above.transport.write(b"more")
        assert not wire.take()

    played(story, keystore_location=store)


def test_changed_bytes_end_the_session(
    certificates: Certificates, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One bit at each place of a record; the client gets an alert."""

    async def story(door: Door) -> None:
        for at in range(0, 60, 5):
            wire = Wire(door, client_context(certificates))
            await wire.shake_hands()
            sealed = bytearray(wire.client.encrypt(b"a message of some length, of which one bit is changed"))
            sealed[at] ^= 1
            wire.send(bytes(sealed) + bytes(20_000))
            assert not wire.above.taken
            assert wire.socket.is_ended or at in (0, 3)
            wire.lose()

    played(story, keystore_location=store)
    assert "the TLS session broke: " in caplog.text


FOREIGN = {
    "HTTP": (b"GET / HTTP/1.1\r\n\r\n", "it looks like HTTP, and TLS is spoken here", b"HTTP/1.1 400 "),
    "Kafka in plain text": (b"\0\0\0\x14\0\x12\0\x03", "the client speaks no TLS", b"\x15\x03\x03\0\x02\x02\x0a"),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n", "the client speaks no TLS", b"\x15\x03\x03\0\x02\x02\x0a"),
    "an empty record": (b"\x16\x03\x01\0\0", "the client speaks no TLS", b"\x15\x03\x03"),
    "an endless record": (b"\x16\x03\x01\xff\xff", "the client speaks no TLS", b"\x15\x03\x03"),
    "an old version": (b"\x80\x2e\x01\0\x02", "the client speaks no TLS", b"\x15\x03\x03"),
    "no client's hello": (b"\x16\x03\x01\0\x05hello", "the TLS handshake failed", b"\x15\x03"),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("cut", [1, None])
def test_what_is_no_tls_is_refused_with_a_word(
    store: Path, certificates: Certificates, caplog: pytest.LogCaptureFixture, name: str, cut: int | None
) -> None:
    first, reason, answer = FOREIGN[name]

    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates))
        for at in range(0, len(first), cut or len(first)):
            if not wire.socket.is_ended and wire.socket.is_read:
                wire.send(first[at : at + (cut or len(first))])
        await settled(lambda: wire.socket.is_ended)
        assert wire.take().startswith(answer)
        assert not door.takers
        wire.lose()
        assert not door.crowd.inside

    played(story, keystore_location=store)
    (line,) = [record.getMessage() for record in caplog.records if "tls_refused" in record.getMessage()]
    assert f"listener=SSL peer=10.0.0.1:50000 reason='{reason}" in line


REFUSED = {
    "of another authority": "the certificate of the client is refused: unable to get local issuer certificate",
    "signed by itself": "the certificate of the client is refused: self-signed certificate",
    "not yet valid": "the certificate of the client is refused: certificate is not yet valid",
    "none": "the client has no certificate, and ssl.client.auth is required",
    "expired": "the certificate of the client is refused: certificate has expired",
    "without a rule": "a certificate for 'CN=other@example.org",
}


def signed_by_itself(directory: Path) -> Path:
    """An authority that says of itself who it is."""
    authority, path = trustme.CA(), directory / "self.pem"
    path.write_bytes(authority.private_key_pem.bytes() + authority.cert_pem.bytes())
    return path


@pytest.mark.parametrize("name", REFUSED)
@VERSIONS
def test_client_without_the_right_certificate(  # noqa: PLR0917
    certificates: Certificates,
    store: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    version: ssl.TLSVersion,
) -> None:
    own = {
        "of another authority": lambda: Certificates(tmp_path).client,
        "signed by itself": lambda: signed_by_itself(tmp_path),
        "none": lambda: None,
        "expired": lambda: certificates.store("c@d", ends=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)),
        "not yet valid": lambda: certificates.store("c@d", begins=datetime.datetime(2099, 1, 1, tzinfo=datetime.UTC)),
        "without a rule": lambda: certificates.store("other@example.org"),
    }[name]()

    async def story(door: Door) -> None:
        wire = Wire(door, client_context(certificates, version, own))
        said = wire.client.shake()
        while said and not wire.socket.is_ended:
            wire.send(said)
            await settled(lambda: wire.socket.written or wire.socket.is_ended)
            try:
                said = wire.client.shake(wire.take())
            except ssl.SSLError:
                """The broker's alert."""
                break
        await settled(lambda: wire.socket.is_ended)
        assert not door.takers
        wire.lose()
        assert not door.crowd.inside

    rules = "RULE:^CN=client@example.org,.*$/client/"
    played(
        story,
        keystore_location=store,
        truststore_location=certificates.ca,
        client_auth="required",
        principal_mapping_rules=rules,
    )
    assert REFUSED[name] in caplog.text


def test_principal_is_that_of_the_certificate(certificates: Certificates, store: Path) -> None:
    async def story(door: Door) -> None:
        for own, principal in ((certificates.client, "User:client"), (None, None)):
            wire = Wire(door, client_context(certificates, own=own))
            await wire.shake_hands()
            assert wire.above.principal == principal

    rules = "RULE:^CN=(client)@example.org,.*$/$1/"
    played(
        story,
        keystore_location=store,
        truststore_location=certificates.ca,
        client_auth="requested",
        principal_mapping_rules=rules,
    )


def test_handshakes_have_a_limit_and_one_for_an_address(certificates: Certificates, store: Path) -> None:
    """Three places, two of them for one address; who waits is not read, and gets the place that comes free."""

    async def story(door: Door) -> None:
        context = client_context(certificates)
        first = [Wire(door, context) for _ in range(3)]
        for wire in first:
            wire.send(wire.client.shake())
        await settled(lambda: sum(bool(wire.socket.written) for wire in first) == 2)
        assert [wire.ours.state for wire in first] == [State.AWAITED, State.AWAITED, State.QUEUED]
        assert not first[2].socket.is_read

        others = [Wire(door, context, host="10.0.0.2") for _ in range(2)]
        for wire in others:
            wire.send(wire.client.shake())
        await settled(lambda: others[0].socket.written)
        assert others[1].ours.state is State.QUEUED

        first[0].send(first[0].client.shake(first[0].take()))
        await settled(lambda: first[2].socket.written)
        assert others[1].ours.state is State.QUEUED
        first[1].lose()
        await settled(lambda: others[1].socket.written)
        for wire in (first[2], *others):
            wire.send(wire.client.shake(wire.take()))
        await settled(lambda: len(door.takers) == 4)
        assert not door.crowd.inside

    played(story, keystore_location=store, handshakes_max=3, handshakes_max_per_ip=2)


def test_handshake_that_stands_still_gives_way(
    certificates: Certificates, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not before a second, and only where another waits for its place."""

    async def story(door: Door) -> None:
        context = client_context(certificates)
        silent = Wire(door, context)
        silent.send(silent.client.shake())
        await settled(lambda: silent.socket.written)
        door.later(PATIENCE_SECONDS + LOOK_SECONDS)
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not silent.socket.is_ended, "it is in the way of no other"

        waiting = Wire(door, context)
        waiting.send(waiting.client.shake())
        assert waiting.ours.state is State.QUEUED
        door.later(LOOK_SECONDS)
        await settled(lambda: silent.socket.is_aborted)
        silent.lose()
        await settled(lambda: waiting.socket.written)

    played(story, keystore_location=store, handshakes_max=1)
    assert "its handshake made no progress while others waited" in caplog.text


def test_handshake_has_its_time(certificates: Certificates, store: Path, caplog: pytest.LogCaptureFixture) -> None:
    """From the first byte that it does not send, and whichever it does not send."""

    async def story(door: Door) -> None:
        context = client_context(certificates)
        silent, half, whole = (Wire(door, context) for _ in range(3))
        half.send(half.client.shake()[:50])
        whole.send(whole.client.shake())
        await settled(lambda: whole.socket.written)
        door.later(1.9)
        late = Wire(door, context)
        for wire in (silent, half, whole):
            assert not wire.socket.is_ended
        door.later(LOOK_SECONDS)
        await settled(lambda: silent.socket.is_aborted and half.socket.is_aborted and whole.socket.is_aborted)
        assert not late.socket.is_ended
        await late.shake_hands()

    played(story, keystore_location=store, handshake_timeout_ms=2_000)
    assert "its handshake was not done within ssl.handshake.timeout.ms" in caplog.text


def test_newest_of_a_crowd_is_next(certificates: Certificates, store: Path) -> None:
    """Those that have waited for longest have mostly gone."""

    async def story(door: Door) -> None:
        context = client_context(certificates)
        wires = [Wire(door, context) for _ in range(6)]
        wires[0].send(wires[0].client.shake())
        await settled(lambda: wires[0].socket.written)
        for wire in wires[1:5]:
            wire.send(wire.client.shake())
        wires[0].lose()
        await settled(lambda: wires[1].socket.written)
        door.loop.later_s += PATIENCE_SECONDS
        wires[5].send(wires[5].client.shake())
        wires[1].send(wires[1].client.shake(wires[1].take()))
        await settled(lambda: wires[5].socket.written)
        assert all(wire.ours.state is State.QUEUED for wire in wires[2:5])

    played(story, keystore_location=store, handshakes_max_per_ip=1)


def test_connection_that_goes_at_any_time_is_forgotten(certificates: Certificates, store: Path) -> None:
    """Before, between and during its steps."""

    async def story(door: Door) -> None:
        context = client_context(certificates)
        for turns in range(8):
            wire = Wire(door, context)
            wire.send(wire.client.shake())
            for _ in range(turns):
                await asyncio.sleep(0)
            wire.lose()
        await settled(lambda: not door.handshakes._work.pending)
        assert not door.crowd.inside
        assert not door.takers
        await Wire(door, context).shake_hands()

    played(story, keystore_location=store, handshakes_max=1)


def test_broker_without_room_closes_at_once(certificates: Certificates, store: Path) -> None:
    async def story(door: Door) -> None:
        door.crowd.has_room = False
        assert Wire(door, client_context(certificates)).socket.is_aborted

    played(story, keystore_location=store)


def test_certificates_are_taken_again_while_clients_are_connected(
    certificates: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a file is told once and changes nothing; no connection ends."""
    caplog.set_level(logging.INFO)
    path = tmp_path / "server.pem"
    path.write_bytes(certificates.store("localhost").read_bytes())
    new = certificates.store("localhost", "new.example").read_bytes()

    def lines(event: str) -> list[str]:
        return [line for record in caplog.records if event in (line := record.getMessage())]

    def put(data: bytes) -> None:
        """Replace the file at once: a thread may be reading it."""
        beside = tmp_path / "beside.pem"
        beside.write_bytes(data)
        beside.replace(path)

    async def story(door: Door) -> None:
        door.handshakes.start()
        context = client_context(certificates)
        old = Wire(door, context)
        await old.shake_hands()

        put(new[:-60])
        for _ in range(3):
            door.later(FILES_SECONDS)
            await settled(lambda: not door.handshakes._files.pending)
            await settled(lambda: lines("certificates_kept"))
        beside = Wire(door, context)
        await beside.shake_hands()

        put(new)
        door.later(FILES_SECONDS)
        await settled(lambda: lines("certificates_taken"))
        renewed = Wire(door, context)
        await renewed.shake_hands()
        names = [str(wire.client.tls.getpeercert()) for wire in (old, beside, renewed)]
        assert ["new.example" in each for each in names] == [False, False, True]
        for wire in (old, beside, renewed):
            wire.send(wire.client.encrypt(b"still here"))
            assert wire.above.taken == b"still here"

    played(story, keystore_location=path)
    assert len(lines("certificates_kept")) == 1
    assert lines("certificates_taken") == ["event=certificates_taken listener=SSL connections_ended=0"]


@pytest.mark.parametrize("at_once", [1, 50])
def test_authority_that_is_taken_out_ends_the_connections_of_its_clients(
    certificates: Certificates, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    """Within a second, and those of no other; one in the middle of its handshake does not get in.

    Many connections are examined in several turns of the loop.
    """
    monkeypatch.setattr(handshakes, "EXAMINED_AT_ONCE", at_once)
    path, others = tmp_path / "ca.pem", Certificates(tmp_path)
    both = certificates.ca.read_bytes() + others.ca.read_bytes()
    trust = tmp_path / "trust.pem"
    trust.write_bytes(both)

    async def story(door: Door) -> None:
        door.handshakes.start()
        ours, theirs, none, late = (
            Wire(door, client_context(certificates, own=own))
            for own in (certificates.client, others.client, None, others.client)
        )
        for wire in (ours, theirs, none):
            await wire.shake_hands()
        late.send(late.client.shake())
        await settled(lambda: late.socket.written)

        trust.write_bytes(certificates.ca.read_bytes())
        door.later(FILES_SECONDS)
        await settled(lambda: theirs.socket.is_aborted)
        assert not ours.socket.is_ended and not none.socket.is_ended
        late.send(late.client.shake(late.take()))
        await settled(lambda: late.socket.is_ended)
        assert len(door.takers) == 3
        assert FILES_SECONDS < 1

    assert path.exists()
    played(story, keystore_location=store, truststore_location=trust, client_auth="requested")


def test_crowd_of_refusals_is_a_few_lines(
    certificates: Certificates, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(door: Door) -> None:
        def knock(count: int) -> None:
            for _ in range(count):
                wire = Wire(door, client_context(certificates))
                wire.send(b"SSH-2.0-OpenSSH_9.2\r\n")
                wire.lose()

        knock(50)
        door.loop.later_s += 2
        knock(1)
        assert door.handshakes.refused == 51

    played(story, keystore_location=store)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert lines[1].endswith("times=49")
