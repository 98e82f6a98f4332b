"""DescribeProducers (key 61): the producers that a partition remembers, with their open transactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from kohort.broker.chunked_responses import EncodedRows
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_PARTITIONS, check_rows
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.partitions.partition import PartitionLog
from kohort.wire.messages import describe_producers as wire

#: Producers that are described in one turn of the loop, each in 9 microseconds; a partition counts as one of them.
PRODUCERS_PER_TURN: Final = 500
#: The bytes behind the producers of a partition: its tags, and those of its topic.
_TAGS: Final = 2


def handle(context: BrokerContext, request: Request, message: wire.DescribeProducersRequest) -> None:
    """Answer for each partition that this broker leads."""
    check_rows(sum(len(topic.partition_indexes) for topic in message.topics), MOST_PARTITIONS, "partitions")
    # Each partition has a row of its topic of its own: one may have many thousand producers.
    asked = [(topic.name, number) for topic in message.topics for number in topic.partition_indexes]
    context.cooperative_work.run(_steps(context, request, asked))


def _steps(context: BrokerContext, request: Request, asked: Sequence[tuple[str, int]]) -> Iterator[None]:
    answer = EncodedRows[wire.TopicResponse](request.route, lambda rows: wire.DescribeProducersResponse(topics=rows))
    done = 0
    for name, number in asked:
        found = _find(context, request, name, number)
        if isinstance(found, wire.PartitionResponse):
            answer.add([wire.TopicResponse(name=name, partitions=[found])])
            ids = []
        else:
            row = EncodedRows(request.route, partial(_respond, name, number), behind=_TAGS)
            ids = found.producers.ids()
            for first in range(0, len(ids), PRODUCERS_PER_TURN):
                row.add(_describe(found, ids[first : first + PRODUCERS_PER_TURN]))
                if len(ids) > PRODUCERS_PER_TURN:
                    yield
            answer.add_of(row.body(), 1)
        done += 1 + len(ids)
        if done >= PRODUCERS_PER_TURN:
            done = 0
            yield
        if not request.is_open:
            return
    request.answer(answer.body())


def _respond(name: str, number: int, producers: list[wire.ProducerState]) -> wire.DescribeProducersResponse:
    partition = wire.PartitionResponse(partition_index=number, active_producers=producers)
    return wire.DescribeProducersResponse(topics=[wire.TopicResponse(name=name, partitions=[partition])])


def _find(context: BrokerContext, request: Request, name: str, number: int) -> PartitionLog | wire.PartitionResponse:
    """Return the log of a partition, or the row with its error."""
    if not request.rights.allows(AclOperation.READ, ResourceType.TOPIC, name):
        return _refusal(number, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    log = context.cluster.partition(context.cluster.topic(name), number)
    if log is None:
        return _refusal(number, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{number}")
    refused = context.leadership.refusal(log, -1)
    if refused is not ErrorCode.NONE:
        return _refusal(number, refused, f"this broker does not lead {name}-{number}")
    return log


def _describe(log: PartitionLog, ids: Sequence[int]) -> list[wire.ProducerState]:
    # An abort marker of the administrator ends what hangs before a hole, too.
    hanging = {each.producer_id: each.first_offset for each in log.producers.hanging}
    return [
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
        for row in log.producers.rows(ids)
    ]


def _refusal(number: int, code: ErrorCode, text: str) -> wire.PartitionResponse:
    return wire.PartitionResponse(partition_index=number, error_code=code, error_message=text)
