"""The thread that keeps a query's membership alive between Spark's calls, until the reader ends.

The member is a consumer that fetches nothing: it sends heartbeats, owns partitions and commits. `core.py` decides, and
this module carries out its requests.

Laws: the core is used under one lock, which no thread holds during a request to a broker; one thread at a time runs the
core's steps; a signal handler sets flags and nothing else.
Source: measured life of the reader's process: background threads go on between calls; SIGTERM comes twice, `stop` is
called when the JVM has ended.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar, cast

from kohort.client.consumer.consumer import Consumer
from kohort.errors import ErrorCode, FencedError, KohortError, KohortTimeoutError, PartlyDoneError, StateError
from kohort.ids import TopicPartition
from kohort.spark import checkpoint
from kohort.spark.driver_channel import (
    BatchDone,
    Drain,
    DriverChannel,
    HolderAsked,
    NameHeld,
    OpenBatch,
    announce,
    find_batch,
    fingerprint,
    note_batch,
)
from kohort.spark.member import requests
from kohort.spark.member.batch_notes import from_offsets, group_of_notes, leave_notes, read_notes, to_offsets
from kohort.spark.member.core import Membership
from kohort.spark.member.lineage import Ledger
from kohort.spark.member.names import HolderWatch, NameTakenError, find_holder, find_names
from kohort.spark.member.ownership import Choose, Existing
from kohort.spark.member.requests import NoAssignment, Plan
from kohort.spark.offsets import OffsetJson, QueryOffset, Span, from_json
from kohort.spark.options import SourceOptions
from kohort.spark.planning import join

_log = logging.getLogger(__name__)
T = TypeVar("T")

#: Waits check this often: a signal handler must take no lock to wake a thread, and Spark's log wakes none.
_LOOK_UP_S: Final = 0.1
_CLOSE_S: Final = 5.0
#: The timeout of the last commits before the member leaves.
_LAST_WORDS_S: Final = 2.0


class GroupMember:
    """The query's member of `kafka.group.id`, named as in the query's offsets; an `Ownership`."""

    def __init__(self, options: SourceOptions, name: str, *, is_bounded: bool) -> None:
        assert options.group_id is not None
        self._options = options
        self._group_id = options.group_id
        self._core = Membership(
            name,
            waits=options.waits_in_doubt,
            follows_orders=options.follows_external_offsets,
            join_patience_ms=options.group_join_timeout_ms,
            doubt_patience_ms=options.group_rebalance_timeout_ms,
        )
        self._core.is_bounded = is_bounded
        #: Guards the core and the attributes below; notified when one of them has changed.
        self._changed = threading.Condition()
        #: Held while the core's steps are carried out.
        self._turn = threading.Lock()
        self._failure: BaseException | None = None
        #: The end of the open batch; `None` while a batch is being planned, and until its end is known.
        self._planned: OffsetJson | None = None
        #: The partitions at the last plan, or when a batch was repeated.
        self._existing: Existing = {}
        #: topic -> its id, then.
        self._topic_ids: dict[str, str] = {}
        # The reader's process is a child of the JVM.
        self._discovery = checkpoint.CheckpointDiscovery(os.getppid())
        #: Whether the driver has sent a message that a batch is finished.
        self._has_listener = False
        #: Whether the one warning about the checkpoint was logged.
        self._has_told = False
        #: The note about the batch that was planned last, and the fingerprint of that batch's end.
        self._noted, self._batch_end = cast("OpenBatch | None", None), ""
        #: Whether all partitions were given up at the driver's request; no more batches are planned then.
        self.has_drained = False
        # Flags for the signal handler: set without a lock, never reset.
        self._is_closing = False
        self._must_exit = False
        self._is_over = False
        self._mailbox = DriverChannel.open(name)
        #: What is known of the member that holds this query's name, until this one has joined: its id, and its life.
        self._holder_id: str | None = None
        self._watch = HolderWatch(time.monotonic())
        #: When other readers with this name were asked last, seconds.
        self._asked_s = 0.0
        if options.group_instance_id is None:
            announce(self._group_id, name)
        self.consumer = Consumer.from_config(
            {
                **options.client,
                "group.id": options.group_id,
                "group.instance.id": options.group_instance_id or name,
                "enable.auto.commit": False,
                # The member says where a partition without a committed offset starts.
                "auto.offset.reset": "none",
                "fetch.buffer.bytes": 0,
                # The member's rebalance timeout: how long the group waits for a running batch.
                "max.poll.interval.ms": options.group_rebalance_timeout_ms,
            }
        )
        self._thread = threading.Thread(target=self._run, name="kohort-spark-member", daemon=True)
        self._thread.start()

    # -- Spark's calls ------------------------------------------------------------------------------------------------

    def plan(self, start: QueryOffset, existing: Existing, choose: Choose, *, renewed: Collection[str] = ()) -> Plan:
        """Commit that everything up to `start` is finished, and let `choose` plan the next batch.

        Raises:
            KohortTimeoutError: no assignment within `groupJoinTimeout`.
            BatchNotLoggedError: Spark's commit log does not have the batch that ends at `start`.
        """
        unlogged = (checkpoint.BatchState.OPEN, checkpoint.BatchState.UNWRITTEN)
        if self._planned is not None and from_json(self._planned) == start and self._look() in unlogged:
            # Spark passes `start` as finished although its commit log does not have the batch.
            raise checkpoint.BatchNotLoggedError
        self._note(existing)
        return self._carry_out(lambda: self._core.plan(start, _now_ms(), renewed=renewed), choose=choose)

    def note_planned(self, end: OffsetJson) -> None:
        """Note the offset of the end of the last planned batch."""
        self._planned = end
        self._batch_end = fingerprint(end)
        self._note_batch()
        if self._options.checkpoint_location is None:
            self._discovery.watch(end)

    def _note_batch(self) -> None:
        """Tell a sink that writes in transactions which offsets belong to the batch, and by which member."""
        with self._changed:
            spans, owned = self._core.claimed(), frozenset(self._core.owned)
        group = self.consumer.group_metadata()
        batch = OpenBatch(
            self._group_id,
            group.member_id,
            group.generation_id,
            group.group_instance_id,
            self._batch_end,
            spans,
            owned.intersection(spans),
        )
        if batch != self._noted:
            self._noted = batch
            note_batch(self._core.name, batch)

    def note_logged(self) -> None:
        """Note that Spark has written the last planned end to its offset log."""
        self._discovery.note_logged()
        self._check_location()

    def resume(
        self, start: QueryOffset, end: QueryOffset, existing: Existing, renewed: Collection[str]
    ) -> dict[TopicPartition, Span]:
        """Return the spans still to be read in a batch that an earlier run has planned."""
        self._note(existing)
        return self._carry_out(lambda: self._core.resume(start, end, _now_ms(), renewed=renewed))

    def _note(self, existing: Existing) -> None:
        self._existing = existing
        self._topic_ids = {partition.topic: topic_id for partition, topic_id in existing.items()}

    def check(self) -> None:
        """Raise the error that has ended the membership, if there is one."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Leave the group within a few seconds; safe to call twice."""
        self._is_closing = True
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * _CLOSE_S)

    def leave_on_sigterm(self) -> None:
        """Leave the group on SIGTERM."""
        # Spark ends the reader's process by SIGTERM, twice, without a call of `stop` and without waiting.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: self._leave_and_exit())

    def _leave_and_exit(self) -> None:
        # This takes no lock and waits for nothing: the interrupted thread may hold any lock. The member's own thread
        # does the rest.
        self._must_exit = True
        self._is_closing = True
        if self._is_over:
            os._exit(0)

    # -- the core's requests ------------------------------------------------------------------------------------------

    def _carry_out(self, begin: Callable[[], requests.Steps[T]], *, choose: Choose | None = None) -> T:
        with self._turn:
            # Late messages about the last batch must not finish the next one.
            self._planned = None
            return self._drive(begin(), choose, None)

    def _drive(self, steps: requests.Steps[T], choose: Choose | None, timeout_s: float | None) -> T:
        answer: Any = None
        try:
            while True:
                with self._changed:
                    if choose is not None:
                        self.check()
                    request = steps.send(answer)
                    self._say()
                answer = self._answer(request, choose, timeout_s)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        except NoAssignment as why:
            self.check()
            raise KohortTimeoutError(self._why_nothing(is_joined=why.is_joined)) from None
        finally:
            with self._changed:
                steps.close()
                self._say()
                self._changed.notify_all()

    def _answer(self, request: requests.Request, choose: Choose | None, timeout_s: float | None) -> object:
        match request:
            case requests.Wait():
                with self._changed:
                    self._changed.wait(_LOOK_UP_S)
                    self.check()
                if self._is_closing or self.has_drained:
                    raise StateError("this query has ended")
                return _now_ms()
            case requests.Fetch(partitions=partitions):
                return from_offsets(self.consumer.committed(partitions, timeout_s, metadata=True), self._topic_ids)
            case requests.Commit(ledgers=ledgers):
                return self._commit(ledgers, timeout_s)
            case requests.LeaveNotes(ledgers=ledgers):
                return self._leave_notes(ledgers)
            case requests.ReadNotes(name=name, partitions=partitions):
                group = group_of_notes(self._group_id, name)
                return read_notes(self._options.client, group, partitions, self._topic_ids)
            case requests.Names():
                return find_names(self._options.client, self._group_id)
            case requests.Existing():
                return list(self._existing)
            case requests.Choose(places=places):
                assert choose is not None
                return choose(places)

    def _commit(self, ledgers: Mapping[TopicPartition, Ledger], timeout_s: float | None) -> bool:
        if timeout_s is None:
            timeout_s = self._options.api_timeout_ms / 1000
        try:
            self.consumer.commit(to_offsets(ledgers, self._topic_ids), timeout=timeout_s)
        except (FencedError, PartlyDoneError) as why:
            if isinstance(why, PartlyDoneError) and not all(
                isinstance(each, FencedError) for each in why.failed.values()
            ):
                raise
            self.check()
            _log.warning("the group could not be told how far this query is: %s", why)
            return False
        return True

    def _leave_notes(self, ledgers: Mapping[TopicPartition, Ledger]) -> bool:
        try:
            group = group_of_notes(self._group_id, self._core.name)
            leave_notes(self._options.client, group, ledgers, self._topic_ids)
        except KohortError as why:
            _log.warning("the owner of %s cannot learn how far it is read: %s", join(set(ledgers)), why)
            return False
        return True

    def _say(self) -> None:
        for note in self._core.notes:
            _log.warning("group %s: %s", self._group_id, note)
        self._core.notes.clear()

    def _why_nothing(self, *, is_joined: bool) -> str:
        patience_s = self._options.group_join_timeout_ms / 1000
        if not is_joined:
            return (
                f"group {self._group_id} gave no assignment within {patience_s:g} s; "
                "is another member stuck, or is the option groupJoinTimeout too short?"
            )
        return (
            f"group {self._group_id} gave no partition within {patience_s:g} s: its other members "
            "hold them all, one of them perhaps dead but not timed out yet; stop them, or raise groupJoinTimeout"
        )

    # -- the member's thread ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._hold_partitions()
        except BaseException as why:
            _log.error("the member of group %s has ended: %s", self._group_id, why)
            is_taken = isinstance(why, FencedError) and why.code in (
                ErrorCode.UNRELEASED_INSTANCE_ID,
                ErrorCode.FENCED_INSTANCE_ID,
            )
            with self._changed:
                self._failure = why
                if is_taken:
                    self._failure = NameTakenError(self._core.name, self._group_id)
                    self._failure.__cause__ = why
                self._changed.notify_all()
        finally:
            try:
                self._part()
            finally:
                self._is_over = True
                if self._must_exit:
                    # The main thread may be blocked, and the JVM waits for no thread of this process.
                    os._exit(0)

    def _hold_partitions(self) -> None:
        self.consumer.subscribe(
            list(self._options.topics),
            pattern=self._options.pattern,
            on_assigned=self._on_assigned,
            on_revoked=self._on_revoked,
            on_lost=self._on_lost,
        )
        while not self._is_closing and not self._drains():
            try:
                self.consumer.poll(_LOOK_UP_S)
            except KohortError as why:
                if not (why.retriable and self._core.has_ever_joined):
                    raise
                _log.warning("the member of group %s goes on after: %s", self._group_id, why)
            if self.consumer.has_assignment and not self._core.is_joined:
                self._on_assigned(self.consumer, [])
            if not self._core.has_ever_joined and self._watch.is_due(time.monotonic()):
                self._look_at_holder()
            self._listen()

    def _look_at_holder(self) -> None:
        """Look for signs of life of another member that has this query's name, which keeps this one out."""
        began_s = time.monotonic()
        holder = find_holder(self._options.client, self._group_id, self._core.name)
        if holder is None or holder.member_id == self.consumer.member_id:
            self._holder_id = None
            return
        self._holder_id, self._asked_s = holder.member_id, time.monotonic()
        if holder.last_heard_ms is not None:
            age_s = holder.last_heard_ms / 1000
            self._note_sign(began_s - age_s, self._asked_s - age_s)
        self._mailbox.ask_holder()

    def _note_sign(self, from_s: float, to_s: float) -> None:
        if self._watch.note_sign(from_s, to_s) and not self._core.has_ever_joined:
            raise NameTakenError(self._core.name, self._group_id)

    def _on_assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # The consumer looks up no positions for paused partitions.
        consumer.pause(partitions)
        with self._changed:
            self._core.on_assigned(partitions)
            self._changed.notify_all()

    def _on_revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Block inside `poll` until the running batch is done, unless the member is fenced or leaves."""
        deadline_s = time.monotonic() + self._options.group_rebalance_timeout_ms / 1000
        with self._changed:
            self._core.on_wanted_back(partitions)
            self._changed.notify_all()
        while not self._is_closing and consumer.has_assignment and time.monotonic() < deadline_s:
            with self._changed:
                if self._core.may_give_up(partitions):
                    break
                self._changed.wait(_LOOK_UP_S)
            self._listen()
        with self._changed:
            self._core.on_given_up(partitions)
            self._changed.notify_all()

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        with self._changed:
            self._core.on_lost(partitions)
            self._changed.notify_all()

    # -- what is known without Spark's calls --------------------------------------------------------------------------

    def _listen(self) -> None:
        """Act on the driver's messages, and on finished batches in Spark's log."""
        for message in self._mailbox.take():
            match message:
                case Drain():
                    with self._changed:
                        self._core.is_draining = True
                case BatchDone(end=end):
                    self._has_listener = True
                    self._end_batch(end)
                # A reader that is being stopped does not say that it lives.
                case HolderAsked(sender=sender) if self._core.is_joined and not self._is_closing:
                    self._mailbox.answer(sender, NameHeld(self.consumer.member_id))
                case NameHeld(member_id=holder_id) if holder_id == self._holder_id:
                    self._note_sign(self._asked_s, time.monotonic())
        # Without a message Spark's log shows the end of a batch.
        self._end_batch(None)
        if self._batch_end:
            self._note_batch()
        self._tell_of_checkpoint()

    def _tell_of_checkpoint(self) -> None:
        """Warn once if no checkpoint was seen, or only one that does not outlive the query."""
        location = self._discovery.location
        if self._has_told or self._options.checkpoint_location is not None:
            return
        if location is not None and checkpoint.is_temporary(location):
            _log.warning(
                "the query has no checkpointLocation: %s goes with it, and when it is started again it is another "
                "member of group %s, which begins where the group stands; give writeStream a checkpointLocation",
                location,
                self._group_id,
            )
        elif self._discovery.has_given_up and not self._has_listener:
            _log.warning(
                "the query's checkpoint was not found, it is perhaps %s; %s", checkpoint.REMOTE, checkpoint.TELL_THE_END
            )
        else:
            return
        self._has_told = True

    def _check_location(self) -> None:
        """Warn once that the `checkpointLocation` of the source lacks the batch Spark has just written."""
        location = self._options.checkpoint_location
        if location is None or self._has_told or self._look() is not checkpoint.BatchState.UNKNOWN:
            return
        self._has_told = True
        _log.warning(
            "checkpointLocation of the source, %s, has no batch of this query: give it the folder that writeStream's "
            "checkpointLocation names, or leave it out",
            location,
        )

    def _end_batch(self, said: str | None) -> None:
        """Commit the open batch if a message (`said`) or Spark's log shows that it is finished."""
        # A call of Spark's that is running the core's steps does this itself.
        if not self._turn.acquire(blocking=False):
            return
        try:
            planned = self._planned if self._core.is_open else None
            if planned and (
                fingerprint(planned) == said or (said is None and self._look() is checkpoint.BatchState.FINISHED)
            ):
                self._drive(self._core.finish_open(), None, _LAST_WORDS_S)
        except KohortError as why:
            _log.warning("the group could not be told how far this query is: %s", why)
        finally:
            self._turn.release()

    def _drains(self) -> bool:
        """Return whether the driver has asked to drain, and no batch is open."""
        if not self._core.is_draining or not self._turn.acquire(blocking=False):
            return False
        try:
            self.has_drained = not self._core.is_open
        finally:
            self._turn.release()
        return self.has_drained

    def _part(self) -> None:
        """Leave for good if no batch may be unfinished, else as a static member that comes back."""
        try:
            goes = self._failure is None and self._say_last_words()
            with self._changed:
                self._core.on_ending()
                self._changed.notify_all()
            self.consumer.close(timeout=_CLOSE_S, group_membership="leave_group" if goes else "default")
        finally:
            with self._changed:
                self._core.on_left()
            self._mailbox.close()
            # Another reader of the name may have left its own meanwhile.
            if self._noted is not None and find_batch(self._core.name) == self._noted:
                note_batch(self._core.name, None)

    def _say_last_words(self) -> bool:
        """Commit all positions; return whether to leave the group for good."""
        self._listen()
        if not self._turn.acquire(timeout=_LAST_WORDS_S):
            # Spark's thread was interrupted in the middle of a plan.
            return not self._options.waits_in_doubt
        try:
            return self._drive(self._core.part(self._look()), None, _LAST_WORDS_S)
        except KohortError as why:
            _log.warning("the group could not be told how far this query is: %s", why)
            return not self._options.waits_in_doubt
        finally:
            self._turn.release()

    def _look(self) -> checkpoint.BatchState:
        """Return the state of the open batch in Spark's checkpoint."""
        return checkpoint.read_batch_state(self._options.checkpoint_location or self._discovery.location, self._planned)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
