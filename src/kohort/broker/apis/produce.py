"""Produce (key 0): append record batches.

From version 13 on topics are named by id. acks=0 gets no answer; if such a request fails its connection is closed,
which makes the client ask for metadata anew, as in Kafka. acks=1 is answered after the append, acks=-1 once it is as
durable as the topic asks for. Batches that unfold to much are looked into beside the loop, and their request is
answered when all of them are. The first batch of a transaction in a partition waits until the coordinator of the
transaction knows of the partition; from version 12 on the batch itself adds the partition (KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

from kohort.broker.access.rights import Rights
from kohort.broker.context import BrokerContext, Request
from kohort.broker.durability import is_durable
from kohort.broker.transactions.coordination import TransactionalBatch
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.records.header import CRC_START, HEADER_SIZE, TRANSACTIONAL_BIT
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.files.fs import Buffer
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.validation import CheckedBatch, RecordsRefused, is_zstd
from kohort.storage.topics import Topic
from kohort.wire.messages import produce as wire
from kohort.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

#: KIP-110: consumers older than this version of Produce would not expect it.
_ZSTD_SINCE: Final = 7
#: The lower byte of a batch's attributes, and its producer's id and epoch with the first sequence.
_ATTRIBUTES: Final = CRC_START + 1
_PRODUCER_POSITION: Final = 43
_PRODUCER: Final = Struct(">qhi")
#: The first version whose batches add their partition to the transaction, and that knows TRANSACTION_ABORTABLE.
_ADDS_PARTITIONS_SINCE: Final = 12
_ABORTABLE_SINCE: Final = 11
#: The error of a topic that may not be written.
_DENIED: Final = Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
#: The error of batches of a transaction that may not be written.
_NO_TRANSACTION: Final = Refused(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional Id authorization failed."
)


def handle(context: BrokerContext, request: Request, message: wire.ProduceRequest) -> ProduceResponse | None:
    """Append to each partition independently; a refused one does not hold up the others."""
    return _Production(context, request, message).begin()


class _Production:
    """One Produce request, until all of its batches are appended or refused."""

    __slots__ = (
        "_acks",
        "_context",
        "_is_begun",
        "_now_ms",
        "_open",
        "_refused",
        "_request",
        "_response",
        "_rights",
        "_transactional_id",
        "_written",
    )

    def __init__(self, context: BrokerContext, request: Request, message: wire.ProduceRequest) -> None:
        self._context: Final = context
        self._request: Final = request
        self._rights: Final = request.connection.rights
        self._acks: Final = message.acks
        self._transactional_id: Final = message.transactional_id
        self._now_ms: Final = context.clock.now_ms()
        self._refused: Final = _refuse_whole(message, self._rights)
        self._written: Final[list[PartitionLog]] = []
        #: Batches that threads still validate.
        self._open = 0
        self._is_begun = False
        self._response: Final = ProduceResponse(responses=[self._answer_topic(topic) for topic in message.topic_data])

    def begin(self) -> ProduceResponse | None:
        """Return the answer, `None` if it leaves later."""
        self._is_begun = True
        return None if self._open else self._finish()

    def _finish(self) -> ProduceResponse | None:
        request, response = self._request, self._response
        if self._acks == 0:
            request.skip()
            if any(part.error_code for topic in response.responses for part in topic.partition_responses):
                # acks=0 has no answer: a closed connection makes the client refresh its metadata, as in Kafka.
                request.connection.close()
            return None
        # acks=1 is answered after the append, acks=-1 once the batch is as durable as its topic asks for.
        if self._acks == 1:
            return response
        unsynced = [log for log in self._written if not is_durable(log)]
        if not unsynced:
            return response
        request.answer_unsynced(response)
        release = request.release if len(unsynced) == 1 else _after(len(unsynced), request.release)
        for log in unsynced:
            self._context.durability.when_durable(log, release)
        return None

    def _answer_topic(self, data: wire.TopicProduceData) -> TopicProduceResponse:
        context, refused = self._context, self._refused
        topic, missing = context.cluster.find(data.name, data.topic_id)
        partitions = topic.partitions if topic is not None else ()
        if refused is _NO_TRANSACTION:
            # As Apache Kafka: this right is asked for first, and for the whole request.
            pass
        elif self._rights.is_restricted and not self._may_write(data.name if topic is None else topic.name):
            # As Apache Kafka: whether the topic is there, and whether its acks are possible, is not told.
            refused = _DENIED
        elif topic is not None and topic.is_internal and refused is None:
            refused = Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic.name} is written by the broker only")
        answers = []
        for partition_data in data.partition_data:
            answer = PartitionProduceResponse(index=partition_data.index, error_code=0, base_offset=-1)
            answers.append(answer)
            if refused is not None:
                _refuse(answer, refused)
            elif not 0 <= answer.index < len(partitions):
                answer.error_code = missing if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                log = partitions[answer.index]
                answer.error_code = context.leadership.refusal(log, -1)
                if self._rights.is_partial and not self._may_write_partition(topic, answer.index):
                    _refuse(answer, _DENIED)
                if answer.error_code == ErrorCode.NONE:
                    self._store(log, partition_data, answer)
        return TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers)

    def _may_write(self, name: str) -> bool:
        # An unknown id has no name to ask for, and is answered as unknown.
        return not name or self._rights.allows(AclOperation.WRITE, ResourceType.TOPIC, name)

    def _may_write_partition(self, topic: Topic | None, partition: int) -> bool:
        return topic is not None and self._rights.allows_partition(topic.name, topic.topic_id, partition)

    def _store(self, log: PartitionLog, data: wire.PartitionProduceData, answer: PartitionProduceResponse) -> None:
        records = data.records
        assert records is None or isinstance(records, Buffer), "decoded records are one buffer"
        batches = b"" if records is None else records
        preparation = self._context.batch_validation
        # Consumers of that age could not read the batch.
        if self._request.version < _ZSTD_SINCE and is_zstd(batches):
            words = f"zstd may be sent by version {_ZSTD_SINCE} of Produce and later"
            _refuse(answer, Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, words))
            return
        if not preparation.is_needed(log, batches):
            self._append(log, batches, answer)
            return
        self._open += 1
        preparation.submit(log, batches, self._now_ms, lambda prepared: self._on_prepared(log, prepared, answer))

    def _on_prepared(
        self, log: PartitionLog, prepared: CheckedBatch | Exception, answer: PartitionProduceResponse
    ) -> None:
        if isinstance(prepared, Refused):
            _refuse(answer, prepared)
        elif isinstance(prepared, Exception):
            raise prepared
        else:
            self._append(log, prepared, answer)
        self._close_one()

    def _close_one(self) -> None:
        """Send the answer after the last batch that could not be appended at once."""
        self._open -= 1
        if self._is_begun and not self._open:
            response = self._finish()
            if response is not None and self._request.is_open:
                self._request.answer(response)

    def _append(self, log: PartitionLog, batches: Buffer | CheckedBatch, answer: PartitionProduceResponse) -> None:
        batch = batches.batch if isinstance(batches, CheckedBatch) else batches
        if _is_transactional(batch):
            self._append_in_transaction(log, batches, answer)
        else:
            self._append_now(log, batches, answer)

    def _append_in_transaction(
        self, log: PartitionLog, batches: Buffer | CheckedBatch, answer: PartitionProduceResponse
    ) -> None:
        """Append a batch of a transaction once the transaction coordinator has the partition."""
        batch = batches.batch if isinstance(batches, CheckedBatch) else batches
        transactional_id = self._transactional_id
        if transactional_id is None:
            _refuse(answer, _NO_TRANSACTION)
            return
        producer_id, producer_epoch, sequence = _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)
        version = self._request.version
        # Clients of older versions have added the partition themselves, and know no TRANSACTION_ABORTABLE.
        spoken = 2 if version >= _ADDS_PARTITIONS_SINCE else 1 if version >= _ABORTABLE_SINCE else 0
        kept, is_done, is_later = batches, False, False

        def append(code: ErrorCode, begins: bool) -> None:
            nonlocal is_done
            is_done = True
            if begins and spoken == 2 and sequence and log.producers.get(producer_id) is None:
                # Each of these transactions begins at 0: an earlier batch of it was lost.
                code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if code is ErrorCode.NONE else code
            if code is ErrorCode.NONE:
                self._append_now(log, kept, answer, begins_transaction=begins)
            else:
                _refuse(answer, Refused(code, f"the transaction of {transactional_id} does not take {log.name}"))
            if is_later:
                self._close_one()

        self._context.transactions.before_append(
            log, TransactionalBatch(transactional_id, producer_id, producer_epoch, spoken, len(batch)), append
        )
        if not is_done:
            is_later = True
            self._open += 1
            # The buffer is the connection's, which reads on.
            copy = bytearray(batch)
            kept = batches._replace(batch=copy) if isinstance(batches, CheckedBatch) else copy

    def _append_now(
        self,
        log: PartitionLog,
        batches: Buffer | CheckedBatch,
        answer: PartitionProduceResponse,
        *,
        begins_transaction: bool = False,
    ) -> None:
        known = len(log.producers)
        try:
            appended = self._context.durability.append(
                log, batches, now_ms=self._now_ms, begins_transaction=begins_transaction
            )
        except Refused as refused:
            _refuse(answer, refused)
            return
        except StorageError as failure:
            _refuse(answer, Refused(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)))
            return
        # The number of remembered producers is bounded over all partitions.
        if len(log.producers) > known:
            self._context.producer_expiry.on_new(log)
        self._written.append(log)
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.log_append_time_ms
        answer.log_start_offset = log.log_start_offset


def _refuse_whole(message: wire.ProduceRequest, rights: Rights) -> Refused | None:
    """Return the error that refuses the whole request, `None` if there is none."""
    # CVE-2018-17196: what the batches say counts, not what the request says.
    if rights.is_restricted and any(
        _is_transactional(row.records) for topic in message.topic_data for row in topic.partition_data
    ):
        name = message.transactional_id
        if name is None or not rights.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
            return _NO_TRANSACTION
    if message.acks not in (-1, 0, 1):
        return Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {message.acks}; -1, 0 and 1 are possible")
    return None


def _is_transactional(batch: object) -> bool:
    """Return whether the records of a partition say that they belong to a transaction."""
    return isinstance(batch, Buffer) and len(batch) >= HEADER_SIZE and batch[_ATTRIBUTES] & TRANSACTIONAL_BIT != 0


def _refuse(answer: PartitionProduceResponse, refused: Refused) -> None:
    answer.error_code, answer.error_message = refused.code, str(refused)
    if isinstance(refused, RecordsRefused):
        answer.record_errors = [
            wire.BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=text)
            for place, text in refused.rows
        ]


def _after(calls: int, callback: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls `callback` at the last of `calls` calls."""
    left = calls

    def count_down() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            callback()

    return count_down
