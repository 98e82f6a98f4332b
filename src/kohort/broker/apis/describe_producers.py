"""DescribeProducers (key 61): the producers that a partition remembers, with their open transactions (KIP-664)."""

from __future__ import annotations

from kohort.broker.chunked_responses import answer_rows, rows_at_once
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_PARTITIONS, check_rows
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import describe_producers as wire


def handle(context: BrokerContext, request: Request, message: wire.DescribeProducersRequest) -> None:
    """Answer for each partition that this broker leads."""
    check_rows(sum(len(topic.partition_indexes) for topic in message.topics), MOST_PARTITIONS, "partitions")

    # Each partition has a row of its topic of its own: one may have many thousand producers.
    asked = [(topic.name, number) for topic in message.topics for number in topic.partition_indexes]

    def row_of(place: tuple[str, int]) -> wire.TopicResponse:
        return wire.TopicResponse(name=place[0], partitions=[_describe(context, request, *place)])

    answer_rows(context, request, asked, rows_at_once(row_of), lambda rows: wire.DescribeProducersResponse(topics=rows))


def _describe(context: BrokerContext, request: Request, name: str, number: int) -> wire.PartitionResponse:
    if not request.rights.allows(AclOperation.READ, ResourceType.TOPIC, name):
        return _refusal(number, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    log = context.cluster.partition(context.cluster.topic(name), number)
    if log is None:
        return _refusal(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{number}")
    refused = context.leadership.refusal(log, -1)
    if refused is not ErrorCode.NONE:
        return _refusal(number, refused, f"this broker does not lead {name}-{number}")
    # An abort marker of the administrator ends what hangs before a hole, too.
    hanging = {each.producer_id: each.first_offset for each in log.producers.hanging}
    return wire.PartitionResponse(
        partition_index=number,
        active_producers=[
            wire.ProducerState(
                producer_id=row.producer_id,
                producer_epoch=row.epoch,
                last_sequence=row.batches[-1].last_sequence if row.batches else -1,
                last_timestamp=row.written_ms,
                coordinator_epoch=row.coordinator_epoch,
                current_txn_start_offset=(
                    row.transaction_start if row.transaction_start >= 0 else hanging.get(row.producer_id, -1)
                ),
            )
            for row in log.producers.rows()
        ],
    )


def _refusal(number: int, code: ErrorCode, text: str) -> wire.PartitionResponse:
    return wire.PartitionResponse(partition_index=number, error_code=code, error_message=text)
