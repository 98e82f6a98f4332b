"""ListTransactions (key 66), KIP-664: the transactions that a broker coordinates.

Version 1: those that have run for longer than a time (KIP-994). Version 2: those whose id matches a pattern (KIP-1152).
Flexible from the first version.
"""

from kohort.wire.schema import INT16, INT32, INT64, STRING, Message, array, field, message


@message(key=66, kind="request", versions="0-2", flexible="0+")
class ListTransactionsRequest(Message):
    """The filters of the list; empty, -1 and null match everything."""

    state_filters: list[str] = field(array(STRING))
    producer_id_filters: list[int] = field(array(INT64))
    duration_filter: int = field(INT64, since=1, default=-1)
    transactional_id_pattern: str | None = field(STRING, since=2, nullable=2, default=None)


class TransactionState(Message):
    """One transaction."""

    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


@message(key=66, kind="response", versions="0-2", flexible="0+")
class ListTransactionsResponse(Message):
    """The broker's transactions, and the requested states that it does not know."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    unknown_state_filters: list[str] = field(array(STRING))
    transaction_states: list[TransactionState] = field(array(TransactionState))
