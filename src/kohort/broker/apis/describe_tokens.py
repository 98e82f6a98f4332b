"""DescribeTokens (key 10008), an API of kohort's own: tokens that clients are logged in with, and revoked ones."""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.revocations import NO_END_MS
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import describe_tokens as wire


def handle(
    context: BrokerContext, request: Request, message: wire.DescribeTokensRequest
) -> wire.DescribeTokensResponse:
    """Answer with the tokens of open connections, by id, and the revocations."""
    del message
    if not request.rights.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return wire.DescribeTokensResponse(error_code=code, error_message="Cluster authorization failed.")
    found: dict[str, wire.DescribedToken] = {}
    for connection in context.connections:
        capability = connection.rights.capability
        if capability is None:
            continue
        end_ms = NO_END_MS if capability.not_after_ms is None else capability.not_after_ms
        row = found.get(capability.id)
        if row is None:
            row = found[capability.id] = wire.DescribedToken(token_id=capability.id, label=capability.label)
        row.connections += 1
        if end_ms >= row.not_after_ms:
            row.not_after_ms, row.chain = end_ms, [*capability.chain]
    return wire.DescribeTokensResponse(
        error_code=ErrorCode.NONE,
        tokens=[row for _, row in sorted(found.items())],
        revocations=[
            wire.DescribedRevocation(kind=kind, name=name, revoked_ms=revoked_ms, not_after_ms=end_ms)
            for (kind, name), (revoked_ms, end_ms) in context.revocations.rows()
        ],
    )
