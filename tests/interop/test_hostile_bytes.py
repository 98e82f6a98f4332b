"""Bytes that no client should send, while others work: the sender gets the protocol's error or is cut off, nobody else.

Laws: after each bad input a producer and two members of groups, connected all the while, still do their work; memory
follows the bytes that came, not those that were announced.
Source: Apache Kafka's request parsing and LogValidator; KIP-511; KIP-848 (errors of ConsumerGroupHeartbeat).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import pytest

import kohort
from kohort.errors import ErrorCode
from kohort.records.batch import build_batch
from kohort.records.checksum import crc32c
from kohort.wire.codec import decode, encode
from kohort.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataResponse
from kohort.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kohort.wire.registry import SERVED, ApiKey
from support.dialogues.raw_client import RawClient, frame, request_frame
from support.waiting import until

pytestmark = pytest.mark.interop

REQUEST_LIMIT_BYTES = 1 << 20
DEADLINE_SECONDS = 20.0


class Bystanders:
    """A producer and two members, of our client and of librdkafka, that must not notice anything."""

    def __init__(self, address: str, stack: ExitStack) -> None:
        with kohort.Admin(bootstrap_servers=address) as admin:
            admin.create_topic("work")
        self._producer = stack.enter_context(kohort.Producer(bootstrap_servers=address, linger_ms=0))
        # A member has its partition a little before it knows where to begin; the first record must not fall in between.
        self._ours = stack.enter_context(
            kohort.Consumer(bootstrap_servers=address, group_id="ours", auto_offset_reset="earliest")
        )
        self._ours.subscribe(["work"])
        self.errors: list[confluent_kafka.KafkaError] = []
        self._theirs = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "theirs",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "error_cb": self.errors.append,
            }
        )
        stack.callback(self._theirs.close)
        self._theirs.subscribe(["work"])
        self._sent = 0
        self._wait(lambda: bool(self._poll_ours() or self._ours.assignment()))
        self._wait(lambda: bool(self._poll_theirs() or self._theirs.assignment()))
        self._epoch = self._ours.group_epoch

    def check(self) -> None:
        """One record goes through all three."""
        self._sent += 1
        text = b"record %d" % self._sent
        self._producer.send("work", text).result(DEADLINE_SECONDS)
        self._wait(lambda: text in self._poll_ours())
        self._wait(lambda: text in self._poll_theirs())
        assert self._ours.group_epoch == self._epoch, "the group was disturbed"
        assert self.errors == []

    def _poll_ours(self) -> list[bytes | None]:
        return [record.value for record in self._ours.poll(0.1)]

    def _poll_theirs(self) -> list[bytes | None]:
        return [record.value() for record in self._theirs.consume(100, 0.1)]

    @staticmethod
    def _wait(is_done: Callable[[], bool]) -> None:
        until(is_done, what="a client that did nothing wrong goes on", seconds=DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    config = {
        "socket.request.max.bytes": REQUEST_LIMIT_BYTES,
        "message.max.bytes": REQUEST_LIMIT_BYTES // 2,
        "group.consumer.heartbeat.interval.ms": 300,
    }
    with kohort.Broker(process=True, config=config) as broker:
        yield broker


@pytest.fixture(scope="module")
def bystanders(broker: kohort.Broker) -> Iterator[Bystanders]:
    with ExitStack() as stack:
        yield Bystanders(broker.bootstrap_servers, stack)


@pytest.fixture
def attacker(broker: kohort.Broker, bystanders: Bystanders) -> Iterator[RawClient]:
    """A connection to misuse; afterwards the others are asked how they are."""
    with RawClient(broker.bootstrap_servers) as client:
        yield client
    bystanders.check()


def random_bytes(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(size)


# ---- frames

GREETING = request_frame(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
#: Reads as a topic list of 2^31 - 1 entries.
ENDLESS_ARRAY = frame(ApiKey.METADATA, 1, b"\x7f\xff\xff\xff" + b"\x00\x01t")

CLOSED: dict[str, bytes] = {
    "longest length": b"\x7f\xff\xff\xff",
    "a little too long": (REQUEST_LIMIT_BYTES + 1).to_bytes(4, "big") + bytes(100),
    "negative length": b"\xff\xff\xff\xff" + bytes(100),
    "empty": bytes(4),
    "shorter than a header": b"\x00\x00\x00\x04" + bytes(4),
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "unknown API": frame(999, 0, b""),
    "negative API": frame(-1, 0, b""),
    "API for brokers only": frame(4, 0, bytes(20)),
    "unknown version": frame(ApiKey.METADATA, 99, encode(MetadataRequest(topics=None), 12), header_version=2),
    "negative version": frame(ApiKey.METADATA, -1, encode(MetadataRequest(topics=None), 1)),
    "version long gone": frame(ApiKey.PRODUCE, 0, bytes(30)),
    "client id beyond the end": b"\x00\x00\x00\x0c" + b"\x00\x03\x00\x01\x00\x00\x00\x01\x7f\xff" + bytes(2),
    "no UTF-8 in the client id": b"\x00\x00\x00\x10" + b"\x00\x03\x00\x01\x00\x00\x00\x01\x00\x02\xff\xfe" + bytes(4),
    "body cut off": frame(ApiKey.METADATA, 1, b"\x00\x00\x00\x02\x00\x01"),
    "body missing": frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, b"", header_version=2),
    "array without end": ENDLESS_ARRAY,
    "header tags without end": frame(ApiKey.METADATA, 12, b"")[:-1] + b"\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize("data", CLOSED.values(), ids=CLOSED)
def test_what_cannot_be_understood_closes_its_connection(attacker: RawClient, data: bytes) -> None:
    attacker.send(data)
    assert attacker.is_closed_by_peer()


@pytest.mark.parametrize("data", CLOSED.values(), ids=CLOSED)
def test_answers_to_what_came_before_still_leave(attacker: RawClient, data: bytes) -> None:
    attacker.send(GREETING + data)
    assert attacker.receive()[:4] == b"\x00\x00\x00\x01"
    assert attacker.is_closed_by_peer()


def test_http_is_answered_in_http_if_it_comes_first(attacker: RawClient) -> None:
    attacker.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert attacker.receive_rest().startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_http_behind_a_request_is_no_more_than_a_wrong_length(attacker: RawClient) -> None:
    attacker.send(GREETING + b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert attacker.receive()[:4] == b"\x00\x00\x00\x01"
    assert attacker.is_closed_by_peer()


@pytest.mark.parametrize("cut", [1, 3, 4, 9, len(GREETING) - 1])
def test_a_frame_that_ends_early_is_given_up_with_its_connection(attacker: RawClient, cut: int) -> None:
    attacker.send(GREETING[:cut])
    attacker.end_writing()
    assert attacker.is_closed_by_peer()


def test_bytes_one_by_one_are_a_request_all_the_same(attacker: RawClient) -> None:
    for position in range(len(GREETING)):
        attacker.send(GREETING[position : position + 1])
    assert attacker.receive()[:4] == b"\x00\x00\x00\x01"


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(attacker: RawClient) -> None:
    """KIP-511: so that a newer client learns what is spoken, and goes on with the same connection."""
    attacker.send(frame(ApiKey.API_VERSIONS, 99, b"\x01\x02\x03", correlation_id=7, header_version=2))
    content = attacker.receive()
    answer, end = decode(ApiVersionsResponse, 0, content, 4)
    assert (content[:4], end) == (b"\x00\x00\x00\x07", len(content))
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    (row,) = [row for row in answer.api_keys if row.api_key == ApiKey.API_VERSIONS]
    assert row.max_version == SERVED[ApiKey.API_VERSIONS][1]
    answer_again = attacker.ask(ApiVersionsRequest(client_software_name="raw", client_software_version="1"), 3)
    assert isinstance(answer_again, ApiVersionsResponse)
    assert answer_again.error_code == 0


@pytest.mark.parametrize("seed", range(10))
def test_random_bytes(broker: kohort.Broker, bystanders: Bystanders, seed: int) -> None:
    for turn in range(10):
        with RawClient(broker.bootstrap_servers) as client:
            client.send_rest_lost(random_bytes(seed * 100 + turn, 20_000))
            client.end_writing()
            assert client.is_closed_by_peer()
    bystanders.check()


@pytest.mark.parametrize("seed", range(10))
def test_random_bodies_of_every_api(broker: kohort.Broker, bystanders: Bystanders, seed: int) -> None:
    """A frame that is right as a frame reaches the decoder, and perhaps the handler, of its API."""
    for key, (lowest, highest) in SERVED.items():
        with RawClient(broker.bootstrap_servers) as client:
            version = lowest + seed % (highest - lowest + 1)
            body = random_bytes(seed * 1000 + key, 50 + 10 * seed)
            client.send(frame(key, version, body, header_version=1))
            client.end_writing()
            while client.socket.recv(65536):
                """Whatever it says is fine; what counts is that the connection ends and the others go on."""
    bystanders.check()


def test_announced_bytes_take_no_memory_until_they_come(broker: kohort.Broker, bystanders: Bystanders) -> None:
    def resident_bytes() -> int:
        status = Path(f"/proc/{broker.process_id}/status")
        if not status.exists():
            pytest.skip("memory is read from /proc")
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024

    before = resident_bytes()
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(broker.bootstrap_servers)) for _ in range(100)]
        for client in clients:
            client.send(REQUEST_LIMIT_BYTES.to_bytes(4, "big") + bytes(1000))
        bystanders.check()
        assert resident_bytes() - before < 20 << 20, "100 MiB were announced, 100 kB sent"
    bystanders.check()


# ---- batches


def batch(count: int = 3) -> bytearray:
    return bytearray(build_batch([(b"key", b"value %d" % number, 1_000, ()) for number in range(count)]))


def patched(position: int, size: int, value: int, *, with_crc: bool = True) -> bytes:
    """A batch with one number changed, and a CRC that agrees with it if wished."""
    data = batch()
    data[position : position + size] = value.to_bytes(size, "big", signed=True)
    if with_crc:
        data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    return bytes(data)


#: Not as a batch that was damaged on its way, but as no producer may send one.
ILL_FORMED: dict[str, bytes] = {
    "more records than fit": patched(57, 4, 1_000_000),
    "records negative": patched(57, 4, -1),
    "no records": patched(57, 4, 0),
    "fewer records than offsets": patched(57, 4, 2),
    "offsets negative": patched(23, 4, -3),
    "more offsets than records": patched(23, 4, 1_000),
    "length too short": patched(8, 4, len(batch()) - 12 - 1),
    "bytes behind it": bytes(batch()) + b"\x00",
    "second one": bytes(batch()) * 2,
    "nothing": b"",
    "format 1": patched(16, 1, 1, with_crc=False),
    "control batch": patched(21, 2, 0x20),
}
CORRUPT: dict[str, bytes] = {
    "one bit of the last byte": bytes(batch()[:-1]) + bytes([batch()[-1] ^ 1]),
    "one bit of the CRC": patched(17, 1, batch()[17] // 2 ^ 1, with_crc=False),
    "length too long": patched(8, 4, len(batch()) - 12 + 1),
    "length far too long": patched(8, 4, 0x7FFFFFFF),
    "length below a header": patched(8, 4, 10),
    "length zero": patched(8, 4, 0),
    "length negative": patched(8, 4, -1),
    "cut off": bytes(batch()[:-5]),
    "cut off in the header": bytes(batch()[:40]),
}  # fmt: skip
REFUSED: dict[str, tuple[bytes, ErrorCode]] = {
    **{name: (data, ErrorCode.CORRUPT_MESSAGE) for name, data in CORRUPT.items()},
    **{name: (data, ErrorCode.INVALID_RECORD) for name, data in ILL_FORMED.items()},
    "unknown codec": (patched(21, 2, 7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "too large": (bytes(build_batch([(None, bytes(600_000), 0, ())])), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.fixture(scope="module")
def log(broker: kohort.Broker) -> str:
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("log", 2)
    return "log"


def produce(client: RawClient, topic: str, batches: dict[int, bytes], *, acks: int = -1) -> dict[int, ErrorCode]:
    request = ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[PartitionProduceData(index=index, records=data) for index, data in batches.items()],
            )
        ],
    )
    answer = client.ask(request, 9)
    assert isinstance(answer, ProduceResponse)
    (row,) = answer.responses
    return {each.index: ErrorCode(each.error_code) for each in row.partition_responses}


def end_offsets(broker: kohort.Broker, topic: str) -> list[int]:
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return [row.end_offset for row in admin.describe_topics([topic])[0].partitions]


@pytest.mark.parametrize(("data", "code"), REFUSED.values(), ids=REFUSED)
def test_a_damaged_batch_is_refused_and_nothing_is_stored(
    broker: kohort.Broker, attacker: RawClient, log: str, data: bytes, code: ErrorCode
) -> None:
    before = end_offsets(broker, log)
    for acks in (-1, 1):
        assert produce(attacker, log, {0: data}, acks=acks) == {0: code}
    assert end_offsets(broker, log) == before


def test_a_damaged_batch_does_not_spoil_its_neighbour(broker: kohort.Broker, attacker: RawClient, log: str) -> None:
    before = end_offsets(broker, log)
    damaged = CORRUPT["one bit of the last byte"]
    answers = produce(attacker, log, {0: damaged, 1: bytes(batch())})
    assert answers == {0: ErrorCode.CORRUPT_MESSAGE, 1: ErrorCode.NONE}
    assert end_offsets(broker, log) == [before[0], before[1] + 3]


def test_without_acks_a_damaged_batch_closes_the_connection(
    broker: kohort.Broker, attacker: RawClient, log: str
) -> None:
    """As in Kafka: it is the only way to tell a producer that does not listen."""
    before = end_offsets(broker, log)
    request = ProduceRequest(
        acks=0,
        timeout_ms=0,
        topic_data=[
            TopicProduceData(
                name=log, partition_data=[PartitionProduceData(index=0, records=CORRUPT["length negative"])]
            )
        ],
    )
    attacker.send(request_frame(request, 9))
    assert attacker.is_closed_by_peer()
    assert end_offsets(broker, log) == before


def test_nobody_writes_the_coordinators_log(broker: kohort.Broker, attacker: RawClient) -> None:
    """A forged record there would be state of every group after the next start."""
    before = end_offsets(broker, "__consumer_offsets")
    assert produce(attacker, "__consumer_offsets", {0: bytes(batch())}) == {0: ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert end_offsets(broker, "__consumer_offsets") == before


# ---- groups


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("group", ["never-seen", "ours"])
def test_a_live_member_that_is_not_known_is_told_so(attacker: RawClient, group: str, version: int) -> None:
    """GROUP_ID_NOT_FOUND would be fatal to Java's client and to librdkafka; with UNKNOWN_MEMBER_ID they join again."""
    heartbeats = [
        ConsumerGroupHeartbeatRequest(group_id=group, member_id="a-member", member_epoch=5),
        ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="a-member",
            member_epoch=5,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["work"],
            topic_partitions=[TopicPartitions(topic_id=bytes(range(16)), partitions=[0])],
        ),
    ]
    for heartbeat in heartbeats:
        answer = attacker.ask(heartbeat, version)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_is_not_known_is_told_so(attacker: RawClient) -> None:
    answer = attacker.ask(HeartbeatRequest(group_id="never-seen", generation_id=3, member_id="a-member"), 4)
    assert isinstance(answer, HeartbeatResponse)
    assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_MEMBER_ID


def test_metadata_is_still_answered_after_all_this(attacker: RawClient) -> None:
    answer = attacker.ask(MetadataRequest(topics=None), 12)
    assert isinstance(answer, MetadataResponse)
    assert {topic.name for topic in answer.topics} >= {"work"}
