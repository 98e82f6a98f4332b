"""ListConfigResources (key 74): topics, this broker, and groups that have configs of their own.

Version 0 asks for subscriptions to client metrics, of which there are none. Version 1: kinds (KIP-1142); a kind that is
unknown is answered UNSUPPORTED_VERSION, as Apache Kafka does.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.chunked_responses import Gather
from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.topics.configs import Resource
from kohort.coordinator.commands import admin as commands
from kohort.coordinator.decision import ReplyBody
from kohort.errors import ErrorCode
from kohort.ids import CauseId
from kohort.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

#: Kafka's kinds that this broker knows and has none of: loggers, and subscriptions to client metrics.
_ALWAYS_EMPTY: Final = frozenset({8, 16})


def handle(
    context: BrokerContext, request: Request, message: ListConfigResourcesRequest
) -> ListConfigResourcesResponse | None:
    """List the resources of the requested kinds; ask every shard for groups."""
    if request.version == 0:
        return ListConfigResourcesResponse()
    kinds = set(message.resource_types) or set(Resource)
    if not kinds <= set(Resource) | _ALWAYS_EMPTY:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    rows = []
    if Resource.TOPIC in kinds:
        rows += [_row(name, Resource.TOPIC) for name in sorted(context.cluster.topics)]
    if Resource.BROKER in kinds:
        rows.append(_row(str(context.leadership.node_id), Resource.BROKER))
    if Resource.GROUP not in kinds:
        return ListConfigResourcesResponse(config_resources=rows)

    def complete(replies: list[ReplyBody]) -> None:
        if request.is_open:
            groups = sorted(group_id for reply in replies for group_id in _group_ids(reply))
            rows.extend(_row(group_id, Resource.GROUP) for group_id in groups)
            request.answer(ListConfigResourcesResponse(config_resources=rows))

    runtime = context.runtime
    whole = Gather(runtime.shard_count, complete)
    for index in range(runtime.shard_count):
        token = runtime.next_token()
        command = commands.ListGroupConfigs(cause=CauseId(token), request=token)
        runtime.ask_shard(index, token, command, whole.slot(index))
    return None


def _group_ids(reply: ReplyBody) -> tuple[str, ...]:
    assert isinstance(reply, commands.ListGroupConfigsReply)
    return reply.group_ids


def _row(name: str, kind: Resource) -> ConfigResource:
    return ConfigResource(resource_name=name, resource_type=kind)
