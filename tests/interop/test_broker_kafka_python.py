"""kafka-python against our broker: produce, consume, classic groups, administration."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from kohort.broker.embedded import Broker
from support.peers.kafka_python_client import subscribe
from support.waiting import until

pytestmark = pytest.mark.interop


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config={"group.min.session.timeout.ms": 500}) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield admin
    admin.close()


@pytest.fixture
def produce(broker: Broker) -> Callable[..., None]:
    """Produce values and see each acknowledged."""

    def produce(topic: str, values: list[bytes], **config: Any) -> None:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, **config)
        sent = [producer.send(topic, value, key=b"key-%d" % number) for number, value in enumerate(values)]
        producer.flush(30)
        for future in sent:
            future.get(10)
        producer.close()

    return produce


class Member:
    """A consumer of group "g" that polls on a thread of its own, with what it saw.

    kafka-python 3.0 loses its way now and then if a poll ends in the middle of a rebalance; a thread each lets every
    poll wait as long as it needs, as in an application.
    """

    def __init__(self, broker: Broker, **config: Any) -> None:
        settings: dict[str, Any] = {
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 6_000,
            "heartbeat_interval_ms": 200,
        }
        self.consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, **{**settings, **config})
        self.values: list[bytes] = []
        self.something = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._poll_until_over)

    def __enter__(self) -> Member:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.pause()
        self.consumer.close()

    def pause(self) -> None:
        """Stop polling; from here on the consumer belongs to the caller."""
        self._is_over.set()
        self._thread.join()

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    def wait(self) -> None:
        """For a moment, or until something was read."""
        self.something.wait(0.05)
        self.something.clear()

    def _poll_until_over(self) -> None:
        subscribe(self.consumer, "t")
        while not self._is_over.is_set():
            for records in self.consumer.poll(timeout_ms=500).values():
                self.values += [record.value for record in records]
                self.something.set()


def settle(*members: Member, owned: list[int], total: int = 4) -> None:
    """Wait until the members own every partition once, and as many each as `owned` says."""

    def is_settled() -> bool:
        sizes = sorted(len(member.owned) for member in members)
        return sizes == sorted(owned) and len(set().union(*(member.owned for member in members))) == total

    until(is_settled, what=f"ownership {[member.owned for member in members]}", step=members[0].wait)


def create(admin: KafkaAdminClient, partitions: int = 4) -> None:
    admin.create_topics([NewTopic(name="t", num_partitions=partitions, replication_factor=1)])


@pytest.mark.parametrize("codec", [None, "gzip"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_what_is_produced_is_consumed(
    broker: Broker, admin: KafkaAdminClient, produce: Callable[..., None], codec: str | None, idempotent: bool
) -> None:
    create(admin, partitions=1)
    values = [b"value %d " % number + b"x" * 100 for number in range(500)]
    produce("t", values, compression_type=codec, enable_idempotence=idempotent, acks="all")
    with Member(broker) as member:
        until(lambda: len(member.values) >= len(values), what="every record", step=member.wait)
        assert member.values == values


def test_members_join_and_leave_and_every_partition_always_finds_an_owner(
    broker: Broker, admin: KafkaAdminClient
) -> None:
    create(admin)
    with ExitStack() as stack:
        first = stack.enter_context(Member(broker))
        settle(first, owned=[4])
        with Member(broker) as second:
            settle(first, second, owned=[2, 2])
        settle(first, owned=[4])


def test_a_group_goes_on_where_it_has_committed(
    broker: Broker, admin: KafkaAdminClient, produce: Callable[..., None]
) -> None:
    create(admin, partitions=1)
    produce("t", [b"%d" % number for number in range(10)])
    partition = TopicPartition("t", 0)
    with Member(broker) as member:
        until(lambda: len(member.values) >= 10, what="ten records", step=member.wait)
        member.pause()
        member.consumer.commit({partition: OffsetAndMetadata(6, "note", -1)})
        found = member.consumer.committed(partition, metadata=True)
        assert (found.offset, found.metadata) == (6, "note")
    with Member(broker) as member:
        until(lambda: len(member.values) >= 4, what="the four that were not committed", step=member.wait)
        assert member.values == [b"6", b"7", b"8", b"9"]


def test_offsets_at_the_ends_and_by_time(broker: Broker, admin: KafkaAdminClient, produce: Callable[..., None]) -> None:
    create(admin, partitions=1)
    produce("t", [b"a", b"b", b"c"])
    partition = TopicPartition("t", 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 3}
    assert consumer.offsets_for_times({partition: 0})[partition].offset == 0
    consumer.close()


def test_groups_and_topics_are_administered(broker: Broker, admin: KafkaAdminClient) -> None:
    create(admin)
    with pytest.raises((TopicAlreadyExistsError, KafkaError)):
        create(admin)
    with Member(broker) as member:
        settle(member, owned=[4])
        listed = admin.list_groups()
        assert "g" in str(listed)
        assert "Stable" in str(admin.describe_groups(["g"]))
    admin.delete_groups(["g"])
    assert "g" not in [each["group_id"] if isinstance(each, dict) else each[0] for each in admin.list_groups()]
    admin.delete_topics(["t"])
    assert "t" not in admin.list_topics()
