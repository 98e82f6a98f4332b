"""State of a classic group, and the volatile records that change it but are never written.

Laws: only `apply.apply_classic` changes a group; members are values that are replaced as a whole. A restart restores
`durable_view` from the log; all other state is lost with the process.
Source: Apache Kafka's classic group protocol (KIP-62, KIP-394, KIP-429).
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import Final, NamedTuple

from kohort.base.values import from_row, value
from kohort.coordinator.records import types as facts
from kohort.ids import RequestToken


class ClassicGroupState(Enum):
    """States of a classic group, in Kafka's spelling; a Dead group does not exist."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


#: (state, next state) -> its event (docs/explanation/two-protocols.md). Each may also stay as it is, and a fold
#: over the log leaves out the states in between.
TRANSITIONS: Final = {
    (ClassicGroupState.EMPTY, ClassicGroupState.PREPARING_REBALANCE): "a member joins",
    (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE): (
        "every member has joined, or the time to join is over: a missing member is removed, unless it has a static name"
    ),
    (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.EMPTY): "no member is left",
    (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE): "the leader has sent the assignment",
    (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.PREPARING_REBALANCE): (
        "a member joins, leaves, is silent, says something else, or does not ask for its share in time"
    ),
    (ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE): (
        "a member joins, leaves, is silent or says something else, or the leader joins again: topics may have changed"
    ),
}

#: state -> states that may precede it.
PREDECESSORS: Final = {
    state: frozenset(before for before, after in TRANSITIONS if after is state) for state in ClassicGroupState
}


#: `ClassicGroupStored.state_timestamp_ms` of a former KIP-848 group before its first classic rebalance: Kafka's
#: "unknown".
NOT_REBALANCED: Final = -1


@value
class ClassicMember:
    """One member of a classic group.

    `protocols` are (name, metadata) in the member's order, `assignment` is the client's bytes.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """Return each protocol name once, in the member's order of preference."""
        return tuple(dict.fromkeys(name for name, _ in self.protocols))

    @property
    def metadata_bytes(self) -> int:
        """Return the approximate memory of the protocols: names and metadata, bytes."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the metadata of one protocol, empty if the member does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")


class FormerMember(NamedTuple):
    """A replaced static member by the member id and metadata that the leader received."""

    member_id: str
    metadata: bytes


@value
class PendingJoin:
    """A delayed JoinGroup of a new member; `request` `None`: refused at `since_ms`, the client repeats it."""

    member: ClassicMember
    protocol_type: str
    request: RequestToken | None
    since_ms: int


@value(kw_only=False, frozen=False, eq=False)
class ClassicGroup:
    """One classic group."""

    #: Id of the group.
    group_id: str
    #: State of the rebalance protocol.
    state: ClassicGroupState = ClassicGroupState.EMPTY
    #: When the group entered `state`, coordinator time, ms.
    state_timestamp_ms: int = 0
    #: Protocol type ("consumer", "connect", ...); `None` before the first member.
    protocol_type: str | None = None
    #: Generation: rises by one at the end of each join phase; 0 before the first.
    generation: int = 0
    #: Protocol that the members elected for this generation.
    protocol_name: str | None = None
    #: Member that computes the assignment; `None` exactly if there are no members.
    leader: str | None = None
    #: member id -> member, in the order of arrival.
    members: dict[str, ClassicMember] = field(default_factory=dict)
    #: Member ids handed out with MEMBER_ID_REQUIRED that have not joined yet; disjoint from `members`.
    pending: dict[str, None] = field(default_factory=dict)
    #: member id -> its delayed JoinGroup; between decisions only while PreparingRebalance; a subset of `members`.
    awaiting_join: dict[str, RequestToken] = field(default_factory=dict)
    #: member id -> its delayed SyncGroup; only while CompletingRebalance; a subset of `members`.
    awaiting_sync: dict[str, RequestToken] = field(default_factory=dict)
    #: Members of this generation without a SyncGroup yet; a subset of `members`.
    unsynced: dict[str, None] = field(default_factory=dict)
    #: Members whose first JoinGroup is still delayed: they may be removed while they wait.
    new_members: dict[str, None] = field(default_factory=dict)
    #: instance id -> id of its member.
    instance_ids: dict[str, str] = field(default_factory=dict)
    #: protocol name -> number of members that support it; never 0.
    protocol_counts: dict[str, int] = field(default_factory=dict)
    #: Sum of `ClassicMember.metadata_bytes`.
    metadata_bytes: int = 0
    #: Remaining extension of the initial delay, ms; `None` outside of an initial delay.
    initial_remaining_ms: int | None = None
    #: Whether a member joined since the initial delay was last set.
    new_member_added: bool = False
    #: Reason of the latest rebalance; empty before the first.
    rebalance_reason: str = ""
    #: The latest record of the group in the log, `None` before the first.
    stored: facts.ClassicGroupStored | None = None
    #: The rebalance that a restart begins again, in static mode: without it the restart would lose its reason.
    due: facts.ClassicRebalanceDue | None = None
    #: instance id -> delayed JoinGroup of a new member; static mode, and not in the join phase.
    pending_joins: dict[str, PendingJoin] = field(default_factory=dict)
    #: member id -> the former member that the leader knows, whose place the member took since the join phase ended;
    #: only while CompletingRebalance.
    handed_on: dict[str, FormerMember] = field(default_factory=dict)

    def copy(self) -> ClassicGroup:
        """Return an independent copy that shares the members' values."""
        other = object.__new__(ClassicGroup)
        for name in self.__annotations__:
            value = getattr(self, name)
            setattr(other, name, dict(value) if isinstance(value, dict) else value)
        return other

    @property
    def was_consumer_group(self) -> bool:
        """Whether the group was a KIP-848 group, and its first classic rebalance has not ended."""
        return (
            self.state is ClassicGroupState.PREPARING_REBALANCE
            and self.stored is not None
            and self.stored.state_timestamp_ms == NOT_REBALANCED
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the time limit of a rebalance phase: the longest of the members'."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def speaks(self, protocol_type: str, names: tuple[str, ...], *, instead_of: str = "") -> bool:
        """Return whether a client with these protocols can join, `instead_of` a member that it replaces."""
        if not protocol_type or not names:
            return False
        if not self.members:
            return True
        former = self.members.get(instead_of)
        # The member's own former protocols do not bind it: only the other members have to support a new one.
        own = former.protocol_names if former is not None else ()
        others = len(self.members) - (former is not None)
        return protocol_type == self.protocol_type and any(
            self.protocol_counts.get(name, 0) - (name in own) == others for name in names
        )

    def elect_protocol(self) -> str:
        """Elect the protocol that most members prefer among the protocols common to all.

        Each member votes for the first common protocol in its list. Among equal votes, the protocol voted for first
        wins.
        """
        everybody = len(self.members)
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name in member.protocol_names if self.protocol_counts[name] == everybody)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)


def build_stored(group: ClassicGroup) -> facts.ClassicGroupStored:
    """Build the record from which a restart rebuilds this Stable or Empty group."""
    return facts.ClassicGroupStored(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol_name=group.protocol_name,
        leader=group.leader,
        state_timestamp_ms=group.state_timestamp_ms,
        members=tuple(build_stored_member(member, group.protocol_name) for member in group.members.values()),
    )


def build_stored_member(member: ClassicMember, protocol_name: str | None) -> facts.StoredClassicMember:
    """Build the stored form of a member, with the metadata of the elected protocol only."""
    return from_row(facts.StoredClassicMember, member, subscription=member.metadata(protocol_name))


def durable_view(group: ClassicGroup) -> facts.ClassicGroupStored | None:
    """Return the type 2 record that the log must have for this group, `None` if it must have none."""
    # In a Stable or Empty group it is computed from the live state, so that a change that was applied but not written
    # shows. During a rebalance the log keeps the last such state.
    at_rest = group.state in (ClassicGroupState.STABLE, ClassicGroupState.EMPTY)
    return build_stored(group) if at_rest and group.stored is not None else group.stored


# Records of a classic group between two stored states; a restart forgets them.
#
# Laws: applied like any record, never written. The members begin a rebalance again that a crash interrupts.


@value
class ClassicGroupOpened(facts.VolatileRecord):
    """A client asked to join a group that did not exist."""


@value
class ClassicGroupDropped(facts.VolatileRecord):
    """The group never had a member, and no member id is expected to join any more."""


@value
class MemberIdHandedOut(facts.VolatileRecord):
    """A MEMBER_ID_REQUIRED response gave out this member id, which is expected to join."""

    member_id: str


@value
class PendingMemberRemoved(facts.VolatileRecord):
    """A member id from a MEMBER_ID_REQUIRED response is no longer expected to join."""

    member_id: str


@value
class MemberPut(facts.VolatileRecord):
    """A member joined, or rejoined with other protocols or timeouts."""

    protocol_type: str
    member: ClassicMember


@value
class MemberRemoved(facts.VolatileRecord):
    """A member left, was fenced, or did not rejoin in time; its delayed requests are dropped."""

    member_id: str


@value
class StaticMemberReplaced(facts.VolatileRecord):
    """`member` takes over the instance id of `replaced_id`; that one's delayed requests are dropped."""

    replaced_id: str
    member: ClassicMember


@value
class JoinDelayed(facts.VolatileRecord):
    """A JoinGroup is delayed; it replaces an older one of the same member."""

    member_id: str
    request: RequestToken


@value
class ClassicConnectionLost(facts.VolatileRecord):
    """A member's connection is closed: its delayed requests are dropped, and it counts as not joined."""

    member_id: str


@value
class RebalanceBegun(facts.VolatileRecord):
    """The join phase is open; `initial_remaining_ms`: remaining extension of the initial delay, or `None`."""

    reason: str
    initial_remaining_ms: int | None
    timestamp_ms: int


@value
class InitialDelayExtended(facts.VolatileRecord):
    """The initial delay is extended, as members joined during it."""

    initial_remaining_ms: int


@value
class GenerationBegun(facts.VolatileRecord):
    """The join phase is over: delayed JoinGroups get responses, and every member's SyncGroup is due."""

    generation: int
    protocol_name: str
    leader: str
    timestamp_ms: int


@value
class SyncReceived(facts.VolatileRecord):
    """A member sent SyncGroup; `request`: delayed until the leader's, `None` if it got a response at once."""

    member_id: str
    request: RequestToken | None


@value
class SyncsAnswered(facts.VolatileRecord):
    """All delayed SyncGroups have got their responses."""


@value
class NewMemberHosted(facts.VolatileRecord):
    """A member was added to the present generation after the leader received its member list."""

    member_id: str


@value
class NewMemberPending(facts.VolatileRecord):
    """The JoinGroup of a new member is delayed until the next generation, or was refused to be repeated."""

    pending_join: PendingJoin


@value
class NewMemberGone(facts.VolatileRecord):
    """A pending join has ended: the member is in the group now, or its JoinGroup was refused."""

    instance_id: str


@value
class OfflineMemberEntered(facts.VolatileRecord):
    """An offline member takes part in a rebalance with its present partitions in its metadata."""

    member: ClassicMember
