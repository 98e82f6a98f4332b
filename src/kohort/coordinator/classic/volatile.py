"""What happens to a classic group between two states of rest: facts that a restart forgets.

Laws: applied like any record, never written. A rebalance that a crash interrupts is begun again by the members.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.coordinator.classic.state import ClassicMember, ParkedNewcomer
from kohort.coordinator.records import VolatileRecord
from kohort.ids import RequestToken


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupOpened(VolatileRecord):
    """Somebody asked to join a group that did not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupDropped(VolatileRecord):
    """The group never had a member and nobody is expected any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberIdHandedOut(VolatileRecord):
    """MEMBER_ID_REQUIRED was answered: this id is expected to join."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMemberRemoved(VolatileRecord):
    """An id that was handed out is not expected any more."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPut(VolatileRecord):
    """A member came, or came back with other protocols or timeouts."""

    protocol_type: str
    member: ClassicMember


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRemoved(VolatileRecord):
    """A member left, was given up, or did not rejoin in time; nobody waits for its requests."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberReplaced(VolatileRecord):
    """An instance is now `member`, who takes the place of `replaced_id`; nobody waits for requests of that id."""

    replaced_id: str
    member: ClassicMember


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinParked(VolatileRecord):
    """A JoinGroup waits for the others, in place of an older one of the same member."""

    member_id: str
    request: RequestToken


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicConnectionLost(VolatileRecord):
    """A member's connection is gone: nobody waits for its requests, and it counts as one that is yet to come."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceBegun(VolatileRecord):
    """The join phase is open. `initial_remaining_ms`: by how much its initial delay may grow; `None`: it has none."""

    reason: str
    initial_remaining_ms: int | None
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialDelayExtended(VolatileRecord):
    """Members came during the initial delay, so it is set once more."""

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
    """A member asked for its assignment; `request` waits for the leader's, `None` if it was answered at once."""

    member_id: str
    request: RequestToken | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncsAnswered(VolatileRecord):
    """No SyncGroup is parked any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewcomerHosted(VolatileRecord):
    """Who was just put is answered at once: it is in the present generation, whose leader does not know it."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewcomerParked(VolatileRecord):
    """Somebody who cannot be put into the present generation waits for the next one, or is to ask again."""

    newcomer: ParkedNewcomer


@dataclass(frozen=True, slots=True, kw_only=True)
class NewcomerGone(VolatileRecord):
    """Who was parked is in the group by now, or is waited for no longer."""

    instance_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbsenteeEntered(VolatileRecord):
    """A member that is offline takes part in its absence: its metadata says that it has what it was given."""

    member: ClassicMember
