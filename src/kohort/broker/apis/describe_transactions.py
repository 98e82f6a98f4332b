"""DescribeTransactions (key 65): transactions in detail (KIP-664)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kohort.broker.chunked_responses import answer_rows, rows_asked_for
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.coordinator.commands import Refusal
from kohort.coordinator.transactions import commands
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition, by_topic
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import describe_transactions as wire


def handle(context: BrokerContext, request: Request, message: wire.DescribeTransactionsRequest) -> None:
    """Ask the coordinator of each transaction."""
    names, rights = list(dict.fromkeys(message.transactional_ids)), request.rights
    check_rows(len(names), MOST_NAMED, "transactional ids")

    def ask(name: str, take: Callable[[Any], None]) -> None:
        if not rights.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
            take(Refusal(code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
            return
        token = context.runtime.next_token()
        context.transactions.ask_here(
            commands.DescribeTransaction(cause=token, request=token, transactional_id=name), take
        )

    def row_of(name: str, reply: commands.DescribeTransactionReply | Refusal) -> wire.TransactionState:
        if isinstance(reply, Refusal):
            return wire.TransactionState(
                error_code=reply.code, transactional_id=name, transaction_state="", transaction_timeout_ms=0,
                transaction_start_time_ms=0, producer_id=0, producer_epoch=0,
            )  # fmt: skip
        # As Apache Kafka: topics that the client may not describe are left out.
        partitions = [
            TopicPartition(*each)
            for each in reply.partitions
            if rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, each[0])
        ]
        return wire.TransactionState(
            transactional_id=name,
            transaction_state=reply.state,
            transaction_timeout_ms=reply.timeout_ms,
            transaction_start_time_ms=reply.start_ms,
            producer_id=reply.producer_id,
            producer_epoch=reply.producer_epoch,
            topics=[wire.TopicData(topic=topic, partitions=rows) for topic, rows in by_topic(partitions).items()],
        )

    answer_rows(
        context, request, names, rows_asked_for(ask, row_of),
        lambda rows: wire.DescribeTransactionsResponse(transaction_states=rows),
    )  # fmt: skip
