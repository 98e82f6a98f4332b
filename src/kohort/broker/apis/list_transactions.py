"""ListTransactions (key 66): the transactions that this broker coordinates (KIP-664).

Version 1: those that have run for longer than a time (KIP-994). Version 2: those whose id matches a pattern (KIP-1152).
"""

from __future__ import annotations

from functools import partial

from kohort.broker.chunked_responses import answer_rows, rows_at_once
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.coordinator.commands import Refusal
from kohort.coordinator.transactions import commands
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import list_transactions as wire


def handle(context: BrokerContext, request: Request, message: wire.ListTransactionsRequest) -> None:
    """Answer with a row for each transaction that passes the filters and that the client may describe."""
    check_rows(len(message.state_filters) + len(message.producer_id_filters), MOST_NAMED, "filters")
    command = partial(
        commands.ListTransactions,
        states=tuple(message.state_filters),
        producer_ids=tuple(message.producer_id_filters),
        older_than_ms=message.duration_filter,
        pattern=message.transactional_id_pattern or "",
    )
    rights, kind = request.rights, ResourceType.TRANSACTIONAL_ID

    unknown: list[str] = []
    listed: list[commands.ListedTransaction] = []
    refused: list[ErrorCode] = []

    def take(reply: commands.ListTransactionsReply | Refusal) -> None:
        if not isinstance(reply, Refusal):
            unknown[:] = reply.unknown_states
            listed.extend(each for each in reply.transactions if rights.allows(AclOperation.DESCRIBE, kind, each[0]))
        elif reply.code is not ErrorCode.NOT_COORDINATOR:
            # The pattern; a shard whose log cannot be read is left out.
            refused.append(reply.code)

    def complete() -> None:
        if refused and request.is_open:
            request.answer(wire.ListTransactionsResponse(error_code=refused[0]))
        elif request.is_open:
            answer_rows(context, request, listed, rows_at_once(_row_of), response_of)

    def response_of(rows: list[wire.TransactionState]) -> wire.ListTransactionsResponse:
        return wire.ListTransactionsResponse(
            error_code=ErrorCode.NONE, unknown_state_filters=unknown, transaction_states=rows
        )

    context.transactions.list_transactions(command, take, complete)


def _row_of(listed: commands.ListedTransaction) -> wire.TransactionState:
    return wire.TransactionState(
        transactional_id=listed.transactional_id, producer_id=listed.producer_id, transaction_state=listed.state
    )
