"""Connections over real sockets: order, read-ahead, limits, and clients that send what no client should."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from struct import Struct

import pytest

from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.records.batch import iterate_records
from kohort.wire.codec import decode
from kohort.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.registry import VERSIONS, ApiKey
from support.dialogues.broker_wire import (
    PATIENCE_SECONDS,
    RawClient,
    batch_of,
    encode_request,
    fetch_request,
    produce_request,
)
from support.dialogues.wired_connection import WiredConnection, wired_broker

REQUEST_LIMIT = 64 * 1024
_SIZE = Struct(">i")
_HEADER = Struct(">hhih")
API_VERSIONS = encode_request(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())


@pytest.fixture(params=["uvloop", "asyncio"], autouse=True)
def loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every connection behaves alike on both loops; without uvloop installed there is only asyncio's."""
    kind: str = request.param
    if kind == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    return kind


@pytest.fixture
def broker_config() -> dict[str, object]:
    return {"socket.request.max.bytes": REQUEST_LIMIT, "max.connections": 8, "queued.max.requests": 10}


@pytest.fixture
def bystander(broker: Broker) -> Iterator[RawClient]:
    """A client that does nothing wrong, connected before the others."""
    with RawClient(broker.port) as client:
        client.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest())
        yield client


def frame(body: bytes) -> bytes:
    return _SIZE.pack(len(body)) + body


def request(key: int, version: int, body: bytes = b"", client_id: bytes = b"") -> bytes:
    return frame(_HEADER.pack(key, version, 1, len(client_id)) + client_id + body)


HOSTILE = {
    "too long": _SIZE.pack(REQUEST_LIMIT + 1),
    "as long as a number can be": _SIZE.pack(2**31 - 1),
    "negative length": _SIZE.pack(-1),
    "no room for a header": frame(b"\0" * 9),
    "empty": frame(b""),
    "text of another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "tls hello": bytes.fromhex("16030100f8010000f40303") + bytes(32),
    "unknown api": request(999, 0),
    "negative api": request(-1, 0),
    "api of a later issue": request(24, 0),
    "unknown version of a known api": request(ApiKey.METADATA, 99),
    "negative version": request(ApiKey.METADATA, -1),
    "produce in a version that is only announced": request(ApiKey.PRODUCE, 0, bytes(20)),
    "client id beyond the frame": frame(_HEADER.pack(ApiKey.METADATA, 0, 1, 500) + b"x"),
    "client id that is not text": request(ApiKey.METADATA, 0, bytes(4), client_id=b"\xff\xfe"),
    "body cut short": request(ApiKey.METADATA, 1, b"\0\0"),
    "array longer than the frame": request(ApiKey.METADATA, 1, b"\x7f\xff\xff\xff"),
    "string longer than the frame": request(ApiKey.FIND_COORDINATOR, 0, b"\x7f\xff"),
    "endless tagged fields": request(ApiKey.METADATA, 9, b"\xff\xff\xff\xff\x0f"),
    "tagged fields cut short": request(ApiKey.METADATA, 9),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_close_their_connection_and_no_other(broker: Broker, bystander: RawClient, name: str) -> None:
    with RawClient(broker.port) as attacker:
        attacker.socket.sendall(HOSTILE[name])
        assert attacker.is_closed_by_broker()

    assert bystander.ask(ApiKey.METADATA, 1, MetadataRequest(topics=None)).brokers


@pytest.mark.parametrize(("first", "protocol"), [(b"GET / HTTP/1.1\r\n\r\n", "HTTP"), (HOSTILE["tls hello"], "TLS")])
def test_another_protocol_is_named_in_the_log(
    broker: Broker, caplog: pytest.LogCaptureFixture, first: bytes, protocol: str
) -> None:
    """In place of a length that nobody has sent."""
    with RawClient(broker.port) as stranger:
        stranger.socket.sendall(first)
        while stranger.socket.recv(1000):
            """What HTTP is told."""

    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith(f"reason='it looks like {protocol}'")


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE"])
def test_a_browser_is_told_what_is_here(broker: Broker, method: str) -> None:
    with closing(HTTPConnection("127.0.0.1", broker.port, timeout=10)) as browser:
        browser.request(method, "/")
        answer = browser.getresponse()
        assert answer.status == 400
        assert method == "HEAD" or b"This is a Kafka broker" in answer.read()


def test_random_bytes_never_take_the_broker_down(broker: Broker, bystander: RawClient) -> None:
    """Whatever comes is refused or answered; the seed makes a failure reproducible."""
    chance = random.Random(42)
    for _ in range(300):
        key, version = chance.choice(list(VERSIONS.items()))
        body = chance.randbytes(chance.randrange(60))
        data = request(key, chance.randint(*version), body) if chance.random() < 0.8 else frame(chance.randbytes(40))
        with RawClient(broker.port) as attacker:
            attacker.socket.sendall(data)
            attacker.socket.shutdown(socket.SHUT_WR)
            while attacker.receive_frame():
                pass

    assert bystander.ask(ApiKey.METADATA, 1, MetadataRequest(topics=None)).brokers


def test_what_was_answered_before_the_fault_still_arrives(broker: Broker) -> None:
    with RawClient(broker.port) as attacker:
        attacker.socket.sendall(API_VERSIONS + HOSTILE["unknown api"])
        assert attacker.receive_frame()
        assert attacker.is_closed_by_broker()


def test_a_version_of_the_future_of_api_versions_is_answered_in_version_0(client: RawClient) -> None:
    """KIP-511: the client must be able to read the refusal and step down."""
    client.socket.sendall(request(ApiKey.API_VERSIONS, 500, bytes(30)))
    reply = client.receive_frame()

    answer, end = decode(ApiVersionsResponse, 0, reply, 4)
    assert end == len(reply)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    # franz-go does not ask again, and names no software, where it finds the other APIs.
    assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [(18, 0, 4)]
    assert client.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest()).error_code == 0


def test_a_frame_that_comes_byte_by_byte_is_one_request(client: RawClient) -> None:
    for byte in API_VERSIONS:
        client.socket.sendall(bytes([byte]))
    assert client.receive(ApiKey.API_VERSIONS, 0)[1].error_code == 0


def test_many_requests_of_one_read_are_answered_in_order(client: RawClient) -> None:
    count = 2_000
    message = ApiVersionsRequest()
    client.socket.sendall(
        b"".join(encode_request(ApiKey.API_VERSIONS, 0, message, correlation_id=number) for number in range(count))
    )
    assert [client.receive(ApiKey.API_VERSIONS, 0)[0] for _ in range(count)] == list(range(count))


def test_requests_behind_a_parked_fetch_are_read_ahead_and_answered_after_it(broker: Broker, client: RawClient) -> None:
    client.create_topic("t")
    parked = client.send(ApiKey.FETCH, 11, fetch_request("t", max_wait_ms=60_000))
    ahead = [client.send(ApiKey.PRODUCE, 9, produce_request("t", batch_of(b"x")))]
    ahead.append(client.send(ApiKey.METADATA, 1, MetadataRequest(topics=[])))

    # The produce request that was read ahead is what wakes the fetch.
    correlation_id, answer = client.receive(ApiKey.FETCH, 11)
    assert correlation_id == parked
    assert b"".join(map(bytes, [answer.responses[0].partitions[0].records]))
    assert client.receive(ApiKey.PRODUCE, 9)[0] == ahead[0]
    assert client.receive(ApiKey.METADATA, 1)[0] == ahead[1]


def test_reading_pauses_at_the_limit_of_unanswered_requests(broker: Broker, client: RawClient) -> None:
    """More requests than may be open: the rest is handled once the first is answered, and nothing is lost."""
    client.create_topic("t")
    client.send(ApiKey.FETCH, 11, fetch_request("t", max_wait_ms=60_000))
    later = [client.send(ApiKey.METADATA, 1, MetadataRequest(topics=[])) for _ in range(50)]

    with RawClient(broker.port) as other:
        other.produce("t", b"x")

    client.receive(ApiKey.FETCH, 11)
    assert [client.receive(ApiKey.METADATA, 1)[0] for _ in later] == later


def test_connections_beyond_the_limit_are_closed_and_the_others_go_on(broker: Broker) -> None:
    with_room = [RawClient(broker.port) for _ in range(8)]
    for each in with_room:
        each.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    with RawClient(broker.port) as one_too_many:
        assert one_too_many.is_closed_by_broker()

    with_room.pop().socket.close()
    _wait_for_room(broker)
    for each in with_room:
        assert each.ask(ApiKey.API_VERSIONS, 0, ApiVersionsRequest()).error_code == 0
        each.socket.close()


def _wait_for_room(broker: Broker) -> None:
    """Until the broker has seen that a connection is gone."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with RawClient(broker.port) as another:
            try:
                another.socket.sendall(API_VERSIONS)
                if another.receive_frame():
                    return
            except (ConnectionResetError, BrokenPipeError):
                continue
    raise AssertionError("no room for a connection though one was closed")


def test_a_client_that_does_not_read_holds_up_only_itself(broker: Broker, client: RawClient) -> None:
    """Its answers stay in the broker's log, not in memory: handling pauses until it reads."""
    client.create_topic("t")
    value = bytes(40_000)
    for _ in range(20):
        client.produce("t", value)
    with RawClient(broker.port) as slow:
        asked = [slow.send(ApiKey.FETCH, 11, fetch_request("t", max_bytes=1 << 20)) for _ in range(200)]
        # 200 answers of 800 kB are owed to a client that reads nothing; the other one is served.
        assert client.ask(ApiKey.METADATA, 1, MetadataRequest(topics=[])).brokers

        for correlation_id in asked:
            got, answer = slow.receive(ApiKey.FETCH, 11)
            assert got == correlation_id
            records = answer.responses[0].partitions[0].records
            assert len(list(iterate_records(records))) == 20


def test_a_client_that_asks_very_often_and_does_not_read_is_read_ahead_a_little() -> None:
    """500 requests of a megabyte each, 80 bytes long: they were all carried out in one turn, and held in memory."""

    async def dialogue() -> None:
        with wired_broker({}) as context:
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            client = WiredConnection(context)
            await client.ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=[topic]))
            await client.ask(ApiKey.PRODUCE, 9, produce_request("t", batch_of(bytes(1_000_000))))

            client.feed(encode_request(ApiKey.FETCH, 11, fetch_request("t", max_bytes=1 << 20)) * 500)
            assert 1_000_000 <= len(client.take_written()) <= 3_000_000

    asyncio.run(dialogue())


def test_a_client_that_vanishes_while_parked_leaves_nothing_behind(broker: Broker, client: RawClient) -> None:
    client.create_topic("t")
    for _ in range(20):
        with RawClient(broker.port) as gone:
            gone.send(ApiKey.FETCH, 11, fetch_request("t", max_wait_ms=60_000))

    assert client.produce("t", b"x").error_code == 0
    answer = client.ask(ApiKey.FETCH, 11, fetch_request("t"))
    assert [record.value for record in iterate_records(answer.responses[0].partitions[0].records)] == [b"x"]


class TestIdle:
    @pytest.fixture
    def broker_config(self) -> dict[str, object]:
        return {"connections.max.idle.ms": 200}

    @pytest.mark.parametrize("sent", [b"", API_VERSIONS[:7], API_VERSIONS], ids=["nothing", "half", "whole"])
    def test_a_connection_that_nobody_uses_is_closed(self, broker: Broker, sent: bytes) -> None:
        with RawClient(broker.port) as idle:
            idle.socket.sendall(sent)
            if sent == API_VERSIONS:
                assert idle.receive_frame()
            assert idle.is_closed_by_broker()

    def test_a_connection_that_waits_for_its_answer_is_in_use(self, broker: Broker) -> None:
        with RawClient(broker.port) as waiting:
            waiting.create_topic("t")
            answer = waiting.ask(ApiKey.FETCH, 11, fetch_request("t", max_wait_ms=700))
            assert answer.responses[0].partitions[0].error_code == 0
