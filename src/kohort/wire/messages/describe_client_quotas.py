"""DescribeClientQuotas (key 48), KIP-546: the quotas of clients.

Version 1: flexible (KIP-482).
"""

from kohort.wire.schema import BOOL, FLOAT64, INT8, INT16, INT32, STRING, Message, array, field, message


class ComponentData(Message):
    """A part of a filter; `match_type` is 0 for the name in `match`, 1 for the default, 2 for any name."""

    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    match: str | None = field(STRING, nullable=0)


@message(key=48, kind="request", versions="0-1", flexible="1+")
class DescribeClientQuotasRequest(Message):
    """A filter of which all parts have to match; with `strict` an entity has no other part."""

    components: list[ComponentData] = field(array(ComponentData))
    strict: bool = field(BOOL)


class EntityData(Message):
    """A part of an entity; a name that is null is the default."""

    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable=0)


class ValueData(Message):
    """One limit."""

    key: str = field(STRING)
    value: float = field(FLOAT64)


class EntryData(Message):
    """One entity with its limits."""

    entity: list[EntityData] = field(array(EntityData))
    values: list[ValueData] = field(array(ValueData))


@message(key=48, kind="response", versions="0-1", flexible="1+")
class DescribeClientQuotasResponse(Message):
    """The matching entities; null if the search was impossible."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    entries: list[EntryData] | None = field(array(EntryData), nullable=0)
