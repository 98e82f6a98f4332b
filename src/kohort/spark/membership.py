"""A streaming query as a member of its group.

The member is a consumer that fetches nothing: it heartbeats on a background thread, holds partitions and commits.
Spark may call nothing for minutes; the thread keeps the partitions.

Laws: a revoked partition is given up only when no running batch reads it and its offset is committed, or when the
member is fenced or leaves; a partition that is being revoked is not planned again; the group's offsets only move
forward; a commit that comes too late because the partitions have moved ends nothing: what it said is committed when
they come back, and read again by their next owner otherwise.
Source: P2 to P4; architecture, journey of a micro-batch.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kohort.client.consumer.consumer import Consumer
from kohort.errors import FencedError, KohortError, KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.spark.offsets import Span
from kohort.spark.options import SourceOptions
from kohort.spark.ownership import Choose, Spans

_log = logging.getLogger(__name__)

#: Waits look up this often: a signal handler can set a flag, but must not take a lock to wake anybody.
_LOOK_UP_S: Final = 0.2
_CLOSE_S: Final = 5.0


class GroupMember:
    """A member of `kafka.group.id`; an `Ownership`."""

    def __init__(self, options: SourceOptions) -> None:
        assert options.group_id is not None
        self._options = options
        self._patience_s = options.group_join_timeout_ms / 1000
        self.is_bounded = False
        #: Guards what follows; the condition is "something of it has changed".
        self._changed = threading.Condition()
        #: Partitions that the group has given to us and that we have not given back.
        self._owned: set[TopicPartition] = set()
        #: Subset of `_owned`: the group wants them back.
        self._revoking: set[TopicPartition] = set()
        #: What the running batch reads; a revocation of these waits.
        self._in_flight: set[TopicPartition] = set()
        #: partition -> end of the last finished batch of this query that read it.
        self._ends: dict[TopicPartition, int] = {}
        #: The application's side has heard of an assignment, be it empty, and not of its loss.
        self._is_joined = False
        self._has_ever_owned = False
        #: A bounded run has waited for partitions in vain; it waits again only after it has owned some.
        self._has_waited = False
        self._failure: BaseException | None = None
        # Flags for the signal handler: set without a lock, never taken back.
        self._is_closing = False
        self._must_exit = False
        self._is_over = False
        self.consumer = Consumer.from_config(
            {
                **options.client,
                "group.id": options.group_id,
                "group.instance.id": options.group_instance_id,
                "enable.auto.commit": False,
                # Each member says where a partition without a committed offset starts (`start_at`).
                "auto.offset.reset": "none",
                "fetch.buffer.bytes": 0,
                # The member's rebalance timeout: how long the group waits for a running batch.
                "max.poll.interval.ms": options.group_rebalance_timeout_ms,
            }
        )
        self._thread = threading.Thread(target=self._run, name="kohort-spark-member", daemon=True)
        self._thread.start()

    # -- Spark's calls ------------------------------------------------------------------------------------------------

    def plan(self, choose: Choose) -> Spans:
        """Let `choose` pick among what is owned and not wanted back; a revocation waits for what it picked.

        Raises:
            KohortTimeoutError: no assignment within `groupJoinTimeout`.
        """
        deadline_s = time.monotonic() + self._patience_s
        while True:
            with self._changed:
                self._wait_until_settled()
                owned = self._owned - self._revoking
                self._in_flight = set(owned)
            try:
                spans = choose(owned)
            except FencedError:
                # Fenced while planning: nothing was started, so plan anew when the group has taken us in again.
                self._land(())
                if time.monotonic() > deadline_s:
                    raise
                self._pause()
                continue
            except BaseException:
                self._land(())
                raise
            with self._changed:
                if owned <= self._owned:
                    self._land(partition for partition, span in spans.items() if span.size > 0)
                    return spans
                self._land(())

    def resume(self, spans: Mapping[TopicPartition, Span]) -> Spans:
        """Without what other members have read and committed meanwhile.

        Partitions that others own now are read nevertheless: Spark's log says that this batch contains them, and
        nobody else may have read them yet.
        """
        with self._changed:
            self._wait_until_settled()
            self._land(spans)
            foreign = set(spans) - self._owned
        if foreign:
            _log.warning(
                "a batch is repeated whose partitions %s belong to other members of group %s by now: "
                "some records may be read twice",
                sorted(map(str, foreign)),
                self._options.group_id,
            )
        known = self._committed(spans)
        return {
            partition: Span(min(span.end, max(span.start, known.get(partition, span.start))), span.end)
            for partition, span in spans.items()
        }

    def finish(self, spans: Mapping[TopicPartition, Span]) -> None:
        """Commit what is ours, then let revocations go on."""
        with self._changed:
            self.check()
            for partition, span in spans.items():
                self._ends[partition] = max(span.end, self._ends.get(partition, 0))
            ours = [partition for partition in spans if partition in self._owned]
        try:
            self.positions(ours)
        except FencedError as why:
            _log.warning("the end of a batch could not be committed: %s", why)
        finally:
            self._land(())

    def positions(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's offsets, which are brought up to the ends of our own batches if those are ahead."""
        known = self._committed(partitions)
        with self._changed:
            ends = {partition: self._ends[partition] for partition in partitions if partition in self._ends}
        # Another member may have read on since our last batch; a commit of ours may have failed.
        ahead = {partition: end for partition, end in ends.items() if end > known.get(partition, -1)}
        self._commit(ahead)
        return {**known, **ahead}

    def start_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """Commit positions, so that whoever owns the partitions next starts there too."""
        with self._changed:
            self._ends.update({partition: start for partition, start in starts.items() if partition in self._ends})
        self._commit(starts)

    def check(self) -> None:
        """Raise what has ended the membership."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Leave the group within a few seconds; safe to call twice."""
        self._is_closing = True
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * _CLOSE_S)

    def leave_and_exit(self) -> None:
        """Leave, then end the process: the body of a signal handler.

        It takes no lock and waits for nothing, since the thread that it interrupts may be anywhere; the member's own
        thread does the rest.
        """
        self._must_exit = True
        self._is_closing = True
        if self._is_over:
            os._exit(0)

    def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = self.consumer.committed(partitions)
        return {partition: offset for partition, offset in found.items() if offset is not None}

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets:
            self.consumer.commit(offsets, timeout=self._options.api_timeout_ms / 1000)

    # -- waiting; the lock is held ------------------------------------------------------------------------------------

    def _wait_until_settled(self) -> None:
        """Return when the assignment is known; a bounded run waits until that is more than nothing."""
        deadline_s = time.monotonic() + self._patience_s
        while not self._is_settled() and self._failure is None:
            remaining_s = deadline_s - time.monotonic()
            if remaining_s <= 0:
                break
            self._changed.wait(min(remaining_s, _LOOK_UP_S))
        self.check()
        self._has_waited = not self._owned - self._revoking
        if not self._knows_assignment():
            raise KohortTimeoutError(
                f"group {self._options.group_id} gave no assignment within {self._patience_s:g} s; "
                "is another member stuck, or is the option groupJoinTimeout too short?"
            )
        if self.is_bounded and not self._has_ever_owned:
            raise KohortTimeoutError(
                f"group {self._options.group_id} gave no partition within {self._patience_s:g} s: its other members "
                "hold them all, one of them perhaps dead but not timed out yet; stop them, or raise groupJoinTimeout"
            )

    def _is_settled(self) -> bool:
        if not self._knows_assignment():
            return False
        return not self.is_bounded or self._has_waited or bool(self._owned - self._revoking)

    def _knows_assignment(self) -> bool:
        # The consumer hears of a fence first, we when our callback runs.
        return self._is_joined and self.consumer.has_assignment

    def _pause(self) -> None:
        with self._changed:
            self._changed.wait(_LOOK_UP_S)

    def _land(self, still_in_flight: Iterable[TopicPartition]) -> None:
        with self._changed:
            self._in_flight = set(still_in_flight)
            self._changed.notify_all()

    # -- the member's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._hold_partitions()
        except BaseException as why:
            _log.error("the member of group %s has ended: %s", self._options.group_id, why)
            with self._changed:
                self._failure = why
                self._changed.notify_all()
        finally:
            try:
                self.consumer.close(timeout=_CLOSE_S)
            finally:
                self._is_over = True
                if self._must_exit:
                    # The main thread may be anywhere, and the JVM waits neither for it nor for us.
                    os._exit(0)

    def _hold_partitions(self) -> None:
        self.consumer.subscribe(
            list(self._options.topics),
            pattern=self._options.pattern,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
            on_lost=self._on_lost,
        )
        while not self._is_closing:
            try:
                self.consumer.poll(_LOOK_UP_S)
            except KohortError as why:
                if not (why.retriable and self._is_joined):
                    raise
                _log.warning("the member of group %s goes on after: %s", self._options.group_id, why)
            if self.consumer.has_assignment and not self._is_joined:
                self._on_assigned(self.consumer, [])

    def _on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # No position is looked for of what is paused.
        consumer.pause(partitions)
        with self._changed:
            self._owned |= set(partitions)
            self._is_joined = True
            if partitions:
                self._has_ever_owned, self._has_waited = True, False
            self._changed.notify_all()

    def _on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Runs inside `poll`: blocks until the running batch is done with them, unless we are fenced or leaving."""
        revoked = set(partitions)
        deadline_s = time.monotonic() + self._options.group_rebalance_timeout_ms / 1000
        with self._changed:
            self._revoking |= revoked
            self._changed.notify_all()
            while (
                revoked & self._in_flight
                and not self._is_closing
                and consumer.has_assignment
                and time.monotonic() < deadline_s
            ):
                self._changed.wait(_LOOK_UP_S)
            self._forget(revoked)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The group gave them to others already; the running batch may double some records, as at-least-once allows.
        with self._changed:
            self._is_joined = False
            self._forget(set(partitions))

    def _forget(self, partitions: set[TopicPartition]) -> None:
        self._owned -= partitions
        self._revoking -= partitions
        self._changed.notify_all()
