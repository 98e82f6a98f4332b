"""CreateTopics (key 19).

Versions 2 to 7 are served. Version 4: -1 stands for the broker's number of partitions and replicas (KIP-464).
Version 5: the answer tells what was created (KIP-525). Version 7: topic ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kohort.broker.context import BrokerContext
from kohort.broker.request import Request
from kohort.broker.topicconfigs import DEFAULT_SOURCE, TOPIC_SOURCE, check_topic_configs, log_idle, topic_defaults
from kohort.errors import ConfigError, ErrorCode, Refused, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def handle(context: BrokerContext, request: Request, message: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create each topic on its own; one that is refused does not hold up the others."""
    del request
    counts = Counter(topic.name for topic in message.topics)
    with context.cluster.as_one_change():
        rows = [
            _answer(context, topic, is_only=counts[topic.name] == 1, validate_only=message.validate_only)
            for topic in message.topics
        ]
    return CreateTopicsResponse(topics=rows)


def _answer(
    context: BrokerContext, asked: CreatableTopic, *, is_only: bool, validate_only: bool
) -> CreatableTopicResult:
    try:
        if not is_only:
            raise Refused(ErrorCode.INVALID_REQUEST, f"topic {asked.name} is named twice in the request")
        return _create(context, asked, validate_only=validate_only)
    except Refused as refused:
        return _refuse(asked, refused.code, str(refused))
    except ConfigError as why:
        return _refuse(asked, ErrorCode.INVALID_CONFIG, str(why))
    except StorageError as why:
        return _refuse(asked, ErrorCode.KAFKA_STORAGE_ERROR, str(why))


def _create(context: BrokerContext, asked: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    cluster, replicas = context.cluster, context.leadership.replicas
    if asked.assignments:
        partition_count = _assigned_partitions(asked, replicas)
    else:
        if asked.replication_factor != -1 and not 1 <= asked.replication_factor <= len(replicas):
            raise Refused(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {asked.replication_factor}; {_possible_factors(len(replicas))}",
            )
        partition_count = asked.num_partitions
    partition_count = cluster.check_new_topic(asked.name, partition_count)
    configs = check_topic_configs({config.name: config.value for config in asked.configs})
    topic_id: bytes = ZERO_TOPIC_ID
    if not validate_only:
        topic_id = cluster.create_topic(asked.name, partition_count, dict(configs)).topic_id
        log_idle(asked.name, configs, configs)
    shown = topic_defaults(context.settings) | configs
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=partition_count,
        replication_factor=len(replicas),
        configs=[
            CreatableTopicConfigs(
                name=name, value=value, config_source=TOPIC_SOURCE if name in configs else DEFAULT_SOURCE
            )
            for name, value in sorted(shown.items())
        ],
    )


def _possible_factors(replicas: int) -> str:
    if replicas == 1:
        return "this cluster is one broker, so 1 or -1 is expected"
    return f"this cluster has {replicas} brokers, so 1 to {replicas} or -1 is expected"


def _assigned_partitions(asked: CreatableTopic, replicas: Sequence[int]) -> int:
    """How many partitions an assignment by hand makes; each must be on every broker, numbered from 0 without gaps."""
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise Refused(ErrorCode.INVALID_REQUEST, "with an assignment, partitions and replication factor must be -1")
    numbers = sorted(row.partition_index for row in asked.assignments)
    if numbers != list(range(len(numbers))):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are to be numbered from 0 without gaps")
    if any(sorted(row.broker_ids) != list(replicas) for row in asked.assignments):
        which = f"one broker, number {replicas[0]}" if len(replicas) == 1 else f"every partition on {list(replicas)}"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"this cluster has {which}")
    return len(numbers)


def _refuse(asked: CreatableTopic, code: ErrorCode, text: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=asked.name, error_code=code, error_message=text, configs=None)
