"""Dialogues with a transactional producer's machine: what it asks of coordinators and leaders, and when.

Source: KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

import kohort
from kohort.client.core.actions import Complete, Fail, Send, Stop
from kohort.client.core.requests import Failure
from kohort.client.producer.core import transactions
from kohort.client.producer.core.producer_events import (
    ProducerCloseAsked,
    ProducerIdAndEpoch,
    RecordsSubmitted,
    TransactionAsked,
    TransactionOffsetsAsked,
    TransactionShared,
    TransactionStep,
)
from kohort.client.producer.core.transactions import TRANSITIONS, Happening, TransactionState
from kohort.client.producer.record_future import RecordFuture
from kohort.client.records import GroupMetadata
from kohort.errors import (
    AuthorizationError,
    BrokerError,
    ConfigError,
    ErrorCode,
    KohortTimeoutError,
    ProducerFencedError,
    StateError,
    TransactionAbortableError,
    UnsupportedFeatureError,
)
from kohort.ids import TopicPartition
from kohort.records.header import BatchHeader, parse_header
from kohort.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kohort.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kohort.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kohort.wire.messages.produce import ProduceRequest
from kohort.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from support.dialogues.producer_dialogue import BROKER, Dialogue, values_of

INITIALIZE, BEGIN, COMMIT, ABORT = TransactionStep
GROUP = GroupMetadata("readers", 4, "member-1", "left")
FLOWS = [0, 2]


class TransactionDialogue(Dialogue):
    """A machine with a transactional id; `transaction_version` is the cluster's."""

    def __init__(self, transaction_version: int = 2, **options: object) -> None:
        super().__init__(transactional_id="billing", **options)  # type: ignore[arg-type]  # options as a program gives them
        self.transaction_version = transaction_version

    @property
    def state(self) -> TransactionState:
        assert self.machine._transactions is not None
        return self.machine._transactions.state

    def call(self, step: TransactionStep, *, timeout_ms: int = 60_000) -> Future[object]:
        ticket: Future[object] = Future()
        self.take(TransactionAsked(step=step, ticket=ticket, deadline_ms=self.now_ms + timeout_ms))
        return ticket

    def offsets(self, offset: int = 5, *, group: GroupMetadata = GROUP) -> Future[object]:
        ticket: Future[object] = Future()
        offsets = {TopicPartition("in", 0): offset}
        asked = TransactionOffsetsAsked(group=group, offsets=offsets, ticket=ticket, deadline_ms=self.now_ms + 60_000)
        self.take(asked)
        return ticket

    def share(self, identity: ProducerIdAndEpoch | None) -> Future[object]:
        ticket: Future[object] = Future()
        self.take(TransactionShared(identity=identity, ticket=ticket, deadline_ms=self.now_ms + 60_000))
        return ticket

    def outcome(self, ticket: object) -> object:
        """How a call has ended: its error, "done", or `None` while it waits."""
        for action in self.actions:
            if isinstance(action, Complete | Fail) and action.ticket is ticket:
                return action.error if isinstance(action, Fail) else "done"
        return None

    def error(self, ticket: object) -> Any:
        found = self.outcome(ticket)
        assert isinstance(found, Exception), found
        return found

    def find(self, code: ErrorCode = ErrorCode.NONE) -> FindCoordinatorRequest:
        send = self.next(FindCoordinatorRequest)
        request = send.request
        assert isinstance(request, FindCoordinatorRequest)
        row = Coordinator(key=request.key, host=BROKER.host, port=BROKER.port, node_id=1, error_code=int(code))
        self.answer(send, FindCoordinatorResponse(coordinators=[row]))
        return request

    def identify(self, producer_id: int = 7, epoch: int = 0, error: ErrorCode = ErrorCode.NONE) -> Send:
        send = self.next(InitProducerIdRequest)
        self.answer(send, InitProducerIdResponse(error_code=int(error), producer_id=producer_id, producer_epoch=epoch))
        return send

    def begun(self) -> TransactionDialogue:
        """In a transaction; the topic is known."""
        ticket = self.call(BEGIN)
        self.find()
        self.identify()
        assert self.outcome(ticket) == "done"
        record = self.submit(b"first")
        self.answer_metadata(partitions=3)
        self.add()
        self.answer_produce(self.next(ProduceRequest))
        assert record.done()
        return self

    def add(self, *codes: ErrorCode, only: bool = False) -> list[TopicPartition]:
        """Answer AddPartitionsToTxn, which the newer flow does without."""
        if self.transaction_version >= 2:
            return []
        send = self.next(AddPartitionsToTxnRequest)
        request = send.request
        assert isinstance(request, AddPartitionsToTxnRequest)
        assert send.max_version == 3
        wanted = [
            TopicPartition(topic.name, number) for topic in request.v3_and_below_topics for number in topic.partitions
        ]
        rows = [
            AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=int(code))
                ],
            )
            for (name, number), code in zip(wanted, codes or [ErrorCode.NONE] * len(wanted), strict=True)
        ]
        self.answer(send, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows))
        return wanted

    def end(self, code: ErrorCode = ErrorCode.NONE, *, producer_id: int = 7, epoch: int = 1) -> EndTxnRequest:
        """Answer EndTxn; the newer flow's answer has the next epoch."""
        send = self.next(EndTxnRequest)
        assert (send.min_version, send.max_version) == ((5, None) if self.transaction_version >= 2 else (None, 4))
        request = send.request
        assert isinstance(request, EndTxnRequest)
        is_raised = self.transaction_version >= 2 and code is ErrorCode.NONE
        self.answer(
            send,
            EndTxnResponse(
                error_code=int(code),
                producer_id=producer_id if is_raised else -1,
                producer_epoch=epoch if is_raised else -1,
            ),
        )
        return request

    def commit_offsets(self, code: ErrorCode = ErrorCode.NONE) -> Send:
        send = self.next(TxnOffsetCommitRequest)
        row = TxnOffsetCommitResponsePartition(partition_index=0, error_code=int(code))
        self.answer(send, TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="in", partitions=[row])]))
        return send


def header_of(send: Send) -> BatchHeader:
    assert isinstance(send.request, ProduceRequest)
    return parse_header(send.request.topic_data[0].partition_data[0].records)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", FLOWS)
def test_committed_transaction(version: int) -> None:
    """Records go to leaders with id, epoch and the transactional bit; EndTxn goes when the last one is stored."""
    dialogue = TransactionDialogue(version)
    begun = dialogue.call(BEGIN)
    assert dialogue.find().key_type == 1
    request = dialogue.identify(7, 3).request
    assert isinstance(request, InitProducerIdRequest)
    assert (request.transactional_id, request.transaction_timeout_ms, request.producer_id) == ("billing", 60_000, -1)
    assert dialogue.outcome(begun) == "done"

    record = dialogue.submit(b"one")
    dialogue.answer_metadata()
    committed = dialogue.call(COMMIT)
    assert dialogue.add() == ([] if version else [TopicPartition("orders", 0)])
    produce = dialogue.next(ProduceRequest)
    assert not dialogue.unanswered(EndTxnRequest)
    assert isinstance(produce.request, ProduceRequest) and produce.request.transactional_id == "billing"
    assert (produce.min_version, produce.max_version) == ((12, None) if version else (None, 11))
    header = header_of(produce)
    assert (header.is_transactional, header.producer_id, header.producer_epoch, header.base_sequence) == (True, 7, 3, 0)
    dialogue.answer_produce(produce, offset=9)
    assert record.result(0).offset == 9
    assert dialogue.outcome(committed) is None
    request = dialogue.end(epoch=4)
    assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("billing", 7, 3)
    assert request.committed
    assert (dialogue.outcome(committed), dialogue.state) == ("done", TransactionState.READY)


def test_each_transaction_has_its_epoch_and_begins_its_sequences() -> None:
    """KIP-890: the answer to EndTxn names the next epoch, under which sequences begin at 0."""
    dialogue = TransactionDialogue().begun()
    dialogue.call(COMMIT)
    dialogue.end(producer_id=8, epoch=0)
    dialogue.call(BEGIN)
    dialogue.submit(b"two")
    header = header_of(dialogue.next(ProduceRequest))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 0, 0)


def test_batches_behind_one_that_came_too_early_wait_for_it() -> None:
    """A leader that knows the id accepts only sequence 0 of a new epoch, so batches need not wait for the first."""
    dialogue = TransactionDialogue().begun()
    dialogue.call(COMMIT)
    dialogue.end()
    dialogue.call(BEGIN)
    records = [dialogue.submit(b"%d" % each) for each in range(2)]
    for code in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        dialogue.answer_produce(dialogue.next(ProduceRequest), error=code)
    dialogue.advance(20)
    for sequence in range(2):
        send = dialogue.next(ProduceRequest)
        assert (values_of(send), header_of(send).base_sequence) == ([b"%d" % sequence], sequence)
        dialogue.answer_produce(send)
    assert all(record.exception(0) is None for record in records)


def test_older_flow_goes_on_with_epoch_and_sequences() -> None:
    """KIP-98: one epoch over many transactions; each of them adds its partitions."""
    dialogue = TransactionDialogue(0).begun()
    dialogue.call(COMMIT)
    dialogue.end()
    dialogue.call(BEGIN)
    dialogue.submit(b"two")
    assert not dialogue.unanswered(ProduceRequest)
    dialogue.add()
    header = header_of(dialogue.next(ProduceRequest))
    assert (header.producer_epoch, header.base_sequence) == (0, 1)


def joined(version: int) -> TransactionDialogue:
    """A producer that takes part in the transaction of another one."""
    dialogue = TransactionDialogue(version)
    assert dialogue.outcome(dialogue.share(ProducerIdAndEpoch(7, 3, version))) == "done"
    return dialogue


@pytest.mark.parametrize("version", FLOWS)
def test_producer_takes_part_in_the_transaction_of_another_one(version: int) -> None:
    """It writes under the given id and epoch, asks for none, and leaves the transaction open."""
    dialogue = joined(version)
    record = dialogue.submit(b"one")
    dialogue.answer_metadata()
    if not version:
        dialogue.find()
    dialogue.add()
    produce = dialogue.next(ProduceRequest)
    header = header_of(produce)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 0)
    early = dialogue.share(None)
    assert "it cannot join or leave now" in str(dialogue.error(early))
    dialogue.answer_produce(produce)
    assert record.done()
    assert dialogue.outcome(dialogue.share(None)) == "done"
    assert dialogue.state is TransactionState.UNINITIALIZED
    dialogue.take(ProducerCloseAsked(ticket=None, deadline_ms=dialogue.now_ms + 1_000))
    assert not dialogue.unanswered(EndTxnRequest) and not dialogue.unanswered(InitProducerIdRequest)


@pytest.mark.parametrize("version", FLOWS)
def test_producer_commits_what_others_have_written(version: int) -> None:
    """By the ids alone; it has sent nothing itself."""
    dialogue = joined(version)
    committed = dialogue.call(COMMIT)
    dialogue.find()
    request = dialogue.end(epoch=4)
    assert (request.producer_id, request.producer_epoch, request.committed) == (7, 3, True)
    assert dialogue.outcome(committed) == "done"


@pytest.mark.parametrize("version", FLOWS)
def test_abort_of_a_shared_transaction_fences_all_that_take_part(version: int) -> None:
    """EndTxn raises the epoch; by the older flow InitProducerId does, behind an EndTxn that checks the old one."""
    dialogue = joined(version)
    aborted = dialogue.call(ABORT)
    dialogue.find()
    request = dialogue.end(epoch=4)
    assert (request.producer_id, request.producer_epoch, request.committed) == (7, 3, False)
    if version < 2:
        again = dialogue.identify(7, 4).request
        assert isinstance(again, InitProducerIdRequest)
        assert (again.producer_id, again.producer_epoch) == (7, 3)
    assert dialogue.outcome(aborted) == "done"
    assert not dialogue.unanswered(InitProducerIdRequest)


@pytest.mark.parametrize("version", FLOWS)
def test_abort_by_a_producer_that_is_fenced_asks_for_no_epoch(version: int) -> None:
    """By InitProducerId Apache Kafka would abort the open transaction of its successor, whatever the epoch says."""
    dialogue = joined(version)
    aborted = dialogue.call(ABORT)
    dialogue.find()
    dialogue.end(code=ErrorCode.PRODUCER_FENCED)
    assert isinstance(dialogue.outcome(aborted), ProducerFencedError)
    assert not dialogue.unanswered(InitProducerIdRequest)


def test_abort_of_a_shared_transaction_in_which_nothing_was_written() -> None:
    """The older flow has no transaction to end then, and still a new epoch."""
    dialogue = joined(0)
    aborted = dialogue.call(ABORT)
    dialogue.find()
    dialogue.end(code=ErrorCode.INVALID_TXN_STATE)
    dialogue.identify(7, 4)
    assert dialogue.outcome(aborted) == "done"


def test_producer_that_is_closed_leaves_a_shared_transaction_open() -> None:
    """Others go on in it."""
    dialogue = joined(2)
    closed: Future[object] = Future()
    dialogue.take(ProducerCloseAsked(ticket=closed, deadline_ms=dialogue.now_ms + 1_000))
    assert dialogue.outcome(closed) == "done"
    assert not dialogue.unanswered(EndTxnRequest)


@pytest.mark.parametrize("version", FLOWS)
@pytest.mark.parametrize("step", [COMMIT, ABORT])
def test_empty_transaction_needs_no_request(version: int, step: TransactionStep) -> None:
    """A coordinator that knows of no transaction has none to end."""
    dialogue = TransactionDialogue(version)
    dialogue.call(INITIALIZE)
    dialogue.find()
    dialogue.identify()
    dialogue.call(BEGIN)
    assert dialogue.outcome(dialogue.call(step)) == "done"
    assert not dialogue.unanswered(EndTxnRequest)


@pytest.mark.parametrize("version", FLOWS)
def test_abort_drops_what_was_not_sent_and_waits_for_what_was(version: int) -> None:
    """No batch arrives at a broker behind the EndTxn of its transaction."""
    dialogue = TransactionDialogue(version).begun()
    sent = [dialogue.submit(b"sent") for _ in range(5)]
    unsent = dialogue.submit(b"unsent")
    assert dialogue.unanswered(ProduceRequest) == 5
    aborted = dialogue.call(ABORT)
    assert isinstance(unsent.exception(0), TransactionAbortableError)
    for _ in sent:
        assert not dialogue.unanswered(EndTxnRequest)
        dialogue.answer_produce(dialogue.next(ProduceRequest))
    assert all(record.exception(0) is None for record in sent)
    assert not dialogue.end().committed
    assert (dialogue.outcome(aborted), dialogue.state) == ("done", TransactionState.READY)


@pytest.mark.parametrize("version", FLOWS)
def test_batch_that_a_broker_may_have_is_sent_again_before_an_abort(version: int) -> None:
    """A lost answer: the leader has to say that it has the batch, or that it has not."""
    dialogue = TransactionDialogue(version).begun()
    dialogue.submit(b"lost")
    dialogue.fail(dialogue.next(ProduceRequest), Failure.DISCONNECTED)
    aborted = dialogue.call(ABORT)
    assert not dialogue.unanswered(EndTxnRequest)
    dialogue.advance(200)
    produce = dialogue.next(ProduceRequest)
    assert values_of(produce) == [b"lost"]
    dialogue.answer_produce(produce)
    dialogue.end()
    assert dialogue.outcome(aborted) == "done"


@pytest.mark.parametrize("version", FLOWS)
def test_lost_record_makes_the_transaction_abortable(version: int) -> None:
    """Commit says why; after the abort the next transaction has a new epoch and begins its sequences (KIP-360)."""
    dialogue = TransactionDialogue(version).begun()
    record = dialogue.submit(b"bad")
    dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.INVALID_RECORD)
    assert isinstance(record.exception(0), BrokerError)
    assert dialogue.state is TransactionState.ABORTABLE
    assert len(dialogue.broken) == 1
    error = dialogue.error(dialogue.call(COMMIT))
    assert isinstance(error, TransactionAbortableError) and not error.fatal
    assert isinstance(error.__cause__, BrokerError) and error.__cause__.code is ErrorCode.INVALID_RECORD
    aborted = dialogue.call(ABORT)
    dialogue.end()
    if not version:
        assert dialogue.outcome(aborted) is None
        send = dialogue.identify(7, 1)
        request = send.request
        assert isinstance(request, InitProducerIdRequest)
        assert (request.producer_id, request.producer_epoch, send.min_version) == (7, 0, 3)
    assert dialogue.outcome(aborted) == "done"
    dialogue.call(BEGIN)
    dialogue.submit(b"good")
    dialogue.add()
    header = header_of(dialogue.next(ProduceRequest))
    assert (header.producer_epoch, header.base_sequence) == (1, 0)


def test_record_that_expires_while_a_commit_waits_fails_the_commit() -> None:
    dialogue = TransactionDialogue(delivery_timeout_ms=1_000).begun()
    dialogue.submit(b"late")
    dialogue.fail(dialogue.next(ProduceRequest), Failure.UNREACHABLE)
    committed = dialogue.call(COMMIT)
    dialogue.answer_pending_metadata()
    while dialogue.unanswered(ProduceRequest) or dialogue.outcome(committed) is None:
        for _ in range(dialogue.unanswered(ProduceRequest)):
            dialogue.fail(dialogue.next(ProduceRequest), Failure.UNREACHABLE)
        dialogue.answer_pending_metadata()
        dialogue.advance(100)
    assert isinstance(dialogue.error(committed), TransactionAbortableError)


@pytest.mark.parametrize(
    "code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE]
)
def test_fenced_producer_is_over(code: ErrorCode) -> None:
    """Each later call and record has the error; nothing is sent any more."""
    dialogue = TransactionDialogue().begun()
    committed = dialogue.call(COMMIT)
    dialogue.end(code)
    error = dialogue.error(committed)
    assert isinstance(error, BrokerError) and error.fatal
    assert isinstance(error, ProducerFencedError) is (code is not ErrorCode.INVALID_TXN_STATE)
    assert dialogue.state is TransactionState.FATAL
    for step in TransactionStep:
        assert dialogue.outcome(dialogue.call(step)) is error
    assert dialogue.submit(b"zombie").exception(0) is error
    assert dialogue.outcome(dialogue.offsets()) is error
    dialogue.advance(60_000)
    assert not dialogue.sent


def test_fenced_by_a_leader() -> None:
    """A batch refused with PRODUCER_FENCED is fatal; one with INVALID_PRODUCER_EPOCH leaves the word to EndTxn."""
    dialogue = TransactionDialogue().begun()
    dialogue.submit(b"zombie")
    dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.INVALID_PRODUCER_EPOCH)
    assert dialogue.state is TransactionState.ABORTABLE
    dialogue = TransactionDialogue().begun()
    dialogue.submit(b"zombie")
    dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.PRODUCER_FENCED)
    assert isinstance(dialogue.error(dialogue.call(COMMIT)), ProducerFencedError)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationError),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, BrokerError),
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
    ],
)
def test_refused_initialization_is_final(code: ErrorCode, kind: type[Exception]) -> None:
    dialogue = TransactionDialogue()
    ticket = dialogue.call(INITIALIZE)
    dialogue.find()
    dialogue.identify(-1, -1, error=code)
    error = dialogue.error(ticket)
    assert isinstance(error, kind) and error.fatal


def test_initialization_waits_for_its_coordinator() -> None:
    """Moved, loading, busy with the transaction before: each is tried again; late calls end, the work goes on."""
    dialogue = TransactionDialogue()
    late = dialogue.call(INITIALIZE, timeout_ms=50)
    dialogue.find(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    dialogue.advance(200)
    assert isinstance(dialogue.error(late), KohortTimeoutError)
    dialogue.find()
    dialogue.identify(error=ErrorCode.NOT_COORDINATOR)
    dialogue.advance(400)
    dialogue.find()
    for code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS):
        dialogue.identify(error=code)
        assert not dialogue.unanswered(InitProducerIdRequest)
        dialogue.advance(20 if code is ErrorCode.CONCURRENT_TRANSACTIONS else 200)
    begun = dialogue.call(BEGIN)
    dialogue.fail(dialogue.next(InitProducerIdRequest), Failure.DISCONNECTED)
    dialogue.answer_pending_metadata()
    dialogue.advance(400)
    dialogue.find()
    dialogue.identify()
    assert dialogue.outcome(begun) == "done"


def test_broker_without_transactions_says_so() -> None:
    dialogue = TransactionDialogue()
    ticket = dialogue.call(INITIALIZE)
    dialogue.find()
    dialogue.fail(dialogue.next(InitProducerIdRequest), Failure.UNSUPPORTED)
    assert isinstance(dialogue.error(ticket), UnsupportedFeatureError)


def test_partitions_are_added_once_and_together() -> None:
    """Those that come while a request is under way go with the next one."""
    dialogue = TransactionDialogue(0).begun()
    dialogue.submit(b"a", partition=1)
    first = dialogue.next(AddPartitionsToTxnRequest)
    dialogue.submit(b"b", partition=2)
    dialogue.submit(b"c", partition=0)
    assert not dialogue.unanswered(AddPartitionsToTxnRequest)
    assert values_of(dialogue.next(ProduceRequest)) == [b"c"]
    dialogue.fail(first, Failure.TIMED_OUT)
    dialogue.answer_pending_metadata()
    dialogue.advance(200)
    dialogue.find()
    assert dialogue.add() == [TopicPartition("orders", 1)]
    assert values_of(dialogue.next(ProduceRequest)) == [b"a"]
    assert dialogue.add() == [TopicPartition("orders", 2)]


def test_partition_that_may_not_be_written_to_makes_the_transaction_abortable() -> None:
    """The other partitions of the request have a code that says nothing; nothing has begun, so nothing is ended."""
    dialogue = TransactionDialogue(0)
    dialogue.call(BEGIN)
    dialogue.find()
    dialogue.identify()
    records = [dialogue.submit(b"a", partition=1), dialogue.submit(b"b", partition=2)]
    dialogue.answer_metadata(partitions=3)
    dialogue.add(ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert all(isinstance(record.exception(0), TransactionAbortableError) for record in records)
    error = dialogue.error(dialogue.call(COMMIT))
    assert isinstance(error.__cause__, AuthorizationError) and error.__cause__.name == "orders"
    assert dialogue.outcome(dialogue.call(ABORT)) == "done"


def test_busy_coordinator_is_asked_again_soon() -> None:
    """The markers of the transaction before are still written: 20 ms, not the usual pause."""
    dialogue = TransactionDialogue(0).begun()
    dialogue.submit(b"a", partition=1)
    dialogue.add(ErrorCode.CONCURRENT_TRANSACTIONS)
    dialogue.advance(20)
    dialogue.add()
    assert values_of(dialogue.next(ProduceRequest)) == [b"a"]
    dialogue = TransactionDialogue().begun()
    dialogue.submit(b"a")
    dialogue.answer_produce(dialogue.next(ProduceRequest), error=ErrorCode.CONCURRENT_TRANSACTIONS)
    dialogue.advance(20)
    assert values_of(dialogue.next(ProduceRequest)) == [b"a"]


@pytest.mark.parametrize("version", FLOWS)
def test_offsets_name_their_consumer(version: int) -> None:
    """KIP-447: member id, epoch and name of the instance; by the newer flow no AddOffsetsToTxn is needed."""
    dialogue = TransactionDialogue(version)
    dialogue.call(BEGIN)
    dialogue.find()
    dialogue.identify()
    sent = dialogue.offsets(5)
    committed = dialogue.call(COMMIT)
    if not version:
        send = dialogue.next(AddOffsetsToTxnRequest)
        assert isinstance(send.request, AddOffsetsToTxnRequest) and send.request.group_id == "readers"
        dialogue.answer(send, AddOffsetsToTxnResponse())
    looked_up = dialogue.find()
    assert (looked_up.key_type, looked_up.key) == (0, "readers")
    send = dialogue.commit_offsets()
    assert isinstance(send.request, TxnOffsetCommitRequest)
    assert (send.min_version, send.max_version) == ((5, None) if version else (None, 4))
    assert (send.request.generation_id, send.request.member_id, send.request.group_instance_id) == (
        4,
        "member-1",
        "left",
    )
    assert send.request.topics[0].partitions[0].committed_offset == 5
    assert dialogue.outcome(sent) == "done"
    dialogue.end()
    assert dialogue.outcome(committed) == "done"


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
)
def test_offsets_of_a_member_that_is_gone_are_not_committed(code: ErrorCode) -> None:
    dialogue = TransactionDialogue().begun()
    sent = dialogue.offsets()
    dialogue.find()
    dialogue.commit_offsets(code)
    error = dialogue.error(sent)
    assert isinstance(error, TransactionAbortableError) and isinstance(error.__cause__, BrokerError)
    aborted = dialogue.call(ABORT)
    assert not dialogue.end().committed
    assert dialogue.outcome(aborted) == "done"


def test_offsets_go_to_the_groups_coordinator_wherever_it_moves() -> None:
    dialogue = TransactionDialogue().begun()
    sent = dialogue.offsets()
    dialogue.find()
    dialogue.commit_offsets(ErrorCode.NOT_COORDINATOR)
    dialogue.advance(200)
    dialogue.find()
    dialogue.commit_offsets(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    dialogue.advance(200)
    dialogue.commit_offsets()
    assert dialogue.outcome(sent) == "done"


def test_lost_answer_about_offsets_is_awaited_before_an_abort() -> None:
    """The group's coordinator may have them: a late request must not reach the next transaction."""
    dialogue = TransactionDialogue().begun()
    sent = dialogue.offsets()
    dialogue.find()
    dialogue.fail(dialogue.next(TxnOffsetCommitRequest), Failure.TIMED_OUT)
    dialogue.call(ABORT)
    assert isinstance(dialogue.error(sent), TransactionAbortableError)
    dialogue.answer_pending_metadata()
    dialogue.advance(200)
    dialogue.find()
    assert not dialogue.unanswered(EndTxnRequest)
    dialogue.commit_offsets()
    dialogue.end()
    assert dialogue.state is TransactionState.READY


def test_nothing_is_accepted_outside_of_a_transaction() -> None:
    """Records that another thread sends while the transaction ends fail, and do not fail the commit."""
    dialogue = TransactionDialogue().begun()
    committed = dialogue.call(COMMIT)
    assert isinstance(dialogue.submit(b"late").exception(0), StateError)
    assert isinstance(dialogue.error(dialogue.offsets()), StateError)
    dialogue.end()
    assert dialogue.outcome(committed) == "done"
    assert isinstance(dialogue.submit(b"later").exception(0), StateError)
    assert dialogue.released == sum(len(value) + 24 for value in (b"first", b"late", b"later"))


def test_steps_out_of_turn_are_refused() -> None:
    dialogue = TransactionDialogue().begun()
    assert isinstance(dialogue.error(dialogue.call(BEGIN)), StateError)
    assert isinstance(dialogue.error(dialogue.call(INITIALIZE)), StateError)
    committed = dialogue.call(COMMIT, timeout_ms=10)
    assert isinstance(dialogue.error(dialogue.call(ABORT)), StateError)
    dialogue.advance(20)
    assert isinstance(dialogue.error(committed), KohortTimeoutError)
    again = dialogue.call(COMMIT)
    dialogue.end()
    assert dialogue.outcome(again) == "done"
    for step in (COMMIT, ABORT):
        assert isinstance(dialogue.error(dialogue.call(step)), StateError)
    assert dialogue.outcome(dialogue.call(INITIALIZE)) == "done"


@pytest.mark.parametrize("step", [COMMIT, ABORT])
def test_end_whose_call_has_timed_out_is_heard_by_the_next_call(step: TransactionStep) -> None:
    """Before the application asks again the transaction has ended; that is told once."""
    dialogue = TransactionDialogue().begun()
    ended = dialogue.call(step, timeout_ms=10)
    dialogue.advance(20)
    assert isinstance(dialogue.error(ended), KohortTimeoutError)
    dialogue.end()
    assert dialogue.outcome(dialogue.call(step)) == "done"
    assert isinstance(dialogue.error(dialogue.call(step)), StateError)


def test_end_that_was_not_heard_is_not_told_of_the_next_transaction() -> None:
    dialogue = TransactionDialogue().begun()
    dialogue.call(COMMIT, timeout_ms=10)
    dialogue.advance(20)
    dialogue.end()
    assert [dialogue.outcome(dialogue.call(step)) for step in (BEGIN, ABORT)] == ["done", "done"]
    assert isinstance(dialogue.error(dialogue.call(COMMIT)), StateError)


def test_begin_that_was_taken_back_leaves_no_transaction() -> None:
    """A begin whose task was cancelled: its abort follows, and the next begin waits for that."""
    dialogue = TransactionDialogue()
    calls = [dialogue.call(step) for step in (BEGIN, ABORT, BEGIN)]
    dialogue.find()
    dialogue.identify()
    assert [dialogue.outcome(call) for call in calls] == ["done", "done", "done"]
    assert dialogue.state is TransactionState.IN_TRANSACTION
    assert not dialogue.unanswered(EndTxnRequest)


def test_begin_waits_for_the_end_of_the_transaction_before() -> None:
    """Its call has timed out; that the transaction was committed is known when the next one has begun."""
    dialogue = TransactionDialogue().begun()
    dialogue.call(COMMIT, timeout_ms=10)
    dialogue.advance(20)
    begun = dialogue.call(BEGIN)
    assert dialogue.outcome(begun) is None
    dialogue.end()
    assert dialogue.outcome(begun) == "done"


def test_lost_answer_to_a_commit_is_asked_for_again() -> None:
    """The coordinator answers a repeated EndTxn as the first one (KIP-890)."""
    dialogue = TransactionDialogue().begun()
    committed = dialogue.call(COMMIT)
    dialogue.fail(dialogue.next(EndTxnRequest), Failure.DISCONNECTED)
    dialogue.answer_pending_metadata()
    dialogue.advance(200)
    dialogue.find()
    dialogue.end(ErrorCode.CONCURRENT_TRANSACTIONS)
    dialogue.advance(20)
    assert dialogue.end().producer_epoch == 0
    assert dialogue.outcome(committed) == "done"


def test_forgotten_producer_begins_anew() -> None:
    """The transactional id has expired: the transaction is lost, the producer is not."""
    dialogue = TransactionDialogue().begun()
    committed = dialogue.call(COMMIT)
    dialogue.end(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    assert isinstance(dialogue.error(committed), TransactionAbortableError)
    aborted = dialogue.call(ABORT)
    dialogue.end(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    dialogue.identify(9, 0)
    assert (dialogue.outcome(aborted), dialogue.state) == ("done", TransactionState.READY)


def test_close_aborts_the_open_transaction() -> None:
    dialogue = TransactionDialogue().begun()
    dialogue.take(ProducerCloseAsked(ticket="close", deadline_ms=dialogue.now_ms + 1_000))
    assert not any(isinstance(action, Stop) for action in dialogue.actions)
    assert not dialogue.end().committed
    assert dialogue.outcome("close") == "done"
    assert isinstance(dialogue.actions[-1], Stop)


def test_close_waits_for_a_commit_and_no_longer_than_it_may() -> None:
    dialogue = TransactionDialogue().begun()
    dialogue.call(COMMIT)
    dialogue.take(ProducerCloseAsked(ticket="close", deadline_ms=dialogue.now_ms + 1_000))
    assert dialogue.outcome("close") is None
    dialogue.advance(1_000)
    assert dialogue.outcome("close") == "done"


def test_upgraded_cluster_is_noticed_at_the_next_transaction() -> None:
    """The flow of a transaction does not change while it is open."""
    dialogue = TransactionDialogue(0).begun()
    dialogue.call(COMMIT)
    send = dialogue.next(EndTxnRequest)
    dialogue.transaction_version = 2
    dialogue.answer(send, EndTxnResponse())
    dialogue.call(BEGIN)
    dialogue.submit(b"new")
    assert dialogue.next(ProduceRequest).min_version == 12


def test_records_in_a_queue_belong_to_the_transaction_that_is_committed() -> None:
    """What `send` has taken before the commit is sent before it, though the machine had not seen it."""
    dialogue = TransactionDialogue().begun()
    record = RecordFuture("orders", None, b"queued", 5, 30)
    record.partition = 0
    dialogue.submissions.append(record)
    dialogue.call(COMMIT)
    dialogue.take(RecordsSubmitted())
    assert not dialogue.unanswered(EndTxnRequest)
    dialogue.answer_produce(dialogue.next(ProduceRequest))
    dialogue.end()
    assert record.done() and record.exception(0) is None


def queued(dialogue: TransactionDialogue, value: bytes) -> RecordFuture:
    """A record that `send` has taken and the machine has not seen."""
    record = RecordFuture("orders", None, value, 5, 30)
    record.partition = 0
    dialogue.submissions.append(record)
    return record


@pytest.mark.parametrize("version", FLOWS)
def test_begin_in_the_queue_divides_its_records_from_earlier_ones(version: int) -> None:
    """It needs no answer: what another thread has sent between two transactions is refused, what follows is sent."""
    dialogue = TransactionDialogue(version).begun()
    assert not dialogue.submissions.begin()
    dialogue.call(COMMIT)
    dialogue.end()
    late = queued(dialogue, b"late")
    assert dialogue.submissions.begin()
    assert not dialogue.submissions.begin()
    records = [queued(dialogue, b"1"), queued(dialogue, b"2")]

    dialogue.take(RecordsSubmitted())
    assert isinstance(late.exception(0), StateError)
    dialogue.add()
    send = dialogue.next(ProduceRequest)
    assert values_of(send) == [b"1", b"2"]
    dialogue.answer_produce(send)
    committed = dialogue.call(COMMIT)
    dialogue.end()
    assert dialogue.outcome(committed) == "done" and all(record.exception(0) is None for record in records)


def test_begin_in_the_queue_comes_before_the_calls_behind_it() -> None:
    """Offsets and the end belong to the transaction, though no record has woken the machine."""
    dialogue = TransactionDialogue().begun()
    for step in (COMMIT, ABORT):
        dialogue.call(step)
        dialogue.end() if step is COMMIT else None
        assert dialogue.submissions.begin()
    offsets = dialogue.offsets()
    dialogue.find()
    dialogue.commit_offsets()
    assert dialogue.outcome(offsets) == "done"
    assert dialogue.state is TransactionState.IN_TRANSACTION


def test_of_two_threads_one_begins() -> None:
    """The other is told that a transaction is open, whether its begin waits for the machine or not."""
    dialogue = TransactionDialogue().begun()
    dialogue.call(COMMIT)
    dialogue.end()
    assert dialogue.submissions.claim()
    assert "open" in str(dialogue.error(dialogue.call(BEGIN)))
    assert dialogue.state is TransactionState.READY

    dialogue.submissions.permit()
    assert dialogue.submissions.begin()
    assert "open" in str(dialogue.error(dialogue.call(BEGIN)))
    assert dialogue.state is TransactionState.IN_TRANSACTION


def test_begin_of_a_fenced_producer_takes_no_record() -> None:
    """It was fenced after the application had looked."""
    dialogue = TransactionDialogue().begun()
    dialogue.call(COMMIT)
    dialogue.end(ErrorCode.PRODUCER_FENCED)
    dialogue.submissions.permit()
    assert dialogue.submissions.begin()
    record = queued(dialogue, b"1")
    dialogue.take(RecordsSubmitted())
    assert isinstance(record.exception(0), ProducerFencedError)
    assert dialogue.state is TransactionState.FATAL


def test_table_has_a_way_to_rest_from_each_state() -> None:
    """No state but FATAL is left by nothing, and a step out of turn has no row."""
    for state in TransactionState:
        seen, todo = {state}, [state]
        while todo:
            now = todo.pop()
            for (before, _), after in TRANSITIONS.items():
                if before is now and after not in seen:
                    seen.add(after)
                    todo.append(after)
        assert (TransactionState.READY in seen) is (state is not TransactionState.FATAL)
    assert {by for _, by in TRANSITIONS} == {*TransactionStep, *Happening}
    assert transactions.AT_REST[-1] is TransactionState.FATAL


@pytest.mark.parametrize(
    "options",
    [
        {"transactional_id": ""},
        {"transactional_id": "billing", "acks": 1},
        {"transactional_id": "billing", "enable_idempotence": False},
        {"transactional_id": "billing", "transaction_timeout_ms": 0},
    ],
)
def test_options_that_no_transaction_can_have(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        kohort.Producer(bootstrap_servers="127.0.0.1:1", **options)


def test_calls_without_what_they_need() -> None:
    """A name for the producer, and a group that is one; nothing of it needs a broker."""
    with kohort.Producer(bootstrap_servers="127.0.0.1:1") as producer:
        for call in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(ConfigError, match="transactional_id"):
                call()
        with pytest.raises(ConfigError, match="transactional_id"):
            producer.send_offsets_to_transaction({TopicPartition("in", 0): 1}, "readers")
        with pytest.raises(ConfigError, match="transactional_id"), producer.transaction():
            pytest.fail("there is no transaction")
    with kohort.Producer(bootstrap_servers="127.0.0.1:1", transactional_id="billing") as producer:
        with pytest.raises(TypeError, match="group_metadata"):
            producer.send_offsets_to_transaction({TopicPartition("in", 0): 1}, None)  # type: ignore[arg-type]
        with pytest.raises(KohortTimeoutError, match="begin_transaction of billing"):
            producer.begin_transaction(timeout=0.05)
    with pytest.raises(StateError, match="closed"):
        producer.begin_transaction()
    consumer = kohort.Consumer(bootstrap_servers="127.0.0.1:1", group_id="readers")
    with consumer, pytest.raises(ConfigError, match="enable_auto_commit=False"):
        consumer.processed_offsets()
