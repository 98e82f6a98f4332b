"""Members of small groups as their libraries make them, which note what they own and since when.

The times are taken in the callbacks of a rebalance; of Java's consumer when a line of its process comes, which says
what it owns every 10 ms.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

#: How long a client's call waits for records.
POLL_S = 0.02
COMMIT_EVERY_S = 0.1
Owned = frozenset[int]


class Member(Protocol):
    """`changes`: (time, partitions from then on); `began`: when it was ready to join, `None` before that."""

    changes: list[tuple[float, Owned]]
    began: float | None

    def close(self) -> None: ...


class _Polling(ABC):
    """A consumer of this process, on a thread of its own."""

    def __init__(self) -> None:
        self.changes: list[tuple[float, Owned]] = []
        self.began: float | None = None
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        self._is_closing.set()
        self._thread.join()

    def note(self, owned: set[int]) -> None:
        self.changes.append((time.monotonic(), frozenset(owned)))

    @property
    def owned(self) -> set[int]:
        return set(self.changes[-1][1]) if self.changes else set()

    @abstractmethod
    def _run(self) -> None:
        """Join, and poll until it is closed."""


class ConfluentMember(_Polling):
    """confluent-kafka. `strategy`: of the classic protocol, `None`: the consumer protocol."""

    def __init__(self, address: str, group: str, topic: str, *, strategy: str | None, commits: bool = False) -> None:
        self._config = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
        if strategy is None:
            self._config["group.protocol"] = "consumer"
        else:
            self._config["partition.assignment.strategy"] = strategy
        self._is_eager = strategy == "range"
        self._topic, self._commits = topic, commits
        super().__init__()

    def _run(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(self._config)
        self.began = time.monotonic()
        consumer.subscribe([self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke)
        committed = self.began
        while not self._is_closing.is_set():
            consumer.poll(POLL_S)
            if self._commits and time.monotonic() - committed >= COMMIT_EVERY_S:
                committed = time.monotonic()
                self._commit(consumer)
        consumer.close()
        self.note(set())

    def _commit(self, consumer: Any) -> None:
        from confluent_kafka import TopicPartition

        if self.owned:
            offsets = [TopicPartition(self._topic, number, 0) for number in self.owned]
            consumer.commit(offsets=offsets, asynchronous=True)

    def _assign(self, _: Any, partitions: Sequence[Any]) -> None:
        given = {each.partition for each in partitions}
        self.note(given if self._is_eager else self.owned | given)

    def _revoke(self, _: Any, partitions: Sequence[Any]) -> None:
        self.note(set() if self._is_eager else self.owned - {each.partition for each in partitions})


class OurMember(_Polling):
    """kohort's own consumer, the consumer protocol."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self._address, self._group, self._topic = address, group, topic
        super().__init__()

    def _run(self) -> None:
        from kohort import Consumer

        with Consumer(bootstrap_servers=self._address, group_id=self._group, group_protocol="consumer") as consumer:
            self.began = time.monotonic()
            consumer.subscribe([self._topic], on_assigned=self._assigned, on_revoked=self._revoked)
            while not self._is_closing.is_set():
                consumer.poll(POLL_S)
        self.note(set())

    def _assigned(self, _: Any, partitions: Sequence[Any]) -> None:
        self.note(self.owned | {each.partition for each in partitions})

    def _revoked(self, _: Any, partitions: Sequence[Any]) -> None:
        self.note(self.owned - {each.partition for each in partitions})


class JavaMember:
    """Apache Kafka's own consumer in a process of its own, the consumer protocol."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        from support.peers.java_member import JavaMember as Process

        self.changes: list[tuple[float, Owned]] = []
        self.began: float | None = None
        self._process = Process(address, topic=topic, group_id=group, on_line=self._read, poll_ms="10")

    def close(self) -> None:
        self._process.close()

    def _read(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "joins":
            self.began = time.monotonic()
        elif word == "held":
            owned = frozenset(int(name.rpartition("-")[2]) for name in rest.split())
            self.changes.append((time.monotonic(), owned))
        elif word == "closed":
            self.changes.append((time.monotonic(), frozenset()))


def is_shared_out(members: Sequence[Member], partitions: int) -> bool:
    """Whether each partition is owned by one of them, and all have equal shares, or nearly."""
    owned = [member.changes[-1][1] if member.changes else frozenset() for member in members]
    sizes = [len(each) for each in owned]
    return sum(sizes) == len(frozenset().union(*owned)) == partitions and max(sizes) - min(sizes) <= 1


def longest_unowned_s(members: Sequence[Member], partitions: int, *, since: float) -> float:
    """The longest time that a partition which moved was nobody's, seconds."""
    longest = 0.0
    for number in range(partitions):
        left: float | None = None
        for moment, is_owned in _timeline(members, number):
            if is_owned:
                longest = max(longest, moment - left if left is not None and left >= since else 0.0)
                left = None
            elif left is None:
                left = moment
    return longest


def _timeline(members: Sequence[Member], number: int) -> list[tuple[float, bool]]:
    """When somebody got a partition, and when its owner gave it up."""
    events = []
    for member in members:
        before = False
        for moment, owned in member.changes:
            if (number in owned) != before:
                before = not before
                events.append((moment, before))
    return sorted(events)


Make = Callable[[str, str, str], Member]
