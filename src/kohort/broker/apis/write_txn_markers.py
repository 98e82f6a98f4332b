"""WriteTxnMarkers (key 27): write the ends of transactions, for brokers and for administrators (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterator

from kohort.broker.chunked_responses import Gather
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_LED, check_rows
from kohort.broker.transactions.markers import MARKERS_AT_ONCE, Marker
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import write_txn_markers as wire


def handle(
    context: BrokerContext, request: Request, message: wire.WriteTxnMarkersRequest
) -> wire.WriteTxnMarkersResponse | None:
    """Write each marker to each of its partitions that this broker leads."""
    places = [
        (index, TopicPartition(topic.name, number))
        for index, each in enumerate(message.markers)
        for topic in each.topics
        for number in topic.partition_indexes
    ]
    check_rows(len(places), MOST_LED, "partitions")
    rights, cluster = request.rights, ResourceType.CLUSTER
    if not (rights.allows(AclOperation.ALTER, cluster) or rights.allows(AclOperation.CLUSTER_ACTION, cluster)):
        return _answer(message, [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * len(places))

    if not places:
        return _answer(message, [])

    def complete(codes: list[ErrorCode]) -> None:
        if request.is_open:
            request.answer(_answer(message, codes))

    whole: Gather[ErrorCode] = Gather(len(places), complete)

    def steps() -> Iterator[None]:
        for slot, (index, place) in enumerate(places):
            if slot and not slot % MARKERS_AT_ONCE:
                yield
            each = message.markers[index]
            marker = Marker(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                coordinator_epoch=each.coordinator_epoch,
                is_commit=each.transaction_result,
                is_bumped=each.transaction_version >= 2,
            )
            context.transactions.write_marker(marker, place, whole.slot(slot))

    context.cooperative_work.run(steps())
    return None


def _answer(message: wire.WriteTxnMarkersRequest, codes: list[ErrorCode]) -> wire.WriteTxnMarkersResponse:
    rows = iter(codes)
    return wire.WriteTxnMarkersResponse(
        markers=[
            wire.WritableTxnMarkerResult(
                producer_id=each.producer_id,
                topics=[
                    wire.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            wire.WritableTxnMarkerPartitionResult(partition_index=number, error_code=next(rows))
                            for number in topic.partition_indexes
                        ],
                    )
                    for topic in each.topics
                ],
            )
            for each in message.markers
        ]
    )
