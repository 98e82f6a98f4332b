"""DescribeConfigs (key 32): the configs of topics, this broker and groups.

Versions 1 to 4 are served. Version 1: synonyms. Version 3: types and documentation (KIP-569).
Configs of this broker that only its start can set are shown as read-only; a group's are its coordinator's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kohort.base.options import Option, as_text
from kohort.broker.chunked_responses import answer_rows, rows_asked_for
from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.options.definitions import TOPIC_DEFAULTS
from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.broker.topics.configs import (
    BROKER_SOURCE,
    DEFAULT_SOURCE,
    DYNAMIC,
    DYNAMIC_ALL_SOURCE,
    DYNAMIC_BROKER_SOURCE,
    GROUP_SOURCE,
    TOPIC_SOURCE,
    Resource,
    config_type,
    documentation_of,
    topic_defaults,
)
from kohort.coordinator.commands import Refusal
from kohort.coordinator.commands import admin as commands
from kohort.coordinator.configs import GROUP_CONFIGS
from kohort.coordinator.decision import ReplyBody
from kohort.errors import ErrorCode, Refused
from kohort.ids import CauseId
from kohort.storage.topicconfig import TOPIC_OPTIONS
from kohort.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

#: Topic config -> the broker's options that are its default, the finest unit first.
_DEFAULTED_BY: Final[dict[str, tuple[str, ...]]] = {topic: (broker,) for broker, topic in TOPIC_DEFAULTS.items()} | {
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
}
#: Configs that a new cluster of Apache Kafka sets for all its brokers (KIP-966).
_SET_FOR_ALL: Final = frozenset({"min.insync.replicas"})


def handle(context: BrokerContext, request: Request, message: DescribeConfigsRequest) -> None:
    """Describe each resource independently; one that is named twice is described once."""
    resources = list(_each_once(message.resources))

    def ask(asked: DescribeConfigsResource, take: Callable[[_Found], None]) -> None:
        if asked.resource_type != Resource.GROUP:
            take(_rows(context, asked))
            return
        token = context.runtime.next_token()
        command = commands.DescribeGroupConfigs(cause=CauseId(token), request=token, group_id=asked.resource_name)
        context.runtime.ask(command, lambda reply: take(_group_rows(reply)))

    rows_of = rows_asked_for(ask, lambda asked, found: _answer(found, asked, message))
    answer_rows(context.loop.call_soon, request, resources, rows_of, lambda rows: DescribeConfigsResponse(results=rows))


def _each_once(resources: Iterable[DescribeConfigsResource]) -> Iterable[DescribeConfigsResource]:
    """Merge the rows of a resource that is named several times, with all keys that are asked for."""
    once: dict[tuple[int, str], DescribeConfigsResource] = {}
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
_Found = list[DescribeConfigsResourceResult] | Refusal


def _answer(rows: _Found, asked: DescribeConfigsResource, message: DescribeConfigsRequest) -> DescribeConfigsResult:
    if isinstance(rows, Refusal):
        return DescribeConfigsResult(
            error_code=rows.code,
            error_message=rows.message,
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
        )
    # An empty list of keys means all of them, as null does.
    wanted = set(asked.configuration_keys or ())
    chosen = [row for row in rows if not wanted or row.name in wanted]
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


def _rows(context: BrokerContext, asked: DescribeConfigsResource) -> _Found:
    try:
        return list(_rows_here(context, asked))
    except Refused as refused:
        return Refusal(code=refused.code, message=str(refused))


def _rows_here(context: BrokerContext, asked: DescribeConfigsResource) -> Iterable[DescribeConfigsResourceResult]:
    match asked.resource_type:
        case Resource.TOPIC:
            return _topic_rows(context, asked.resource_name)
        case Resource.BROKER:
            given = context.broker_configs.given
            if not asked.resource_name:
                return (_row(BROKER_OPTIONS.option(name), given[name], source=DYNAMIC_ALL_SOURCE) for name in given)
            if asked.resource_name != str(context.leadership.node_id):
                raise Refused(ErrorCode.INVALID_REQUEST, f"this is broker {context.leadership.node_id}")
            return _broker_rows(context.settings.values, given)
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
        value = default if own is None else own
        synonyms = list(_inherited(context, option))
        if own is not None:
            synonyms.insert(0, DescribeConfigsSynonym(name=option.name, value=own, source=TOPIC_SOURCE))
        row = _row(option, value, source=synonyms[0].source, synonyms=synonyms)
        row.documentation = documentation_of(option, value)
        yield row


def _inherited(context: BrokerContext, option: Option) -> Iterator[DescribeConfigsSynonym]:
    """Yield the synonyms from which a topic without this config inherits it, the nearest first."""
    values, given = context.settings.values, context.broker_configs.given
    names = _DEFAULTED_BY.get(option.name, ())
    for name in names:
        if name in given:
            yield DescribeConfigsSynonym(name=name, value=given[name], source=DYNAMIC_BROKER_SOURCE)
        elif values[name] != BROKER_OPTIONS.option(name).default:
            yield DescribeConfigsSynonym(name=name, value=as_text(values[name]), source=BROKER_SOURCE)
        elif name in _SET_FOR_ALL:
            yield DescribeConfigsSynonym(name=name, value=as_text(values[name]), source=DYNAMIC_ALL_SOURCE)
    if len(names) == 1:
        option = BROKER_OPTIONS.option(names[0])
    yield DescribeConfigsSynonym(name=option.name, value=as_text(option.default), source=DEFAULT_SOURCE)


def _broker_rows(values: Mapping[str, object], given: Mapping[str, str]) -> Iterable[DescribeConfigsResourceResult]:
    for option in BROKER_OPTIONS:
        value = values[option.name]
        source = DEFAULT_SOURCE if value == option.default else BROKER_SOURCE
        if option.name in given:
            source = DYNAMIC_BROKER_SOURCE
        row = _row(option, None if value is None else as_text(value), source=source)
        row.read_only = option.name not in DYNAMIC
        yield row


def _group_rows(reply: ReplyBody) -> _Found:
    if isinstance(reply, Refusal):
        return reply
    assert isinstance(reply, commands.DescribeGroupConfigsReply)
    rows = []
    for name, config in GROUP_CONFIGS.items():
        own = reply.configs.get(name)
        default = DescribeConfigsSynonym(name=config.broker_option, value=reply.defaults[name], source=DEFAULT_SOURCE)
        synonyms = [default]
        if own is not None:
            synonyms.insert(0, DescribeConfigsSynonym(name=name, value=own, source=GROUP_SOURCE))
        source = DEFAULT_SOURCE if own is None else GROUP_SOURCE
        rows.append(_row(config.option, reply.effective[name], source=source, synonyms=synonyms))
    return rows


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
