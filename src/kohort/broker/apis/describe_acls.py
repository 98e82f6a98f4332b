"""DescribeAcls (key 29): the entries of the access control lists that a filter lets through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

from kohort.broker.chunked_responses import EncodedRows
from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode, RemoteProtocolError
from kohort.security.access_control import AclOperation, AclPermission, PatternType, ResourceType
from kohort.security.authorizer import ANY, MATCH, Acl, AclFilter
from kohort.wire.messages import delete_acls
from kohort.wire.messages import describe_acls as wire

#: Apache Kafka's words, and those of the two other APIs.
NO_AUTHORIZER: Final = "No Authorizer is configured."
DENIED: Final = "Cluster authorization failed."
#: Kafka's number of a value that it does not know.
_UNKNOWN: Final = 0
#: What a filter may name beside every value.
_KNOWN: Final = {
    "resource type": (ANY, *ResourceType),
    "pattern type": (ANY, MATCH, *PatternType),
    "operation": (ANY, *AclOperation),
    "permission type": (ANY, *AclPermission),
}


def handle(
    context: BrokerContext, request: Request, message: wire.DescribeAclsRequest
) -> wire.DescribeAclsResponse | None:
    """Answer with the entries by resource pattern; of many entries a part in each turn of the loop."""
    check_sent([message])
    authorizer = context.authorization.authorizer
    if not request.rights.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return wire.DescribeAclsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=DENIED)
    if authorizer is None:
        text = "No Authorizer is configured on the broker"
        return wire.DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=text)
    if refused_filter(message) is not None:
        # Apache Kafka takes a number that it does not know for one that no entry has.
        return wire.DescribeAclsResponse(error_message="")
    parts = authorizer.scan(filter_of(message))
    context.cooperative_work.run(_answer(request, parts))
    return None


def _answer(request: Request, parts: Iterator[list[Acl]]) -> Iterator[None]:
    rows = EncodedRows[wire.DescribeAclsResource](
        request.route, lambda resources: wire.DescribeAclsResponse(error_message="", resources=resources)
    )
    for part in parts:
        # A resource pattern with many entries may be in several rows; clients put entries together anyway.
        if part:
            rows.add(_resources(part))
        yield
        if not request.is_open:
            return
    request.answer(rows.body())


def _resources(acls: Iterable[Acl]) -> list[wire.DescribeAclsResource]:
    return [
        wire.DescribeAclsResource(
            resource_type=resource,
            resource_name=name,
            pattern_type=pattern,
            acls=[
                wire.AclDescription(
                    principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
                )
                for acl in found
            ],
        )
        for (resource, pattern, name), found in groupby(acls, lambda acl: (acl.resource, acl.pattern, acl.name))
    ]


# The filters of this API and of DeleteAcls.


def check_sent(filters: Iterable[wire.DescribeAclsRequest | delete_acls.DeleteAclsFilter]) -> None:
    """Raise `RemoteProtocolError` for a filter with the number of unknown values, which no client sends."""
    if any(
        _UNKNOWN in (each.resource_type_filter, each.pattern_type_filter, each.operation, each.permission_type)
        for each in filters
    ):
        raise RemoteProtocolError("a filter of access lists with an unknown value, number 0")


def refused_filter(sent: wire.DescribeAclsRequest | delete_acls.DeleteAclsFilter) -> str | None:
    """Return Apache Kafka's message for a filter with an unknown code; `None` if all codes are known."""
    if (
        sent.resource_type_filter not in _KNOWN["resource type"]
        or sent.pattern_type_filter not in _KNOWN["pattern type"]
    ):
        return "Unknown patternFilter."
    if sent.operation not in _KNOWN["operation"] or sent.permission_type not in _KNOWN["permission type"]:
        return "Unknown entryFilter."
    return None


def filter_of(sent: wire.DescribeAclsRequest | delete_acls.DeleteAclsFilter) -> AclFilter:
    """Return the filter of a request."""
    return AclFilter(
        resource=sent.resource_type_filter,
        pattern=sent.pattern_type_filter,
        name=sent.resource_name_filter,
        principal=sent.principal_filter,
        host=sent.host_filter,
        operation=sent.operation,
        permission=sent.permission_type,
    )
