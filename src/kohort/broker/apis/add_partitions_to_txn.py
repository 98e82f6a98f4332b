"""AddPartitionsToTxn (key 24): add partitions to a producer's transaction.

Clients send versions up to 3, with one transaction. Version 4: brokers ask for several at once, or only whether the
partitions were added (KIP-890); for that the right to act as a broker is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kohort.broker.chunked_responses import Gather
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_PARTITIONS, check_rows
from kohort.broker.transactions.coordination import code_of
from kohort.coordinator.commands import Refusal
from kohort.coordinator.transactions import commands
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import add_partitions_to_txn as wire

#: The first version with which brokers ask.
_OF_BROKERS = 4


def handle(
    context: BrokerContext, request: Request, message: wire.AddPartitionsToTxnRequest
) -> wire.AddPartitionsToTxnResponse | None:
    """Ask the coordinator of each transaction."""
    transactions = message.transactions
    if request.version < _OF_BROKERS:
        transactions = [
            wire.AddPartitionsToTxnTransaction(
                transactional_id=message.v3_and_below_transactional_id,
                producer_id=message.v3_and_below_producer_id,
                producer_epoch=message.v3_and_below_producer_epoch,
                topics=message.v3_and_below_topics,
            )
        ]
    elif not request.rights.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        return wire.AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    total = sum(len(topic.partitions) for each in transactions for topic in each.topics)
    check_rows(total, MOST_PARTITIONS, "partitions")
    if not transactions:
        return wire.AddPartitionsToTxnResponse()

    def complete(rows: list[wire.AddPartitionsToTxnResult]) -> None:
        if not request.is_open:
            return
        if request.version < _OF_BROKERS:
            request.answer(wire.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows[0].topic_results))
        else:
            request.answer(wire.AddPartitionsToTxnResponse(results_by_transaction=rows))

    whole: Gather[wire.AddPartitionsToTxnResult] = Gather(len(transactions), complete)
    for index, each in enumerate(transactions):
        _add(context, request, each, whole.slot(index))
    return None


def _add(
    context: BrokerContext,
    request: Request,
    asked: wire.AddPartitionsToTxnTransaction,
    done: Callable[[wire.AddPartitionsToTxnResult], None],
) -> None:
    """Ask the coordinator of one transaction, unless a partition is refused here."""
    places = [(topic.name, number) for topic in asked.topics for number in topic.partitions]
    is_of_client = request.version < _OF_BROKERS
    if is_of_client:
        codes = _refusals(context, request, asked, places)
        if any(codes):
            # As Apache Kafka: all partitions are added, or none.
            done(_result(asked, [code or ErrorCode.OPERATION_NOT_ATTEMPTED for code in codes]))
            return

    def take(reply: commands.AddPartitionsReply | Refusal) -> None:
        if isinstance(reply, Refusal):
            done(_result(asked, [code_of(reply, request.version)] * len(places)))
        else:
            # A partition that is named twice is asked for once.
            codes = dict(zip(command.partitions, reply.errors, strict=True))
            done(_result(asked, [codes[place] for place in places]))

    token = context.runtime.next_token()
    command = commands.AddPartitions(
        cause=token,
        request=token,
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        partitions=tuple(dict.fromkeys(places)),
        is_verify_only=asked.verify_only,
        # Brokers of version 5 know TRANSACTION_ABORTABLE (KIP-890).
        version=0 if is_of_client else 1 if request.version > _OF_BROKERS or not asked.verify_only else 0,
    )
    context.transactions.ask(command, take)


def _refusals(
    context: BrokerContext,
    request: Request,
    asked: wire.AddPartitionsToTxnTransaction,
    places: Sequence[tuple[str, int]],
) -> list[ErrorCode]:
    """Return the error of each partition that cannot be added, NONE for the others."""
    rights = request.rights
    if not rights.allows(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, asked.transactional_id):
        return [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * len(places)
    found = []
    for name, number in places:
        topic = context.cluster.topic(name)
        is_internal = topic is not None and topic.is_internal
        if is_internal or not rights.allows(AclOperation.WRITE, ResourceType.TOPIC, name):
            found.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif topic is None or not 0 <= number < len(topic.partitions):
            found.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            found.append(ErrorCode.NONE)
    return found


def _result(asked: wire.AddPartitionsToTxnTransaction, codes: Sequence[ErrorCode]) -> wire.AddPartitionsToTxnResult:
    rows = iter(codes)
    return wire.AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=[
            wire.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    wire.AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=next(rows))
                    for number in topic.partitions
                ],
            )
            for topic in asked.topics
        ],
    )
