"""Journal entries about transactional ids: each step of a transaction, and each refusal of a producer.

A transaction that ends as its producer wants has three steps: `transaction_began`, `transaction_decided`,
`transaction_completed`. Their entries are equal from one transaction of a producer to the next, so the journal has one
row for each with a count. The epoch and the partitions of a transaction are in the entries of what is rare.

Laws: nothing is decided or changed here. Each record of a transactional id is reported, but for its first producer,
which says nothing that its description does not, and for partitions that are added to an open transaction, which are
counted. Thousands of ids are idle: rows of one id share their texts.
Source: requirements G4 and J1; `coordinator/journal_events`, which reports the decisions about groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import intern
from typing import Final

from kohort.coordinator.commands import Refusal
from kohort.coordinator.transactions.commands import (
    AddPartitions,
    AnyCommand,
    EndTransaction,
    InitProducer,
    TransactionCommand,
)
from kohort.coordinator.transactions.decision import Decision, Reply
from kohort.coordinator.transactions.records import Record, TransactionStored
from kohort.coordinator.transactions.states import COMPLETION, TransactionState
from kohort.journal.ring import Journal
from kohort.journal.rows import Entry, RowKind, transaction_key
from kohort.journal.words import write_partitions

#: The name of the counter of partitions that were added to open transactions.
PARTITIONS_ADDED: Final = "partitions_added"
#: Command whose refusal is reported -> the name of its request.
_REQUESTS: Final[dict[type, str]] = {
    InitProducer: "InitProducerId",
    AddPartitions: "AddPartitionsToTxn",
    EndTransaction: "EndTxn",
}
_RESULTS: Final = {result: (("result", result),) for result in ("commit", "abort")}
_TIMEOUT: Final = "transaction timeout"
_SUCCESSOR: Final = "new producer"


def report(
    journal: Journal,
    transactions: Mapping[str, TransactionStored],
    command: AnyCommand | None,
    decision: Decision,
    *,
    now_ms: int,
    next_cause: Callable[[], int],
) -> list[Entry]:
    """Report a decision that is about to be committed; return its entries.

    Args:
        transactions: the ids of the shard before the decision.
        command: the request, or the coordinator's own command; `None`: a deadline.
        now_ms: time of day.
        next_cause: returns a number for a stimulus without a cause id, such as a deadline.
    """
    if not journal.is_on:
        return []
    entries: list[Entry] = []
    former = None
    for record in decision.records:
        former = former or transactions.get(record.transactional_id)
        entry = _tell(former, record, command)
        if entry is not None:
            entries.append(entry)
        elif former is not None:
            journal.count(transaction_key(record.transactional_id), PARTITIONS_ADDED)
        former = record if isinstance(record, TransactionStored) else None
    for effect in decision.effects:
        if isinstance(effect, Reply) and isinstance(effect.body, Refusal) and type(command) in _REQUESTS:
            assert isinstance(command, InitProducer | AddPartitions | EndTransaction), "it is a request"
            entries.append(_refused(command, effect.body))
    if entries:
        cause = -1 if command is None else command.cause
        journal.record(entries, cause=next_cause() if cause < 0 else cause, now_ms=now_ms)
    return entries


def _tell(former: TransactionStored | None, record: Record, command: AnyCommand | None) -> Entry | None:
    """Build the entry of one record; `None` for a first producer, and for partitions of an open transaction."""
    key, transition = transaction_key(record.transactional_id), RowKind.TRANSITION
    if not isinstance(record, TransactionStored):
        return Entry(transition, "transactional_id_forgotten", key)
    # The producer id before a new one: the record with which the old one ends its transaction has it still.
    producer = intern(str(record.producer_id))
    match record.state:
        case TransactionState.EMPTY:
            if former is None:
                return None
            details = (("epoch", str(record.producer_epoch)), ("timeout_ms", str(record.timeout_ms)))
            return Entry(transition, "producer_initialized", key, producer, _signed(details, command))
        case TransactionState.ONGOING:
            if former is not None and former.state is TransactionState.ONGOING:
                return None
            return Entry(transition, "transaction_began", key, producer)
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            return Entry(RowKind.DECISION, "transaction_decided", key, producer, _result_of(record, command))
        case _:
            # A new producer id follows the last epoch of the one that has ended its transaction.
            ended = intern(str(record.previous_producer_id))
            return Entry(transition, "transaction_completed", key, ended)


def _result_of(record: TransactionStored, command: AnyCommand | None) -> tuple[tuple[str, str], ...]:
    result = "commit" if COMPLETION[record.state] is TransactionState.COMPLETE_COMMIT else "abort"
    if isinstance(command, EndTransaction):
        return _signed(_RESULTS[result], command)
    # Its producer did not ask for it: the row says all.
    why = _SUCCESSOR if isinstance(command, InitProducer) else _TIMEOUT
    found = (
        ("result", result),
        ("why", why),
        ("began_ms", str(record.start_ms)),
        ("partitions", write_partitions(record.partitions)),
    )
    return _signed(found, command)


def _refused(command: InitProducer | AddPartitions | EndTransaction, refusal: Refusal) -> Entry:
    details = (("api", _REQUESTS[type(command)]), ("error", refusal.code.name))
    producer = str(command.producer_id) if command.producer_id >= 0 else ""
    # AddPartitionsToTxn asks once for each partition that is verified.
    key = transaction_key(command.transactional_id)
    return Entry(RowKind.DECISION, "refused", key, producer, _signed(details, command))


def _signed(details: tuple[tuple[str, str], ...], command: AnyCommand | None) -> tuple[tuple[str, str], ...]:
    """Add the principal of the request, with the label of its capability token if there is one."""
    principal = command.principal if isinstance(command, TransactionCommand) else ""
    if not principal:
        return details
    name, _, label = principal.partition(" ") if principal.startswith("Token:") else (principal, "", "")
    signed = (*details, ("principal", name))
    return (*signed, ("label", label)) if label else signed
