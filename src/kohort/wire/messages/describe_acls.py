"""DescribeAcls (key 29): the entries of the access control lists that a filter matches.

Versions begin with 1 (KIP-896), in which resources have a pattern type (KIP-290). Version 2: flexible (KIP-482).
Version 3: users are resources (KIP-373).
"""

from kohort.wire.schema import INT8, INT16, INT32, STRING, Message, array, field, message


@message(key=29, kind="request", versions="1-3", flexible="2+")
class DescribeAclsRequest(Message):
    """A filter; null texts and numbers of 1 match everything."""

    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable=0)
    pattern_type_filter: int = field(INT8, since=1, default=3)
    principal_filter: str | None = field(STRING, nullable=0)
    host_filter: str | None = field(STRING, nullable=0)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class AclDescription(Message):
    """One entry of a resource."""

    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DescribeAclsResource(Message):
    """One resource with its entries."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, since=1, default=3)
    acls: list[AclDescription] = field(array(AclDescription))


@message(key=29, kind="response", versions="1-3", flexible="2+")
class DescribeAclsResponse(Message):
    """The matching entries, by resource."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    resources: list[DescribeAclsResource] = field(array(DescribeAclsResource))
