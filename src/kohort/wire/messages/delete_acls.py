"""DeleteAcls (key 31): remove the entries of the access control lists that filters match.

Versions begin with 1 (KIP-896), in which resources have a pattern type (KIP-290). Version 2: flexible (KIP-482).
Version 3: users are resources (KIP-373).
"""

from kohort.wire.schema import INT8, INT16, INT32, STRING, Message, array, field, message


class DeleteAclsFilter(Message):
    """A filter; null texts and numbers of 1 match everything."""

    resource_type_filter: int = field(INT8)
    resource_name_filter: str | None = field(STRING, nullable=0)
    pattern_type_filter: int = field(INT8, since=1, default=3)
    principal_filter: str | None = field(STRING, nullable=0)
    host_filter: str | None = field(STRING, nullable=0)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


@message(key=31, kind="request", versions="1-3", flexible="2+")
class DeleteAclsRequest(Message):
    """Filters, each of which is carried out independently."""

    filters: list[DeleteAclsFilter] = field(array(DeleteAclsFilter))


class DeleteAclsMatchingAcl(Message):
    """One entry that a filter matched, and whether it was deleted."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8, since=1, default=3)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class DeleteAclsFilterResult(Message):
    """The result for one filter."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    matching_acls: list[DeleteAclsMatchingAcl] = field(array(DeleteAclsMatchingAcl))


@message(key=31, kind="response", versions="1-3", flexible="2+")
class DeleteAclsResponse(Message):
    """An answer per filter, in the order of the request."""

    throttle_time_ms: int = field(INT32)
    filter_results: list[DeleteAclsFilterResult] = field(array(DeleteAclsFilterResult))
