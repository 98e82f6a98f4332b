"""IncrementalAlterConfigs (key 44): change configs of topics one by one.

Versions 0 and 1 are served. Configs of this broker and of groups are settings of its start, and are refused with a
message that says so.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.context import BrokerContext
from kohort.broker.request import Request
from kohort.broker.topicconfigs import Resource, check_topic_configs, topic_defaults
from kohort.config import parse_list
from kohort.errors import ConfigError, ErrorCode, Refused, StorageError
from kohort.storage.topicconfig import TOPIC_OPTIONS
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3


def handle(
    context: BrokerContext, request: Request, message: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change each resource on its own, each as a whole or not at all."""
    del request
    rows = [_answer(context, resource, validate_only=message.validate_only) for resource in message.resources]
    return IncrementalAlterConfigsResponse(responses=rows)


def _answer(
    context: BrokerContext, asked: AlterConfigsResource, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    code, text = ErrorCode.NONE, None
    try:
        _alter(context, asked, validate_only=validate_only)
    except Refused as refused:
        code, text = refused.code, str(refused)
    except ConfigError as why:
        code, text = ErrorCode.INVALID_CONFIG, str(why)
    except StorageError as why:
        code, text = ErrorCode.KAFKA_STORAGE_ERROR, str(why)
    return AlterConfigsResourceResponse(
        error_code=code, error_message=text, resource_type=asked.resource_type, resource_name=asked.resource_name
    )


def _alter(context: BrokerContext, asked: AlterConfigsResource, *, validate_only: bool) -> None:
    if asked.resource_type in (Resource.BROKER, Resource.GROUP):
        what = "brokers" if asked.resource_type == Resource.BROKER else "groups"
        raise Refused(
            ErrorCode.INVALID_REQUEST, f"configs of {what} are settings of the broker's start; they cannot be altered"
        )
    if asked.resource_type != Resource.TOPIC:
        raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {asked.resource_type} have no configs here")
    name = asked.resource_name
    topic = context.cluster.topic(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
    if len({config.name for config in asked.configs}) != len(asked.configs):
        raise Refused(ErrorCode.INVALID_REQUEST, "a config is named twice in the request")
    defaults = topic_defaults(context.settings)
    configs = dict(topic.configs)
    for config in asked.configs:
        _change(configs, config, defaults)
    checked = check_topic_configs(dict(configs))
    if not validate_only:
        context.cluster.set_configs(name, checked)


def _change(configs: dict[str, str], change: AlterableConfig, defaults: dict[str, str]) -> None:
    name, value = change.name, change.value
    option = TOPIC_OPTIONS.option(name)
    if change.config_operation == DELETE:
        configs.pop(name, None)
        return
    if value is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} needs a value")
    if change.config_operation == SET:
        configs[name] = value
        return
    if change.config_operation not in (APPEND, SUBTRACT):
        raise Refused(ErrorCode.INVALID_REQUEST, f"operation {change.config_operation} is unknown")
    if option.parse is not parse_list:
        raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is not a list, so nothing can be added to or taken from it")
    old, wanted = parse_list(configs.get(name, defaults[name])), parse_list(value)
    if change.config_operation == APPEND:
        new = old + [each for each in wanted if each not in old]
    else:
        new = [each for each in old if each not in wanted]
    configs[name] = ",".join(new)
