"""Members of two clients come and go in one group while the broker is killed: every record is processed, none twice.

Each member commits what it has processed before it asks for more, and gives its partitions up cleanly, so that not one
record may be seen twice, whatever was revoked, refused or repeated on the way.
Source: requirements G2, G8, G11, B3.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Protocol

import confluent_kafka
import pytest

import kohort
from kohort.errors import BrokersUnreachableError
from support.peers.restarts import MortalBroker, Worker, wait_until

pytestmark = pytest.mark.interop

TOPIC = "work"
PARTITIONS = 6
MEMBERS = 3
KILLS = 2
#: Records that are acknowledged before the first kill, between two and after the last.
RECORDS = 1200
CLASSIC = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}


class Member(Protocol):
    """One life of a member."""

    def work(self) -> Iterable[tuple[int, int]]:
        """Partition and offset of the records that were processed and committed in a turn."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class OurMember:
    def __init__(self, address: str, protocol: str) -> None:
        config: dict[str, object] = {
            "bootstrap.servers": address,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
        }
        self._consumer = kohort.Consumer.from_config(config | (CLASSIC if protocol == "classic" else {}))
        self._consumer.subscribe([TOPIC])

    def work(self) -> Iterable[tuple[int, int]]:
        try:
            records = self._consumer.poll(0.1)
        except BrokersUnreachableError:
            # It was born while the broker was dead, and is told so.
            return []
        if records:
            self._consumer.commit()
        return [(record.partition, record.offset) for record in records]

    def close(self) -> None:
        self._consumer.close()


class TheirMember:
    def __init__(self, address: str, protocol: str) -> None:
        config: dict[str, object] = {
            "bootstrap.servers": address,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        if protocol == "classic":
            # Members of one classic group need one assignor that all of them know.
            config |= {**CLASSIC, "partition.assignment.strategy": "range"}
        self._consumer = confluent_kafka.Consumer(config)
        self._consumer.subscribe([TOPIC])

    def work(self) -> Iterable[tuple[int, int]]:
        messages = [message for message in self._consumer.consume(500, 0.1) if message.error() is None]
        if messages:
            self._consumer.commit(asynchronous=False)
        return [(message.partition() or 0, message.offset() or 0) for message in messages]

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.parametrize(("protocol", "seed"), [("consumer", 1), ("classic", 2)])
def test_every_record_is_processed_once(tmp_path: Path, protocol: str, seed: int) -> None:
    processed: Counter[tuple[int, int]] = Counter()
    guard = threading.Lock()

    def lives_of(number: int) -> Worker:
        """One life after another, each of a random length and of a random client."""
        chance = random.Random(seed * 100 + number)

        def live() -> None:
            kinds: list[Callable[[str, str], Member]] = [OurMember, OurMember, TheirMember]
            member = chance.choice(kinds)(broker.address, protocol)
            try:
                for _ in range(chance.randrange(5, 40)):
                    rows = member.work()
                    with guard:
                        processed.update(rows)
            finally:
                member.close()

        return Worker(live)

    def has_processed(count: int) -> bool:
        return len(processed) >= count

    config = {"group.consumer.session.timeout.ms": 6000, "group.consumer.min.session.timeout.ms": 1000}
    with MortalBroker(tmp_path, config) as broker, ExitStack() as stack:
        with kohort.Admin(bootstrap_servers=broker.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        producer = stack.enter_context(kohort.Producer(bootstrap_servers=broker.address, reconnect_backoff_max_ms=200))
        workers = [stack.enter_context(lives_of(number)) for number in range(MEMBERS)]
        acknowledged: set[tuple[int, int]] = set()
        for turn in range(KILLS + 1):
            futures = [producer.send(TOPIC, b"x", partition=number % PARTITIONS) for number in range(RECORDS)]
            if turn < KILLS:
                half = RECORDS * turn + RECORDS // 2
                wait_until(partial(has_processed, half), "half of the records are processed", seconds=60)
                broker.kill()
                broker.revive()
            acknowledged |= {(done.partition, done.offset) for done in (future.result(30) for future in futures)}
        wait_until(lambda: len(processed) >= len(acknowledged), "every record is processed", seconds=60)
        for worker in workers:
            worker.stop()
    assert len(acknowledged) == RECORDS * (KILLS + 1)
    assert set(processed) == acknowledged
    assert {row: times for row, times in processed.items() if times > 1} == {}
