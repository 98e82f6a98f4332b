"""RevokeTokens (key 10007), an API of kohort's own: end capability tokens before their leases do.

The connections of their holders end at once, with what waits for them there.
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.revocations import MOST_REVOCATIONS, RevokedKind
from kohort.broker.topics.topic_operations import Outcome, code_of
from kohort.errors import ErrorCode, Refused
from kohort.security.access_control import AclOperation, ResourceType
from kohort.security.capabilities.capability import is_id
from kohort.security.capabilities.caveats import LONGEST_LABEL
from kohort.storage.catalog import RevokedName
from kohort.wire.messages import revoke_tokens as wire


def handle(context: BrokerContext, request: Request, message: wire.RevokeTokensRequest) -> None:
    """Revoke all tokens of the request, or refuse the request."""

    def answer(why: Outcome) -> None:
        code = ErrorCode.NONE if why is None else code_of(why)
        request.answer(wire.RevokeTokensResponse(error_code=code, error_message=None if why is None else str(why)))

    if not request.rights.allows(AclOperation.ALTER, ResourceType.CLUSTER):
        answer(Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."))
        return
    try:
        ends_ms = _read(message)
    except Refused as why:
        answer(why)
        return
    context.cluster.work.ask([context.revocations.revocation(ends_ms, answer)])


def _read(message: wire.RevokeTokensRequest) -> dict[RevokedName, int]:
    if len(message.revocations) > MOST_REVOCATIONS:
        text = f"{len(message.revocations)} revocations at once; {MOST_REVOCATIONS} are allowed"
        raise Refused(ErrorCode.POLICY_VIOLATION, text)
    ends_ms: dict[RevokedName, int] = {}
    for each in message.revocations:
        kind, name = each.kind, each.name
        if kind == RevokedKind.ID:
            is_right = is_id(name)
        else:
            is_right = kind == RevokedKind.LABEL and all(0 < len(part) <= LONGEST_LABEL for part in name.split("/"))
        if not is_right:
            # A token in place of its id is not repeated.
            text = "the id of a token (22 characters), or a label of at most 64 characters between slashes is expected"
            raise Refused(ErrorCode.INVALID_REQUEST, text)
        ends_ms[kind, name] = max(each.not_after_ms, ends_ms.get((kind, name), each.not_after_ms))
    return ends_ms
