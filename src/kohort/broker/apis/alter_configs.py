"""AlterConfigs (key 33): set all configs of topics and groups; unnamed ones go back to their defaults.

Versions 0 to 2 are served. Apache Kafka calls it deprecated, older clients have nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kohort.broker.apis.incremental_alter_configs import alter_broker, alter_group, alter_topic, refuse_nulls
from kohort.broker.chunked_responses import answer_rows, rows_asked_for
from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.topics.configs import Resource
from kohort.coordinator.commands import Refusal
from kohort.coordinator.configs import GROUP_CONFIGS
from kohort.coordinator.decision import ReplyBody
from kohort.errors import ErrorCode, Refused
from kohort.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(context: BrokerContext, request: Request, message: AlterConfigsRequest) -> None:
    """Change each resource independently: all of its configs, or none."""
    resources = message.resources
    named = Counter((each.resource_type, each.resource_name) for each in resources)

    def alter(asked: AlterConfigsResource, answer: Callable[[ReplyBody], None]) -> None:
        try:
            if named[asked.resource_type, asked.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "the resource is named twice in the request")
            _alter(context, asked, answer, validate_only=message.validate_only)
        except Refused as why:
            answer(Refusal(code=why.code, message=str(why)))

    rows_of = rows_asked_for(alter, _row)
    answer_rows(context.loop.call_soon, request, resources, rows_of, lambda rows: AlterConfigsResponse(responses=rows))


def _row(asked: AlterConfigsResource, reply: ReplyBody) -> AlterConfigsResourceResponse:
    row = AlterConfigsResourceResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )
    if isinstance(reply, Refusal):
        row.error_code, row.error_message = reply.code, reply.message
    return row


def _alter(
    context: BrokerContext,
    asked: AlterConfigsResource,
    answer: Callable[[ReplyBody], None],
    *,
    validate_only: bool,
) -> None:
    configs = {config.name: config.value for config in asked.configs}
    if len(configs) != len(asked.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "a config is named twice in the request")
    refuse_nulls(config.name for config in asked.configs if config.value is None)
    name = asked.resource_name
    match asked.resource_type:
        case Resource.TOPIC:
            alter_topic(context, name, lambda _: configs, list(configs), answer, validate_only=validate_only)
        case Resource.GROUP:
            others: dict[str, str | None] = dict.fromkeys(GROUP_CONFIGS)
            alter_group(context, name, others | configs, answer, validate_only=validate_only)
        case Resource.BROKER:
            alter_broker(context, name, lambda _: configs, answer, validate_only=validate_only)
        case other:
            raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {other} have no configs here")
