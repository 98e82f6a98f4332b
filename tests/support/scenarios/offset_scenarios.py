"""What our client must do about offsets against any broker; see client_scenarios.py."""

from __future__ import annotations

import threading
from time import time_ns
from typing import Final

import pytest

from kohort import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from kohort.errors import BrokerError, ErrorCode, KohortError, PartlyDoneError, UnknownTopicError
from support.scenarios.client_scenarios import (
    LONG_SESSION_MS,
    PATIENCE_SECONDS,
    fresh,
    group_options,
    is_listed,
    new_topic,
    partitions_of,
    poll_until,
    send_values,
    wait_until,
)
from support.waiting import until

#: A little while ago: records from long ago are deleted by the first broker that looks.
_T: Final = time_ns() // 1_000_000 - 60_000
Ends = list[tuple[KohortError | None, dict[TopicPartition, OffsetAndMetadata]]]


def metadata_is_kept(bootstrap: str, protocol: str) -> None:
    """What is committed beside an offset comes back with it; too much of it is refused, and the next commit is good."""
    options = group_options(bootstrap, fresh("metadata"), protocol) | {"auto_offset_reset": "earliest"}
    with new_topic(bootstrap, "metadata", 2) as topic, Consumer(enable_auto_commit=False, **options) as consumer:
        first, second = partitions_of(topic, 2)
        send_values(bootstrap, topic, [b"%d" % number for number in range(10)])
        consumer.subscribe([topic])
        records = poll_until(consumer, 10)

        consumer.commit({first: OffsetAndMetadata(4, "half of ü", 0), second: 0})
        assert consumer.committed([first, second], metadata=True) == {
            first: OffsetAndMetadata(4, "half of ü", 0),
            second: OffsetAndMetadata(0),
        }
        with pytest.raises(BrokerError) as refused:
            consumer.commit({first: OffsetAndMetadata(5, "x" * 4_097)})
        assert refused.value.code is ErrorCode.OFFSET_METADATA_TOO_LARGE

        consumer.commit()
        assert consumer.committed(first, metadata=True) == OffsetAndMetadata(10, "", records[-1].leader_epoch)
        consumer.commit(records[6])
        assert consumer.committed(first) == 7
        assert consumer.committed(first, metadata=True) == OffsetAndMetadata(7, "", records[6].leader_epoch)
        consumer.commit(records[:3])
        assert consumer.committed([first]) == {first: 3}
        consumer.commit(message=records[7], asynchronous=True)
        consumer.commit({second: 0})
        assert consumer.committed(first) == 8
        assert consumer.committed(partitions_of(fresh("never"), 1)[0], metadata=True) is None


def asynchronous_commits_keep_their_order(bootstrap: str, protocol: str) -> None:
    """Callbacks run in the thread that polls, in order; what waits for its turn at the end is not lost."""
    group, ends = fresh("asynchronous"), Ends()
    options = group_options(bootstrap, group, protocol) | {"auto_offset_reset": "earliest"}
    threads: set[int] = set()

    def note(error: KohortError | None, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        threads.add(threading.get_ident())
        ends.append((error, offsets))

    with new_topic(bootstrap, "asynchronous") as topic:
        (first,) = partitions_of(topic, 1)
        send_values(bootstrap, topic, [b"%d" % number for number in range(500)])
        with Consumer(enable_auto_commit=False, **options) as consumer:
            consumer.subscribe([topic], on_revoked=lambda consumer, _: consumer.commit_async({first: 499}, note))
            for record in poll_until(consumer, 500)[:400]:
                consumer.commit_async(record, note)
            wait_until(lambda: len(ends) == 400, "every commit has ended", consumer)
            assert consumer.committed(first) == 400
            consumer.commit_async({first: 450}, note)
            consumer.commit({first: 440})
            assert [offsets[first].offset for _, offsets in ends] == [*range(1, 401), 450]
            consumer.commit_async(None, note)
        assert [offsets[first].offset for _, offsets in ends[401:]] == [500, 499]
        assert {error for error, _ in ends} == {None}
        assert threads == {threading.get_ident()}
        with Consumer(**options) as reader:
            assert reader.committed(first) == 499


def stored_offsets_are_committed(bootstrap: str, protocol: str) -> None:
    """What is committed is what was done: at a hand-over, and whoever comes next goes on there."""
    options = group_options(bootstrap, fresh("stored"), protocol) | {"auto_offset_reset": "earliest"}
    with new_topic(bootstrap, "stored", 2) as topic:
        for partition in range(2):
            send_values(bootstrap, topic, [b"%d" % number for number in range(10)], partition=partition)
        with Consumer(enable_auto_offset_store=False, **options) as consumer:
            consumer.subscribe([topic])
            for record in poll_until(consumer, 20):
                assert record.leader_epoch >= 0
                if record.offset < 4:
                    consumer.store_offsets(record)
            with Consumer(enable_auto_offset_store=False, **options) as other:
                other.subscribe([topic])
                read: list[int] = []
                until(
                    lambda: bool(read),
                    what="the other's first records",
                    step=lambda: (read.extend(record.offset for record in other.poll(0.05)), consumer.poll(0.05)),
                    seconds=PATIENCE_SECONDS,
                )
                assert read == [4, 5, 6, 7, 8, 9]
        with Consumer(**options) as reader:
            assert reader.committed(partitions_of(topic, 2)) == dict.fromkeys(partitions_of(topic, 2), 4)


def positions_are_sought(bootstrap: str) -> None:
    """Beginning, end and time; position and lag are right at once, beside partitions in which nothing happens."""
    with (
        new_topic(bootstrap, "sought", 3) as topic,
        Consumer(bootstrap_servers=bootstrap, auto_offset_reset="none") as consumer,
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        first, second, third = partitions_of(topic, 3)
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=_T + number * 1_000)
        producer.flush(10)
        consumer.assign([first, second, third])

        consumer.seek_to_beginning()
        assert [consumer.position(each) for each in (first, second, third)] == [0, 0, 0]
        assert [record.offset for record in poll_until(consumer, 10)] == list(range(10))
        wait_until(lambda: consumer.lag() == {first: 0, second: 0, third: 0}, "the end is known", consumer)

        consumer.seek_to_timestamp(_T + 6_500, first, second)
        assert (consumer.position(first), consumer.position(second)) == (7, 0)
        assert consumer.current_lag(first) == 3
        assert [record.offset for record in poll_until(consumer, 3)] == [7, 8, 9]

        consumer.seek(first, OffsetAndMetadata(8, "", 0))
        assert [record.offset for record in poll_until(consumer, 2)] == [8, 9]
        consumer.seek_to_end([first])
        assert consumer.position(first) == 10
        producer.send(topic, b"later", partition=0).result(10)
        assert [record.offset for record in poll_until(consumer, 1)] == [10]

        consumer.pause([first])
        consumer.seek_to_beginning(first)
        assert consumer.position(first) == 0
        consumer.resume([first])
        assert len(poll_until(consumer, 11)) == 11


def ends_are_known_without_asking(bootstrap: str, protocol: str) -> None:
    """What a fetch says of a log's ends: lag and watermarks; the rest is asked: other partitions, which topics are."""
    options = group_options(bootstrap, fresh("ends"), protocol) | {"auto_offset_reset": "earliest"}
    with new_topic(bootstrap, "ends", 2) as topic, Consumer(max_poll_records=4, **options) as consumer:
        first, second = partitions_of(topic, 2)
        send_values(bootstrap, topic, [b"%d" % number for number in range(10)])
        assert consumer.watermarks(first) == (0, 10)
        assert consumer.get_watermark_offsets(second) == (0, 0)
        assert consumer.lag() == {}
        consumer.subscribe([topic])
        poll_until(consumer, 4)

        assert consumer.current_lag(first) == 6
        assert consumer.watermarks(first, cached=True) == (0, 10)
        wait_until(lambda: consumer.lag([second]) == {second: 0}, "the other's end is known")
        poll_until(consumer, 6)
        assert consumer.lag([first]) == {first: 0}
        assert consumer.list_topics()[topic] == [0, 1]
        described = consumer.describe_topics([topic, fresh("nowhere")])
        assert {name: found.partitions for name, found in described.items()} == {topic: (0, 1)}
        assert described[topic] == consumer.describe_topics()[topic]
        assert len(described[topic].topic_id) == 22
        assert "__consumer_offsets" not in consumer.topics()
        send_values(bootstrap, topic, [b"one", b"more"])
        wait_until(lambda: consumer.highwater(first) == 12, "the new end is known")
        assert consumer.current_lag(first) == 2
        assert len(poll_until(consumer, 2)) == 2


def topic_made_again_is_read_from_its_beginning(bootstrap: str, protocol: str) -> None:
    """A member reads and commits, its topic is made again, at once and later: all of the new one is read."""
    options = group_options(bootstrap, fresh("remade"), protocol) | {"auto_offset_reset": "earliest"}
    with new_topic(bootstrap, "remade") as topic, Admin(bootstrap_servers=bootstrap) as admin:
        (first,) = partitions_of(topic, 1)
        with Consumer(auto_commit_interval_ms=100, allow_auto_create_topics=False, **options) as consumer:
            consumer.subscribe([topic])
            for is_at_once in (True, False):
                send_values(bootstrap, topic, [b"old"] * 100)
                assert {record.value for record in poll_until(consumer, 100)} == {b"old"}
                wait_until(lambda: consumer.committed(first) == 100, "all is committed", consumer)
                admin.delete_topics([topic])
                if not is_at_once:
                    wait_until(lambda: consumer.assignment() == set(), "the partition is given up", consumer)
                until(lambda: is_made(admin, topic), what="the topic is made again", seconds=PATIENCE_SECONDS)
                send_values(bootstrap, topic, [b"new"] * 300)

                records = poll_until(consumer, 300)

                assert [record.offset for record in records] == list(range(300))
                assert {record.value for record in records} == {b"new"}
                wait_until(lambda: consumer.committed(first) == 300, "all is committed again", consumer)
                admin.delete_topics([topic])
                until(lambda: is_made(admin, topic), what="the topic is made again", seconds=PATIENCE_SECONDS)


def is_made(admin: Admin, topic: str) -> bool:
    """Make a topic, once its name is free."""
    try:
        admin.create_topic(topic, 1)
    except BrokerError as error:
        assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS
        return False
    return True


def deleted_topic_holds_up_no_commit_of_another(bootstrap: str, protocol: str) -> None:
    """commit() stores what can be stored, and says at once of each partition what became of it."""
    options = group_options(bootstrap, fresh("beside"), protocol) | {"auto_offset_reset": "earliest"}
    with (
        new_topic(bootstrap, "stays") as stays,
        new_topic(bootstrap, "goes") as goes,
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(enable_auto_commit=False, allow_auto_create_topics=False, **options) as consumer,
    ):
        for topic in (stays, goes):
            send_values(bootstrap, topic, [b"%d" % number for number in range(10)])
        consumer.subscribe([stays, goes])
        poll_until(consumer, 20)
        (kept,), (gone,) = partitions_of(stays, 1), partitions_of(goes, 1)
        admin.delete_topics([goes])
        until(lambda: not is_listed(admin, goes), what="the topic is gone", seconds=PATIENCE_SECONDS)

        with pytest.raises(PartlyDoneError) as partly:
            consumer.commit({kept: 10, gone: 10}, timeout=PATIENCE_SECONDS)

        assert partly.value.done == {kept: OffsetAndMetadata(10)}
        assert isinstance(partly.value.failed[gone], UnknownTopicError), "it does not wait for a topic that is gone"
        assert not partly.value.retriable
        assert consumer.committed(kept) == 10


def automatic_commits_go_on_beside_a_deleted_topic(bootstrap: str, protocol: str) -> None:
    """What was read of it is dropped with one line; what is read of the others is committed in time."""
    # An automatic commit has the time of a request, which is longer here than anything in a test takes.
    slow = {"auto_offset_reset": "earliest", "request_timeout_ms": LONG_SESSION_MS * 2}
    options = group_options(bootstrap, fresh("beside"), protocol) | slow
    with (
        new_topic(bootstrap, "stays") as stays,
        new_topic(bootstrap, "goes") as goes,
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(auto_commit_interval_ms=1_000, allow_auto_create_topics=False, **options) as consumer,
    ):
        (kept,) = partitions_of(stays, 1)
        for topic in (stays, goes):
            send_values(bootstrap, topic, [b"%d" % number for number in range(10)])
        consumer.subscribe([stays, goes])
        poll_until(consumer, 20)
        admin.delete_topics([goes])

        for end in (10, 20):
            wait_until(lambda end=end: consumer.committed(kept) == end, f"{end} is committed", consumer)  # type: ignore[misc]
            send_values(bootstrap, stays, [b"%d" % number for number in range(10)])
            poll_until(consumer, 10)


def subscriber_leaves_a_deleted_topic_alone(bootstrap: str, protocol: str) -> None:
    """A topic that was there is not made again by whoever was subscribed to it."""
    options = group_options(bootstrap, fresh("alone"), protocol) | {"metadata_max_age_ms": 100}
    with (
        new_topic(bootstrap, "alone", 3) as topic,
        Admin(bootstrap_servers=bootstrap) as admin,
        Consumer(**options) as consumer,
    ):
        consumer.subscribe([topic, fresh("created")])
        wait_until(lambda: len(consumer.assignment()) >= 3, "an assignment", consumer)
        admin.delete_topics([topic])
        wait_until(lambda: not partitions_read(consumer, topic), "the partitions are given up", consumer)

        admin.create_topic(topic, 2)

        wait_until(lambda: partitions_read(consumer, topic) == {0, 1}, "the new ones are given", consumer)


def partitions_read(consumer: Consumer, topic: str) -> set[int]:
    """Which partitions of a topic a member holds."""
    return {each.partition for each in consumer.assignment() if each.topic == topic}
