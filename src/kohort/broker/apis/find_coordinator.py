"""FindCoordinator (key 10): the coordinator of a group. A single broker coordinates every group.

Version 1: the kind of key (0 group, 1 transaction, 2 share group). Version 4: several keys at once (KIP-699).
Transactions and share groups are refused with codes that clients report instead of asking again.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kohort.base.values import from_row
from kohort.broker.chunked_responses import answer_rows, rows_at_once
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.broker.topics.leadership import NO_NODE
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import find_coordinator as wire

#: Kafka's kinds of keys; 2 is a share group.
GROUP: Final = 0
TRANSACTION: Final = 1


def handle(
    context: BrokerContext, request: Request, message: wire.FindCoordinatorRequest
) -> wire.FindCoordinatorResponse | None:
    """Answer with a broker for each group, and with an error for every other kind of key."""
    if request.version >= 4:
        keys = list(dict.fromkeys(message.coordinator_keys))
        check_rows(len(keys), MOST_NAMED, "keys")
        rows_of = rows_at_once(partial(_find, context, request, message.key_type))
        answer_rows(context, request, keys, rows_of, lambda rows: wire.FindCoordinatorResponse(coordinators=rows))
        return None
    return from_row(wire.FindCoordinatorResponse, _find(context, request, message.key_type, message.key))


def _find(context: BrokerContext, request: Request, key_type: int, key: str) -> wire.Coordinator:
    if key_type == TRANSACTION:
        # Clients report this code as fatal instead of asking again.
        return _refuse(
            key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this broker does not serve transactions yet"
        )
    if key_type != GROUP:
        return _refuse(key, ErrorCode.INVALID_REQUEST, f"this broker has no coordinators of kind {key_type}")
    if not request.rights.allows(AclOperation.DESCRIBE, ResourceType.GROUP, key):
        return _refuse(key, ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    node_id = context.leadership.coordinator_of(key) if context.runtime.serves(key) else NO_NODE
    for node in context.leadership.nodes(request.connection):
        if node.node_id == node_id:
            return wire.Coordinator(key=key, node_id=node_id, host=node.host, port=node.port)
    return _refuse(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker coordinates this group at present")


def _refuse(key: str, code: ErrorCode, text: str) -> wire.Coordinator:
    return wire.Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)
