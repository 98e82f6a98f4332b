"""DescribeConfigs (key 32): what topics, this broker and groups are set to.

Versions 1 to 4 are served. Version 1: synonyms. Version 3: types and documentation (KIP-569).
Configs of this broker and of groups are shown, but can only be set when the broker is started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kohort.broker.context import BrokerContext
from kohort.broker.request import Request
from kohort.broker.settings import BROKER_OPTIONS
from kohort.broker.topicconfigs import (
    BROKER_SOURCE,
    DEFAULT_SOURCE,
    TOPIC_SOURCE,
    Resource,
    as_text,
    config_type,
    topic_defaults,
)
from kohort.config import Option
from kohort.errors import ErrorCode, Refused
from kohort.storage.topicconfig import TOPIC_OPTIONS
from kohort.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

#: Group config -> the broker option that every group follows.
_GROUP_CONFIGS: Final = {
    "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
}


def handle(context: BrokerContext, request: Request, message: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Describe each resource on its own."""
    del request
    return DescribeConfigsResponse(results=[_answer(context, resource, message) for resource in message.resources])


def _answer(
    context: BrokerContext, asked: DescribeConfigsResource, message: DescribeConfigsRequest
) -> DescribeConfigsResult:
    try:
        rows = _rows(context, asked)
    except Refused as refused:
        return DescribeConfigsResult(
            error_code=refused.code,
            error_message=str(refused),
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
    wanted = None if asked.configuration_keys is None else set(asked.configuration_keys)
    chosen = [row for row in rows if wanted is None or row.name in wanted]
    for row in chosen:
        if not message.include_synonyms:
            row.synonyms = []
        if not message.include_documentation:
            row.documentation = None
    return DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=chosen,
    )


def _rows(context: BrokerContext, asked: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    match asked.resource_type:
        case Resource.TOPIC:
            return list(_topic_rows(context, asked.resource_name))
        case Resource.BROKER:
            if asked.resource_name not in ("", str(context.cluster.node_id)):
                raise Refused(ErrorCode.INVALID_REQUEST, f"this is broker {context.cluster.node_id}")
            return list(_broker_rows(context.settings.values))
        case Resource.GROUP:
            return list(_group_rows(context.settings.values))
        case other:
            raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {other} have no configs here")


def _topic_rows(context: BrokerContext, name: str) -> Iterable[DescribeConfigsResourceResult]:
    topic = context.cluster.topic(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
    defaults = topic_defaults(context.settings)
    for option in TOPIC_OPTIONS:
        own = topic.configs.get(option.name)
        default = defaults[option.name]
        synonyms = [] if own is None else [DescribeConfigsSynonym(name=option.name, value=own, source=TOPIC_SOURCE)]
        synonyms.append(DescribeConfigsSynonym(name=option.name, value=default, source=DEFAULT_SOURCE))
        yield _row(
            option,
            default if own is None else own,
            source=DEFAULT_SOURCE if own is None else TOPIC_SOURCE,
            synonyms=synonyms,
        )


def _broker_rows(values: Mapping[str, object]) -> Iterable[DescribeConfigsResourceResult]:
    for option in BROKER_OPTIONS:
        value = values[option.name]
        is_default = value == option.default
        row = _row(
            option, None if value is None else as_text(value), source=DEFAULT_SOURCE if is_default else BROKER_SOURCE
        )
        row.read_only = True
        yield row


def _group_rows(values: Mapping[str, object]) -> Iterable[DescribeConfigsResourceResult]:
    for name, broker_name in _GROUP_CONFIGS.items():
        row = _row(BROKER_OPTIONS.option(broker_name), as_text(values[broker_name]), source=DEFAULT_SOURCE)
        row.name = name
        row.read_only = True
        yield row


def _row(
    option: Option, value: str | None, *, source: int, synonyms: list[DescribeConfigsSynonym] | None = None
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=option.name,
        value=value,
        config_source=source,
        synonyms=synonyms or [DescribeConfigsSynonym(name=option.name, value=value, source=source)],
        config_type=config_type(option),
        documentation=option.doc,
    )
