"""AlterConfigs (key 33): set all configs of topics and groups; unnamed ones go back to their defaults.

Apache Kafka calls it deprecated, older clients have nothing else.
"""

from __future__ import annotations

from functools import partial

from kohort.broker.apis import incremental_alter_configs as incremental
from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.configs import Resource
from kohort.coordinator.configs import GROUP_CONFIGS
from kohort.errors import ErrorCode, Refused
from kohort.wire.messages import alter_configs as wire


def handle(context: BrokerContext, request: Request, message: wire.AlterConfigsRequest) -> None:
    """Change each resource independently: all of its configs, or none."""
    alter = partial(_alter, context, request, validate_only=message.validate_only)
    incremental.alter_each(context, request, message.resources, alter, wire.AlterConfigsResponse)


def _alter(
    context: BrokerContext,
    request: Request,
    asked: wire.AlterConfigsResource,
    answer: incremental.Answer,
    *,
    validate_only: bool,
) -> None:
    configs = {config.name: config.value for config in asked.configs}
    incremental.refuse_nulls(name for name, value in configs.items() if value is None)
    name, names = asked.resource_name, list(configs)
    match asked.resource_type:
        case Resource.TOPIC:
            incremental.alter_topic(context, name, lambda _: configs, names, answer, validate_only=validate_only)
        case Resource.GROUP:
            others: dict[str, str | None] = dict.fromkeys(GROUP_CONFIGS)
            changes, who = others | configs, request.principal
            incremental.alter_group(context, name, changes, answer, validate_only=validate_only, principal=who)
        case Resource.BROKER:
            incremental.alter_broker(context, name, lambda _: configs, answer, validate_only=validate_only)
        case other:
            # Loggers, too: they came after this API, and a level that is not named would have to go (KIP-412).
            raise Refused(ErrorCode.INVALID_REQUEST, f"Unknown resource type {other}")
