"""DescribeConfigs (key 32): the configs of topics, this broker and groups, and the levels of its loggers.

Version 1: synonyms. Version 3: types and documentation (KIP-569). Configs of this broker that only its start can set
are shown as read-only; a group's are its coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kohort.base.options import Option, as_text
from kohort.broker.chunked_responses import answer_rows, denied_configs, rows_asked_for
from kohort.broker.context import BrokerContext, Request
from kohort.broker.log_levels import check_node, levels
from kohort.broker.options.settings import BROKER_OPTIONS, TOPIC_DEFAULTS
from kohort.broker.topics import configs as topic_configs
from kohort.broker.topics.configs import Resource
from kohort.coordinator.commands import Refusal, admin
from kohort.coordinator.configs import GROUP_CONFIGS
from kohort.errors import ErrorCode, Refused
from kohort.security.access_control import AclOperation
from kohort.storage.topicconfig import TOPIC_OPTIONS
from kohort.wire.messages import describe_configs as wire

#: Topic config -> the broker's options that are its default, the finest unit first.
_DEFAULTED_BY: Final[dict[str, tuple[str, ...]]] = {topic: (broker,) for broker, topic in TOPIC_DEFAULTS.items()} | {
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
}
#: Configs that a new cluster of Apache Kafka sets for all its brokers (KIP-966).
_SET_FOR_ALL: Final = frozenset({"min.insync.replicas"})


def handle(context: BrokerContext, request: Request, message: wire.DescribeConfigsRequest) -> None:
    """Describe each resource independently; a resource that is named twice is described once."""
    resources = list(_each_once(message.resources))

    def ask(asked: wire.DescribeConfigsResource, take: Callable[[_Found], None]) -> None:
        denied = denied_configs(request.rights, AclOperation.DESCRIBE_CONFIGS, asked.resource_type, asked.resource_name)
        if denied is not None:
            take(denied)
            return
        if asked.resource_type != Resource.GROUP:
            take(_rows(context, asked))
            return
        token = context.runtime.next_token()
        command = admin.DescribeGroupConfigs(cause=token, request=token, group_id=asked.resource_name)
        context.runtime.ask(command, lambda reply: take(_group_rows(reply)))

    rows_of = rows_asked_for(ask, lambda asked, found: _answer(found, asked, message))
    answer_rows(context, request, resources, rows_of, lambda rows: wire.DescribeConfigsResponse(results=rows))


def _each_once(resources: Iterable[wire.DescribeConfigsResource]) -> Iterable[wire.DescribeConfigsResource]:
    """Merge the rows of a resource that is named several times; the merged row has all requested keys."""
    once: dict[tuple[int, str], wire.DescribeConfigsResource] = {}
    for each in resources:
        first = once.setdefault((each.resource_type, each.resource_name), each)
        if first is not each:
            # A null list of keys asks for all of them.
            first.configuration_keys = (
                [*first.configuration_keys, *each.configuration_keys]
                if first.configuration_keys and each.configuration_keys
                else None
            )
    return once.values()


#: The configs of one resource, or why they are not shown.
_Found = list[wire.DescribeConfigsResourceResult] | Refusal


def _answer(
    rows: _Found, asked: wire.DescribeConfigsResource, message: wire.DescribeConfigsRequest
) -> wire.DescribeConfigsResult:
    result = wire.DescribeConfigsResult(resource_type=asked.resource_type, resource_name=asked.resource_name)
    if isinstance(rows, Refusal):
        result.error_code, result.error_message = rows.code, rows.message
        return result
    # An empty list of keys means all of them, as null does.
    wanted = set(asked.configuration_keys or ())
    chosen = [row for row in rows if not wanted or row.name in wanted]
    for row in chosen:
        if not message.include_synonyms:
            row.synonyms = []
        if not message.include_documentation:
            row.documentation = None
    result.error_message, result.configs = None, chosen
    return result


def _rows(context: BrokerContext, asked: wire.DescribeConfigsResource) -> _Found:
    try:
        return list(_rows_here(context, asked))
    except Refused as refused:
        return Refusal(code=refused.code, message=str(refused))


def _rows_here(
    context: BrokerContext, asked: wire.DescribeConfigsResource
) -> Iterable[wire.DescribeConfigsResourceResult]:
    match asked.resource_type:
        case Resource.TOPIC:
            return _topic_rows(context, asked.resource_name)
        case Resource.BROKER:
            given = context.broker_configs.given
            if not asked.resource_name:
                return (
                    _row(BROKER_OPTIONS.option(name), given[name], source=topic_configs.DYNAMIC_ALL_SOURCE)
                    for name in given
                )
            if asked.resource_name != str(context.leadership.node_id):
                raise Refused(ErrorCode.INVALID_REQUEST, f"this is broker {context.leadership.node_id}")
            return _broker_rows(context.settings.values, given)
        case Resource.BROKER_LOGGER:
            check_node(asked.resource_name, context.leadership.node_id, called="broker")
            return map(_level_row, levels().items())
        case other:
            raise Refused(ErrorCode.INVALID_REQUEST, f"resources of type {other} have no configs here")


def _level_row(level: tuple[str, str]) -> wire.DescribeConfigsResourceResult:
    # As Apache Kafka: no synonyms, no type.
    return wire.DescribeConfigsResourceResult(
        name=level[0], value=level[1], config_source=topic_configs.LOGGER_SOURCE, synonyms=[], documentation=None
    )


def _topic_rows(context: BrokerContext, name: str) -> Iterable[wire.DescribeConfigsResourceResult]:
    topic = context.cluster.topic(name)
    if topic is None:
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
    defaults = topic_configs.topic_defaults(context.settings)
    for option in TOPIC_OPTIONS:
        own = topic.configs.get(option.name)
        default = defaults[option.name]
        value = default if own is None else own
        synonyms = list(_inherited(context, option))
        if own is not None:
            synonyms.insert(
                0, wire.DescribeConfigsSynonym(name=option.name, value=own, source=topic_configs.TOPIC_SOURCE)
            )
        row = _row(option, value, source=synonyms[0].source, synonyms=synonyms)
        row.documentation = topic_configs.documentation_of(option, value)
        yield row


def _inherited(context: BrokerContext, option: Option) -> Iterator[wire.DescribeConfigsSynonym]:
    """Yield the synonyms from which a topic without this config inherits it, the nearest first."""
    values, given = context.settings.values, context.broker_configs.given
    names = _DEFAULTED_BY.get(option.name, ())
    for name in names:
        if name in given:
            yield wire.DescribeConfigsSynonym(name=name, value=given[name], source=topic_configs.DYNAMIC_BROKER_SOURCE)
        elif values[name] != BROKER_OPTIONS.option(name).default:
            yield wire.DescribeConfigsSynonym(
                name=name, value=as_text(values[name]), source=topic_configs.BROKER_SOURCE
            )
        elif name in _SET_FOR_ALL:
            yield wire.DescribeConfigsSynonym(
                name=name, value=as_text(values[name]), source=topic_configs.DYNAMIC_ALL_SOURCE
            )
    if len(names) == 1:
        option = BROKER_OPTIONS.option(names[0])
    yield wire.DescribeConfigsSynonym(
        name=option.name, value=as_text(option.default), source=topic_configs.DEFAULT_SOURCE
    )


def _broker_rows(
    values: Mapping[str, object], given: Mapping[str, str]
) -> Iterable[wire.DescribeConfigsResourceResult]:
    for option in BROKER_OPTIONS:
        value = values[option.name]
        source = topic_configs.DEFAULT_SOURCE if value == option.default else topic_configs.BROKER_SOURCE
        if option.name in given:
            source = topic_configs.DYNAMIC_BROKER_SOURCE
        row = _row(option, None if value is None else as_text(value), source=source)
        row.read_only = option.name not in topic_configs.DYNAMIC
        yield row


def _group_rows(reply: admin.DescribeGroupConfigsReply | Refusal) -> _Found:
    if isinstance(reply, Refusal):
        return reply
    rows = []
    for name, config in GROUP_CONFIGS.items():
        own = reply.configs.get(name)
        default = wire.DescribeConfigsSynonym(
            name=config.broker_option, value=reply.defaults[name], source=topic_configs.DEFAULT_SOURCE
        )
        synonyms = [default]
        if own is not None:
            synonyms.insert(0, wire.DescribeConfigsSynonym(name=name, value=own, source=topic_configs.GROUP_SOURCE))
        source = topic_configs.DEFAULT_SOURCE if own is None else topic_configs.GROUP_SOURCE
        rows.append(_row(config.option, reply.effective[name], source=source, synonyms=synonyms))
    return rows


def _row(
    option: Option, value: str | None, *, source: int, synonyms: list[wire.DescribeConfigsSynonym] | None = None
) -> wire.DescribeConfigsResourceResult:
    if option.is_secret:
        # Whether there is one is not told either.
        value = None
    return wire.DescribeConfigsResourceResult(
        name=option.name,
        value=value,
        is_sensitive=option.is_secret,
        config_source=source,
        synonyms=synonyms or [wire.DescribeConfigsSynonym(name=option.name, value=value, source=source)],
        config_type=topic_configs.config_type(option),
        documentation=option.doc,
    )
