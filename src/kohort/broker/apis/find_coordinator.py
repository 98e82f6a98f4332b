"""FindCoordinator (key 10): the coordinator of a group or of a transactional id.

Version 1: the kind of key (0 group, 1 transaction, 2 share group). Version 4: several keys at once (KIP-699).
Share groups are refused with a code that clients report instead of asking again.
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
    """Answer with a broker for each group or transactional id, and with an error for every other kind of key."""
    if message.key_type != TRANSACTION or context.transactions.is_ready or not _may_ask(request, message):
        return _answer(context, request, message)

    def answer() -> None:
        response = _answer(context, request, message) if request.is_open else None
        if response is not None:
            request.answer(response)

    # The first transaction of the cluster: its topic has to be made.
    context.transactions.when_ready(answer)
    return None


def _answer(
    context: BrokerContext, request: Request, message: wire.FindCoordinatorRequest
) -> wire.FindCoordinatorResponse | None:
    if request.version >= 4:
        keys = list(dict.fromkeys(message.coordinator_keys))
        check_rows(len(keys), MOST_NAMED, "keys")
        rows_of = rows_at_once(partial(_find, context, request, message.key_type))
        answer_rows(context, request, keys, rows_of, lambda rows: wire.FindCoordinatorResponse(coordinators=rows))
        return None
    return from_row(wire.FindCoordinatorResponse, _find(context, request, message.key_type, message.key))


def _may_ask(request: Request, message: wire.FindCoordinatorRequest) -> bool:
    """Return whether the client may know of any of the transactional ids that it names."""
    names = message.coordinator_keys if request.version >= 4 else [message.key]
    allows, kind = request.rights.allows, ResourceType.TRANSACTIONAL_ID
    return any(allows(AclOperation.DESCRIBE, kind, name) for name in names)


def _find(context: BrokerContext, request: Request, key_type: int, key: str) -> wire.Coordinator:
    if key_type == TRANSACTION:
        if not request.rights.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _refuse(key, code, "Transactional Id authorization failed.")
        node_id = context.leadership.transaction_coordinator_of(key) if context.transactions.serves(key) else NO_NODE
        return _found(context, request, key, node_id)
    if key_type != GROUP:
        return _refuse(key, ErrorCode.INVALID_REQUEST, f"this broker has no coordinators of kind {key_type}")
    if not request.rights.allows(AclOperation.DESCRIBE, ResourceType.GROUP, key):
        return _refuse(key, ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
    return _found(
        context, request, key, context.leadership.coordinator_of(key) if context.runtime.serves(key) else NO_NODE
    )


def _found(context: BrokerContext, request: Request, key: str, node_id: int) -> wire.Coordinator:
    for node in context.leadership.nodes(request.connection):
        if node.node_id == node_id:
            return wire.Coordinator(key=key, node_id=node_id, host=node.host, port=node.port)
    return _refuse(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker coordinates it at present")


def _refuse(key: str, code: ErrorCode, text: str) -> wire.Coordinator:
    return wire.Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=text)
