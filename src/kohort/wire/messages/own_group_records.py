"""Keys and values that kohort alone puts into `__consumer_offsets`; their numbers are in `wire.private`.

Apache Kafka skips record types that it does not know, with a line in its log. As in Kafka's own records, an int16 with
the type, or with the version of the value, stands before each message and is no part of it.
"""

from __future__ import annotations

from kohort.wire.schema import STRING, Message, array, field, message, struct


@message(key=20_001, kind="coordinator-key", versions="0", flexible="none")
class GroupConfigsKey(Message):
    """The configs of one group."""

    group_id: str = field(STRING)


@struct
class GroupConfig(Message):
    """One config as it was set."""

    name: str = field(STRING)
    value: str = field(STRING)


@message(key=20_001, kind="coordinator-value", versions="0", flexible="0+")
class GroupConfigsValue(Message):
    """Every config that the group has of its own."""

    configs: list[GroupConfig] = field(array(GroupConfig))
