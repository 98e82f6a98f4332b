"""The exceptions for brokers' error codes, with details that the client knows in addition to the code.

Source: Apache Kafka's table of operations and the ACL operations that they require.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kohort.errors import AuthorizationError, BrokerError, ErrorCode, FencedError, UnsupportedFeatureError

#: Error code -> the kind of resource for which a right is missing.
_RESOURCES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional_id",
}
_CLUSTER: Final = "kafka-cluster"


class Absence(NamedTuple):
    """The end of a membership and its reason."""

    #: Member id and epoch at that time; empty, and 0 or below, without a membership.
    member_id: str
    epoch: int
    why: str


def refused(
    code: ErrorCode, message: str | None = None, *, during: str = "", operation: str = "", name: str = ""
) -> BrokerError:
    """Build the exception for a response with an error code.

    Args:
        code: error code of the response.
        message: error message of the response.
        during: the operation, as text for people.
        operation: the ACL operation that the caller needs, if it lacks one: a consumer that may not describe a topic
            may not read it either. Empty if several are possible.
        name: of the topic or the group in the request.
    """
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return UnsupportedFeatureError(code, message, during=during)
    kind = _RESOURCES.get(code)
    if kind is None:
        return BrokerError(code, message, during=during)
    name = _CLUSTER if kind == "cluster" else name
    if not name:
        operation, kind = "", ""
    return AuthorizationError(code, message, operation=operation, resource_type=kind, name=name, during=during)


def left_out(
    code: ErrorCode, message: str | None, *, group: str, member: str, epoch: int, name: str | None = None
) -> BrokerError:
    """Build the exception for a member that its coordinator refuses permanently.

    `name`: its group.instance.id.
    """
    if code is ErrorCode.FENCED_INSTANCE_ID and name is None:
        # A JoinGroup answer has no text. Without a name of its own, a member cannot have lost it to another one.
        message = message or f"group {group} is a static one: give every member a name with group.instance.id"
    if code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return refused(code, message, during=f"heartbeating in group {group}", operation="read", name=group)
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return UnsupportedFeatureError(code, message, during=f"joining group {group}")
    return FencedError(code, message, group=group, member=member, epoch=epoch, during="joining the group")


# -- refusals of a transactional producer -----------------------------------------------------------------------------

#: Another producer has the transactional id.
FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)
#: The coordinator does not know the producer id: the transactional id has expired.
FORGOTTEN: Final = (ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
#: Refusals by any coordinator for which only the transaction is lost.
ABORTABLE: Final = (ErrorCode.TRANSACTION_ABORTABLE, *FORGOTTEN)
#: Refusals to add a partition, and to commit offsets, for which only the transaction is lost.
OF_PARTITIONS: Final = (
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
)
OF_OFFSETS: Final = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
)
#: Refusals of a batch after which no request of this producer can succeed.
FATAL_CODES: Final = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,
)
