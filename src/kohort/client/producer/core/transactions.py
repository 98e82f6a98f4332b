"""The transactions of one producer: its states, and the requests to the coordinators.

Laws: no record and no offset belongs to a transaction that it was not sent in. EndTxn is sent when each batch and each
request of the transaction has ended, so nothing of it arrives at a broker afterwards. A fenced producer sends nothing
any more. One request to a coordinator is under way at a time. A producer that takes part in another's transaction
commits it only if the application says so, and aborts it by a new epoch, which fences all that take part.
Source: Kafka's TransactionManager; KIP-98, KIP-360 (a new epoch after an abort), KIP-447 (the consumer is named),
KIP-588, KIP-654 and KIP-890 (with `transaction.version` 2 each transaction has an epoch of its own, and the requests to
leaders and to the group's coordinator add what they write).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.coordinator_lookup import MOVED, CoordinatorLookup, KeyType
from kohort.client.core.refusals import ABORTABLE, FATAL_CODES, FENCED, FORGOTTEN, OF_OFFSETS, OF_PARTITIONS, refused
from kohort.client.core.requests import Answer, Failure, RequestFailed, Requests
from kohort.client.producer.core.idempotence import Identity
from kohort.client.producer.core.lookups import lateness
from kohort.client.producer.core.producer_events import (
    ProducerIdAndEpoch,
    TransactionAsked,
    TransactionOffsetsAsked,
    TransactionShared,
    TransactionStep,
)
from kohort.client.producer.core.submission_kernels import Submissions
from kohort.client.records import GroupMetadata, OffsetAndMetadata, with_metadata
from kohort.errors import (
    BrokerError,
    ErrorCode,
    KohortError,
    KohortTimeoutError,
    LocalProtocolError,
    ProducerFencedError,
    StateError,
    TransactionAbortableError,
    UnsupportedFeatureError,
    no_transaction,
)
from kohort.ids import TopicPartition
from kohort.wire.messages import add_offsets_to_txn, add_partitions_to_txn, end_txn, init_producer_id
from kohort.wire.messages import txn_offset_commit as offset_commit
from kohort.wire.schema import Message


class TransactionState(Enum):
    """The state of a producer with a transactional id."""

    UNINITIALIZED = "uninitialized"
    #: It waits for its producer id, or after an abort for a new epoch.
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    #: The transaction cannot be committed; the application has to abort it.
    ABORTABLE = "abortable"
    #: The producer cannot be used any more.
    FATAL = "fatal"


class Happening(Enum):
    """The changes of the state that the application has not asked for."""

    IDENTIFIED = "the coordinator has assigned producer id and epoch"
    FAILED = "a record, an offset or a request of the transaction has failed"
    ENDED = "the coordinator has decided the transaction"
    EPOCH_NEEDED = "the transaction is aborted, and its sequence numbers have a gap"
    BROKEN = "the producer is fenced, or was refused for good"
    JOINED = "it takes part in a transaction that another producer has begun"
    LEFT = "it has no part in a transaction any more, and no producer id"


_S = TransactionState
#: (state, step or happening) -> next state; any other pair is refused or means nothing.
TRANSITIONS: Final[dict[tuple[TransactionState, TransactionStep | Happening], TransactionState]] = {
    (TransactionState.UNINITIALIZED, TransactionStep.INITIALIZE): TransactionState.INITIALIZING,
    (TransactionState.INITIALIZING, Happening.IDENTIFIED): TransactionState.READY,
    (TransactionState.READY, TransactionStep.BEGIN): TransactionState.IN_TRANSACTION,
    (TransactionState.IN_TRANSACTION, TransactionStep.COMMIT): TransactionState.COMMITTING,
    (TransactionState.IN_TRANSACTION, TransactionStep.ABORT): TransactionState.ABORTING,
    (TransactionState.IN_TRANSACTION, Happening.FAILED): TransactionState.ABORTABLE,
    (TransactionState.COMMITTING, Happening.FAILED): TransactionState.ABORTABLE,
    (TransactionState.COMMITTING, Happening.ENDED): TransactionState.READY,
    (TransactionState.ABORTABLE, TransactionStep.ABORT): TransactionState.ABORTING,
    (TransactionState.ABORTING, Happening.ENDED): TransactionState.READY,
    (TransactionState.ABORTING, Happening.EPOCH_NEEDED): TransactionState.INITIALIZING,
    (TransactionState.UNINITIALIZED, Happening.JOINED): TransactionState.IN_TRANSACTION,
    (TransactionState.IN_TRANSACTION, Happening.LEFT): TransactionState.UNINITIALIZED,
    (TransactionState.READY, Happening.LEFT): TransactionState.UNINITIALIZED,
    **{(state, Happening.BROKEN): _S.FATAL for state in _S if state is not _S.FATAL},
}

#: States in which there is no transaction to end.
AT_REST: Final = (_S.UNINITIALIZED, _S.INITIALIZING, _S.READY, _S.FATAL)
#: States in which records that were not sent yet are dropped.
DROPPING: Final = (_S.ABORTABLE, _S.ABORTING, _S.FATAL)
#: Longest pause while the coordinator ends the transaction before.
CONCURRENT_PAUSE_MS: Final = 20
#: The finalized level of `transaction.version` from which on each transaction has an epoch of its own (KIP-890).
_EPOCH_PER_TRANSACTION: Final = 2
_PRODUCE_ADDS_SINCE: Final = 12
_COMMIT_ADDS_SINCE: Final = 5
_END_RAISES_SINCE: Final = 5


@dataclass(slots=True, eq=False)
class _Offsets:
    """Offsets of one group that belong to the transaction."""

    group: GroupMetadata
    #: `None` once the call has ended.
    ticket: object
    deadline_ms: int
    #: Partitions whose offsets the group's coordinator has not taken yet.
    left: dict[TopicPartition, OffsetAndMetadata]
    #: Whether a request was sent without an answer, so that a coordinator may have taken it.
    is_unsure: bool = field(default=False)


class Transactions:
    """The transactions of one producer.

    Args:
        is_settled: whether each record of the transaction has ended, and no Produce request is under way.
        on_broken: called with the error when no more records are accepted before the application has acted.
        submissions: the queue in which the application begins transactions, with the permission of this object.
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        identity: Identity,
        *,
        transactional_id: str,
        timeout_ms: int,
        is_settled: Callable[[], bool],
        on_broken: Callable[[KohortError], None],
        submissions: Submissions,
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._identity = identity
        self.transactional_id: Final = transactional_id
        self._timeout_ms = timeout_ms
        self._is_settled = is_settled
        self._on_broken = on_broken
        self._submissions = submissions
        self.state = TransactionState.UNINITIALIZED
        #: Why the transaction cannot be committed (ABORTABLE), or the producer not be used (FATAL).
        self.error: KohortError | None = None
        self._coordinator = self._lookup(transactional_id, KeyType.TRANSACTION, "write")
        #: group id -> its coordinator.
        self._groups: dict[str, CoordinatorLookup] = {}
        #: Whether the finalized `transaction.version` is 2 or above by the coordinator's latest answer, and whether it
        #: was when the present transaction began.
        self._is_v2_finalized = False
        self.is_v2 = False
        #: Whether the coordinator may know of the present transaction, so that it has to be ended there.
        self._is_begun = False
        #: The step whose call has timed out; asked for again, it may have been done meanwhile.
        self._unheard: TransactionStep | None = None
        #: Whether another producer has begun the present transaction.
        self._is_shared = False
        #: Partitions of the transaction; those to be added; those whose request has no answer yet.
        self._added: set[TopicPartition] = set()
        self._wanted: dict[TopicPartition, None] = {}
        self._adding: dict[TopicPartition, None] = {}
        #: Groups of the transaction, and the offsets that are to be committed with it.
        self._added_groups: set[str] = set()
        self._offsets: list[_Offsets] = []
        #: The application's calls that wait for the state READY.
        self._calls: list[TransactionAsked] = []
        self._is_in_flight = False
        #: Failed requests in a row, the last failure, and when to try again.
        self._attempts = 0
        self._trouble: KohortError | None = None
        self._not_before_ms = 0

    def _lookup(self, key: str, key_type: KeyType, operation: str) -> CoordinatorLookup:
        return CoordinatorLookup(
            self._requests,
            self._cluster,
            group_id=key,
            key_type=key_type,
            operation=operation,
            on_refused=lambda error, _: self._on_lookup_refused(error, key_type),
        )

    # -- for the sender and the machine ---------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether records are accepted."""
        return self.state is TransactionState.IN_TRANSACTION

    @property
    def is_at_rest(self) -> bool:
        """Whether there is no transaction that this producer has to end."""
        return self.state in AT_REST or (self._is_shared and not self.is_ending)

    @property
    def is_ending(self) -> bool:
        """Whether records are sent without linger, since the transaction ends when the last one has."""
        return self.state in (TransactionState.COMMITTING, TransactionState.ABORTING)

    @property
    def is_dropping(self) -> bool:
        """Whether records end that no broker can have stored."""
        return self.state in DROPPING

    def refusal(self) -> KohortError:
        """Build the error of a record that does not belong to an open transaction."""
        if self.error is not None:
            return self.error
        if self.state is TransactionState.ABORTING:
            return TransactionAbortableError(self.transactional_id, "it was aborted before the record was sent")
        return no_transaction(self.transactional_id)

    def may_send(self, partition: TopicPartition, *, is_unsure: bool) -> bool:
        """Return whether a batch may be sent; a partition that the coordinator does not know yet is added first."""
        if self.state in DROPPING:
            # A batch that a broker may have stored has to end before the transaction does.
            return is_unsure and self.state is not TransactionState.FATAL
        if self.is_v2:
            self._is_begun = True
        elif partition not in self._added:
            if partition not in self._adding:
                self._wanted[partition] = None
            return False
        return True

    def produce_versions(self) -> tuple[int | None, int | None]:
        """Return the lowest and the highest version of Produce that this transaction may use."""
        return (_PRODUCE_ADDS_SINCE, None) if self.is_v2 else (None, _PRODUCE_ADDS_SINCE - 1)

    def on_record_failed(self, error: KohortError) -> None:
        """Note that a record of the transaction is lost."""
        if isinstance(error, BrokerError) and error.code in FATAL_CODES:
            is_fenced = error.code is ErrorCode.PRODUCER_FENCED
            self._break(self._fenced(error.code, error.message, error.during) if is_fenced else error)
        elif self.state not in DROPPING:
            self._fail(error)

    def on_unreachable(self, error: KohortError) -> None:
        """End the calls that wait, since no broker lets this client in."""
        calls, self._calls = self._calls, []
        for call in calls:
            self._requests.fail(call.ticket, error)
        if self.state is TransactionState.IN_TRANSACTION:
            self._fail(error)

    # -- calls of the application ---------------------------------------------------------------------------------

    def ask(self, asked: TransactionAsked) -> None:
        """Take a step, or refuse it; the ticket ends when it is done."""
        state = self.state
        is_allowed = state is _S.READY and asked.step is TransactionStep.BEGIN and self._submissions.claim()
        if state is TransactionState.UNINITIALIZED and asked.step is TransactionStep.BEGIN:
            # Programs that know no other client need no call of `init_transactions`.
            self._move(TransactionStep.INITIALIZE)
        elif (state, asked.step) in TRANSITIONS and asked.step is not TransactionStep.BEGIN:
            self._take(asked.step)
        elif not is_allowed and (why := self._objection(asked.step)) is not None:
            self._requests.fail(asked.ticket, why)
            return
        self._calls.append(asked)
        if self.state is TransactionState.READY:
            self._serve_calls()

    def begin(self) -> None:
        """Begin the transaction for which the application has taken the permission; a broken producer has none."""
        if self.state is TransactionState.READY:
            self._take(TransactionStep.BEGIN)

    def _take(self, step: TransactionStep) -> None:
        self._move(step)
        if step is TransactionStep.ABORT:
            self._drop_unsent()
        elif step is TransactionStep.BEGIN:
            self._is_begun, self.is_v2, self._unheard = False, self._is_v2_finalized, None
            self._added.clear()
            self._added_groups.clear()

    def share(self, asked: TransactionShared) -> None:
        """Take part in the transaction of another producer, or leave it to those that still do."""
        by = Happening.LEFT if asked.identity is None else Happening.JOINED
        if (self.state, by) not in TRANSITIONS or not self._is_settled():
            what = f"the producer of {self.transactional_id} is {self.state.value}: it cannot join or leave now"
            self._requests.fail(asked.ticket, self.error or StateError(what))
            return
        self._move(by)
        self._submissions.claim()
        known = asked.identity or ProducerIdAndEpoch(-1, -1, 0)
        self._identity.renew(known.producer_id, known.epoch)
        self._is_shared, self._unheard = asked.identity is not None, None
        self.is_v2 = self._is_v2_finalized = known.transaction_version >= _EPOCH_PER_TRANSACTION
        # Others have sent what the coordinator knows.
        self._is_begun = True
        self._added.clear()
        self._added_groups.clear()
        self._requests.complete(asked.ticket)

    def _objection(self, step: TransactionStep) -> KohortError | None:
        """Return why a step without a transition is refused; `None`: the call waits for one that is under way."""
        state = self.state
        if self.error is not None and (state is TransactionState.FATAL or step is not TransactionStep.ABORT):
            return self.error
        waits = {
            TransactionStep.INITIALIZE: (_S.INITIALIZING, _S.READY),
            # The end of the transaction before, whose call has timed out or was cancelled.
            TransactionStep.BEGIN: (_S.INITIALIZING, _S.COMMITTING, _S.ABORTING),
            TransactionStep.COMMIT: (_S.COMMITTING,),
            # After an abort it may wait for its epoch.
            TransactionStep.ABORT: (_S.ABORTING, _S.INITIALIZING),
        }
        if state in waits[step] or (state is _S.READY and step is self._unheard):
            return None
        if step in (TransactionStep.COMMIT, TransactionStep.ABORT) and state in AT_REST:
            return no_transaction(self.transactional_id)
        # In READY it has begun in the queue.
        way = "open" if state in (_S.IN_TRANSACTION, _S.READY) else f"still {state.value}"
        return StateError(f"the transaction of {self.transactional_id} is {way}: {step.value} cannot be called now")

    def ask_offsets(self, asked: TransactionOffsetsAsked) -> None:
        """Commit offsets of a group with the transaction."""
        if not self.is_open:
            self._requests.fail(asked.ticket, self.refusal())
        elif not asked.offsets:
            self._requests.complete(asked.ticket)
        else:
            left = {partition: with_metadata(offset) for partition, offset in asked.offsets.items()}
            self._offsets.append(_Offsets(asked.group, asked.ticket, asked.deadline_ms, left))

    def close(self) -> None:
        """Abort the open transaction, since the application closes the producer."""
        if self.state in (TransactionState.IN_TRANSACTION, TransactionState.ABORTABLE) and not self._is_shared:
            self._take(TransactionStep.ABORT)

    # -- time -----------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """Return when `on_tick` has something to do."""
        deadlines = [call.deadline_ms for call in self._calls]
        deadlines += [each.deadline_ms for each in self._offsets if each.ticket is not None]
        for lookup in (self._coordinator, *self._groups.values()):
            if (due_ms := lookup.next_deadline()) is not None:
                deadlines.append(due_ms)
        if not self._is_in_flight and self._not_before_ms:
            deadlines.append(self._not_before_ms)
        return min(deadlines, default=None)

    def on_tick(self, now_ms: int) -> None:
        """Send the request that is due, and end the calls that have waited for too long."""
        if now_ms >= self._not_before_ms:
            self._not_before_ms = 0
            if not self._is_in_flight:
                self._send_next(now_ms)
        for lookup in (self._coordinator, *self._groups.values()):
            lookup.work(now_ms)
        for call in [each for each in self._calls if now_ms >= each.deadline_ms]:
            self._calls.remove(call)
            self._unheard = None if call.step is TransactionStep.BEGIN else call.step
            self._requests.fail(call.ticket, self._lateness(call.step.value))
        for each in self._offsets:
            if each.ticket is not None and now_ms >= each.deadline_ms:
                # The request goes on: a coordinator may have got it.
                self._requests.fail(each.ticket, self._lateness("send_offsets_to_transaction"))
                each.ticket = None

    def _lateness(self, call: str) -> KohortTimeoutError:
        text = f"{call} of {self.transactional_id} has not ended in time, and goes on"
        return lateness(text if self._trouble is None else f"{text}: {self._trouble}", self._cluster)

    # -- changes of the state ---------------------------------------------------------------------------------------

    def _move(self, by: TransactionStep | Happening) -> None:
        self.state = TRANSITIONS[self.state, by]

    def _rest(self) -> None:
        """End the calls that wait for READY, and let the application begin a transaction unless one of them has."""
        self.error = None
        self._serve_calls()
        if self.state is TransactionState.READY:
            self._submissions.permit()

    def _serve_calls(self) -> None:
        """End the calls that have waited for READY."""
        calls, self._calls = self._calls, []
        for call in calls:
            if self.state is not TransactionState.READY and call.step is not TransactionStep.INITIALIZE:
                # It came behind a call that has begun a transaction.
                self.ask(call)
                continue
            if call.step is TransactionStep.BEGIN:
                self._take(TransactionStep.BEGIN)
            self._unheard = None if call.step is self._unheard else self._unheard
            version = _EPOCH_PER_TRANSACTION if self._is_v2_finalized else 0
            told = ProducerIdAndEpoch(self._identity.producer_id, self._identity.epoch, version)
            self._requests.complete(call.ticket, told)

    def _fail(self, error: KohortError) -> None:
        """Give up the transaction, because a part of it is lost."""
        if (self.state, Happening.FAILED) not in TRANSITIONS:
            return
        self._move(Happening.FAILED)
        self.error = TransactionAbortableError(self.transactional_id, str(error))
        self.error.__cause__ = error
        self._drop_unsent()
        self._on_broken(self.error)
        calls, self._calls, self._unheard = self._calls, [], None
        for call in calls:
            self._requests.fail(call.ticket, self.error)

    def _break(self, error: KohortError) -> None:
        """Stop for good."""
        if self.state is TransactionState.FATAL:
            return
        self._move(Happening.BROKEN)
        error.fatal = True
        self.error = error
        self._wanted.clear()
        self._adding.clear()
        calls, offsets, self._calls, self._offsets = self._calls, self._offsets, [], []
        for ticket in [call.ticket for call in calls] + [each.ticket for each in offsets]:
            self._requests.fail(ticket, error)
        self._on_broken(error)

    def _drop_unsent(self) -> None:
        """Give up partitions and offsets that were never sent.

        Offsets that a coordinator may have taken stay: they have to be answered before the transaction ends.
        """
        self._wanted.clear()
        kept = []
        for each in self._offsets:
            self._requests.fail(each.ticket, self.error or self.refusal())
            each.ticket = None
            if each.is_unsure:
                kept.append(each)
        self._offsets = kept

    def _fenced(self, code: ErrorCode, message: str | None, during: str) -> ProducerFencedError:
        return ProducerFencedError(code, message, transactional_id=self.transactional_id, during=during)

    def _on_lookup_refused(self, error: KohortError, key_type: KeyType) -> None:
        if key_type is KeyType.GROUP:
            self._fail(error)
        else:
            self._break(error)

    # -- requests ---------------------------------------------------------------------------------------------------

    def _send_next(self, now_ms: int) -> None:
        """Send the next request, if there is one."""
        if self.state is TransactionState.INITIALIZING:
            self._initialize(now_ms)
        elif self._adding or self._wanted:
            self._add_partitions(now_ms)
        elif self._offsets:
            self._add_offsets(now_ms)
        elif self.is_ending and self._is_settled():
            self._end(now_ms)

    def _send(
        self,
        lookup: CoordinatorLookup,
        request: Message,
        on_answer: Callable[[Message, Answer, int], ErrorCode | None],
        *,
        during: str,
        now_ms: int,
        min_version: int | None = None,
        max_version: int | None = None,
        unsure: _Offsets | None = None,
    ) -> None:
        """Send a request to a coordinator, as soon as that is known.

        Args:
            on_answer: called with the response; it returns the code for which the request has to be sent again.
            unsure: offsets that the coordinator may have taken if there is no answer.
        """
        to = lookup.need(now_ms)
        if to is None:
            return

        def then(answer: Answer, now_ms: int) -> None:
            self._is_in_flight = False
            if self.state is TransactionState.FATAL:
                return
            if isinstance(answer, RequestFailed):
                self._on_failure(lookup, to, answer, during, now_ms)
                if unsure is not None and answer.failure in (Failure.DISCONNECTED, Failure.TIMED_OUT):
                    unsure.is_unsure = True
                return
            if lookup is self._coordinator:
                self._is_v2_finalized = answer.transaction_version >= _EPOCH_PER_TRANSACTION
            code = on_answer(answer.message, answer, now_ms)
            if code is None:
                lookup.works()
                self._attempts, self._trouble = 0, None
            else:
                self._again(lookup, to, code, during, now_ms)

        self._is_in_flight = True
        self._requests.send(to, Lane.COORDINATOR, request, then, min_version=min_version, max_version=max_version)

    def _on_failure(
        self, lookup: CoordinatorLookup, to: Endpoint, answer: RequestFailed, during: str, now_ms: int
    ) -> None:
        if answer.failure is Failure.UNSUPPORTED:
            self._break(UnsupportedFeatureError(ErrorCode.UNSUPPORTED_VERSION, answer.detail, during=during))
        elif answer.failure is Failure.UNENCODABLE:
            self._break(LocalProtocolError(answer.detail))
        else:
            self._trouble = KohortError(f"{during}: {answer.detail}")
            # Another broker may be the coordinator by now; the metadata have to name it.
            self._cluster.refresh(now_ms)
            lookup.lost(to, now_ms)

    def _again(self, lookup: CoordinatorLookup, to: Endpoint, code: ErrorCode, during: str, now_ms: int) -> None:
        self._trouble = BrokerError(code, during=during)
        if code in MOVED:
            lookup.lost(to, now_ms)
            return
        pause_ms = self._requests.retry.delay_ms(self._attempts)
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            pause_ms = min(pause_ms, CONCURRENT_PAUSE_MS)
        self._attempts += 1
        self._not_before_ms = max(1, now_ms + pause_ms)

    def _judge(
        self, code: ErrorCode, during: str, abortable: Iterable[ErrorCode] = (), *, name: str, operation: str = "write"
    ) -> ErrorCode | None:
        """React to a code other than NONE; return it if the request has to be sent again."""
        if code.retriable:
            return code
        if code in FENCED:
            self._break(self._fenced(code, None, during))
            return None
        if code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            name = self.transactional_id
        error = refused(code, during=during, operation=operation, name=name)
        if code in abortable or (code in ABORTABLE and self.state is not TransactionState.INITIALIZING):
            if code in FORGOTTEN:
                self._identity.spoil()
            self._fail(error)
        else:
            self._break(error)
        return None

    # -- producer id and epoch --------------------------------------------------------------------------------------

    def _initialize(self, now_ms: int) -> None:
        known = self._identity
        self._send(
            self._coordinator,
            init_producer_id.InitProducerIdRequest(
                transactional_id=self.transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=known.producer_id,
                producer_epoch=known.epoch,
            ),
            self._on_identity,
            during=f"initializing {self.transactional_id}",
            now_ms=now_ms,
            # KIP-360: an older coordinator would let a fenced producer in again.
            min_version=3 if known.producer_id >= 0 else None,
        )

    def _on_identity(self, response: Message, _: Answer, now_ms: int) -> ErrorCode | None:
        assert isinstance(response, init_producer_id.InitProducerIdResponse)
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            return self._judge(code, f"initializing {self.transactional_id}", name=self.transactional_id)
        self._identity.renew(response.producer_id, response.producer_epoch)
        self._move(Happening.IDENTIFIED)
        self._rest()
        return None

    # -- partitions -------------------------------------------------------------------------------------------------

    def _add_partitions(self, now_ms: int) -> None:
        # A request without an answer is repeated as it was, and comes first.
        self._adding = self._adding or self._wanted
        if self._adding is self._wanted:
            self._wanted = {}
        topics: dict[str, add_partitions_to_txn.AddPartitionsToTxnTopic] = {}
        for name, number in self._adding:
            row = topics.setdefault(name, add_partitions_to_txn.AddPartitionsToTxnTopic(name=name))
            row.partitions.append(number)
        self._send(
            self._coordinator,
            add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self._identity.producer_id,
                v3_and_below_producer_epoch=self._identity.epoch,
                v3_and_below_topics=list(topics.values()),
            ),
            self._on_partitions,
            during=f"adding partitions to the transaction of {self.transactional_id}",
            now_ms=now_ms,
            max_version=3,
        )

    def _on_partitions(self, response: Message, _: Answer, now_ms: int) -> ErrorCode | None:
        assert isinstance(response, add_partitions_to_txn.AddPartitionsToTxnResponse)
        said = {
            TopicPartition(topic.name, row.partition_index): ErrorCode.of(row.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }
        bad = {partition: code for partition, code in said.items() if code is not ErrorCode.NONE}
        if not bad:
            self._added.update(self._adding)
            self._adding = {}
            self._is_begun = True
            return None
        # One partition that cannot be added keeps out the others, whose code says nothing then.
        telling = {each: code for each, code in bad.items() if code is not ErrorCode.OPERATION_NOT_ATTEMPTED} or bad
        partition, code = min(telling.items(), key=lambda entry: entry[1].retriable)
        again = self._judge(code, f"adding {partition} to the transaction", OF_PARTITIONS, name=partition.topic)
        if again is None:
            self._adding = {}
        elif self.is_dropping:
            # Nothing was added, so the transaction can end without it.
            self._adding, again = {}, None
        return again

    # -- offsets ----------------------------------------------------------------------------------------------------

    def _add_offsets(self, now_ms: int) -> None:
        """Send the next request about the first offsets: AddOffsetsToTxn, or TxnOffsetCommit."""
        first = self._offsets[0]
        group = first.group
        if self.is_v2 or group.group_id in self._added_groups:
            self._commit_offsets(first, now_ms)
            return
        self._send(
            self._coordinator,
            add_offsets_to_txn.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                group_id=group.group_id,
            ),
            lambda response, _, __: self._on_group(first, response),
            during=f"adding offsets of group {group.group_id} to the transaction of {self.transactional_id}",
            now_ms=now_ms,
            unsure=first,
        )

    def _on_group(self, offsets: _Offsets, response: Message) -> ErrorCode | None:
        assert isinstance(response, add_offsets_to_txn.AddOffsetsToTxnResponse)
        code, group_id = ErrorCode.of(response.error_code), offsets.group.group_id
        offsets.is_unsure = False
        if code is ErrorCode.NONE:
            self._is_begun = True
            self._added_groups.add(group_id)
            if self.is_dropping:
                self._offsets.remove(offsets)
            return None
        during = f"adding offsets of group {group_id} to the transaction"
        return self._retry_offsets(offsets, self._judge(code, during, OF_OFFSETS, name=group_id, operation="read"))

    def _retry_offsets(self, offsets: _Offsets, again: ErrorCode | None) -> ErrorCode | None:
        """Keep refused offsets for another request, unless the transaction is given up; return the code then."""
        if again is not None and not self.is_dropping:
            return again
        if offsets in self._offsets:
            self._offsets.remove(offsets)
        return None

    def _commit_offsets(self, offsets: _Offsets, now_ms: int) -> None:
        group = offsets.group
        lookup = self._groups.get(group.group_id)
        if lookup is None:
            lookup = self._groups[group.group_id] = self._lookup(group.group_id, KeyType.GROUP, "read")
        topics: dict[str, offset_commit.TxnOffsetCommitRequestTopic] = {}
        for (name, number), (offset, metadata, epoch) in offsets.left.items():
            row = topics.setdefault(name, offset_commit.TxnOffsetCommitRequestTopic(name=name))
            row.partitions.append(
                offset_commit.TxnOffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    committed_metadata=metadata,
                )
            )
        # By this request the group may become part of the transaction, even if its answer is lost.
        self._is_begun = self._is_begun or self.is_v2
        self._send(
            lookup,
            offset_commit.TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=group.group_id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                generation_id=group.generation_id,
                member_id=group.member_id,
                group_instance_id=group.group_instance_id,
                topics=list(topics.values()),
            ),
            lambda response, _, __: self._on_offsets(offsets, response),
            during=f"committing offsets of group {group.group_id} in the transaction of {self.transactional_id}",
            now_ms=now_ms,
            min_version=_COMMIT_ADDS_SINCE if self.is_v2 else None,
            max_version=None if self.is_v2 else _COMMIT_ADDS_SINCE - 1,
            unsure=offsets,
        )

    def _on_offsets(self, offsets: _Offsets, response: Message) -> ErrorCode | None:
        assert isinstance(response, offset_commit.TxnOffsetCommitResponse)
        offsets.is_unsure = False
        group_id = offsets.group.group_id
        again: ErrorCode | None = None
        for topic in response.topics:
            for row in topic.partitions:
                code, partition = ErrorCode.of(row.error_code), TopicPartition(topic.name, row.partition_index)
                if code is ErrorCode.NONE:
                    offsets.left.pop(partition, None)
                    continue
                name = partition.topic if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else group_id
                during = f"committing the offset of {partition} in group {group_id}"
                again = self._judge(code, during, OF_OFFSETS, name=name, operation="read") or again
                if not self.is_open and self.state is not TransactionState.COMMITTING:
                    return self._retry_offsets(offsets, None)
        if offsets.left:
            return self._retry_offsets(offsets, again or ErrorCode.UNKNOWN_SERVER_ERROR)
        self._offsets.remove(offsets)
        self._requests.complete(offsets.ticket)
        return None

    # -- the end ----------------------------------------------------------------------------------------------------

    def _end(self, now_ms: int) -> None:
        if not self._is_begun:
            # The coordinator knows of no transaction, so there is none to end.
            self._on_decided()
            return
        is_commit = self.state is TransactionState.COMMITTING
        self._send(
            self._coordinator,
            end_txn.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self._identity.producer_id,
                producer_epoch=self._identity.epoch,
                committed=is_commit,
            ),
            self._on_end,
            during=f"{'committing' if is_commit else 'aborting'} the transaction of {self.transactional_id}",
            now_ms=now_ms,
            min_version=_END_RAISES_SINCE if self.is_v2 else None,
            max_version=None if self.is_v2 else _END_RAISES_SINCE - 1,
        )

    def _on_end(self, response: Message, _: Answer, now_ms: int) -> ErrorCode | None:
        assert isinstance(response, end_txn.EndTxnResponse)
        code = ErrorCode.of(response.error_code)
        # By the older flow others could go on under the same epoch, in a transaction that is never ended.
        fences = self._is_shared and not self.is_v2 and self.state is TransactionState.ABORTING
        if fences and code in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE):
            self._identity.spoil()
            self._on_decided()
            return None
        if code is ErrorCode.NONE:
            if response.producer_id >= 0:
                self._identity.renew(response.producer_id, response.producer_epoch)
            self._on_decided()
            return None
        if code in FORGOTTEN and self.state is TransactionState.ABORTING:
            # There is no transaction any more. The coordinator takes the producer in again under a new id.
            self._identity.spoil()
            self._on_decided()
            return None
        during = f"ending the transaction of {self.transactional_id}"
        if code is ErrorCode.TRANSACTION_ABORTABLE and self.state is TransactionState.ABORTING:
            self._break(BrokerError(code, during=during))
            return None
        if code is ErrorCode.INVALID_TXN_STATE:
            # By the newer flow the coordinator's own abort looks like the end of this transaction.
            ended = "the coordinator has aborted it: it took longer than transaction.timeout.ms; close this producer"
            self._break(BrokerError(code, ended, during=during))
            return None
        return self._judge(code, during, name=self.transactional_id)

    def _on_decided(self) -> None:
        if self._identity.is_spoilt:
            self._move(Happening.EPOCH_NEEDED)
            return
        self._move(Happening.ENDED)
        self._rest()
