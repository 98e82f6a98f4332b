"""CreateAcls (key 30): add entries to the access control lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kohort.broker.apis.describe_acls import DENIED, NO_AUTHORIZER
from kohort.broker.chunked_responses import answer_rows, rows_at_once
from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.acls import AccessControlLists
from kohort.broker.topics.topic_operations import Outcome, code_of
from kohort.errors import ErrorCode, Refused, RemoteProtocolError
from kohort.security.access_control import CLUSTER_NAME, AclOperation, AclPermission, PatternType, ResourceType
from kohort.security.authorizer import ANY, MATCH, Acl, is_met
from kohort.wire.messages import create_acls as wire

#: The longest principal and host of an entry, in characters. Apache Kafka has no limit but that of the protocol.
LONGEST_WHO: Final = 4_096
#: Entries that are checked in one turn of the loop.
_CHECKED_AT_ONCE: Final = 500
#: Kafka's number of a value that it does not know.
_UNKNOWN: Final = 0


def handle(context: BrokerContext, request: Request, message: wire.CreateAclsRequest) -> wire.CreateAclsResponse | None:
    """Add each entry independently; adding an existing entry succeeds."""
    if any(
        _UNKNOWN in (each.resource_type, each.resource_pattern_type, each.operation, each.permission_type)
        for each in message.creations
    ):
        raise RemoteProtocolError("an entry of access lists with an unknown value, number 0")
    refusal = None
    if not request.rights.allows(AclOperation.ALTER, ResourceType.CLUSTER):
        refusal = wire.AclCreationResult(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=DENIED)
    elif context.acls is None or not context.authorization.is_on:
        refusal = wire.AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    elif any(_is_of_filters(each) for each in message.creations):
        # Apache Kafka finds them in the middle of its work, and does none of it.
        refusal = wire.AclCreationResult(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, error_message=None)
    if refusal is not None or context.acls is None:
        return wire.CreateAclsResponse(results=[refusal or wire.AclCreationResult()] * len(message.creations))
    context.cooperative_work.run(_add(context, context.acls, request, message.creations))
    return None


def _is_of_filters(sent: wire.AclCreation) -> bool:
    """Whether an entry has a code that only filters may have."""
    is_any = ANY in (sent.resource_type, sent.resource_pattern_type, sent.operation, sent.permission_type)
    return is_any or sent.resource_pattern_type == MATCH


def _add(
    context: BrokerContext, lists: AccessControlLists, request: Request, sent: list[wire.AclCreation]
) -> Iterator[None]:
    checked: list[Acl | Refused] = []
    for each in sent:
        checked.append(_check(each))
        if not len(checked) % _CHECKED_AT_ONCE:
            yield
    acls = [each for each in checked if isinstance(each, Acl)]

    def done(why: Outcome) -> None:
        def row_of(each: Acl | Refused) -> wire.AclCreationResult:
            error = each if isinstance(each, Refused) else why
            if error is None:
                return wire.AclCreationResult(error_message="")
            return wire.AclCreationResult(error_code=code_of(error), error_message=str(error))

        if request.is_open:
            answer_rows(
                context, request, checked, rows_at_once(row_of), lambda rows: wire.CreateAclsResponse(results=rows)
            )

    if acls:
        context.cluster.work.ask([lists.addition(acls, done)])
    else:
        done(None)


def _check(sent: wire.AclCreation) -> Acl | Refused:
    """Return the entry, or why it cannot be one, in Apache Kafka's words."""
    name, principal = sent.resource_name, sent.principal
    why = None
    if sent.resource_type == ResourceType.CLUSTER and name != CLUSTER_NAME:
        why = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not name:
        why = "Invalid empty resource name"
    elif sent.resource_type not in list(ResourceType):
        why = "Invalid resourceType UNKNOWN"
    elif sent.resource_pattern_type not in list(PatternType):
        why = "Invalid patternType UNKNOWN"
    elif sent.operation not in list(AclOperation):
        why = "Invalid operation UNKNOWN"
    elif sent.permission_type not in list(AclPermission):
        why = "Invalid permissionType UNKNOWN"
    elif ":" not in principal:
        # Such an entry could never be meant: a principal has a kind and a name.
        why = f"Could not parse principal from `{principal[:100]}` (no colon is present separating the principal type from the principal name)"  # noqa: E501
    elif len(principal) > LONGEST_WHO or len(sent.host) > LONGEST_WHO:
        why = f"a principal or host of {max(len(principal), len(sent.host))} characters; {LONGEST_WHO} are allowed"
    elif sent.permission_type == AclPermission.DENY and not is_met(principal, sent.host):
        # Apache Kafka takes it, and denies nobody anything.
        shown = f"{principal[:100]} from {sent.host[:100]}"
        why = f"{shown} would deny nothing: User:NAME from an address such as 10.0.0.7 or ::1, or from *, is expected"
    if why is not None:
        return Refused(ErrorCode.INVALID_REQUEST, why)
    return Acl(
        ResourceType(sent.resource_type), PatternType(sent.resource_pattern_type), name, principal, sent.host,
        AclOperation(sent.operation), AclPermission(sent.permission_type),
    )  # fmt: skip
