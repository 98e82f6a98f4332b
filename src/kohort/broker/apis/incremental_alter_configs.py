"""IncrementalAlterConfigs (key 44): change configs of topics and groups one by one.

Versions 0 and 1 are served. Configs of this broker are settings of its start, and are refused with a message that says
so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from kohort.broker.context import BrokerContext
from kohort.broker.gather import Gather
from kohort.broker.request import Request
from kohort.broker.topicconfigs import Resource, check_topic_configs, is_list, log_idle, topic_defaults
from kohort.config import parse_list
from kohort.coordinator import commands
from kohort.coordinator.groupconfigs import LONGEST_TEXT
from kohort.errors import ConfigError, ErrorCode, Refused, StorageError
from kohort.ids import CauseId
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
) -> IncrementalAlterConfigsResponse | None:
    """Change each resource on its own, each as a whole or not at all."""
    resources = message.resources
    named = Counter((each.resource_type, each.resource_name) for each in resources)
    outcomes: list[commands.Done | commands.Refusal | commands.AlterGroupConfigs] = [
        _outcome(context, each, validate_only=message.validate_only, is_once=named[_name(each)] == 1)
        for each in resources
    ]
    asked = [outcome for outcome in outcomes if isinstance(outcome, commands.AlterGroupConfigs)]
    if not asked:
        return _response(resources, outcomes)

    def complete(replies: list[commands.ReplyBody]) -> None:
        if request.is_open:
            left = iter(replies)
            told = [next(left) if isinstance(each, commands.AlterGroupConfigs) else each for each in outcomes]
            request.answer(_response(resources, told))

    whole = Gather(len(asked), complete)
    for index, command in enumerate(asked):
        context.runtime.ask(command, whole.slot(index))
    return None


def _name(resource: AlterConfigsResource) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _response(resources: Sequence[AlterConfigsResource], outcomes: Sequence[object]) -> IncrementalAlterConfigsResponse:
    rows = []
    for resource, outcome in zip(resources, outcomes, strict=True):
        row = AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        if isinstance(outcome, commands.Refusal):
            row.error_code, row.error_message = outcome.code, outcome.message
        rows.append(row)
    return IncrementalAlterConfigsResponse(responses=rows)


def _outcome(
    context: BrokerContext, asked: AlterConfigsResource, *, validate_only: bool, is_once: bool
) -> commands.Done | commands.Refusal | commands.AlterGroupConfigs:
    """What became of a resource, or what is to be asked of its coordinator."""
    try:
        if not is_once:
            raise Refused(ErrorCode.INVALID_REQUEST, "the resource is named twice in the request")
        if len({config.name for config in asked.configs}) != len(asked.configs):
            raise Refused(ErrorCode.INVALID_REQUEST, "a config is named twice in the request")
        if asked.resource_type == Resource.GROUP:
            token = context.runtime.next_token()
            return commands.AlterGroupConfigs(
                cause=CauseId(token),
                request=token,
                group_id=asked.resource_name,
                changes=dict(map(_group_change, asked.configs)),
                validate_only=validate_only,
            )
        _alter(context, asked, validate_only=validate_only)
    except Refused as refused:
        return commands.Refusal(code=refused.code, message=str(refused))
    except ConfigError as why:
        return commands.Refusal(code=ErrorCode.INVALID_CONFIG, message=str(why))
    except StorageError as why:
        return commands.Refusal(code=ErrorCode.KAFKA_STORAGE_ERROR, message=str(why))
    return commands.Done()


def _alter(context: BrokerContext, asked: AlterConfigsResource, *, validate_only: bool) -> None:
    if asked.resource_type == Resource.BROKER:
        raise Refused(
            ErrorCode.INVALID_REQUEST, "configs of brokers are settings of the broker's start; they cannot be altered"
        )
    if asked.resource_type != Resource.TOPIC:
        raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {asked.resource_type} have no configs here")
    name = asked.resource_name
    topic = context.cluster.topic(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
    defaults = topic_defaults(context.settings)
    configs = dict(topic.configs)
    for config in asked.configs:
        _change(configs, config, defaults)
    checked = check_topic_configs(dict(configs))
    if not validate_only:
        context.cluster.set_configs(name, checked)
        log_idle(name, checked, [config.name for config in asked.configs])


def _group_change(change: AlterableConfig) -> tuple[str, str | None]:
    """A config of a group and its value to be, `None` where it is taken back."""
    name, shown = change.name, change.name[:LONGEST_TEXT]
    if change.config_operation == DELETE:
        return name, None
    if change.config_operation in (APPEND, SUBTRACT):
        raise Refused(ErrorCode.INVALID_CONFIG, f"{shown} is not a list, so nothing can be added to or taken from it")
    if change.config_operation != SET:
        raise Refused(ErrorCode.INVALID_REQUEST, f"operation {change.config_operation} is unknown")
    if change.value is None:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{shown} needs a value")
    return name, change.value


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
    if not is_list(option):
        raise Refused(ErrorCode.INVALID_CONFIG, f"{name} is not a list, so nothing can be added to or taken from it")
    old, wanted = parse_list(configs.get(name, defaults[name])), parse_list(value)
    if change.config_operation == APPEND:
        new = old + [each for each in wanted if each not in old]
    else:
        new = [each for each in old if each not in wanted]
    configs[name] = ",".join(new)
