"""CreatePartitions (key 37): bring topics to a larger number of partitions.

A manual assignment may only name existing brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kohort.broker.apis.create_topics import change_each
from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.topic_operations import Outcome, Wanted, code_of
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.topics import Topic
from kohort.wire.messages import create_partitions as wire

#: A topic that was asked for, and why it did not grow; `None` if it did.
_Told = tuple[wire.CreatePartitionsTopic, Outcome]


def handle(context: BrokerContext, request: Request, message: wire.CreatePartitionsRequest) -> None:
    """Grow each topic independently; a refused one does not hold up the others."""
    rights, kind = request.rights, ResourceType.TOPIC
    change_each(
        context,
        request,
        message.topics,
        change=partial(_growth, context, request),
        timeout_ms=None if message.validate_only else message.timeout_ms,
        row_of=_row,
        validated=partial(_validated, context, request),
        response_of=lambda rows: wire.CreatePartitionsResponse(results=rows),
        may_change=lambda name: rights.allows(AclOperation.ALTER, kind, name),
    )


def _growth(
    context: BrokerContext, request: Request, asked: wire.CreatePartitionsTopic, tell: Callable[[_Told], None]
) -> Wanted:
    def check(topic: Topic) -> None:
        added = asked.count - len(topic.partitions)
        _check_assignments(asked, added, context.leadership.replicas)
        request.take_mutations(added)

    def done(why: Outcome) -> None:
        if isinstance(why, StorageError):
            context.disk_full.refused(f"topic-{asked.name}", why)
        tell((asked, why))

    return context.cluster.growth(asked.name, asked.count, check, done)


def _validated(
    context: BrokerContext, request: Request, asked: wire.CreatePartitionsTopic
) -> wire.CreatePartitionsTopicResult:
    """Return the result that the growth would have now."""
    try:
        topic = context.cluster.check_growth(asked.name, asked.count)
        added = asked.count - len(topic.partitions)
        _check_assignments(asked, added, context.leadership.replicas)
        request.take_mutations(added)
    except Refused as why:
        return _row((asked, why))
    return _row((asked, None))


def _row(each: _Told) -> wire.CreatePartitionsTopicResult:
    asked, why = each
    if why is None:
        return wire.CreatePartitionsTopicResult(name=asked.name, error_code=ErrorCode.NONE)
    return wire.CreatePartitionsTopicResult(name=asked.name, error_code=code_of(why), error_message=str(why))


def _check_assignments(asked: wire.CreatePartitionsTopic, added: int, replicas: Sequence[int]) -> None:
    if asked.assignments is None:
        return
    which = f"broker {replicas[0]}" if len(replicas) == 1 else f"the brokers {list(replicas)}"
    if len(asked.assignments) != added or any(sorted(row.broker_ids) != list(replicas) for row in asked.assignments):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{added} assignments to {which} are expected, or none")
