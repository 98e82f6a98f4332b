"""Records of a classic group between two stored states; a restart forgets them.

Laws: applied like any record, never written. The members begin a rebalance again that a crash interrupts.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.coordinator.classic.state import ClassicMember, ParkedNewcomer
from kohort.coordinator.records import VolatileRecord
from kohort.ids import RequestToken


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupOpened(VolatileRecord):
    """A client asked to join a group that did not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupDropped(VolatileRecord):
    """The group never had a member and expects none any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdHandedOut(VolatileRecord):
    """MEMBER_ID_REQUIRED was answered with this member id, which is expected to join."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMemberRemoved(VolatileRecord):
    """A member id that was handed out is not expected any more."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPut(VolatileRecord):
    """A member joined, or rejoined with other protocols or timeouts."""

    protocol_type: str
    member: ClassicMember


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRemoved(VolatileRecord):
    """A member left, was fenced, or did not rejoin in time; its parked requests are dropped."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberReplaced(VolatileRecord):
    """`member` takes over the instance id of `replaced_id`; that one's parked requests are dropped."""

    replaced_id: str
    member: ClassicMember


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinParked(VolatileRecord):
    """A JoinGroup is parked, in place of an older one of the same member."""

    member_id: str
    request: RequestToken


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicConnectionLost(VolatileRecord):
    """A member's connection is closed: its parked requests are dropped, and it counts as not joined."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceBegun(VolatileRecord):
    """The join phase is open; `initial_remaining_ms`: remaining extension of the initial delay, or `None`."""

    reason: str
    initial_remaining_ms: int | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialDelayExtended(VolatileRecord):
    """The initial delay is extended, as members joined during it."""

    initial_remaining_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationBegun(VolatileRecord):
    """The join phase is over: every parked JoinGroup is answered, every member's SyncGroup is expected."""

    generation: int
    protocol_name: str
    leader: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncReceived(VolatileRecord):
    """A member sent SyncGroup; `request` is parked until the leader's, `None` if it was answered at once."""

    member_id: str
    request: RequestToken | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncsAnswered(VolatileRecord):
    """No SyncGroup is parked any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewcomerHosted(VolatileRecord):
    """The member just put is in the present generation without the leader's knowledge."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewcomerParked(VolatileRecord):
    """A new member outside of the present generation is parked for the next one, or was refused."""

    newcomer: ParkedNewcomer


@dataclass(frozen=True, slots=True, kw_only=True)
class NewcomerGone(VolatileRecord):
    """A parked new member is in the group now, or is not waited for any longer."""

    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsenteeEntered(VolatileRecord):
    """An offline member takes part in a rebalance with its present partitions in its metadata."""

    member: ClassicMember
