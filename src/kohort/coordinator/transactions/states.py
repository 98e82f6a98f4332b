"""The states of a transactional id as one table: state and event lead to the next state, a hold or a refusal.

Laws: decisions take the next state from this table and from nowhere else. docs/explanation/transactions.md shows it.
Requests of a producer with the wrong id or epoch are refused before.
Source: Apache Kafka's TransactionCoordinator and TransactionState; KIP-98, KIP-890 part 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, IntEnum
from itertools import product
from typing import Final

from kohort.errors import ErrorCode


class TransactionState(IntEnum):
    """A state, by Kafka's number in `__transaction_state`; DEAD: there is no such transactional id."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def label(self) -> str:
        """Return Kafka's name of the state, as DescribeTransactions has it."""
        return _LABELS[self]


class Event(Enum):
    """An input that concerns one transactional id, from its rightful producer or from the coordinator itself.

    COMMIT_AGAIN and ABORT_AGAIN repeat an EndTxn: its epoch is the one before the bump, or the producer is of the older
    flow, which has no bump, and has no transaction open.
    """

    INIT = "InitProducerId"
    ADD = "AddPartitionsToTxn"
    COMMIT = "EndTxn: commit"
    ABORT = "EndTxn: abort"
    COMMIT_AGAIN = "EndTxn: commit, repeated"
    ABORT_AGAIN = "EndTxn: abort, repeated"
    MARKED = "last marker written"
    TIMEOUT = "transaction timeout"
    EXPIRATION = "transactional id expired"


S, E = TransactionState, Event
_LABELS: Final = {state: state.name.title().replace("_", "") for state in TransactionState}
#: Held until the transaction is complete; CONCURRENT_TRANSACTIONS if that takes too long.
HELD: Final = ErrorCode.CONCURRENT_TRANSACTIONS
#: Answered as before; nothing changes.
ANSWERED: Final = ErrorCode.NONE
_WRONG_STATE: Final = ErrorCode.INVALID_TXN_STATE
_UNKNOWN: Final = ErrorCode.INVALID_PRODUCER_ID_MAPPING
#: Events that are requests.
REQUESTS: Final = (E.INIT, E.ADD, E.COMMIT, E.ABORT, E.COMMIT_AGAIN, E.ABORT_AGAIN)
#: States with a transaction whose result is decided, and the state that follows the last marker.
COMPLETION: Final = {S.PREPARE_COMMIT: S.COMPLETE_COMMIT, S.PREPARE_ABORT: S.COMPLETE_ABORT}
#: The last epoch that a producer gets; one more is left for the end of its transaction (Kafka's `isEpochExhausted`).
LAST_EPOCH: Final = 32_766
#: States without a transaction.
IDLE: Final = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)

#: (state, event) -> next state, or the code that answers the request. What is absent does not happen.
TRANSITIONS: Final[dict[tuple[TransactionState, Event], TransactionState | ErrorCode]] = {
    (S.DEAD, E.INIT): S.EMPTY,
    (S.DEAD, E.ADD): _UNKNOWN,
    (S.DEAD, E.COMMIT): _UNKNOWN,
    (S.DEAD, E.ABORT): _UNKNOWN,
    **{(state, E.INIT): S.EMPTY for state in IDLE},
    **{(state, E.ADD): S.ONGOING for state in (*IDLE, S.ONGOING)},
    **{(state, E.COMMIT): _WRONG_STATE for state in IDLE},
    # KIP-890: the producer may end a transaction before its first batch, and wants the next epoch.
    **{(state, E.ABORT): S.PREPARE_ABORT for state in IDLE},
    **{(state, E.EXPIRATION): S.DEAD for state in IDLE},
    (S.EMPTY, E.COMMIT_AGAIN): _WRONG_STATE,
    (S.EMPTY, E.ABORT_AGAIN): _WRONG_STATE,
    # The new producer waits for the end of its predecessor's transaction.
    (S.ONGOING, E.INIT): S.PREPARE_ABORT,
    (S.ONGOING, E.COMMIT): S.PREPARE_COMMIT,
    (S.ONGOING, E.ABORT): S.PREPARE_ABORT,
    (S.ONGOING, E.TIMEOUT): S.PREPARE_ABORT,
    **dict.fromkeys(product(COMPLETION, REQUESTS), HELD),
    **{(state, E.MARKED): after for state, after in COMPLETION.items()},
    (S.COMPLETE_COMMIT, E.COMMIT_AGAIN): ANSWERED,
    (S.COMPLETE_COMMIT, E.ABORT_AGAIN): _WRONG_STATE,
    (S.COMPLETE_ABORT, E.COMMIT_AGAIN): _WRONG_STATE,
    (S.COMPLETE_ABORT, E.ABORT_AGAIN): ANSWERED,
}


def table_rows() -> Iterator[tuple[str, ...]]:
    """Yield the table's head, and a row for each event with the outcome in each state; empty: does not happen."""
    yield ("event", *(state.label for state in TransactionState))
    for event in Event:
        yield (event.value, *(_describe(TRANSITIONS.get((state, event))) for state in TransactionState))


def _describe(outcome: TransactionState | ErrorCode | None) -> str:
    if outcome is None:
        return ""
    if isinstance(outcome, TransactionState):
        return outcome.label
    return {HELD: "held", ANSWERED: "answered"}.get(outcome, outcome.name)
