"""Facts about a group, which are found in its journal rows: rebalances, gaps, stays, waits, refusals.

Laws: a fact is returned when it is over; one that is not over when the rows end is returned then, without an end.
Source: requirement P5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """The kind of a fact."""

    #: From the row that raised the epoch to the one after which the group was at rest.
    REBALANCE = "rebalance"
    #: A time in which no member reads a partition that had an owner.
    GAP = "gap"
    #: A member, from its first row to its last.
    STAY = "stay"
    #: A member that keeps others waiting, or waits for others.
    WAIT = "wait"
    #: A request that the coordinator refused.
    REFUSAL = "refusal"
    #: An assignment as another assignor would have computed it.
    REPLAY = "replay"


@dataclass(slots=True, kw_only=True)
class Fact:
    """A fact; fields that its kind does not have are `None`. Times are in milliseconds since 1970."""

    kind: Kind
    group_id: str
    began_ms: int
    #: `None` if the fact was not over when the rows ended.
    ended_ms: int | None = None
    #: Its trigger or reason, as the coordinator names it.
    why: str | None = None
    #: More about it, for instance the member that joined.
    cause: str | None = None
    epoch: int | None = None
    protocol: str | None = None
    member_id: str | None = None
    #: The member's instance id, client id or member id.
    member: str | None = None
    host: str | None = None
    #: The new owner.
    next_member: str | None = None
    topic: str | None = None
    partition: int | None = None
    members: int | None = None
    partitions: int | None = None
    #: Partitions that went from one member to another while both were there.
    moved: int | None = None
    #: Members that had to give up partitions.
    given_back_by: int | None = None
    #: Gaps that ended in the rebalance, and the longest of them.
    unread: int | None = None
    unread_ms: int | None = None
    #: Partitions of the members that have the fewest and the most.
    fewest: int | None = None
    most: int | None = None
    times: int | None = None
    #: Whether the group had no members meanwhile.
    is_empty: bool | None = None
    #: Whether the gap begins with the owner's last read, or with the loss of its connection.
    is_noticed: bool | None = None
    #: Whether the owner may have read for longer.
    is_at_most: bool | None = None
    #: The assignor of a replay.
    assignor: str | None = None


#: Column -> its type in Spark's SQL.
COLUMNS: Final[dict[str, str]] = {
    field.name: "boolean"
    if field.name.startswith("is_")
    else "string"
    if "str" in str(field.type) or field.name == "kind"
    else "bigint"
    if field.name.endswith("_ms")
    else "int"
    for field in fields(Fact)
}

#: Kind -> its fields in addition to `kind`, `group_id`, `began_ms` and `ended_ms`; all others are `None`.
SPOKEN_OF: Final[Mapping[Kind, tuple[str, ...]]] = {
    Kind.REBALANCE: (
        "why", "cause", "epoch", "protocol", "members", "partitions", "moved", "given_back_by", "unread",
        "unread_ms", "fewest", "most",
    ),
    Kind.GAP: ("why", "member", "next_member", "topic", "partition", "is_empty", "is_noticed", "is_at_most"),
    Kind.STAY: ("why", "member_id", "member", "host", "members"),
    Kind.WAIT: ("why", "cause", "member_id", "member", "partitions"),
    Kind.REFUSAL: ("why", "cause", "protocol", "member_id", "member", "times"),
    Kind.REPLAY: ("why", "epoch", "assignor", "members", "partitions", "moved", "fewest", "most"),
}  # fmt: skip
