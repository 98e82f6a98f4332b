"""Invariants of a transaction coordinator that hold after every step, as functions that raise `InvariantViolation`.

The functions examine the whole state: the simulation and the tests call them after each step, the broker does not. The
text of a violation begins with the law's name.

| law | function |
| --- | --- |
| TypeOK | `check_shard`: each state has the partitions, ids and times that belong to it |
| EveryTransactionEnds | `check_shard`: what is open has a deadline, what is decided has markers to write |
| NoRequestIsForgotten | `check_shard`: a request waits for markers or for its turn, and has a deadline |
| LegalTransition | `check_step`: a record follows from the one before by the table |
| EpochIsMonotonic | `check_step`: the epochs of a producer id rise |
| NoTwoHolders | `check_step`: a producer id belongs to one transactional id |

Source: KIP-98, KIP-890; Apache Kafka's TransactionState (`validPreviousStates`) and TransactionMetadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kohort.coordinator.transactions.decision import TimerKey
from kohort.coordinator.transactions.records import TransactionStored
from kohort.coordinator.transactions.settings import EPOCH_BUMP_VERSION
from kohort.coordinator.transactions.shard import TransactionShard
from kohort.coordinator.transactions.states import COMPLETION, LAST_EPOCH, TRANSITIONS, TransactionState
from kohort.errors import InvariantViolation

#: (state, next state) of the table.
LEGAL: Final = {(state, after) for (state, _), after in TRANSITIONS.items() if isinstance(after, TransactionState)}


def check_shard(shard: TransactionShard, *, now_ms: int) -> None:
    """Check every law about one moment."""
    for transactional_id, transaction in shard.transactions.items():
        if transactional_id != transaction.transactional_id:
            raise _broken("TypeOK", transaction, f"is kept as {transactional_id}")
        _check_type(transaction)
        _check_end(shard, transaction, now_ms)
    holders: dict[int, str] = {}
    for transaction in shard.transactions.values():
        for producer_id in {transaction.producer_id, transaction.next_producer_id} - {-1}:
            if producer_id in holders:
                raise _broken(
                    "NoTwoHolders", transaction, f"shares producer id {producer_id} with {holders[producer_id]}"
                )
            holders[producer_id] = transaction.transactional_id
    if not shard.unmarked.keys() <= shard.transactions.keys():
        raise InvariantViolation("EveryTransactionEnds: markers are missing of an id that is gone")
    for transactional_id, commands in shard.waiting.items():
        if not commands or not (shard.is_ready(transactional_id) or shard.is_prepared(transactional_id)):
            raise InvariantViolation(f"NoRequestIsForgotten: {transactional_id} has {len(commands)} requests that wait")
        for command in commands:
            if shard.timers.deadline(TimerKey(transactional_id, command.request)) is None:
                raise InvariantViolation(f"NoRequestIsForgotten: {command!r} has no deadline")


def check_step(before: Mapping[str, TransactionStored], after: TransactionStored) -> None:
    """Check a record against the state before it; records of one decision are checked one after the other."""
    former = before.get(after.transactional_id)
    state = TransactionState.DEAD if former is None else former.state
    if (state, after.state) not in LEGAL:
        raise _broken("LegalTransition", after, f"follows {state.label}")
    if former is None:
        return
    if after.producer_id == former.producer_id:
        if after.producer_epoch < former.producer_epoch:
            raise _broken("EpochIsMonotonic", after, f"follows epoch {former.producer_epoch}")
        is_again = after.state is TransactionState.EMPTY and after.producer_epoch == former.producer_epoch
        # Only a repeated InitProducerId gets an epoch again, of the producer that has it already.
        if is_again and former.last_producer_epoch == -1:
            raise _broken("EpochIsMonotonic", after, "is given to a second producer")
    elif former.producer_epoch < LAST_EPOCH:
        raise _broken("EpochIsMonotonic", after, f"leaves producer {former.producer_id} at {former.producer_epoch}")
    elif after.producer_epoch != 0 or after.previous_producer_id != former.producer_id:
        raise _broken("EpochIsMonotonic", after, "does not begin at epoch 0 behind its former id")


def _check_type(transaction: TransactionStored) -> None:
    law, state = "TypeOK", transaction.state
    if state is TransactionState.DEAD:
        raise _broken(law, transaction, "is dead and stored")
    if transaction.partitions != tuple(sorted(set(transaction.partitions))):
        raise _broken(law, transaction, "has partitions out of order")
    if state not in (TransactionState.ONGOING, *COMPLETION) and transaction.partitions:
        raise _broken(law, transaction, "has partitions without a transaction")
    if (state is TransactionState.EMPTY) != (transaction.start_ms < 0):
        raise _broken(law, transaction, f"begins at {transaction.start_ms}")
    if transaction.producer_id < 0 or not 0 <= transaction.producer_epoch <= LAST_EPOCH + 1:
        raise _broken(law, transaction, "has no producer")
    is_used_up = state in COMPLETION and transaction.producer_epoch > LAST_EPOCH
    if transaction.client_version >= EPOCH_BUMP_VERSION and is_used_up != (transaction.next_producer_id >= 0):
        raise _broken(law, transaction, f"has the next producer id {transaction.next_producer_id}")
    if transaction.timeout_ms <= 0:
        raise _broken(law, transaction, "has no timeout")


def _check_end(shard: TransactionShard, transaction: TransactionStored, now_ms: int) -> None:
    law, name = "EveryTransactionEnds", transaction.transactional_id
    deadline_ms = shard.timers.deadline(TimerKey(name))
    unmarked = shard.unmarked.get(name)
    if transaction.state in COMPLETION and transaction.partitions:
        if not unmarked or not unmarked <= set(transaction.partitions):
            raise _broken(law, transaction, f"waits for the markers of {unmarked}")
        return
    if unmarked is not None:
        raise _broken(law, transaction, "has markers to write")
    if deadline_ms is None:
        raise _broken(law, transaction, "has no deadline")
    if transaction.state is TransactionState.ONGOING and deadline_ms > now_ms + transaction.timeout_ms:
        raise _broken(law, transaction, f"has its deadline at {deadline_ms}, and it is {now_ms}")


def _broken(law: str, transaction: TransactionStored, text: str) -> InvariantViolation:
    return InvariantViolation(
        f"{law}: {transaction.transactional_id} in {transaction.state.label} {text}", [transaction]
    )
