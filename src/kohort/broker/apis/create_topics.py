"""CreateTopics (key 19).

Versions 2 to 7 are served. Version 4: -1 stands for the broker's number of partitions and replicas (KIP-464).
Version 5: the answer tells what was created (KIP-525). Version 7: topic ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from kohort.broker.chunked_responses import Gather, answer_rows, rows_at_once
from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.topics.configs import DEFAULT_SOURCE, TOPIC_SOURCE, check_topic_configs, log_idle, topic_defaults
from kohort.broker.topics.topic_operations import Outcome, Wanted, ask_within, code_of
from kohort.errors import ConfigError, ErrorCode, Refused, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.storage.topics import Topic
from kohort.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

#: A requested topic and its outcome: the topic (`None` if it is deleted again already), or why it was not created.
_Told = tuple[CreatableTopic, Topic | Refused | ConfigError | StorageError | None]


def handle(context: BrokerContext, request: Request, message: CreateTopicsRequest) -> None:
    """Create each topic independently; a refused one does not hold up the others."""
    counts = Counter(topic.name for topic in message.topics)
    topics = list({topic.name: topic for topic in message.topics}.values())

    def answer(told: Sequence[_Told]) -> None:
        # All configs stand in a row: rows are made a few a turn, once all is known.
        rows_of = rows_at_once(partial(_row, context))
        answer_rows(context.loop.call_soon, request, told, rows_of, _response)

    def validated(asked: CreatableTopic) -> CreatableTopicResult:
        return _validate(context, asked, is_only=counts[asked.name] == 1)

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
            wanted.append(_creation(context, asked, tell))
    work, on_refusal = context.cluster.work, context.outage.refused
    ask_within(context.loop, work, wanted, timeout_ms=message.timeout_ms, on_refusal=on_refusal)


def _response(rows: list[CreatableTopicResult]) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=rows)


def _named_twice(asked: CreatableTopic) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, f"topic {asked.name} is named twice in the request")


def _creation(context: BrokerContext, asked: CreatableTopic, tell: Callable[[_Told], None]) -> Wanted:
    def check() -> tuple[int, dict[str, str]]:
        return _asked_partitions(context, asked), _asked_configs(asked)

    def done(why: Outcome) -> None:
        if isinstance(why, StorageError):
            context.outage.refused(f"topic-{asked.name}", why)
        if why is not None:
            tell((asked, why))
            return
        configs = _asked_configs(asked)
        log_idle(asked.name, configs, configs)
        tell((asked, context.cluster.topics.get(asked.name)))

    return context.cluster.creation(asked.name, check, done)


def _row(context: BrokerContext, each: _Told) -> CreatableTopicResult:
    asked, told = each
    if told is None or isinstance(told, Topic):
        return _describe(context, asked, told, _asked_configs(asked))
    return _refuse(asked, code_of(told), str(told))


def _validate(context: BrokerContext, asked: CreatableTopic, *, is_only: bool) -> CreatableTopicResult:
    """Return the result that a creation would have now."""
    try:
        if not is_only:
            raise _named_twice(asked)
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
    # KIP-464: -1 stands for the broker's default.
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


def _refuse(asked: CreatableTopic, code: ErrorCode, text: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=asked.name, error_code=code, error_message=text, configs=None)
