"""IncrementalAlterConfigs (key 44): change configs of topics, groups, this broker and its loggers one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

from kohort.base.options import Option, OptionSet, parse_list
from kohort.broker.chunked_responses import answer_rows, denied_configs, rows_asked_for
from kohort.broker.context import BrokerContext, Request
from kohort.broker.log_levels import check_levels, check_node, set_levels
from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.broker.topics.configs import Resource, check_topic_configs, is_list, log_idle, topic_defaults
from kohort.broker.topics.topic_operations import Outcome, code_of
from kohort.coordinator.commands import Done, Refusal, admin
from kohort.coordinator.configs import LONGEST_TEXT
from kohort.errors import ConfigError, ErrorCode, Refused
from kohort.security.access_control import AclOperation
from kohort.storage.topicconfig import TOPIC_OPTIONS
from kohort.storage.topics import Topic
from kohort.wire.messages import incremental_alter_configs as wire
from kohort.wire.messages.alter_configs import AlterConfigsResource, AlterConfigsResourceResponse, AlterConfigsResponse

#: Kafka's operations on a config (KIP-339).
SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
#: Configs that an answer names.
_MOST_NAMED: Final = 10

#: A resource with its changes, of either API.
AskedResource = TypeVar("AskedResource", wire.AlterConfigsResource, AlterConfigsResource)
#: Called with the outcome of the change of a resource.
Answer = Callable[[Done | Refusal], None]


def handle(context: BrokerContext, request: Request, message: wire.IncrementalAlterConfigsRequest) -> None:
    """Change each resource independently: all of its configs, or none."""
    alter = partial(_alter, context, request, validate_only=message.validate_only)
    alter_each(context, request, message.resources, alter, wire.IncrementalAlterConfigsResponse)


def _alter(
    context: BrokerContext, request: Request, asked: wire.AlterConfigsResource, answer: Answer, *, validate_only: bool
) -> None:
    """Change one resource; `answer` is called with the outcome."""
    refuse_nulls(each.name for each in asked.configs if each.value is None and each.config_operation != DELETE)
    match asked.resource_type:
        case Resource.GROUP:
            changes = dict(map(_group_change, asked.configs))
            who = request.principal
            alter_group(context, asked.resource_name, changes, answer, validate_only=validate_only, principal=who)
        case Resource.TOPIC:
            changed = _changing(asked, TOPIC_OPTIONS, topic_defaults(context.settings))
            names = [config.name for config in asked.configs]
            alter_topic(context, asked.resource_name, changed, names, answer, validate_only=validate_only)
        case Resource.BROKER:
            changed = _changing(asked, BROKER_OPTIONS, context.settings.values)
            alter_broker(context, asked.resource_name, changed, answer, validate_only=validate_only)
        case Resource.BROKER_LOGGER:
            answer(_alter_levels(context, asked, validate_only=validate_only))
        case other:
            raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {other} have no configs here")


def _alter_levels(context: BrokerContext, asked: wire.AlterConfigsResource, *, validate_only: bool) -> Done:
    """Set levels of loggers or take them back (KIP-412): all of the request's, or none."""
    check_node(asked.resource_name, context.leadership.node_id)
    for change in asked.configs:
        if change.config_operation in (SET, DELETE):
            continue
        kind = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}.get(change.config_operation)
        kind = f"{kind} operation" if kind else f"Unknown operation type {change.config_operation}"
        raise Refused(ErrorCode.INVALID_REQUEST, f"{kind} is not allowed for the BROKER_LOGGER resource")
    changes = check_levels(
        (each.name, None if each.config_operation == DELETE else each.value) for each in asked.configs
    )
    if not validate_only:
        set_levels(changes)
    return Done()


def _group_change(change: wire.AlterableConfig) -> tuple[str, str | None]:
    """Return a group config's name and new value, `None` for a config that is deleted."""
    name, shown = change.name, change.name[:LONGEST_TEXT]
    if change.config_operation == DELETE:
        return name, None
    if change.config_operation in (APPEND, SUBTRACT):
        raise Refused(ErrorCode.INVALID_CONFIG, f"{shown} is not a list, so nothing can be added to or taken from it")
    if change.config_operation != SET:
        raise Refused(ErrorCode.INVALID_REQUEST, f"operation {change.config_operation} is unknown")
    return name, change.value


def _changing(
    asked: wire.AlterConfigsResource, options: OptionSet, defaults: Mapping[str, object]
) -> Callable[[Mapping[str, str]], dict[str, str]]:
    """Return a function from a resource's present configs to its new ones.

    Args:
        options: the options that such a resource has.
        defaults: values of configs that the resource does not set.
    """

    def changed(present: Mapping[str, str]) -> dict[str, str]:
        configs = dict(present)
        for config in asked.configs:
            is_kafkas_only = config.name not in options and options.unserved(config.name) is not None
            if config.config_operation == DELETE and is_kafkas_only:
                # It is never set; Kafka's tools take it away all the same.
                continue
            _change(configs, config, options.option(config.name), defaults)
        return configs

    return changed


def _change(
    configs: dict[str, str], change: wire.AlterableConfig, option: Option, defaults: Mapping[str, object]
) -> None:
    name, value = change.name, change.value
    if change.config_operation == DELETE:
        configs.pop(name, None)
        return
    assert value is not None, "see `refuse_nulls`"
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


# Changes of configs while the broker runs: of topics, groups and this broker, for both APIs.
#
# Laws: a resource is changed as a whole or not at all, and answered when the change is in force; a request that only
# validates changes nothing.
# Source: Apache Kafka's AlterConfigs and IncrementalAlterConfigs (KIP-339).


def alter_each(
    context: BrokerContext,
    request: Request,
    resources: Sequence[AskedResource],
    alter: Callable[[AskedResource, Answer], None],
    response: type[wire.IncrementalAlterConfigsResponse] | type[AlterConfigsResponse],
) -> None:
    """Answer with a row for each resource; `alter` changes it, answers with the outcome or raises `Refused`."""
    named = Counter((each.resource_type, each.resource_name) for each in resources)

    def ask(asked: AskedResource, answer: Answer) -> None:
        try:
            if named[asked.resource_type, asked.resource_name] > 1:
                raise Refused(ErrorCode.INVALID_REQUEST, "the resource is named twice in the request")
            denied = denied_configs(
                request.rights, AclOperation.ALTER_CONFIGS, asked.resource_type, asked.resource_name
            )
            if denied is not None:
                answer(denied)
                return
            if len({config.name for config in asked.configs}) != len(asked.configs):
                raise Refused(ErrorCode.INVALID_REQUEST, "a config is named twice in the request")
            alter(asked, answer)
        except Refused as why:
            answer(outcome_reply(why))

    def row_of(asked: AskedResource, reply: Done | Refusal) -> AlterConfigsResourceResponse:
        row = AlterConfigsResourceResponse(resource_type=asked.resource_type, resource_name=asked.resource_name)
        if isinstance(reply, Refusal):
            row.error_code, row.error_message = reply.code, reply.message
        else:
            row.error_message = None
        return row

    answer_rows(context, request, resources, rows_asked_for(ask, row_of), lambda rows: response(responses=rows))


def outcome_reply(why: Outcome) -> Done | Refusal:
    """Return the reply to a change that is in force, or that was refused."""
    return Done() if why is None else Refusal(code=code_of(why), message=str(why))


def alter_group(
    context: BrokerContext,
    group_id: str,
    changes: Mapping[str, str | None],
    answer: Answer,
    *,
    validate_only: bool,
    principal: str,
) -> None:
    """Ask the group's coordinator to change configs; `None` deletes a config."""
    token = context.runtime.next_token()
    command = admin.AlterGroupConfigs(
        cause=token, request=token, group_id=group_id, changes=dict(changes), validate_only=validate_only,
        principal=principal,
    )  # fmt: skip
    context.runtime.ask(command, answer)


def alter_topic(
    context: BrokerContext,
    name: str,
    changed: Callable[[Mapping[str, str]], Mapping[str, str | None]],
    names: Sequence[str],
    answer: Answer,
    *,
    validate_only: bool,
) -> None:
    """Change the configs of a topic.

    Args:
        changed: from the configs that the topic has when the change is carried out to its new ones.
        names: the configs in the request; a log line names those of them that have no effect.
    """

    def checked(topic: Topic) -> dict[str, str]:
        return check_topic_configs(changed(topic.configs))

    if validate_only:
        try:
            checked(context.cluster.known(name))
        except (Refused, ConfigError) as why:
            answer(outcome_reply(why))
        else:
            answer(Done())
        return

    def done(why: Outcome) -> None:
        if why is None:
            log_idle(name, context.cluster.topics[name].configs, names)
        answer(outcome_reply(why))

    context.cluster.work.ask([context.cluster.config_change(name, checked, done)])


def refuse_nulls(names: Iterable[str]) -> None:
    """Refuse configs that are set to null, as Kafka does; deletions say so explicitly."""
    if missing := [name[:LONGEST_TEXT] for name in names]:
        raise Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for: {', '.join(missing[:_MOST_NAMED])}")


def alter_broker(
    context: BrokerContext,
    name: str,
    changed: Callable[[Mapping[str, str]], Mapping[str, str | None]],
    answer: Answer,
    *,
    validate_only: bool,
) -> None:
    """Change the configs of this broker; an empty name stands for every broker."""
    # An empty name is Kafka's for the configs of all brokers; here both levels are one.
    if name not in ("", str(context.leadership.node_id)):
        raise Refused(ErrorCode.INVALID_REQUEST, f"this is broker {context.leadership.node_id}, not {name}")
    configs = context.broker_configs
    if validate_only:
        try:
            configs.checked(changed(configs.given))
        except ConfigError as why:
            answer(outcome_reply(why))
        else:
            answer(Done())
        return
    wanted = configs.change(changed, lambda why: answer(outcome_reply(why)))
    context.cluster.work.ask([wanted])
