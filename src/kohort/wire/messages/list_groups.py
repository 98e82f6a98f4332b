"""ListGroups (key 16): the groups that a broker coordinates.

Version 1: throttle time (KIP-124). Version 2: throttled after the answer (KIP-219). Version 3: flexible (KIP-482).
Version 4: filter by state, and states in the answer (KIP-518). Version 5: the same for types of groups (KIP-848).
"""

from kohort.wire.schema import INT16, INT32, STRING, Message, array, field, message


@message(key=16, kind="request", versions="0-5", flexible="3+")
class ListGroupsRequest(Message):
    """The filters of groups; an empty filter matches everything."""

    states_filter: list[str] = field(array(STRING), since=4)
    types_filter: list[str] = field(array(STRING), since=5)


class ListedGroup(Message):
    """One group; `protocol_type` is `consumer` for groups of consumers."""

    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, since=4)
    group_type: str = field(STRING, since=5)


@message(key=16, kind="response", versions="0-5", flexible="3+")
class ListGroupsResponse(Message):
    """The broker's groups."""

    throttle_time_ms: int = field(INT32, since=1)
    error_code: int = field(INT16)
    groups: list[ListedGroup] = field(array(ListedGroup))
