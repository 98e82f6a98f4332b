"""CreateAcls (key 30): add entries to the access control lists.

Versions begin with 1 (KIP-896), in which resources have a pattern type (KIP-290). Version 2: flexible (KIP-482).
Version 3: users are resources (KIP-373).
"""

from kohort.wire.schema import INT8, INT16, INT32, STRING, Message, array, field, message


class AclCreation(Message):
    """One entry; `client/admin/results/access.py` has the meaning of its numbers."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    resource_pattern_type: int = field(INT8, since=1, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@message(key=30, kind="request", versions="1-3", flexible="2+")
class CreateAclsRequest(Message):
    """Entries to add."""

    creations: list[AclCreation] = field(array(AclCreation))


class AclCreationResult(Message):
    """The result for one entry."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


@message(key=30, kind="response", versions="1-3", flexible="2+")
class CreateAclsResponse(Message):
    """An answer per entry, in the order of the request."""

    throttle_time_ms: int = field(INT32)
    results: list[AclCreationResult] = field(array(AclCreationResult))
