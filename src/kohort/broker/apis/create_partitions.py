"""CreatePartitions (key 37): bring topics to a larger number of partitions.

Versions 0 to 3 are served. A manual assignment may only name existing brokers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from kohort.broker.chunked_responses import Gather, answer_rows, rows_at_once
from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.topics.topic_operations import Outcome, Wanted, ask_within, code_of
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.storage.topics import Topic
from kohort.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

#: A topic that was asked for, and why it did not grow; `None` if it did.
_Told = tuple[CreatePartitionsTopic, Outcome]


def handle(context: BrokerContext, request: Request, message: CreatePartitionsRequest) -> None:
    """Grow each topic independently; a refused one does not hold up the others."""
    counts = Counter(topic.name for topic in message.topics)
    topics = list({topic.name: topic for topic in message.topics}.values())

    def answer(told: Sequence[_Told]) -> None:
        answer_rows(context.loop.call_soon, request, told, rows_at_once(_row), _response)

    def validated(asked: CreatePartitionsTopic) -> CreatePartitionsTopicResult:
        return _row((asked, _validate(context, asked, is_only=counts[asked.name] == 1)))

    if message.validate_only or not topics:
        answer_rows(context.loop.call_soon, request, topics, rows_at_once(validated), _response)
        return
    whole = Gather(len(topics), answer)
    wanted = []
    for index, asked in enumerate(topics):
        tell = whole.slot(index)
        if counts[asked.name] > 1:
            tell((asked, _named_twice(asked)))
        else:
            wanted.append(_growth(context, asked, tell))
    work, on_refusal = context.cluster.work, context.outage.refused
    ask_within(context.loop, work, wanted, timeout_ms=message.timeout_ms, on_refusal=on_refusal)


def _response(rows: list[CreatePartitionsTopicResult]) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=rows)


def _named_twice(asked: CreatePartitionsTopic) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, f"topic {asked.name} is named twice in the request")


def _growth(context: BrokerContext, asked: CreatePartitionsTopic, tell: Callable[[_Told], None]) -> Wanted:
    def check(topic: Topic) -> None:
        _check_assignments(asked, asked.count - len(topic.partitions), context.leadership.replicas)

    def done(why: Outcome) -> None:
        if isinstance(why, StorageError):
            context.outage.refused(f"topic-{asked.name}", why)
        tell((asked, why))

    return context.cluster.growth(asked.name, asked.count, check, done)


def _validate(context: BrokerContext, asked: CreatePartitionsTopic, *, is_only: bool) -> Outcome:
    """Return the reason why the topic cannot grow now; `None` if it can."""
    try:
        if not is_only:
            raise _named_twice(asked)
        topic = context.cluster.check_growth(asked.name, asked.count)
        _check_assignments(asked, asked.count - len(topic.partitions), context.leadership.replicas)
    except Refused as why:
        return why
    return None


def _row(each: _Told) -> CreatePartitionsTopicResult:
    asked, why = each
    if why is None:
        return CreatePartitionsTopicResult(name=asked.name, error_code=ErrorCode.NONE)
    return CreatePartitionsTopicResult(name=asked.name, error_code=code_of(why), error_message=str(why))


def _check_assignments(asked: CreatePartitionsTopic, added: int, replicas: Sequence[int]) -> None:
    if asked.assignments is None:
        return
    which = f"broker {replicas[0]}" if len(replicas) == 1 else f"the brokers {list(replicas)}"
    if len(asked.assignments) != added or any(sorted(row.broker_ids) != list(replicas) for row in asked.assignments):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{added} assignments to {which} are expected, or none")
