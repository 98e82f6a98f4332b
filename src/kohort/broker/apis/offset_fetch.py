"""OffsetFetch (key 9): the committed offsets of groups.

Version 2: null asks for every topic, and errors stand once per answer instead of at each partition. Version 7: only
offsets that no open transaction may replace (KIP-447). Version 8: several groups. Version 9: members of KIP-848 groups
send member id and epoch. Version 10: topics by id.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kohort.broker.chunked_responses import answer_rows, rows_of_coordinators
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_NAMED, MOST_PARTITIONS, check_rows
from kohort.coordinator import commands
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID
from kohort.wire.messages import offset_fetch as wire


def handle(context: BrokerContext, request: Request, message: wire.OffsetFetchRequest) -> None:
    """Ask the coordinator of each group."""
    if request.version < 8:
        _ask_one(context, request, message)
        return
    groups = list(_each_once(message.groups))
    check_rows(len(groups), MOST_NAMED, "groups")
    topics = [topic for group in groups for topic in group.topics or ()]
    check_rows(sum(len(topic.partition_indexes) for topic in topics), MOST_PARTITIONS, "partitions")
    command_of = partial(_command, context, message, request.version)
    rows_of = rows_of_coordinators(context.runtime, command_of, partial(_group, context, request.version))
    answer_rows(context, request, groups, rows_of, lambda rows: wire.OffsetFetchResponse(groups=rows))


def _each_once(groups: list[wire.OffsetFetchRequestGroup]) -> Iterator[wire.OffsetFetchRequestGroup]:
    """Yield the requested groups; skip a repeated request for all offsets of a group."""
    # The answer for all offsets may be large, so it is given once however often it is asked for.
    whole: set[str] = set()
    for group in groups:
        if group.topics is None:
            if group.group_id in whole:
                continue
            whole.add(group.group_id)
        yield group


def _ask_one(context: BrokerContext, request: Request, message: wire.OffsetFetchRequest) -> None:
    topics = message.topics
    check_rows(sum(len(topic.partition_indexes) for topic in topics or ()), MOST_PARTITIONS, "partitions")
    partitions = (
        None
        if topics is None
        else tuple(dict.fromkeys((topic.name, number) for topic in topics for number in topic.partition_indexes))
    )
    token = context.runtime.next_token()
    command = commands.FetchOffsets(
        cause=token,
        request=token,
        group_id=message.group_id,
        partitions=partitions,
        require_stable=message.require_stable,
    )

    def translate(request: Request, body: commands.FetchOffsetsReply | commands.Refusal) -> wire.OffsetFetchResponse:
        if not isinstance(body, commands.Refusal):
            return wire.OffsetFetchResponse(topics=list(_topics(body)))
        # Version 1 has no error for the whole answer: each partition repeats it.
        if request.version >= 2:
            return wire.OffsetFetchResponse(error_code=body.code)
        rows = [
            wire.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    wire.OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=-1, metadata="", error_code=body.code
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in topics or ()
        ]
        return wire.OffsetFetchResponse(topics=rows)

    context.runtime.answer(request, command, translate)


def _topics(body: commands.FetchOffsetsReply) -> Iterator[wire.OffsetFetchResponseTopic]:
    """Yield the offsets by topic, in the order of the topics in the reply."""
    rows: dict[str, list[wire.OffsetFetchResponsePartition]] = {}
    for found in body.offsets:
        rows.setdefault(found.topic, []).append(
            wire.OffsetFetchResponsePartition(
                partition_index=found.partition,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=found.error,
            )
        )
    for topic, partitions in rows.items():
        yield wire.OffsetFetchResponseTopic(name=topic, partitions=partitions)


def _command(
    context: BrokerContext, message: wire.OffsetFetchRequest, version: int, group: wire.OffsetFetchRequestGroup
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
        cause=token,
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
    context: BrokerContext,
    version: int,
    asked: wire.OffsetFetchRequestGroup,
    reply: commands.FetchOffsetsReply | commands.Refusal,
) -> wire.OffsetFetchResponseGroup:
    if isinstance(reply, commands.Refusal):
        return wire.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=reply.code)
    rows: dict[tuple[str, bytes], list[wire.OffsetFetchResponsePartitions]] = {}
    for found in reply.offsets:
        if version >= 10 and found.topic_id == ZERO_TOPIC_ID:
            # A topic that is gone has no id to be named by.
            continue
        rows.setdefault((found.topic, found.topic_id), []).append(
            wire.OffsetFetchResponsePartitions(
                partition_index=found.partition,
                committed_offset=found.offset,
                committed_leader_epoch=found.leader_epoch,
                metadata=found.metadata,
                error_code=found.error,
            )
        )
    topics = [
        wire.OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=partitions)
        for (name, topic_id), partitions in rows.items()
    ]
    if version >= 10:
        topics += _unknown_topics(context, asked)
    return wire.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _unknown_topics(
    context: BrokerContext, asked: wire.OffsetFetchRequestGroup
) -> Iterator[wire.OffsetFetchResponseTopics]:
    for topic in asked.topics or ():
        if context.cluster.topic_by_id(topic.topic_id) is None:
            yield wire.OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=[
                    wire.OffsetFetchResponsePartitions(
                        partition_index=number, committed_offset=-1, metadata="", error_code=ErrorCode.UNKNOWN_TOPIC_ID
                    )
                    for number in topic.partition_indexes
                ],
            )
