"""CreateTopics (key 19).

Version 4: -1 stands for the broker's number of partitions and replicas (KIP-464). Version 5: the answer tells what was
created (KIP-525). Version 7: topic ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from kohort.broker.access.rights import Rights
from kohort.broker.chunked_responses import Gather, Row, answer_rows, rows_at_once
from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.configs import DEFAULT_SOURCE, TOPIC_SOURCE, check_topic_configs, log_idle, topic_defaults
from kohort.broker.topics.topic_operations import Outcome, Wanted, ask_within, code_of
from kohort.errors import ConfigError, ErrorCode, Refused, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.topics import Topic
from kohort.wire.messages import create_topics as wire
from kohort.wire.messages.create_partitions import CreatePartitionsTopic
from kohort.wire.schema import Message

#: A topic to create, or to grow.
AskedTopic = TypeVar("AskedTopic", wire.CreatableTopic, CreatePartitionsTopic)
#: A requested topic and its outcome: the topic (`None` if it is deleted again already), or why it was not created.
_Told = tuple[wire.CreatableTopic, Topic | Refused | ConfigError | StorageError | None]


def handle(context: BrokerContext, request: Request, message: wire.CreateTopicsRequest) -> None:
    """Create each topic independently; a refused one does not hold up the others."""
    rights, kind = request.rights, ResourceType.TOPIC
    # The right to create anything is asked first, as by Apache Kafka.
    is_free = rights.allows(AclOperation.CREATE, ResourceType.CLUSTER)
    change_each(
        context,
        request,
        message.topics,
        change=partial(_creation, context, request),
        timeout_ms=None if message.validate_only else message.timeout_ms,
        row_of=partial(_row, context, rights),
        validated=partial(_validated, context, request),
        response_of=lambda rows: wire.CreateTopicsResponse(topics=rows),
        may_change=lambda name: is_free or rights.allows(AclOperation.CREATE, kind, name),
    )


def change_each(
    context: BrokerContext,
    request: Request,
    topics: Sequence[AskedTopic],
    *,
    change: Callable[[AskedTopic, Callable[[tuple[AskedTopic, Any]], None]], Wanted],
    timeout_ms: int | None,
    row_of: Callable[[tuple[AskedTopic, Any]], Row],
    validated: Callable[[AskedTopic], Row],
    response_of: Callable[[list[Row]], Message],
    may_change: Callable[[str], bool],
) -> None:
    """Answer with a row for each topic after its change, or with the row of the validation alone.

    Args:
        change: builds the change of a topic, which hands on the topic and its outcome.
        timeout_ms: of the changes; `None` only validates them.
        row_of: the row of a topic and its outcome.
        validated: the row that a topic would get now.
        may_change: whether the client may change the topic of that name.
    """
    counts = Counter(topic.name for topic in topics)
    once = list({topic.name: topic for topic in topics}.values())

    def refusal(asked: AskedTopic) -> Refused | None:
        if counts[asked.name] > 1:
            return Refused(ErrorCode.INVALID_REQUEST, f"topic {asked.name} is named twice in the request")
        if not may_change(asked.name):
            return Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        return None

    def validate(asked: AskedTopic) -> Row:
        refused = refusal(asked)
        return validated(asked) if refused is None else row_of((asked, refused))

    if timeout_ms is None or not once:
        answer_rows(context, request, once, rows_at_once(validate), response_of)
        return

    def answer(told: Sequence[tuple[AskedTopic, Any]]) -> None:
        # A row may show all configs of its topic: rows are made a few a turn, once all is known.
        answer_rows(context, request, told, rows_at_once(row_of), response_of)

    whole = Gather[tuple[AskedTopic, Any]](len(once), answer)
    wanted = []
    for index, asked in enumerate(once):
        tell, refused = whole.slot(index), refusal(asked)
        if refused is not None:
            tell((asked, refused))
        else:
            wanted.append(change(asked, tell))
    work, on_refusal = context.cluster.work, context.disk_full.refused
    ask_within(context.loop, work, wanted, timeout_ms=timeout_ms, on_refusal=on_refusal)


def _creation(
    context: BrokerContext, request: Request, asked: wire.CreatableTopic, tell: Callable[[_Told], None]
) -> Wanted:
    def check() -> tuple[int, dict[str, str]]:
        count, configs = _asked_partitions(context, asked), _asked_configs(asked)
        request.take_mutations(count if count > 0 else context.settings.values["num.partitions"])
        return count, configs

    def done(why: Outcome) -> None:
        if isinstance(why, StorageError):
            context.disk_full.refused(f"topic-{asked.name}", why)
        if why is not None:
            tell((asked, why))
            return
        configs = _asked_configs(asked)
        log_idle(asked.name, configs, configs)
        tell((asked, context.cluster.topics.get(asked.name)))

    return context.cluster.creation(asked.name, check, done)


def _row(context: BrokerContext, rights: Rights, each: _Told) -> wire.CreatableTopicResult:
    asked, told = each
    if told is None or isinstance(told, Topic):
        if not rights.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, asked.name):
            return _describe_created(asked, told)
        return _describe(context, asked, told, _asked_configs(asked))
    return wire.CreatableTopicResult(name=asked.name, error_code=code_of(told), error_message=str(told), configs=None)


def _validated(context: BrokerContext, request: Request, asked: wire.CreatableTopic) -> wire.CreatableTopicResult:
    """Return the result that a creation would have now."""
    rights = request.rights
    try:
        count = context.cluster.check_new_topic(asked.name, _asked_partitions(context, asked))
        _asked_configs(asked)
        # As in Kafka, to ask costs as much of the quota as to do it.
        request.take_mutations(count)
    except (Refused, ConfigError) as why:
        return _row(context, rights, (asked, why))
    row = _row(context, rights, (asked, None))
    if row.topic_config_error_code == ErrorCode.NONE:
        row.num_partitions = count
    return row


def _describe_created(asked: wire.CreatableTopic, topic: Topic | None) -> wire.CreatableTopicResult:
    """Say that the topic was created, and not how, to a client that may not describe its configs."""
    return wire.CreatableTopicResult(
        name=asked.name,
        topic_id=ZERO_TOPIC_ID if topic is None else topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        configs=[],
    )


def _asked_partitions(context: BrokerContext, asked: wire.CreatableTopic) -> int:
    replicas = context.leadership.replicas
    if asked.assignments:
        return _assigned_partitions(asked, replicas)
    # KIP-464: -1 stands for the broker's default.
    if asked.replication_factor != -1 and not 1 <= asked.replication_factor <= len(replicas):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {asked.replication_factor}; {_possible_factors(len(replicas))}",
        )
    return asked.num_partitions


def _asked_configs(asked: wire.CreatableTopic) -> dict[str, str]:
    return check_topic_configs({config.name: config.value for config in asked.configs})


def _describe(
    context: BrokerContext, asked: wire.CreatableTopic, topic: Topic | None, configs: dict[str, str]
) -> wire.CreatableTopicResult:
    shown = topic_defaults(context.settings) | configs
    return wire.CreatableTopicResult(
        name=asked.name,
        topic_id=ZERO_TOPIC_ID if topic is None else topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=0 if topic is None else len(topic.partitions),
        replication_factor=len(context.leadership.replicas),
        configs=[
            wire.CreatableTopicConfigs(
                name=name, value=value, config_source=TOPIC_SOURCE if name in configs else DEFAULT_SOURCE
            )
            for name, value in sorted(shown.items())
        ],
    )


def _possible_factors(replicas: int) -> str:
    if replicas == 1:
        return "this cluster is one broker, so 1 or -1 is expected"
    return f"this cluster has {replicas} brokers, so 1 to {replicas} or -1 is expected"


def _assigned_partitions(asked: wire.CreatableTopic, replicas: Sequence[int]) -> int:
    """Return the number of partitions of a manual assignment."""
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise Refused(ErrorCode.INVALID_REQUEST, "with an assignment, partitions and replication factor must be -1")
    # Each partition must be on every broker; partitions are numbered from 0 without gaps.
    numbers = sorted(row.partition_index for row in asked.assignments)
    if numbers != list(range(len(numbers))):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are to be numbered from 0 without gaps")
    if any(sorted(row.broker_ids) != list(replicas) for row in asked.assignments):
        which = f"one broker, number {replicas[0]}" if len(replicas) == 1 else f"every partition on {list(replicas)}"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"this cluster has {which}")
    return len(numbers)
