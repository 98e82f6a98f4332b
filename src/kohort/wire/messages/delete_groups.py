"""DeleteGroups (key 42), KIP-229: delete empty groups with their offsets.

Version 1: throttled after the answer (KIP-219). Version 2: flexible (KIP-482).
"""

from kohort.wire.schema import INT16, INT32, STRING, Message, array, field, message


@message(key=42, kind="request", versions="0-2", flexible="2+")
class DeleteGroupsRequest(Message):
    """Groups to delete."""

    groups_names: list[str] = field(array(STRING))


class DeletableGroupResult(Message):
    """The result for one group."""

    group_id: str = field(STRING)
    error_code: int = field(INT16)


@message(key=42, kind="response", versions="0-2", flexible="2+")
class DeleteGroupsResponse(Message):
    """One result per group of the request."""

    throttle_time_ms: int = field(INT32)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
