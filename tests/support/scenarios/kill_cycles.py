"""Producers, groups and commits of two clients on a broker that is killed again and again, noted as a history."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

import confluent_kafka

import kohort
from kohort.ids import TopicPartition
from kohort.testing import History
from support.peers.restarts import MortalBroker, Worker, wait_until

TOPIC: Final = "load"
PARTITIONS: Final = 3
#: Small, so that files are closed and begun under load.
SEGMENT_BYTES: Final = 16 * 1024
#: Records of one producer that wait for their answers.
WINDOW: Final = 40
#: A commit that is not answered by then never is.
COMMIT_SECONDS: Final = 30.0
_QUICK: Final = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


class Load(Protocol):
    """A producer."""

    def turn(self) -> None:
        """Send some more, or wait for room."""
        ...

    def finish(self) -> None:
        """Wait until every record has its end."""
        ...


class OurLoad:
    """kohort.Producer; idempotent by default."""

    def __init__(self, address: str, history: History, name: str) -> None:
        self._history: Final = history
        self._name: Final = name
        self._next = 0
        self._producer = kohort.Producer(bootstrap_servers=address, linger_ms=2, reconnect_backoff_max_ms=200)
        self._window = threading.Semaphore(WINDOW)

    def turn(self) -> None:
        if not self._window.acquire(timeout=0.1):
            return
        value, partition = f"{self._name}-{self._next}", self._next % PARTITIONS
        self._next += 1
        number = self._history.invoke(self._name, "send", topic=TOPIC, partition=partition, value=value)
        future = self._producer.send(TOPIC, value.encode(), partition=partition)

        def note(_: object) -> None:
            self._window.release()
            if future.exception() is None:
                self._history.ok(number, offset=future.result().offset)
            else:
                self._history.info(number, error=str(future.exception()))

        future.add_done_callback(note)

    def finish(self) -> None:
        self._producer.close(COMMIT_SECONDS)


class TheirLoad:
    """librdkafka's idempotent producer."""

    def __init__(self, address: str, history: History, name: str) -> None:
        self._history: Final = history
        self._name: Final = name
        self._next = 0
        options = {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 2, "retry.backoff.ms": 20}
        self._producer = confluent_kafka.Producer({**options, **_QUICK})

    def turn(self) -> None:
        if len(self._producer) >= WINDOW:
            self._producer.poll(0.05)
            return
        value, partition = f"{self._name}-{self._next}", self._next % PARTITIONS
        self._next += 1
        number = self._history.invoke(self._name, "send", topic=TOPIC, partition=partition, value=value)

        def note(error: object, message: confluent_kafka.Message) -> None:
            if error is None:
                self._history.ok(number, offset=message.offset())
            else:
                self._history.info(number, error=str(error))

        self._producer.produce(TOPIC, value.encode(), partition=partition, on_delivery=note)
        self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(COMMIT_SECONDS) == 0


class OurMember:
    """A consumer of a group that commits what it has read."""

    def __init__(self, address: str, history: History, name: str, group: str) -> None:
        self._history: Final = history
        self._name: Final = name
        self._group: Final = group
        self.consumer = kohort.Consumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            reconnect_backoff_max_ms=200,
        )

        def noting(event: str) -> Any:
            return lambda _, partitions: history.note(name, event, group=group, partitions=rows(partitions))

        self.consumer.subscribe(
            [TOPIC], on_assigned=noting("assigned"), on_revoked=noting("revoked"), on_lost=noting("lost")
        )

    def turn(self) -> None:
        """Read some, and commit it."""
        records = self.consumer.poll(0.1)
        if not records:
            return
        note_poll(self._history, self._name, records)
        news = {TopicPartition(TOPIC, each.partition): each.offset + 1 for each in records}
        number = self._history.invoke(
            self._name, "commit", group=self._group, offsets=[(*key, offset) for key, offset in news.items()]
        )
        try:
            self.consumer.commit(news, timeout=COMMIT_SECONDS)
        except kohort.KohortError as why:
            # The partition has gone to another member meanwhile, and nothing is known of the commit.
            self._history.info(number, error=str(why))
        else:
            self._history.ok(number)

    def finish(self) -> None:
        """Leave."""
        self.consumer.close()


class TheirMember:
    """The same of librdkafka."""

    def __init__(self, address: str, history: History, name: str, group: str) -> None:
        self._history: Final = history
        self._name: Final = name
        self._group: Final = group
        options = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
        quiet = {"enable.auto.commit": False, "fetch.wait.max.ms": 100, "group.protocol": "consumer"}
        self._consumer = confluent_kafka.Consumer({**options, **quiet, **_QUICK})

        def noting(event: str) -> Any:
            return lambda _, partitions: history.note(name, event, group=group, partitions=rows(partitions))

        self._consumer.subscribe(
            [TOPIC], on_assign=noting("assigned"), on_revoke=noting("revoked"), on_lost=noting("lost")
        )

    def turn(self) -> None:
        """Read some, and commit it."""
        messages = [each for each in self._consumer.consume(100, 0.1) if each.error() is None]
        if not messages:
            return
        found = [(TOPIC, each.partition(), each.offset(), (each.value() or b"").decode()) for each in messages]
        self._history.note(self._name, "poll", records=found)
        news = {partition: int(offset or 0) + 1 for _, partition, offset, _ in found}
        number = self._history.invoke(
            self._name, "commit", group=self._group, offsets=[(TOPIC, each, offset) for each, offset in news.items()]
        )
        offsets = [confluent_kafka.TopicPartition(TOPIC, int(each or 0), offset) for each, offset in news.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except confluent_kafka.KafkaException as why:
            self._history.info(number, error=str(why))
        else:
            self._history.ok(number)

    def finish(self) -> None:
        """Leave."""
        self._consumer.close()


def rows(partitions: Iterable[Any]) -> list[tuple[str, int]]:
    """Of either client."""
    return [(each.topic, each.partition) for each in partitions]


def note_poll(history: History, name: str, records: Iterable[Any]) -> None:
    """What one poll has brought."""
    found = [(each.topic, each.partition, each.offset, each.value.decode()) for each in records]
    history.note(name, "poll", records=found)


GROUPS: Final = ("ours", "theirs")


def note_committed(history: History, address: str) -> None:
    """What the coordinator has of each group."""
    with kohort.Admin(bootstrap_servers=address) as admin:
        for group in GROUPS:
            number = history.invoke("admin", "committed", group=group)
            found = [(row.topic, row.partition, row.committed) for row in admin.group_offsets(group)]
            history.ok(number, offsets=[row for row in found if row[2] is not None])


def read_everything(history: History, address: str) -> None:
    """A reader of all partitions, from their beginnings to their ends."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with kohort.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        history.note("reader", "assign", partitions=rows(partitions))
        ends = consumer.end_offsets(partitions)

        def is_read() -> bool:
            if records := consumer.poll(0.2, max_records=10_000):
                note_poll(history, "reader", records)
            return all(consumer.position(each) >= end for each, end in ends.items())

        wait_until(is_read, "everything is read")
    history.note("reader", "finish")


def kill_again_and_again(directory: Path, *, cycles: int, seed: int) -> History:
    """The history of so many lives of a broker."""
    chance = Random(seed)
    history = History()
    with MortalBroker(directory) as broker, ExitStack() as stack:
        with kohort.Admin(bootstrap_servers=broker.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS, configs={"segment.bytes": SEGMENT_BYTES})
        address = broker.address
        loads: list[Load] = [OurLoad(address, history, "producer-1"), TheirLoad(address, history, "producer-2")]
        members = [OurMember(address, history, f"member-{number}", "ours") for number in (1, 2)]
        others = [TheirMember(address, history, "member-3", "theirs")]
        producing = [stack.enter_context(Worker(each.turn)) for each in loads]
        consuming = [stack.enter_context(Worker(each.turn)) for each in (*members, *others)]
        for _ in range(cycles):
            seen = len(history.events)
            wanted = chance.randrange(20, 400)
            waited: set[str] = set()

            def has_worked(seen: int = seen, wanted: int = wanted, waited: set[str] = waited) -> bool:
                for worker in (*producing, *consuming):
                    worker.check()
                waited.update(each.name for each in history.events[seen:] if each.kind == "ok")
                return len(history.events) > seen + wanted and {"send", "poll", "commit"} <= waited

            wait_until(has_worked, "clients go on after a restart")
            broker.kill()
            broker.revive()
            note_committed(history, address)
        for worker, load in zip(producing, loads, strict=True):
            worker.stop()
            load.finish()
        for worker in consuming:
            worker.stop()
        note_committed(history, address)
        read_everything(history, address)
        for member in (*members, *others):
            member.finish()
    return history
