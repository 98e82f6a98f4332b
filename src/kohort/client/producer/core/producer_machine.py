"""The producer's machine: from submissions over batches to acknowledgements.

Laws: nothing here reads a clock or does I/O. A record that was taken from the submissions ends exactly once, in its
future, even if the machine itself fails.
Source: architecture rule 6; KIP-98, KIP-360.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, assert_never

from kohort.client.core.actions import Action, Lane, Stop
from kohort.client.core.cluster import Cluster
from kohort.client.core.refusals import refused
from kohort.client.core.requests import (
    Answer,
    DeadlineReached,
    DriverEvent,
    RequestFailed,
    Requests,
    ResponseReceived,
    message_of,
)
from kohort.client.options import ClientSettings
from kohort.client.producer.core.accumulator import (
    BATCH_OVERHEAD_BYTES,
    Accumulator,
    Batch,
    BatchState,
    Member,
    PartitionMissingError,
)
from kohort.client.producer.core.delivery_errors import WaitingRecords, WaitLog, is_logged
from kohort.client.producer.core.idempotence import Identity
from kohort.client.producer.core.lookups import Lookups, lateness
from kohort.client.producer.core.partitioner import DEFAULT_PARTITIONER, Partitioner, PartitionerCall
from kohort.client.producer.core.producer_events import (
    ConnectAsked,
    FlushAsked,
    Outgoing,
    PartitionsAsked,
    ProducerCloseAsked,
    ProducerEvent,
    RecordsSubmitted,
    TransactionAsked,
    TransactionOffsetsAsked,
    TransactionShared,
    is_about,
)
from kohort.client.producer.core.sender import ProducerCounters, Sender, SenderSettings
from kohort.client.producer.core.submission_kernels import Submissions
from kohort.client.producer.core.unrouted_batches import UnroutedRecords, name_of
from kohort.client.producer.record_future import RecordFuture
from kohort.errors import BrokersUnreachableError, ConfigError, ErrorCode, KohortError
from kohort.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from kohort.client.producer.core.transactions import Transactions

#: Queued bytes that wake a machine with requests under way, as a multiple of `batch.size`.
_HASTE: Final = 16


class ProducerMachine:
    """The machine of one producer.

    Args:
        is_idempotent: whether batches are numbered.
        on_release: called with the bytes of records that have their end, so that the application may send more.
        is_room_wanted: whether a call waits for such bytes, so that no batch lingers.
        on_ended: called with records that have their end and a callback that is to be called with it.
        on_broken: called with the error for which a transaction accepts no more records.
        partitioner: a rule that `Partitioner` knows, or the application's own; called in `handle`.
    """

    def __init__(
        self,
        client: ClientSettings,
        settings: SenderSettings,
        *,
        submissions: Submissions,
        batch_bytes: int,
        linger_ms: int,
        is_idempotent: bool,
        on_release: Callable[[int], None],
        is_room_wanted: Callable[[], bool] = lambda: False,
        on_ended: Callable[[Sequence[RecordFuture]], None] = lambda _: None,
        on_broken: Callable[[KohortError], None] = lambda _: None,
        partitioner: str | PartitionerCall = DEFAULT_PARTITIONER,
    ) -> None:
        self._client = client
        self._submissions = submissions
        self._batch_bytes, self._linger_ms = batch_bytes, linger_ms
        self._on_release = on_release
        self._is_room_wanted = is_room_wanted
        self._requests = Requests(request_timeout_ms=client.options["request_timeout_ms"], retry=client.retry)
        self._cluster = Cluster(
            self._requests,
            bootstrap=client.bootstrap,
            max_age_ms=client.options["metadata_max_age_ms"],
            on_change=self._on_metadata,
            on_unreachable=self._on_unreachable,
        )
        chosen_by = Partitioner(partitioner, batch_bytes=batch_bytes, seed=client.retry.seed)
        limit_bytes = settings.options["max_request_size"]
        self._accumulator = Accumulator(
            batch_bytes=batch_bytes, linger_ms=linger_ms, limit_bytes=limit_bytes, partitioner=chosen_by
        )
        self._identity = Identity(is_wanted=is_idempotent)
        self._transactions = self._build_transactions(settings, on_broken)
        self._sender = Sender(
            self._requests,
            self._cluster,
            self._accumulator,
            self._identity,
            settings,
            retry=client.retry,
            transactions=self._transactions,
            on_end=self._on_batch_end,
            on_cut=self._on_batch_cut,
            on_ended=on_ended,
        )
        #: Records taken from the submissions that are being placed; empty between two events.
        self._placing: list[Outgoing] = []
        self._unrouted = UnroutedRecords(
            self._requests, self._cluster, self._sender.refusals, place=self._place, end=self._end_record
        )
        #: (request, batches that it waits for).
        self._flushes: list[tuple[FlushAsked, set[Batch]]] = []
        self._closing: ProducerCloseAsked | None = None
        self._lookups = Lookups(self._requests, self._cluster)
        self._wait_log = WaitLog(self._requests, self._sender.refusals, find=self._find_wait)
        #: When to ask for an identity again; `None` while a request is under way.
        self._identity_due_ms: int | None = 0
        self._identity_attempts = 0

    def _build_transactions(
        self, settings: SenderSettings, on_broken: Callable[[KohortError], None]
    ) -> Transactions | None:
        transactional_id = settings.options["transactional_id"]
        if transactional_id is None:
            return None
        # Most producers have none.
        from kohort.client.producer.core.transactions import Transactions

        return Transactions(
            self._requests,
            self._cluster,
            self._identity,
            transactional_id=transactional_id,
            timeout_ms=settings.options["transaction_timeout_ms"],
            is_settled=self._is_settled,
            on_broken=on_broken,
            submissions=self._submissions,
        )

    def handle(self, event: ProducerEvent | DriverEvent, now_ms: int) -> list[Action]:
        """Take one event; return the actions that follow from it."""
        match event:
            case ResponseReceived() | RequestFailed():
                self._requests.answer(event, now_ms)
            case DeadlineReached() | RecordsSubmitted():
                pass
            case FlushAsked():
                self._take_records(now_ms)
                self._flush(event)
            case ProducerCloseAsked():
                self._take_records(now_ms)
                self._flush(FlushAsked(ticket=None))
                self._closing = event
                if self._transactions is not None:
                    self._transactions.close()
            case PartitionsAsked():
                self._lookups.ask(event, now_ms)
            case ConnectAsked():
                self._lookups.connect(event, now_ms)
            case TransactionAsked():
                self._take_records(now_ms)
                assert self._transactions is not None, "the door has refused the call"
                self._transactions.ask(event)
            case TransactionShared():
                self._take_records(now_ms)
                assert self._transactions is not None, "the door has refused the call"
                self._transactions.share(event)
            case TransactionOffsetsAsked():
                self._take_records(now_ms)
                assert self._transactions is not None, "the door has refused the call"
                self._transactions.ask_offsets(event)
            case _:
                assert_never(event)
        self._on_tick(now_ms)
        return self._requests.drain()

    def next_deadline(self) -> int | None:
        """Return when work is due without an event; `None`: never, before one."""
        deadlines = [self._cluster.next_deadline(), self._accumulator.next_linger(), self._sender.next_deadline()]
        deadlines += [self._unrouted.next_deadline(), self._wait_log.next_deadline()]
        deadlines.append(self._sender.lost_records.next_deadline())
        if self._transactions is not None:
            deadlines.append(self._transactions.next_deadline())
        elif self._accumulator.queues and not self._identity.is_ready and self._identity_due_ms:
            deadlines.append(self._identity_due_ms)
        deadlines += self._lookups.deadlines()
        deadlines += [asked.deadline_ms for asked, _ in self._flushes]
        if self._closing is not None:
            deadlines.append(self._closing.deadline_ms)
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    @property
    def counters(self) -> ProducerCounters:
        """The counts of records by their end; may be read from any thread."""
        return self._sender.counters

    def abandon(self, error: KohortError) -> None:
        """End every record, present or future, with the error for which the machine has failed."""
        self._submissions.close()
        self._placing += self._submissions.take()
        for record in self._pending():
            self._sender.fail_record(record, error)

    def holds(self, future: object) -> bool:
        """Return whether a future belongs to a record without an end; to be called on the machine's thread."""
        return any(is_about(member, future) for member in chain(self._submissions.queued(), self._pending()))

    def _pending(self) -> Iterator[Member]:
        yield from self._placing
        yield from self._unrouted
        for batch in self._accumulator.batches():
            yield from batch.members

    def _on_tick(self, now_ms: int) -> None:
        self._take_records(now_ms)
        self._accumulator.close_lingered(now_ms)
        transactions = self._transactions
        is_ending = transactions is not None and transactions.is_ending
        # A flush, the end of a transaction, a close or a `send` that waits for room does not wait for linger.ms.
        if self._flushes or is_ending or self._closing is not None or self._is_room_wanted():
            self._accumulator.close_all()
        self._unrouted.on_tick(now_ms)
        self._lookups.on_tick(now_ms)
        self._sender.expire(now_ms)
        if transactions is None:
            self._renew_identity(now_ms)
            self._sender.send_ready(now_ms)
        else:
            self._drop_unsent(transactions)
            self._sender.send_ready(now_ms)
            transactions.on_tick(now_ms)
        self._cluster.work(now_ms)
        self._finish(now_ms)
        self._tell(now_ms)

    # -- records in ---------------------------------------------------------------------------------------------

    def _take_records(self, now_ms: int) -> None:
        records = self._submissions.take()
        if self._transactions is not None and not self._transactions.is_open:
            records = self._begin_by(self._transactions, records)
            if not self._transactions.is_open:
                return
        self._place(records, now_ms)
        # While requests are under way, their answers look at the submissions, too: waking is not urgent.
        self._submissions.wake_bytes = self._batch_bytes if self._sender.is_idle else self._batch_bytes * _HASTE
        if self._accumulator.next_linger() is not None and self._linger_ms > 0:
            # The end of that linger looks at the submissions. Records that came in between are taken at once.
            self._submissions.is_watched = True
            self._place(self._submissions.take(), now_ms)
            self._submissions.is_watched = True

    def _begin_by(self, transactions: Transactions, records: list[Outgoing]) -> list[Outgoing]:
        """Begin the transaction whose begin is in the queue; return its records, and fail all others."""
        begun_at = self._submissions.begun_at
        if begun_at >= 0:
            transactions.begin()
        stop = begun_at if transactions.is_open else len(records)
        # They came from another thread while the transaction ended.
        for record in records[:stop]:
            self._sender.fail_record(record, transactions.refusal())
            self._on_release(record.size_bytes)
        return records[stop:]

    def _place(
        self, records: list[Outgoing], now_ms: int, is_last_look: bool = False, since_ms: int | None = None
    ) -> None:
        since_ms = now_ms if since_ms is None else since_ms
        self._placing = records
        topics = self._cluster.topics
        position = 0
        while position < len(records):
            record = records[position]
            topic = topics.get(name_of(record))
            if topic is not None and topic.partitions:
                # Most records go into batches that exist. A record that begins a batch or is refused takes `_add`.
                count = len(topic.partitions)
                run = position if record.is_bulk else self._accumulator.add_run(records, position, count)
                if run > position:
                    position = run
                    continue
                self._add(record, count, now_ms, is_last_look, since_ms)
            else:
                self._unrouted.add(record, now_ms, since_ms)
            position += 1
        self._placing = []

    def _add(self, record: Outgoing, partition_count: int, now_ms: int, is_last_look: bool, since_ms: int) -> None:
        try:
            if record.is_bulk:
                self._accumulator.add_bulk(record, partition_count, since_ms)
            elif record.partition is not None and record.partition >= partition_count:
                text = f"{record.topic} has partitions 0 to {partition_count - 1}, there is no {record.partition}"
                raise PartitionMissingError(text)
            else:
                self._accumulator.add(record, partition_count, since_ms)
        except PartitionMissingError as missing:
            if is_last_look:
                self._end_record(record, ConfigError(str(missing)))
            else:
                self._unrouted.add_beyond(record, now_ms, since_ms)
        except ConfigError as error:
            self._end_record(record, error)

    def _on_metadata(self, now_ms: int) -> None:
        if isinstance(self._sender.trouble, BrokersUnreachableError) and not self._cluster.is_cut_off:
            self._sender.trouble = None
        placed = self._unrouted.on_metadata(now_ms)
        # A flush that came meanwhile waits for these batches, too.
        for _, waiting in self._flushes if placed else ():
            waiting.update(batch for batch in self._accumulator.batches() if batch.partition.topic in placed)
        missing = {name for name, topic in self._cluster.topics.items() if not topic.partitions}
        if missing:
            self._follow_no_more(missing, now_ms)

    def _follow_no_more(self, missing: set[str], now_ms: int) -> None:
        """Stop following missing topics, unless a record or a question waits for them."""
        awaited = {name_of(record) for record in self._unrouted} | self._lookups.topics()
        awaited.update(partition.topic for partition in self._accumulator.queues)
        self._cluster.want_no_more(missing - awaited, now_ms)

    def _end_record(self, record: Outgoing, error: KohortError) -> None:
        self._sender.fail_record(record, error)
        self._on_release(record.size_bytes)
        if self._transactions is not None:
            self._transactions.on_record_failed(error)

    def _on_unreachable(self, error: BrokersUnreachableError, now_ms: int) -> None:
        self._lookups.fail_connects(error)
        if error.retriable:
            # A broker may start later than its producers: records wait for it for delivery.timeout.ms, as always.
            self._sender.trouble = error
            for batch in self._accumulator.batches():
                batch.last_error = error
            return
        if self._transactions is not None:
            self._transactions.on_unreachable(error)
        self._unrouted.drop_all(error)
        for batch in self._accumulator.batches():
            # A batch in flight gets its own answer or failure.
            if batch.state is not BatchState.IN_FLIGHT:
                self._sender.fail(batch, error)

    # -- identity -----------------------------------------------------------------------------------------------

    def _renew_identity(self, now_ms: int) -> None:
        due_ms = self._identity_due_ms
        if self._identity.is_ready or not self._accumulator.queues or due_ms is None or due_ms > now_ms:
            return
        if self._identity.is_spoilt:
            if not self._sender.is_settled:
                return
            for batch in self._accumulator.batches():
                # Under the new identity every batch gets new sequence numbers.
                batch.sequence, batch.is_unsure = None, False
        self._identity_due_ms = None
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        self._requests.send(self._cluster.any_endpoint(), Lane.CONTROL, request, self._on_identity)

    def _on_identity(self, answer: Answer, now_ms: int) -> None:
        response = message_of(answer, InitProducerIdResponse)
        detail = answer.detail if isinstance(answer, RequestFailed) else None
        code = ErrorCode.of(response.error_code) if response is not None else ErrorCode.NETWORK_EXCEPTION
        doing = "asking for a producer id"
        if response is not None and code is ErrorCode.NONE:
            self._sender.refusals.on_done(doing)
            self._identity.renew(response.producer_id, response.producer_epoch)
            self._identity_due_ms, self._identity_attempts = 0, 0
            return
        if response is None:
            # The lookup goes on with another broker, and reports if none answers.
            self._cluster.refresh(now_ms)
        error = refused(code, detail, during=doing, operation="idempotent_write")
        self._sender.trouble = error
        self._sender.refusals.on_refused(doing, code, None)
        for batch in self._accumulator.batches():
            batch.last_error = error
            if not code.retriable:
                self._sender.fail(batch, error)
        # Never 0, which stands for "at once".
        self._identity_due_ms = max(1, now_ms + self._client.retry.delay_ms(self._identity_attempts))
        self._identity_attempts += 1

    # -- ends ---------------------------------------------------------------------------------------------------

    def _flush(self, asked: FlushAsked) -> None:
        self._accumulator.close_all()
        self._flushes.append((asked, set(self._accumulator.batches())))

    def _is_settled(self) -> bool:
        """Return whether each record has ended, and brokers have none that they may still store."""
        return not self._accumulator.queues and not self._unrouted and self._sender.is_settled

    def _drop_unsent(self, transactions: Transactions) -> None:
        """End the records of a transaction that is not committed, but for those that a broker may have stored."""
        if not transactions.is_dropping or not (self._accumulator.queues or self._unrouted):
            return
        error = transactions.refusal()
        self._unrouted.drop_all(error)
        for batch in self._accumulator.batches():
            is_lost = not batch.is_unsure or transactions.is_at_rest
            if batch.state is not BatchState.IN_FLIGHT and is_lost:
                self._sender.fail(batch, error)

    def _on_batch_end(self, batch: Batch) -> None:
        if self._transactions is not None and batch.end.error is not None:
            self._transactions.on_record_failed(batch.end.error)
        self._on_release(batch.size_bytes - BATCH_OVERHEAD_BYTES)
        for _, waiting in self._flushes:
            waiting.discard(batch)

    def _on_batch_cut(self, batch: Batch, pieces: list[Batch]) -> None:
        for _, waiting in self._flushes:
            if batch in waiting:
                waiting.discard(batch)
                waiting.update(pieces)

    def _finish(self, now_ms: int) -> None:
        """End flushes that wait for no batch any more, and the machine when it is closing and empty."""
        self._flushes = [entry for entry in self._flushes if not self._end_flush(*entry, now_ms)]
        if self._closing is None:
            return
        if now_ms >= self._closing.deadline_ms:
            text, trouble = "the producer was closed before this record was acknowledged", self._sender.trouble
            error = lateness(text if trouble is None else f"{text}: {trouble}", self._cluster)
            self._unrouted.drop_all(error)
            for batch in self._accumulator.batches():
                self._sender.fail(batch, error)
        is_at_rest = self._transactions is None or self._transactions.is_at_rest
        if now_ms >= self._closing.deadline_ms or (is_at_rest and not self._accumulator.queues and not self._unrouted):
            for asked, _ in self._flushes:
                self._requests.complete(asked.ticket, 0)
            lost = None if self._closing.is_quiet else self._sender.lost_records.summary()
            if lost is not None:
                self._requests.warn(lost)
            self._requests.complete(self._closing.ticket)
            self._requests.add(Stop())
            self._closing = None

    def _end_flush(self, asked: FlushAsked, waiting: set[Batch], now_ms: int) -> bool:
        is_late = asked.deadline_ms is not None and now_ms >= asked.deadline_ms
        if is_late or not (waiting or self._unrouted):
            left = sum(batch.count for batch in waiting) + _count(self._unrouted)
            self._requests.complete(asked.ticket, left)
            return True
        return False

    # -- log lines ------------------------------------------------------------------------------------------------

    def _tell(self, now_ms: int) -> None:
        """Write the lines about lost and waiting records that are due."""
        is_stuck = self._sender.trouble is not None and bool(self._accumulator.queues)
        if is_stuck or (self._unrouted and self._unrouted.is_cut_off):
            self._wait_log.on_trouble(now_ms)
        self._wait_log.on_tick(now_ms)
        lost = self._sender.lost_records.find_line(now_ms)
        if lost is not None:
            self._requests.warn(lost)

    def _find_wait(self) -> WaitingRecords | None:
        """Return the records that wait for brokers: failed ones, those behind them, those without a topic."""
        count, since_ms, reason = 0, list[int](), None
        if self._unrouted.is_cut_off and (first_ms := self._unrouted.first_ms()) is not None:
            count, since_ms = _count(self._unrouted), [first_ms]
            reason = self._cluster.trouble or "none has answered yet"
        for queue in self._accumulator.queues.values():
            error = queue[0].last_error
            if error is not None and not is_logged(error):
                count += sum(batch.count for batch in queue)
                since_ms.append(queue[0].created_ms)
                reason = reason or str(error)
        if reason is None:
            return None
        return WaitingRecords(count, min(since_ms), reason)


def _count(members: Iterable[Member]) -> int:
    return sum(member.count if member.is_bulk else 1 for member in members)
