"""FindCoordinator (key 10): the coordinator of a group. A single broker coordinates every group.

Version 1: the kind of key (0 group, 1 transaction, 2 share group). Version 4: several keys at once (KIP-699).
Transactions and share groups are refused with codes that clients report instead of asking again.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.chunked_responses import answer_rows, rows_at_once
from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.broker.topics.leadership import NO_NODE
from kohort.errors import ErrorCode
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

#: Kafka's kinds of keys; 2 is a share group.
GROUP: Final = 0
TRANSACTION: Final = 1


def handle(context: BrokerContext, request: Request, message: FindCoordinatorRequest) -> FindCoordinatorResponse | None:
    """Answer with a broker for each group, and with an error for every other kind of key."""
    if request.version >= 4:
        call_soon, keys = context.loop.call_soon, list(dict.fromkeys(message.coordinator_keys))
        check_rows(len(keys), MOST_NAMED, "keys")

        def row_of(key: str) -> Coordinator:
            return _find(context, request, key, message.key_type)

        rows_of = rows_at_once(row_of)
        answer_rows(call_soon, request, keys, rows_of, lambda rows: FindCoordinatorResponse(coordinators=rows))
        return None
    one = _find(context, request, message.key, message.key_type)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _find(context: BrokerContext, request: Request, key: str, key_type: int) -> Coordinator:
    if key_type == TRANSACTION:
        # Clients report this code as fatal instead of asking again.
        return _refuse(
            key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this broker does not serve transactions yet"
        )
    if key_type != GROUP:
        return _refuse(key, ErrorCode.INVALID_REQUEST, f"this broker has no coordinators of kind {key_type}")
    node_id = context.leadership.coordinator_of(key) if context.runtime.serves(key) else NO_NODE
    for node in context.leadership.nodes(request.connection):
        if node.node_id == node_id:
            return Coordinator(key=key, node_id=node_id, host=node.host, port=node.port)
    return _refuse(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker coordinates this group at present")


def _refuse(key: str, code: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)
