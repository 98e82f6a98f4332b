"""ListConfigResources (key 74): topics, this broker, its loggers, and groups that have configs of their own.

Version 0 asks for subscriptions to client metrics, of which there are none. Version 1: kinds (KIP-1142); a kind that is
unknown is answered UNSUPPORTED_VERSION, as Apache Kafka does.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.chunked_responses import ask_shards
from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.configs import Resource
from kohort.coordinator.commands import admin
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import list_config_resources as wire

#: Kafka's kind that this broker knows and has none of: subscriptions to client metrics.
_ALWAYS_EMPTY: Final = frozenset({16})


def handle(
    context: BrokerContext, request: Request, message: wire.ListConfigResourcesRequest
) -> wire.ListConfigResourcesResponse | None:
    """List the resources of the requested kinds; ask every shard for groups."""
    if not request.rights.allows(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        return wire.ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if request.version == 0:
        return wire.ListConfigResourcesResponse()
    kinds = set(message.resource_types) or set(Resource)
    if not kinds <= set(Resource) | _ALWAYS_EMPTY:
        return wire.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    rows = []
    if Resource.TOPIC in kinds:
        rows += [_row(name, Resource.TOPIC) for name in sorted(context.cluster.topics)]
    of_broker = [kind for kind in (Resource.BROKER_LOGGER, Resource.BROKER) if kind in kinds]
    rows += [_row(str(context.leadership.node_id), kind) for kind in of_broker]
    if Resource.GROUP not in kinds:
        return wire.ListConfigResourcesResponse(config_resources=rows)

    def complete(replies: list[admin.ListGroupConfigsReply]) -> None:
        if request.is_open:
            groups = sorted(group_id for reply in replies for group_id in reply.group_ids)
            rows.extend(_row(group_id, Resource.GROUP) for group_id in groups)
            request.answer(wire.ListConfigResourcesResponse(config_resources=rows))

    ask_shards(context, admin.ListGroupConfigs, complete)
    return None


def _row(name: str, kind: Resource) -> wire.ConfigResource:
    return wire.ConfigResource(resource_name=name, resource_type=kind)
