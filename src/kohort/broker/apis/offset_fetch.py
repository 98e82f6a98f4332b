"""OffsetFetch (key 9): the committed offsets of groups.

Versions 1 to 10 are served. Version 2: null asks for every topic, and errors stand once per answer instead of at each
partition. Version 7: only offsets that no open transaction may replace (KIP-447). Version 8: several groups.
Version 9: members of KIP-848 groups send member id and epoch. Version 10: topics by id.
"""

from __future__ import annotations

from collections.abc import Iterator

from kohort.broker.chunked_responses import answer_rows, rows_of_coordinators
from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.limits.requests import MOST_NAMED, MOST_PARTITIONS, check_rows
from kohort.coordinator import commands
from kohort.coordinator.commands import Refusal
from kohort.coordinator.decision import ReplyBody
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID, CauseId
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)


def handle(context: BrokerContext, request: Request, message: OffsetFetchRequest) -> None:
    """Ask the coordinator of each group."""
    if request.version < 8:
        _ask_one(context, request, message)
        return
    groups = list(_each_once(message.groups))
    check_rows(len(groups), MOST_NAMED, "groups")
    topics = [topic for group in groups for topic in group.topics or ()]
    check_rows(sum(len(topic.partition_indexes) for topic in topics), MOST_PARTITIONS, "partitions")
    version = request.version

    def command_of(group: OffsetFetchRequestGroup) -> commands.FetchOffsets:
        return _command(context, group, message, version)

    def row_of(group: OffsetFetchRequestGroup, reply: ReplyBody) -> OffsetFetchResponseGroup:
        return _group(context, group, reply, version)

    rows_of = rows_of_coordinators(context.runtime, command_of, row_of)
    answer_rows(context.loop.call_soon, request, groups, rows_of, lambda rows: OffsetFetchResponse(groups=rows))


def _each_once(groups: list[OffsetFetchRequestGroup]) -> Iterator[OffsetFetchRequestGroup]:
    """Yield the requested groups; skip a repeated request for all offsets of a group."""
    # The answer for all offsets may be large, so it is given once however often it is asked for.
    whole: set[str] = set()
    for group in groups:
        if group.topics is None:
            if group.group_id in whole:
                continue
            whole.add(group.group_id)
        yield group


def _ask_one(context: BrokerContext, request: Request, message: OffsetFetchRequest) -> None:
    topics = message.topics
    check_rows(sum(len(topic.partition_indexes) for topic in topics or ()), MOST_PARTITIONS, "partitions")
    partitions = (
        None
        if topics is None
        else tuple(dict.fromkeys((topic.name, number) for topic in topics for number in topic.partition_indexes))
    )
    token = context.runtime.next_token()
    command = commands.FetchOffsets(
        cause=CauseId(token),
        request=token,
        group_id=message.group_id,
        partitions=partitions,
        require_stable=message.require_stable,
    )

    def translate(request: Request, body: commands.FetchOffsetsReply | Refusal) -> OffsetFetchResponse:
        if not isinstance(body, Refusal):
            return OffsetFetchResponse(topics=list(_topics(body)))
        # Version 1 has no error for the whole answer: each partition repeats it.
        if request.version >= 2:
            return OffsetFetchResponse(error_code=body.code)
        rows = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=-1, metadata="", error_code=body.code
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in topics or ()
        ]
        return OffsetFetchResponse(topics=rows)

    context.runtime.answer(request, command, translate)


def _topics(body: commands.FetchOffsetsReply) -> Iterator[OffsetFetchResponseTopic]:
    """Yield the offsets by topic, in the order of the topics in the reply."""
    rows: dict[str, list[OffsetFetchResponsePartition]] = {}
    for found in body.offsets:
        rows.setdefault(found.topic, []).append(
            OffsetFetchResponsePartition(
                partition_index=found.partition,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=found.error,
            )
        )
    for topic, partitions in rows.items():
        yield OffsetFetchResponseTopic(name=topic, partitions=partitions)


def _command(
    context: BrokerContext, group: OffsetFetchRequestGroup, message: OffsetFetchRequest, version: int
) -> commands.FetchOffsets:
    partitions: tuple[tuple[str, int], ...] | None = None
    if group.topics is not None:
        partitions = tuple(
            dict.fromkeys(
                (name, number)
                for topic in group.topics
                if (name := _name(context, topic.name, topic.topic_id, version)) is not None
                for number in topic.partition_indexes
            )
        )
    token = context.runtime.next_token()
    return commands.FetchOffsets(
        cause=CauseId(token),
        request=token,
        group_id=group.group_id,
        partitions=partitions,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        require_stable=message.require_stable,
    )


def _name(context: BrokerContext, name: str, topic_id: bytes, version: int) -> str | None:
    """Return the topic's name, `None` for an unknown id."""
    if version < 10:
        return name
    topic = context.cluster.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _group(
    context: BrokerContext, asked: OffsetFetchRequestGroup, reply: ReplyBody, version: int
) -> OffsetFetchResponseGroup:
    if isinstance(reply, Refusal):
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=reply.code)
    assert isinstance(reply, commands.FetchOffsetsReply)
    rows: dict[tuple[str, bytes], list[OffsetFetchResponsePartitions]] = {}
    for found in reply.offsets:
        if version >= 10 and found.topic_id == ZERO_TOPIC_ID:
            # A topic that is gone has no id to be named by.
            continue
        rows.setdefault((found.topic, found.topic_id), []).append(
            OffsetFetchResponsePartitions(
                partition_index=found.partition,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=found.error,
            )
        )
    topics = [
        OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)
        for (name, topic_id), partitions in rows.items()
    ]
    if version >= 10:
        topics += _unknown_topics(context, asked)
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _unknown_topics(context: BrokerContext, asked: OffsetFetchRequestGroup) -> Iterator[OffsetFetchResponseTopics]:
    for topic in asked.topics or ():
        if context.cluster.topic_by_id(topic.topic_id) is None:
            yield OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=-1,
                        metadata="",
                        error_code=ErrorCode.UNKNOWN_TOPIC_ID,
                    )
                    for number in topic.partition_indexes
                ],
            )
