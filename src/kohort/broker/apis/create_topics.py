"""CreateTopics (key 19).

Versions 2 to 7 are served. Version 4: -1 stands for the broker's number of partitions and replicas (KIP-464).
Version 5: the answer tells what was created (KIP-525). Version 7: topic ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from kohort.broker.context import BrokerContext
from kohort.broker.gather import Gather
from kohort.broker.request import Request
from kohort.broker.topicconfigs import DEFAULT_SOURCE, TOPIC_SOURCE, check_topic_configs, log_idle, topic_defaults
from kohort.broker.topicwork import Outcome, Wanted, code_of
from kohort.errors import ConfigError, ErrorCode, Refused, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.storage.topicchanges import Topic
from kohort.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


def handle(context: BrokerContext, request: Request, message: CreateTopicsRequest) -> CreateTopicsResponse | None:
    """Create each topic on its own; one that is refused does not hold up the others."""
    counts = Counter(topic.name for topic in message.topics)
    if not message.topics:
        return CreateTopicsResponse(topics=[])

    def complete(rows: list[CreatableTopicResult]) -> None:
        if request.is_open:
            request.answer(CreateTopicsResponse(topics=rows))

    whole = Gather(len(message.topics), complete)
    wanted = []
    for index, asked in enumerate(message.topics):
        answer = whole.slot(index)
        if counts[asked.name] > 1:
            answer(_refuse(asked, ErrorCode.INVALID_REQUEST, f"topic {asked.name} is named twice in the request"))
        elif message.validate_only:
            answer(_validate(context, asked))
        else:
            wanted.append(_creation(context, asked, answer))
    context.cluster.work.ask(wanted)
    return None


def _creation(context: BrokerContext, asked: CreatableTopic, answer: Callable[[CreatableTopicResult], None]) -> Wanted:
    def check() -> tuple[int, dict[str, str]]:
        return _asked_partitions(context, asked), _asked_configs(asked)

    def done(why: Outcome) -> None:
        if isinstance(why, StorageError):
            context.outage.refused(f"topic-{asked.name}", why)
        if why is not None:
            answer(_refuse(asked, code_of(why), str(why)))
            return
        configs = _asked_configs(asked)
        log_idle(asked.name, configs, configs)
        answer(_describe(context, asked, context.cluster.topics.get(asked.name), configs))

    return context.cluster.creation(asked.name, check, done)


def _validate(context: BrokerContext, asked: CreatableTopic) -> CreatableTopicResult:
    """What would become of it now."""
    try:
        count = context.cluster.check_new_topic(asked.name, _asked_partitions(context, asked))
        row = _describe(context, asked, None, _asked_configs(asked))
    except (Refused, ConfigError) as why:
        return _refuse(asked, code_of(why), str(why))
    row.num_partitions = count
    return row


def _asked_partitions(context: BrokerContext, asked: CreatableTopic) -> int:
    replicas = context.leadership.replicas
    if asked.assignments:
        return _assigned_partitions(asked, replicas)
    if asked.replication_factor != -1 and not 1 <= asked.replication_factor <= len(replicas):
        raise Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {asked.replication_factor}; {_possible_factors(len(replicas))}",
        )
    return asked.num_partitions


def _asked_configs(asked: CreatableTopic) -> dict[str, str]:
    return check_topic_configs({config.name: config.value for config in asked.configs})


def _describe(
    context: BrokerContext, asked: CreatableTopic, topic: Topic | None, configs: dict[str, str]
) -> CreatableTopicResult:
    shown = topic_defaults(context.settings) | configs
    return CreatableTopicResult(
        name=asked.name,
        topic_id=ZERO_TOPIC_ID if topic is None else topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=0 if topic is None else len(topic.partitions),
        replication_factor=len(context.leadership.replicas),
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
