"""The Produce requests: the choice of their batches, and the reactions to their responses.

Laws: every batch ends exactly once, with an offset or an error. After a retriable failure (a leader that moved, a
broken connection) the batch is sent again under its old sequence number until `delivery.timeout.ms`. A batch that is
too large for the broker is split if it has two or more records. Its pieces share its sequence numbers.
Source: Kafka's Produce API and Sender; KIP-98 for the meaning of duplicates and gaps; KIP-126 (cutting).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from kohort.base.values import value
from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.refusals import refused
from kohort.client.core.requests import Answer, Failure, RequestFailed, Requests, message_of
from kohort.client.core.retry import Backoff
from kohort.client.producer.core.accumulator import RECORD_OVERHEAD_BYTES, Accumulator, Batch, BatchState, Member
from kohort.client.producer.core.delivery_errors import LostRecords, RefusalLog
from kohort.client.producer.core.idempotence import Identity, following
from kohort.client.producer.record_future import RecordFuture
from kohort.errors import BrokerError, ErrorCode, KohortError, KohortTimeoutError, LocalProtocolError, UnknownTopicError
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition
from kohort.records.batch import iterate_records
from kohort.records.building import RECORD_ROOM_BYTES, build, writer_of
from kohort.records.header import readdress
from kohort.wire.messages import produce

if TYPE_CHECKING:
    from kohort.client.producer.core.transactions import Transactions
    from kohort.client.typed_options import ProducerOptions


#: Refusals of a batch that smaller batches may escape.
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
#: Refusals under idempotence which say that an earlier batch is missing.
_GAPS: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
#: Refusals of the first batches of a transaction, and longest pause after them, while the coordinator still ends the
#: transaction before.
_CONCURRENT: Final = (ErrorCode.CONCURRENT_TRANSACTIONS, *_GAPS)
_CONCURRENT_PAUSE_MS: Final = 20


@value
class SenderSettings:
    """The checked values of a producer's options, and values derived from them."""

    #: As in `ClientSettings`.
    options: ProducerOptions = field(repr=False)
    #: 0, 1 or -1 (all).
    acks: int
    #: Level of the codec; `None`: its default.
    compression_level: int | None


class Sender:
    """Sends the batches that the accumulator has ready.

    Args:
        transactions: the transactions, of one of which each batch is part; `None` without a transactional id.
        on_end: called with each batch that is stored or has failed, after its records were notified.
        on_cut: called with each batch that was split, and its pieces.
        on_ended: called with finished records that have an `on_delivery` callback.
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        accumulator: Accumulator,
        identity: Identity,
        settings: SenderSettings,
        *,
        retry: Backoff,
        transactions: Transactions | None = None,
        on_end: Callable[[Batch], None],
        on_cut: Callable[[Batch, list[Batch]], None],
        on_ended: Callable[[Sequence[RecordFuture]], None],
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._accumulator = accumulator
        self._identity = identity
        self._settings = settings
        self._retry = retry
        self._transactions = transactions
        self._on_end = on_end
        self._on_cut = on_cut
        self._on_ended = on_ended
        self.lost_records = LostRecords()
        self.counters = ProducerCounters()
        self.refusals = RefusalLog(requests, delivery_timeout_ms=settings.options["delivery_timeout_ms"])
        #: Requests without an answer, by broker.
        self._in_flight: dict[Endpoint, int] = {}
        #: The latest failure; `None` after a batch that was stored. It is the reason of batches that were never sent.
        self.trouble: KohortError | None = None
        #: Batches that pause before they are sent again.
        self._pausing: list[Batch] = []

    @property
    def is_idle(self) -> bool:
        """Whether no request is in flight."""
        return not self._in_flight

    # -- sending ------------------------------------------------------------------------------------------------

    def send_ready(self, now_ms: int) -> None:
        """Send requests with the batches that are ready, as far as the limit of requests in flight allows."""
        self._pausing = [batch for batch in self._pausing if batch.not_before_ms > now_ms]
        if not self._identity.is_ready and not self._identity.is_spoilt:
            return
        while self._send_round(now_ms):
            pass

    @property
    def is_settled(self) -> bool:
        """Whether brokers surely have stored none of the unacknowledged batches.

        That follows if they have none of each partition's first batches: no batch is stored before an earlier one.
        """
        return self.is_idle and not any(queue[0].is_unsure for queue in self._accumulator.queues.values())

    def _send_round(self, now_ms: int) -> bool:
        """Send at most one request to each leader; return whether any was sent."""
        loads: dict[Endpoint, list[Batch]] = {}
        sizes: dict[Endpoint, int] = {}
        for partition in list(self._accumulator.queues):
            batch = self._accumulator.ready(partition, now_ms)
            if batch is None or not self._may_go(batch):
                continue
            leader = self._cluster.leader_of(partition)
            if leader is None:
                self._cluster.refresh_soon(now_ms)
                if batch.last_error is None:
                    self.trouble = batch.last_error = BrokerError(
                        ErrorCode.LEADER_NOT_AVAILABLE, during=f"producing to {partition}"
                    )
                continue
            if self._in_flight.get(leader, 0) >= self._settings.options["max_in_flight_requests_per_connection"]:
                continue
            size = sizes.get(leader, 0) + batch.size_bytes
            # The first batch goes in any case, however large.
            if leader in loads and size > self._settings.options["max_request_size"]:
                continue
            loads.setdefault(leader, []).append(batch)
            sizes[leader] = size
        for leader, batches in loads.items():
            self._send(leader, batches)
        return bool(loads)

    def _may_go(self, batch: Batch) -> bool:
        transactions = self._transactions
        if transactions is not None and not transactions.may_send(batch.partition, is_unsure=batch.is_unsure):
            return False
        is_first = self._accumulator.queues[batch.partition][0] is batch
        if self._identity.is_spoilt:
            # Under an identity that ends, only batches that the broker may have are sent again.
            return is_first and batch.is_unsure
        return is_first or (self._identity.may_pipeline(batch.partition) and not self._would_bury(batch))

    def _would_bury(self, batch: Batch) -> bool:
        """Return whether this batch might make the broker forget an earlier batch that it may have stored.

        A broker recognises duplicates of a producer's last five batches only. No more were in flight when their
        responses were lost, so only these are sent again until all are acknowledged.
        """
        if batch.is_unsure or not self._identity.is_wanted:
            return False
        queue = self._accumulator.queues[batch.partition]
        return any(earlier.is_unsure for earlier in takewhile(lambda each: each is not batch, queue))

    def _send(self, leader: Endpoint, batches: Sequence[Batch]) -> None:
        topics: dict[str, produce.TopicProduceData] = {}
        for batch in batches:
            self._accumulator.leave(batch)
            name, number = batch.partition
            data = topics.get(name)
            if data is None:
                data = topics[name] = produce.TopicProduceData(name=name, topic_id=self._cluster.topic_id(name))
            data.partition_data.append(produce.PartitionProduceData(index=number, records=self._encode(batch)))
        transactions = self._transactions
        lowest, highest = (None, None) if transactions is None else transactions.produce_versions()
        # Version 13 on names topics by id only.
        if highest is None and any(data.topic_id == ZERO_TOPIC_ID for data in topics.values()):
            highest = 12
        request = produce.ProduceRequest(
            transactional_id=None if transactions is None else transactions.transactional_id,
            acks=self._settings.acks,
            timeout_ms=self._settings.options["request_timeout_ms"],
            topic_data=list(topics.values()),
        )
        self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
        self._requests.send(
            leader,
            Lane.PRODUCE,
            request,
            lambda answer, now_ms: self._on_answer(leader, batches, answer, now_ms),
            min_version=lowest,
            max_version=highest,
            has_response=self._settings.acks != 0,
        )

    def _encode(self, batch: Batch) -> bytearray:
        identity = self._identity
        if identity.is_wanted and batch.sequence is None:
            batch.sequence = identity.number(batch.partition, batch.count)
            if batch.encoded is not None:
                # It was numbered under an earlier identity.
                readdress(batch.encoded, identity.producer_id, identity.epoch, batch.sequence)
        if batch.encoded is None:
            # The application may keep the record, for its end. Key and value are in the encoded batch only from now on.
            batch.encoded = build(
                [writer_of(batch.records) if batch.bulk is None else batch.bulk.writer()],
                count=batch.count,
                base_timestamp=(batch.bulk or batch.records[0]).timestamp_ms,
                room_bytes=batch.size_bytes + batch.count * (RECORD_ROOM_BYTES - RECORD_OVERHEAD_BYTES),
                compression=self._settings.options["compression_type"],
                level=self._settings.compression_level,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=-1 if batch.sequence is None else batch.sequence,
                is_transactional=self._transactions is not None,
            )
        return batch.encoded

    # -- answers ------------------------------------------------------------------------------------------------

    def _on_answer(self, leader: Endpoint, batches: Sequence[Batch], answer: Answer, now_ms: int) -> None:
        self._in_flight[leader] -= 1
        if not self._in_flight[leader]:
            del self._in_flight[leader]
        if isinstance(answer, RequestFailed):
            self._on_failure(batches, answer, now_ms)
            return
        if self._settings.acks == 0:
            for batch in batches:
                self.succeed(batch, -1, -1)
            return
        response = message_of(answer, produce.ProduceResponse)
        assert response is not None
        outcomes = self._outcomes(response)
        for batch in batches:
            outcome = outcomes.get(batch.partition)
            if outcome is None:
                batch.is_unsure = True
                self._try_again(batch, KohortError(f"the broker's answer left out {batch.partition}"), now_ms)
            else:
                self._on_outcome(batch, outcome, now_ms)

    def _outcomes(self, response: produce.ProduceResponse) -> dict[TopicPartition, produce.PartitionProduceResponse]:
        found: dict[TopicPartition, produce.PartitionProduceResponse] = {}
        for topic in response.responses:
            name = topic.name or self._cluster.topic_name(TopicId(topic.topic_id))
            for partition in topic.partition_responses if name else ():
                assert name is not None
                found[TopicPartition(name, partition.index)] = partition
        return found

    def _on_failure(self, batches: Sequence[Batch], answer: RequestFailed, now_ms: int) -> None:
        if answer.failure in (Failure.UNSUPPORTED, Failure.UNENCODABLE):
            for batch in batches:
                self.fail(batch, LocalProtocolError(answer.detail))
            return
        self._cluster.refresh(now_ms)
        for batch in batches:
            # After one of these failures the broker may have stored the batch; otherwise it was not sent.
            batch.is_unsure |= answer.failure in (Failure.DISCONNECTED, Failure.TIMED_OUT)
            self._try_again(
                batch, KohortTimeoutError(f"{batch.partition} was not acknowledged: {answer.detail}"), now_ms
            )

    def _on_outcome(self, batch: Batch, outcome: produce.PartitionProduceResponse, now_ms: int) -> None:
        code = ErrorCode.of(outcome.error_code)
        doing = f"producing to {batch.partition}"
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.refusals.on_done(doing)
            self.succeed(batch, outcome.base_offset, outcome.log_append_time_ms)
            return
        told = outcome.error_message
        if told is None and code in _TOO_LARGE:
            # Apache Kafka sends no text with the code.
            told = f"a record batch of {batch.size_bytes} bytes is above max.message.bytes of the topic"
        error = refused(code, told, during=doing, operation="write", name=batch.partition.topic)
        # A new topic may be unknown to its leader for a moment.
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and batch.attempts > 3:
            self.fail(batch, UnknownTopicError(batch.partition.topic))
        elif code in _TOO_LARGE and batch.count > 1:
            self._cut(batch, error)
        elif code in _GAPS and self._is_behind_another(batch):
            # Had the broker got this batch before, it would report a duplicate.
            batch.is_unsure = False
            self._try_again(batch, error, now_ms)
        elif code.retriable and code is not ErrorCode.MESSAGE_TOO_LARGE:
            if code.invalidates_metadata:
                self._cluster.refresh(now_ms)
            self.refusals.on_refused(doing, code, outcome.error_message)
            self._try_again(batch, error, now_ms)
        else:
            self.fail(batch, error)

    def _is_behind_another(self, batch: Batch) -> bool:
        """Return whether the gap is due to an earlier batch: one that is sent again, or has failed for good."""
        return self._identity.is_spoilt or self._accumulator.queues[batch.partition][0] is not batch

    def _try_again(self, batch: Batch, error: KohortError, now_ms: int) -> None:
        self.trouble = error
        is_late = now_ms - batch.created_ms >= self._settings.options["delivery_timeout_ms"]
        if is_late or batch.attempts >= self._settings.options["retries"]:
            self.fail(batch, error)
            return
        batch.state, batch.last_error = BatchState.CLOSED, error
        pause_ms = self._retry.delay_ms(batch.attempts)
        if self._transactions is not None and isinstance(error, BrokerError) and error.code in _CONCURRENT:
            pause_ms = min(pause_ms, _CONCURRENT_PAUSE_MS)
        batch.not_before_ms = now_ms + pause_ms
        batch.attempts += 1
        self.counters.retried_records += batch.count
        self._pausing.append(batch)

    def _cut(self, batch: Batch, error: KohortError) -> None:
        """Split a batch that is too large into two halves, which are sent at once."""
        assert batch.encoded is not None, "it was sent"
        self._accumulator.narrow(batch.partition.topic)
        contents = [] if batch.bulk is not None else list(iterate_records(batch.encoded, check_crcs=False))
        half = batch.count // 2
        pieces = []
        for start, stop in ((0, half), (half, batch.count)):
            piece = Batch(batch.partition, batch.created_ms)
            if batch.bulk is not None:
                piece.bulk, size_bytes = batch.bulk.part(piece.end, start, stop)
                piece.size_bytes += size_bytes
            for record, content in zip(batch.records[start:stop], contents[start:stop], strict=True):
                record.key, record.value = content.key, content.value
                piece.add(record)
            piece.state, piece.attempts, piece.last_error = BatchState.CLOSED, batch.attempts, error
            if batch.sequence is not None:
                # Together the pieces use the sequence numbers of the batch, so there is no gap.
                piece.sequence = following(batch.sequence, start)
            pieces.append(piece)
        self._accumulator.replace(batch, pieces)
        self._on_cut(batch, pieces)

    # -- ends ---------------------------------------------------------------------------------------------------

    def succeed(self, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        """Finish a stored batch; `base_offset` is that of its first record, -1 with acks=0."""
        self.trouble = None
        self._identity.acknowledge(batch.partition)
        batch.end.base_offset, batch.end.append_time_ms = base_offset, append_time_ms
        self.counters.sent_records += batch.count
        self.counters.sent_batches += 1
        self.counters.sent_bytes += batch.size_bytes
        self._end(batch)

    def fail(self, batch: Batch, error: KohortError) -> None:
        """Finish a batch with an error; its sequence numbers cannot be used again."""
        if batch.sequence is not None:
            # The broker would refuse every later batch for the gap.
            self._identity.spoil()
        batch.end.error = error
        self.counters.failed_records += batch.count
        for record in batch.records:
            record.on_failure()
            self._note_lost(record, error)
        if batch.bulk is not None and self._transactions is None:
            self.lost_records.note_many(batch.bulk.future, batch.count, error)
        self._end(batch)

    def fail_record(self, record: Member, error: KohortError) -> None:
        """Finish a single record with an error, unless its batch has finished already."""
        if not record.end.is_over:
            self.counters.failed_records += record.count if record.is_bulk else 1
            if not record.is_bulk:
                self._note_lost(record, error)
            elif self._transactions is None:
                self.lost_records.note_many(record.future, record.count, error)
            record.fail(error)
        self._tell([record])

    def _note_lost(self, record: RecordFuture, error: KohortError) -> None:
        # The end of a transaction says that records of it are lost.
        if self._transactions is None:
            self.lost_records.note(record, error)

    def _tell(self, records: Sequence[Member]) -> None:
        """Notify the futures of finished records, and pass on the records with an `on_delivery` callback."""
        for record in records:
            if record.is_bulk or record.is_watched:
                record.on_end()
        called = [record for record in records if not record.is_bulk and record.on_delivery is not None]
        if called:
            self._on_ended(called)

    def _end(self, batch: Batch) -> None:
        batch.end.is_over = True
        self._tell([record for record in batch.members if record.is_noticed])
        self._accumulator.remove(batch)
        self._on_end(batch)

    def expire(self, now_ms: int) -> None:
        """Fail batches older than `delivery.timeout.ms`; close retried ones for more records after an eighth of it."""
        limit_ms = self._settings.options["delivery_timeout_ms"]
        for queue in list(self._accumulator.queues.values()):
            error = self.trouble
            if queue[0].last_error is not None and now_ms - queue[-1].created_ms >= limit_ms // 8:
                # Records of a batch share one end. Later records shall have a time of their own.
                self._accumulator.seal(queue[-1])
            for batch in list(queue):
                age_ms = now_ms - batch.created_ms
                if batch.state is BatchState.IN_FLIGHT or age_ms < limit_ms:
                    break
                text = f"{batch.count} records for {batch.partition} were not sent within {age_ms} ms"
                # A batch that was never sent has waited for the one before it, or for a broker.
                error = batch.last_error or error
                self.fail(batch, KohortTimeoutError(text if error is None else f"{text}: {error}"))

    def next_deadline(self) -> int | None:
        """Return when the next pause before a retry, or `delivery.timeout.ms` of a waiting batch, ends."""
        deadlines = [batch.not_before_ms for batch in self._pausing]
        deadlines += [
            queue[0].created_ms + self._settings.options["delivery_timeout_ms"]
            for queue in self._accumulator.queues.values()
            if queue[0].state is not BatchState.IN_FLIGHT
        ]
        return min(deadlines, default=None)


@value(kw_only=False, frozen=False, eq=False)
class ProducerCounters:
    """The counts of records since the producer was created; written by the machine, read from any thread."""

    #: Stored records, their batches, and the bytes of these.
    sent_records: int = 0
    sent_batches: int = 0
    sent_bytes: int = 0
    #: Records that have failed.
    failed_records: int = 0
    #: Records that were sent again, counted each time.
    retried_records: int = 0
