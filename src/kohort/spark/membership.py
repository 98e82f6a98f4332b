"""Who owns which partitions: the query's membership in a group, or simply all of them.

A streaming query is a member of its group through a consumer that fetches nothing: it heartbeats on a background
thread, holds partitions and commits. Spark may call nothing for minutes; the thread keeps the partitions.

Laws: a revoked partition is given up only when no running batch reads it and its offset is committed, or when the
member is fenced; a partition that is being revoked is never planned again; the group's offsets only move forward.
Source: P2 to P4; architecture, journey of a micro-batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from kohort.client.consumer import Consumer
from kohort.errors import KohortError, KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.spark.batch import find_partitions
from kohort.spark.offsets import Span
from kohort.spark.options import SourceOptions


class Ownership(Protocol):
    """What the stream reader needs to know and to say about its partitions."""

    #: Answers questions about offsets; holds the connection.
    consumer: Consumer

    def wait_until_joined(self) -> None:
        """Return when the first assignment is known."""
        ...

    def plan(self, choose: Callable[[set[TopicPartition]], dict[TopicPartition, Span]]) -> dict[TopicPartition, Span]:
        """Let `choose` pick spans among the partitions that may be read now; they are in flight from here on."""
        ...

    def resume_batch(self, partitions: Iterable[TopicPartition]) -> None:
        """A batch that was planned by an earlier run is read again."""
        ...

    def finish(self, spans: Mapping[TopicPartition, Span]) -> None:
        """Spark has committed the batch of `spans`: commit their ends, then give up what was revoked meanwhile."""
        ...

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's offsets, without those that are not committed."""
        ...

    def begin_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """Tell the group where partitions without a committed offset start, so that the next owner agrees."""
        ...

    def close(self) -> None:
        """Leave; the partitions are free at once."""
        ...


class EveryPartition:
    """Without a group: all partitions, always; nothing is committed anywhere but in Spark's checkpoint."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.consumer = Consumer.from_config({**options.client, "enable.auto.commit": False})

    def wait_until_joined(self) -> None:
        """There is nothing to join."""

    def plan(self, choose: Callable[[set[TopicPartition]], dict[TopicPartition, Span]]) -> dict[TopicPartition, Span]:
        """Everything may be read, partitions that were added since included."""
        return choose(set(find_partitions(self.consumer, self._options)))

    def resume_batch(self, partitions: Iterable[TopicPartition]) -> None:
        """Nobody else could take them."""

    def finish(self, spans: Mapping[TopicPartition, Span]) -> None:
        """The checkpoint knows it already."""

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Nothing is committed without a group."""
        return {}

    def begin_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """The checkpoint will know it."""

    def close(self) -> None:
        """Close the connection."""
        self.consumer.close(timeout=5.0)


class GroupMember:
    """A member of `kafka.group.id`; see the module's laws."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.group_id is not None
        self._options = options
        self._changed = threading.Condition()
        #: Partitions that the group has given to us and that we have not given back.
        self._owned: set[TopicPartition] = set()
        #: Subset of `_owned`: the group wants them back.
        self._revoking: set[TopicPartition] = set()
        #: What the running batch reads; a revocation of these waits.
        self._in_flight: set[TopicPartition] = set()
        self._was_assigned = False
        self._closing = False
        self._failure: BaseException | None = None
        self.consumer = Consumer.from_config(
            {
                **options.client,
                "group.id": options.group_id,
                "enable.auto.commit": False,
                # Each member says where a partition without a committed offset starts (`begin_at`).
                "auto.offset.reset": "none",
                # The member's rebalance timeout: how long the group waits for a running batch.
                "max.poll.interval.ms": options.group_rebalance_timeout_ms,
            }
        )
        self._thread = threading.Thread(target=self._run, name="kohort-spark-member", daemon=True)
        self._thread.start()

    def wait_until_joined(self) -> None:
        """Return when the first assignment has come; an empty one counts, as in a group with members to spare."""
        timeout_s = self._options.group_join_timeout_ms / 1000
        with self._changed:
            self._changed.wait_for(lambda: self._was_assigned or self._failure is not None, timeout_s)
            self._raise_failure()
            if not self._was_assigned:
                raise KohortTimeoutError(
                    f"group {self._options.group_id} gave no assignment within {timeout_s:.0f} s; "
                    "is another member stuck, or is the option groupJoinTimeout too short?"
                )

    def plan(self, choose: Callable[[set[TopicPartition]], dict[TopicPartition, Span]]) -> dict[TopicPartition, Span]:
        """Let `choose` pick among what is owned and not wanted back; a revocation waits for what it picked."""
        with self._changed:
            self._raise_failure()
            candidates = self._owned - self._revoking
            self._in_flight = set(candidates)
        try:
            spans = choose(candidates)
        except BaseException:
            self._land(())
            raise
        self._land(partition for partition, span in spans.items() if span.size > 0)
        return spans

    def resume_batch(self, partitions: Iterable[TopicPartition]) -> None:
        """The batch is in flight again, as far as its partitions are ours."""
        self._land(partitions)

    def finish(self, spans: Mapping[TopicPartition, Span]) -> None:
        """Commit what is ours and lies ahead of the group, then let revocations go on."""
        with self._changed:
            ours = {partition: span for partition, span in spans.items() if partition in self._owned}
        known = self.committed(ours)
        ahead = {partition: span.end for partition, span in ours.items() if span.end > known.get(partition, -1)}
        try:
            if ahead:
                self.consumer.commit(ahead)
        finally:
            self._land(())

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's offsets, without those that are not committed."""
        wanted = list(partitions)
        found = self.consumer.committed(wanted) if wanted else {}
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def begin_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit the first positions, so that whoever owns the partitions next starts there too."""
        if starts:
            self.consumer.commit(dict(starts))

    def close(self) -> None:
        """Leave the group within a few seconds; safe to call twice, and from a signal handler."""
        with self._changed:
            self._closing = True
            self._in_flight = set()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(10.0)

    def _land(self, still_in_flight: Iterable[TopicPartition]) -> None:
        with self._changed:
            self._in_flight = set(still_in_flight)
            self._changed.notify_all()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self.consumer.subscribe(
                list(self._options.topics),
                on_assigned=self._on_assigned,
                on_revoked=self._on_revoked,
                on_lost=self._on_lost,
            )
            while not self._closing:
                self.consumer.poll(0.2)
                if self.consumer.has_assignment and not self._was_assigned:
                    self._on_assigned(self.consumer, [])
        except KohortError as why:
            with self._changed:
                self._failure = why
                self._changed.notify_all()
        finally:
            self.consumer.close(timeout=5.0)

    def _on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Executors fetch; this consumer only holds the partitions.
        consumer.pause(partitions)
        with self._changed:
            self._owned |= set(partitions)
            self._was_assigned = True
            self._changed.notify_all()

    def _on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Runs inside `poll`: blocks until the running batch is done with them, or the member is closing."""
        revoked = set(partitions)
        with self._changed:
            self._revoking |= revoked
            self._changed.wait_for(
                lambda: self._closing or not revoked & self._in_flight,
                self._options.group_rebalance_timeout_ms / 1000,
            )
            self._forget(revoked)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The group gave them to others already; the running batch may double some records, as at-least-once allows.
        with self._changed:
            self._forget(set(partitions))

    def _forget(self, partitions: set[TopicPartition]) -> None:
        self._owned -= partitions
        self._revoking -= partitions
        self._changed.notify_all()
