"""AlterClientQuotas (key 49), KIP-546: set and remove quotas of clients.

Version 1: flexible (KIP-482).
"""

from kohort.wire.messages.describe_client_quotas import EntityData
from kohort.wire.schema import BOOL, FLOAT64, INT16, INT32, STRING, Message, array, field, message


class OpData(Message):
    """One limit; with `remove` its value is ignored."""

    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


class EntryData(Message):
    """Changes to one entity."""

    entity: list[EntityData] = field(array(EntityData))
    ops: list[OpData] = field(array(OpData))


@message(key=49, kind="request", versions="0-1", flexible="1+")
class AlterClientQuotasRequest(Message):
    """Changes to make, or only to check."""

    entries: list[EntryData] = field(array(EntryData))
    validate_only: bool = field(BOOL)


@message(key=49, kind="response", versions="0-1", flexible="1+")
class AlterClientQuotasResponse(Message):
    """An answer per entity."""

    class EntryData(Message):
        """The result for one entity."""

        error_code: int = field(INT16)
        error_message: str | None = field(STRING, nullable=0)
        entity: list[EntityData] = field(array(EntityData))

    throttle_time_ms: int = field(INT32)
    entries: list[EntryData] = field(array(EntryData))
