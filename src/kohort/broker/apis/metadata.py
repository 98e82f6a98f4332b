"""Metadata (key 3): the brokers, and the requested topics.

A topic that was deleted is refused by its id under the name that it had, where Apache Kafka says none: its Java
consumer takes a null name for a fault of its own, in the middle of a poll, and loses the answers that came with it,
mostly that to its heartbeat. A client that asks with a null name is told none, as it expects.

Version 0: an empty list asks for every topic; from 1 on null does. Version 4: the client may forbid auto-creation,
which earlier versions always allow. Version 10: topic ids. Version 12: topics may be asked for by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from kohort.broker.chunked_responses import EncodedRows, Gather
from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.leadership import NO_NODE, Leadership
from kohort.broker.topics.topic_operations import Outcome, Wanted, code_of
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.catalog import check_topic_name
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.topics import Topic
from kohort.wire.messages import metadata as wire

#: Topics and partitions of an answer that are described in one turn of the loop, or little more.
ROWS_AT_ONCE: Final = 1_000


def handle(context: BrokerContext, request: Request, message: wire.MetadataRequest) -> None:
    """Describe the cluster; create missing topics where client and broker allow it."""
    failures: dict[str, ErrorCode] = {}
    missing = _missing(context, message)
    if missing and request.connection.rights.is_restricted:
        missing, denied = _split_creatable(request, missing)
        failures.update(dict.fromkeys(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    # More topics than a minute allows are not tried; an invalid name is still reported as invalid.
    most = context.settings.values["auto.create.topics.per.minute"]
    failures.update(dict.fromkeys(missing[most:], ErrorCode.POLICY_VIOLATION))
    del missing[most:]

    def answer(_: list[bool]) -> None:
        context.cooperative_work.run(_steps(context, request, message, failures))

    if not missing:
        answer([])
        return
    whole = Gather(len(missing), answer)
    wanted = []
    for index, name in enumerate(missing):
        wanted.append(_creation(context, request, name, failures, whole.slot(index)))
    # The answer waits until the topics exist: Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION at once, and its
    # clients ask again a tenth of a second later.
    context.cluster.work.ask(wanted)


def _missing(context: BrokerContext, message: wire.MetadataRequest) -> list[str]:
    """Return the topics to create, each once."""
    if not message.topics or not message.allow_auto_topic_creation:
        return []
    if not context.settings.values["auto.create.topics.enable"]:
        return []
    known = context.cluster.topics
    asked = [row.name for row in message.topics if row.topic_id == ZERO_TOPIC_ID]
    return [name for name in dict.fromkeys(asked) if name is not None and name not in known]


def _split_creatable(request: Request, missing: list[str]) -> tuple[list[str], list[str]]:
    """Split missing topics into those that the client may create, and those that it may only describe."""
    rights, topic = request.rights, ResourceType.TOPIC
    # What may not be described is not looked for: `_answer` refuses it, whether it is there or not.
    missing = [name for name in missing if rights.allows(AclOperation.DESCRIBE, topic, name)]
    if not missing or rights.allows(AclOperation.CREATE, ResourceType.CLUSTER):
        return missing, []
    allowed = [name for name in missing if rights.allows(AclOperation.CREATE, topic, name)]
    return allowed, [name for name in missing if name not in set(allowed)]


def _creation(
    context: BrokerContext,
    request: Request,
    name: str,
    failures: dict[str, ErrorCode],
    answer: Callable[[bool], None],
) -> Wanted:
    def done(why: Outcome) -> None:
        if isinstance(why, StorageError):
            context.disk_full.refused(f"topic-{name}", why)
        if why is not None and name not in context.cluster.topics:
            # If the topic exists now, another client was faster.
            failures[name] = code_of(why)
        answer(why is None)

    def check() -> tuple[int, dict[str, str]]:
        context.new_topics.take()
        request.take_mutations(context.settings.values["num.partitions"])
        return -1, {}

    return context.cluster.creation(name, check, done)


def _steps(
    context: BrokerContext, request: Request, message: wire.MetadataRequest, failures: Mapping[str, ErrorCode]
) -> Iterator[None]:
    """Describe all topics, a few in a turn of the loop, and answer."""
    asked = message.topics
    answers: Iterable[wire.MetadataResponseTopic]
    # Version 0 has no null list: there an empty one asks for every topic.
    if asked is None or (request.version == 0 and not asked):
        rights, topics = request.rights, list(context.cluster.topics.values())
        if rights.is_restricted:
            # Of all topics, those that may not be described are left out.
            topics = [each for each in topics if rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, each.name)]
        answers = (_describe(context, topic) for topic in topics)
    else:
        # A topic that is named several times is described once, as by Apache Kafka.
        once = {(topic.topic_id, topic.name): topic for topic in asked}
        answers = (_answer(context, request, topic, failures) for topic in once.values())
    rows: list[wire.MetadataResponseTopic] = []
    done = 0
    for row in answers:
        rows.append(row)
        done += 1 + len(row.partitions)
        if done >= ROWS_AT_ONCE:
            done = 0
            yield
            if not request.is_open:
                return
    # Deleted ids come first: a client that keeps one id per name then keeps that of the re-created topic.
    rows.sort(key=lambda row: row.error_code != ErrorCode.UNKNOWN_TOPIC_ID)
    if sum(1 + len(row.partitions) for row in rows) < ROWS_AT_ONCE:
        if request.is_open:
            request.answer(_respond(context, request, message, rows))
        return
    yield from _encode(context, request, message, rows)


def _encode(
    context: BrokerContext, request: Request, message: wire.MetadataRequest, rows: list[wire.MetadataResponseTopic]
) -> Iterator[None]:
    """Encode an answer with many rows, a few in a turn of the loop, and send it."""
    # The cluster's operations, and the error of the whole answer.
    behind = 4 if 8 <= request.version <= 10 else 2 if request.version >= 13 else 0
    encoded = EncodedRows(request.route, partial(_respond, context, request, message), behind=behind)
    slice_begin = done = 0
    for index, row in enumerate(rows, start=1):
        done += 1 + len(row.partitions)
        if done >= ROWS_AT_ONCE or index == len(rows):
            yield
            if not request.is_open:
                return
            encoded.add(rows[slice_begin:index])
            slice_begin, done = index, 0
    request.answer(encoded.body())


def _respond(
    context: BrokerContext, request: Request, message: wire.MetadataRequest, topics: list[wire.MetadataResponseTopic]
) -> wire.MetadataResponse:
    if message.include_topic_authorized_operations:
        operations, kind = request.rights.operations, ResourceType.TOPIC
        for row in topics:
            if row.error_code == ErrorCode.NONE and row.name is not None:
                row.topic_authorized_operations = operations(kind, row.name)
    nodes = context.leadership.nodes(request.connection)
    return wire.MetadataResponse(
        brokers=[wire.MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port) for node in nodes],
        cluster_id=context.cluster.cluster_id,
        controller_id=nodes[0].node_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(request)
        if message.include_cluster_authorized_operations
        else wire.OPERATIONS_NOT_REQUESTED,
    )


def cluster_operations(request: Request) -> int:
    """Return the client's authorized operations on the cluster; none where it may not describe it."""
    rights, cluster = request.rights, ResourceType.CLUSTER
    return rights.operations(cluster) if rights.allows(AclOperation.DESCRIBE, cluster) else 0


def _answer(
    context: BrokerContext, request: Request, asked: wire.MetadataRequestTopic, failures: Mapping[str, ErrorCode]
) -> wire.MetadataResponseTopic:
    if asked.topic_id != ZERO_TOPIC_ID or asked.name is None:
        return _answer_by_id(context, request, asked)
    if request.connection.rights.is_restricted and not _may_describe(request, asked.name):
        return _refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=asked.name)
    topic = context.cluster.topic(asked.name)
    if topic is not None:
        return _describe(context, topic)
    code = failures.get(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return _refuse(code, name=asked.name)
    try:
        check_topic_name(asked.name)
    except Refused as refused:
        code = refused.code
    return _refuse(code, name=asked.name)


def _may_describe(request: Request, name: str) -> bool:
    return request.rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)


def _answer_by_id(
    context: BrokerContext, request: Request, asked: wire.MetadataRequestTopic
) -> wire.MetadataResponseTopic:
    if request.version < 12:
        return _refuse(ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id)
    topic = context.cluster.topic_by_id(asked.topic_id)
    if topic is None:
        # The former name keeps Java's consumer from failing on a null one; see the head of this module.
        name = None if asked.name is None else context.cluster.former_name(asked.topic_id)
        if name is not None and not _may_describe(request, name):
            name = None
        return _refuse(ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=asked.topic_id)
    if request.connection.rights.is_restricted and not _may_describe(request, topic.name):
        # Ids are no secret, names are: Java's consumer gets none and says so, as from Apache Kafka.
        return _refuse(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=None, topic_id=asked.topic_id)
    return _describe(context, topic)


def _refuse(code: ErrorCode, *, name: str | None, topic_id: bytes = ZERO_TOPIC_ID) -> wire.MetadataResponseTopic:
    return wire.MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id)


def _describe(context: BrokerContext, topic: Topic) -> wire.MetadataResponseTopic:
    return wire.MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            _describe_partition(context.leadership, number, log) for number, log in enumerate(topic.partitions)
        ],
    )


def _describe_partition(leadership: Leadership, number: int, log: PartitionLog) -> wire.MetadataResponsePartition:
    leader_id = leadership.leader_of(log)
    replicas = list(leadership.replicas)
    return wire.MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader_id == NO_NODE else ErrorCode.NONE,
        partition_index=number,
        leader_id=leader_id,
        leader_epoch=log.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
        offline_replicas=leadership.offline_replicas(log),
    )
