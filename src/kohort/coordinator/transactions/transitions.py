"""Decisions about one transactional id: each takes its state, a command and the time, and returns records and effects.

Laws: nothing is changed here. A refusal is raised, and the shard turns it into a reply. The next state comes from
`states.TRANSITIONS`.
Source: Apache Kafka's TransactionCoordinator and TransactionMetadata of 4.3; KIP-98, KIP-360, KIP-588, KIP-890 part 2.
Differences from Kafka: a request during the Prepare states waits for the transaction's end, where Kafka has its client
try again, unless its refusal then is certain. A fenced producer's InitProducerId does not abort the transaction of its
successor. A new producer's InitProducerId is answered once the transaction of its predecessor is aborted.
"""

from __future__ import annotations

from dataclasses import replace

from kohort.coordinator.transactions.commands import (
    AbortOverdue,
    AddPartitions,
    AddPartitionsReply,
    EndTransaction,
    EndTransactionReply,
    InitProducer,
    InitProducerReply,
    NeedsProducerId,
    TransactionCommand,
)
from kohort.coordinator.transactions.decision import Decision, Hold, NeedProducerId, Reply, SendMarkers
from kohort.coordinator.transactions.records import TransactionStored
from kohort.coordinator.transactions.settings import EPOCH_BUMP_VERSION, TransactionSettings
from kohort.coordinator.transactions.states import (
    ANSWERED,
    COMPLETION,
    LAST_EPOCH,
    TRANSITIONS,
    Event,
    TransactionState,
)
from kohort.errors import ErrorCode, Refused


def decide_init(
    transaction: TransactionStored | None,
    command: InitProducer,
    settings: TransactionSettings,
    *,
    now_ms: int,
    id_count: int,
) -> Decision:
    """Give the producer an epoch of its own; `id_count`: number of ids of this shard.

    Raises:
        Refused: INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, INVALID_PRODUCER_EPOCH; POLICY_VIOLATION if there are too
            many ids; INVALID_REQUEST for an id without an epoch or the reverse.
    """
    if not 0 < command.timeout_ms <= settings.transaction_max_timeout_ms:
        raise Refused(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"the transaction timeout is {command.timeout_ms} ms; 1 to {settings.transaction_max_timeout_ms} is served "
            "(transaction.max.timeout.ms)",
        )
    if (command.producer_id < 0) != (command.producer_epoch < 0):
        raise Refused(ErrorCode.INVALID_REQUEST, "a producer id needs its epoch, and an epoch its producer id")
    if transaction is None:
        return _init_first(command, settings, now_ms=now_ms, id_count=id_count)
    if transaction.state in COMPLETION:
        decide_init(build_completed(transaction, now_ms), command, settings, now_ms=now_ms, id_count=id_count)
        return Decision(effects=(Hold(command),))
    if transaction.state is TransactionState.ONGOING:
        if command.producer_id >= 0 and not _is_current(transaction, command):
            raise _fenced(transaction, command)
        return _end(transaction, Event.INIT, command, settings.transaction_version, now_ms=now_ms)
    after = _next_producer(transaction, command)
    if after is None:
        return Decision(effects=(NeedProducerId(command),))
    stored = replace(
        after,
        previous_producer_id=transaction.previous_producer_id if after is transaction else transaction.producer_id,
        timeout_ms=command.timeout_ms,
        state=_target(transaction, Event.INIT),
        start_ms=-1,
        last_update_ms=now_ms,
    )
    reply = InitProducerReply(producer_id=stored.producer_id, producer_epoch=stored.producer_epoch)
    return Decision((stored,), (Reply(command.request, reply),))


def decide_add(
    transaction: TransactionStored | None, command: AddPartitions, settings: TransactionSettings, *, now_ms: int
) -> Decision:
    """Add partitions to the open transaction, or begin one with them; or only look which of them are in it.

    Raises:
        Refused: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS; POLICY_VIOLATION if the
            transaction would have too many partitions.
    """
    if transaction is None:
        raise _unknown(command)
    if transaction.state in COMPLETION:
        if command.is_verify_only:
            _check_producer(transaction, command)
            # A batch of a transaction whose end is decided is late.
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "the result of the transaction is decided already")
        decide_add(build_completed(transaction, now_ms), command, settings, now_ms=now_ms)
        return Decision(effects=(Hold(command),))
    _check_producer(transaction, command)
    present = set(transaction.partitions)
    if command.is_verify_only:
        errors = (ErrorCode.NONE if each in present else ErrorCode.TRANSACTION_ABORTABLE for each in command.partitions)
        return Decision(effects=(Reply(command.request, AddPartitionsReply(errors=tuple(errors))),))
    reply = Reply(command.request, AddPartitionsReply(errors=(ErrorCode.NONE,) * len(command.partitions)))
    is_open = transaction.state is TransactionState.ONGOING
    if is_open and present.issuperset(command.partitions):
        return Decision(effects=(reply,))
    present.update(command.partitions)
    if len(present) > settings.transaction_partition_limit:
        raise Refused(
            ErrorCode.POLICY_VIOLATION,
            f"the transaction of {command.transactional_id!r} would have {len(present)} partitions; "
            f"{settings.transaction_partition_limit} are served (max.transaction.partitions)",
        )
    stored = replace(
        transaction,
        # As in Kafka: the id before matters only until the new one is used.
        previous_producer_id=transaction.producer_id,
        state=_target(transaction, Event.ADD),
        partitions=tuple(sorted(present)),
        start_ms=transaction.start_ms if is_open else now_ms,
        last_update_ms=now_ms,
        client_version=command.version,
    )
    return Decision((stored,), (reply,))


def decide_end(
    transaction: TransactionStored | None, command: EndTransaction, settings: TransactionSettings, *, now_ms: int
) -> Decision:
    """Decide the result of the transaction, or answer as before if the request is repeated.

    Raises:
        Refused: INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE.
    """
    if transaction is None:
        raise _unknown(command)
    if transaction.state in COMPLETION:
        decide_end(build_completed(transaction, now_ms), command, settings, now_ms=now_ms)
        return Decision(effects=(Hold(command),))
    is_bumped = command.version >= EPOCH_BUMP_VERSION
    is_open = transaction.state is TransactionState.ONGOING
    if is_bumped and transaction.state in COMPLETION.values() and _is_repeated_end(transaction, command):
        is_again = True
    else:
        _check_producer(transaction, command)
        is_again = not is_bumped and not is_open
    event = (
        (Event.COMMIT_AGAIN if is_again else Event.COMMIT)
        if command.is_commit
        else (Event.ABORT_AGAIN if is_again else Event.ABORT)
    )
    outcome = TRANSITIONS[transaction.state, event]
    if outcome is ANSWERED:
        reply = EndTransactionReply(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
        return Decision(effects=(Reply(command.request, reply),))
    # A producer of the older flow keeps its epoch, and ends only what is open.
    return _end(transaction, event, command, command.version if is_bumped else 0, now_ms=now_ms)


def decide_overdue(
    transaction: TransactionStored, command: AbortOverdue, settings: TransactionSettings, *, now_ms: int
) -> Decision:
    """Abort a transaction that has exceeded its timeout."""
    return _end(transaction, Event.TIMEOUT, command, settings.transaction_version, now_ms=now_ms)


def build_completed(transaction: TransactionStored, now_ms: int) -> TransactionStored:
    """Build the state after the last marker of a transaction in a Prepare state."""
    is_rotated = transaction.client_version >= EPOCH_BUMP_VERSION and transaction.next_producer_id >= 0
    return replace(
        transaction,
        previous_producer_id=transaction.producer_id,
        # The last epoch of the former id stays `last_producer_epoch`: it is the one that the producer knows.
        producer_id=transaction.next_producer_id if is_rotated else transaction.producer_id,
        producer_epoch=0 if is_rotated else transaction.producer_epoch,
        next_producer_id=-1,
        state=COMPLETION[transaction.state],
        partitions=(),
        last_update_ms=now_ms,
    )


def build_markers(transaction: TransactionStored, coordinator_epoch: int, *, number: int) -> SendMarkers:
    """Build the order to write the markers of a transaction in a Prepare state."""
    return SendMarkers(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        coordinator_epoch=coordinator_epoch,
        is_commit=transaction.state is TransactionState.PREPARE_COMMIT,
        partitions=transaction.partitions,
        version=transaction.client_version,
        number=number,
    )


def _init_first(command: InitProducer, settings: TransactionSettings, *, now_ms: int, id_count: int) -> Decision:
    if id_count + command.other_ids >= settings.transactional_id_limit:
        raise Refused(
            ErrorCode.POLICY_VIOLATION,
            f"there are {id_count + command.other_ids} transactional ids; {settings.transactional_id_limit} are served "
            "(max.transactional.ids); an unused one is forgotten after transactional.id.expiration.ms",
        )
    if command.fresh_id < 0:
        return Decision(effects=(NeedProducerId(command),))
    outcome = TRANSITIONS[TransactionState.DEAD, Event.INIT]
    assert isinstance(outcome, TransactionState)
    stored = TransactionStored(
        transactional_id=command.transactional_id,
        producer_id=command.fresh_id,
        previous_producer_id=command.fresh_id,
        producer_epoch=0,
        timeout_ms=command.timeout_ms,
        state=outcome,
        last_update_ms=now_ms,
    )
    return Decision(
        (stored,), (Reply(command.request, InitProducerReply(producer_id=stored.producer_id, producer_epoch=0)),)
    )


def _next_producer(transaction: TransactionStored, command: InitProducer) -> TransactionStored | None:
    """Give the id's next epoch to a producer, or a repeated answer; `None`: the epochs of the producer id are used up.

    Raises:
        Refused: the producer is fenced.
    """
    is_new = command.producer_id < 0
    if not (is_new or _is_current(transaction, command)):
        if _is_repeated_init(transaction, command):
            return transaction
        raise _fenced(transaction, command)
    last_epoch = -1 if is_new else transaction.producer_epoch
    if transaction.producer_epoch < LAST_EPOCH:
        return replace(transaction, producer_epoch=transaction.producer_epoch + 1, last_producer_epoch=last_epoch)
    if command.fresh_id < 0:
        return None
    return replace(transaction, producer_id=command.fresh_id, producer_epoch=0, last_producer_epoch=last_epoch)


def _end(
    transaction: TransactionStored, event: Event, command: NeedsProducerId, version: int, *, now_ms: int
) -> Decision:
    """Decide the end of a transaction, by a client or by the coordinator itself."""
    prepared = replace(
        transaction,
        state=_target(transaction, event),
        previous_producer_id=transaction.producer_id,
        last_update_ms=now_ms,
        client_version=version,
        # With no partition added the transaction begins and ends now.
        start_ms=transaction.start_ms if transaction.state is TransactionState.ONGOING else now_ms,
    )
    if version >= EPOCH_BUMP_VERSION:
        is_used_up = transaction.producer_epoch >= LAST_EPOCH
        if is_used_up and command.fresh_id < 0:
            return Decision(effects=(NeedProducerId(command),))
        prepared = replace(
            prepared,
            # A log that an older Kafka wrote may have the very last epoch; there is none after it.
            producer_epoch=min(transaction.producer_epoch, LAST_EPOCH) + 1,
            last_producer_epoch=transaction.producer_epoch,
            next_producer_id=command.fresh_id if is_used_up else -1,
        )
    elif not isinstance(command, EndTransaction):
        # Without the bump of KIP-890 only the coordinator's own aborts fence the producer.
        prepared = replace(
            prepared, producer_epoch=min(transaction.producer_epoch, LAST_EPOCH) + 1, last_producer_epoch=-1
        )
    completed = build_completed(prepared, now_ms)
    records = (prepared,) if prepared.partitions else (prepared, completed)
    match command:
        case EndTransaction():
            reply = EndTransactionReply(producer_id=completed.producer_id, producer_epoch=completed.producer_epoch)
            return Decision(records, (Reply(command.request, reply),))
        case InitProducer():
            return Decision(records, (Hold(replace(command, fresh_id=-1)),))
        case AbortOverdue():
            return Decision(records)


def _target(transaction: TransactionStored, event: Event) -> TransactionState:
    """Return the next state by the table.

    Raises:
        Refused: the table has a code.
    """
    outcome = TRANSITIONS[transaction.state, event]
    if isinstance(outcome, TransactionState):
        return outcome
    raise Refused(outcome, f"{event.value} is not possible in state {transaction.state.label}")


def _is_current(transaction: TransactionStored, command: InitProducer | AddPartitions | EndTransaction) -> bool:
    return (command.producer_id, command.producer_epoch) == (transaction.producer_id, transaction.producer_epoch)


def _check_producer(transaction: TransactionStored, command: AddPartitions | EndTransaction) -> None:
    if transaction.producer_id != command.producer_id:
        raise _unknown(command)
    if not _is_current(transaction, command):
        raise _fenced(transaction, command)


def _is_repeated_end(transaction: TransactionStored, command: EndTransaction) -> bool:
    """Return whether the producer has ended its transaction before, and asks again with the epoch of that time."""
    if transaction.client_version < EPOCH_BUMP_VERSION:
        # No epoch was bumped: the one before is that of a fenced producer. Apache Kafka gives it the present one.
        return False
    if command.producer_id == transaction.producer_id:
        return command.producer_epoch + 1 == transaction.producer_epoch
    return command.producer_epoch == LAST_EPOCH and _has_previous_id(transaction, command)


def _is_repeated_init(transaction: TransactionStored, command: InitProducer) -> bool:
    """Return whether the producer has got this epoch already, or it was made for its next transaction."""
    has_id = command.producer_id == transaction.producer_id or _has_previous_id(transaction, command)
    return has_id and command.producer_epoch == transaction.last_producer_epoch


def _has_previous_id(transaction: TransactionStored, command: InitProducer | EndTransaction) -> bool:
    """Return whether the producer has the id before the present one, which has begun anew."""
    return command.producer_id == transaction.previous_producer_id and command.producer_epoch >= LAST_EPOCH


def _unknown(command: AddPartitions | EndTransaction) -> Refused:
    return Refused(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"producer id {command.producer_id} is not that of transactional id {command.transactional_id!r}",
    )


def _fenced(transaction: TransactionStored, command: TransactionCommand) -> Refused:
    assert isinstance(command, InitProducer | AddPartitions | EndTransaction)
    is_named = not isinstance(command, InitProducer) or command.is_fence_named
    return Refused(
        ErrorCode.PRODUCER_FENCED if is_named else ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {command.producer_id} with epoch {command.producer_epoch} is fenced: {command.transactional_id!r} "
        f"has producer {transaction.producer_id} with epoch {transaction.producer_epoch}",
    )
