"""OffsetFetch (key 9): the committed offsets of groups.

Version 2: null asks for every topic, and errors stand once per answer instead of at each partition. Version 7: only
offsets that no open transaction may replace (KIP-447). Version 8: several groups. Version 9: members of KIP-848 groups
send member id and epoch. Version 10: topics by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from kohort.broker.access.rights import Rights
from kohort.broker.chunked_responses import GROUP_DENIED, answer_rows, rows_asked_for
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_NAMED, MOST_PARTITIONS, check_rows
from kohort.coordinator import commands
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID
from kohort.security.access_control import AclOperation, ResourceType
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
    rights = request.rights

    def ask(group: wire.OffsetFetchRequestGroup, take: Callable[[Any], None]) -> None:
        if rights.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group.group_id):
            context.runtime.ask(_command(context, request, message, group), take)
        else:
            take(GROUP_DENIED)

    rows_of = rows_asked_for(ask, partial(_group, context, request))
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
    rights = request.rights
    asked = topics or ()
    if rights.is_restricted:
        asked = [topic for topic in asked if _may_describe(rights, topic.name)]
    partitions = (
        None
        if topics is None
        else tuple(dict.fromkeys((topic.name, number) for topic in asked for number in topic.partition_indexes))
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
            denied = [topic for topic in topics or () if not _may_describe(rights, topic.name)]
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return wire.OffsetFetchResponse(topics=[*_topics(rights, body), *(_refuse(each, code) for each in denied)])
        # Version 1 has no error for the whole answer: each partition repeats it.
        if request.version >= 2:
            return wire.OffsetFetchResponse(error_code=body.code)
        return wire.OffsetFetchResponse(topics=[_refuse(topic, body.code) for topic in topics or ()])

    if rights.allows(AclOperation.DESCRIBE, ResourceType.GROUP, message.group_id):
        context.runtime.answer(request, command, translate)
    else:
        request.answer(translate(request, GROUP_DENIED))


def _may_describe(rights: Rights, name: str) -> bool:
    return rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _refuse(topic: wire.OffsetFetchRequestTopic, code: ErrorCode) -> wire.OffsetFetchResponseTopic:
    return wire.OffsetFetchResponseTopic(
        name=topic.name,
        partitions=[
            wire.OffsetFetchResponsePartition(partition_index=number, committed_offset=-1, metadata="", error_code=code)
            for number in topic.partition_indexes
        ],
    )


def _visible(rights: Rights, body: commands.FetchOffsetsReply) -> Iterable[commands.CommittedOffset]:
    """Return the offsets of topics that may be described; the others are left out of an answer with all offsets."""
    if not rights.is_restricted:
        return body.offsets
    found = [each for each in body.offsets if _may_describe(rights, each.topic)]
    if not rights.is_partial:
        return found
    return [
        each if rights.allows_partition(each.topic, each.topic_id, each.partition) else _hidden(each) for each in found
    ]


def _hidden(found: commands.CommittedOffset) -> commands.CommittedOffset:
    """Return the row for a partition that a token leaves out."""
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return found._replace(offset=-1, leader_epoch=-1, metadata="", error=code)


def _topics(rights: Rights, body: commands.FetchOffsetsReply) -> Iterator[wire.OffsetFetchResponseTopic]:
    """Yield the offsets by topic, in the order of the topics in the reply."""
    rows: dict[str, list[wire.OffsetFetchResponsePartition]] = {}
    for found in _visible(rights, body):
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
    context: BrokerContext, request: Request, message: wire.OffsetFetchRequest, group: wire.OffsetFetchRequestGroup
) -> commands.FetchOffsets:
    rights, version = request.rights, request.version
    partitions: tuple[tuple[str, int], ...] | None = None
    if group.topics is not None:
        partitions = tuple(
            dict.fromkeys(
                (name, number)
                for topic in group.topics
                if (name := _name(context, topic.name, topic.topic_id, version)) is not None
                and (not rights.is_restricted or _may_describe(rights, name))
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
    request: Request,
    asked: wire.OffsetFetchRequestGroup,
    reply: commands.FetchOffsetsReply | commands.Refusal,
) -> wire.OffsetFetchResponseGroup:
    rights, version = request.rights, request.version
    if isinstance(reply, commands.Refusal):
        return wire.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=reply.code)
    rows: dict[tuple[str, bytes], list[wire.OffsetFetchResponsePartitions]] = {}
    for found in _visible(rights, reply):
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
    if rights.is_restricted:
        topics += _denied_topics(context, request, asked)
    return wire.OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


def _denied_topics(
    context: BrokerContext, request: Request, asked: wire.OffsetFetchRequestGroup
) -> Iterator[wire.OffsetFetchResponseTopics]:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in asked.topics or ():
        name = _name(context, topic.name, topic.topic_id, request.version)
        if name is not None and not _may_describe(request.rights, name):
            yield wire.OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    wire.OffsetFetchResponsePartitions(
                        partition_index=number, committed_offset=-1, metadata="", error_code=code
                    )
                    for number in topic.partition_indexes
                ],
            )


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
