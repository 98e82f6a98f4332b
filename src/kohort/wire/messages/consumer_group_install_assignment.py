"""ConsumerGroupInstallAssignment (key 10006): the assignment that a member has computed.

An API of kohort's own.
Version 0. Announced to kohort's clients only; Apache Kafka has no such API: KIP-848 as drafted had one.
"""

from kohort.wire.schema import BYTES, INT8, INT16, INT32, STRING, Message, array, field, message


class AssignmentToInstall(Message):
    """The assignor's metadata for one member; a member that is not named gets none."""

    member_id: str = field(STRING)
    metadata_version: int = field(INT16)
    metadata_bytes: bytes = field(BYTES)


@message(key=10_006, kind="request", versions="0", flexible="0+")
class ConsumerGroupInstallAssignmentRequest(Message):
    """The result of a computation; with an `error` other than 0 there is none, and nothing else counts.

    `group_epoch` is that of ConsumerGroupPrepareAssignment. `owners` are as there, with an owner for every partition.
    """

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    group_epoch: int = field(INT32)
    error: int = field(INT8)
    owners: list[int] = field(array(INT32))
    members: list[AssignmentToInstall] = field(array(AssignmentToInstall))


@message(key=10_006, kind="response", versions="0", flexible="0+")
class ConsumerGroupInstallAssignmentResponse(Message):
    """The result; an error has the reason why the assignment was not taken."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
