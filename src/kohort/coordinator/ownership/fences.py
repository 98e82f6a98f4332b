"""Fences and openings of partitions that a decision moves between members.

A partition is OPEN for the member that may read it, DRAINING while that member has yet to commit and acknowledge, and
RELEASED once no member has it. All changes of owner write records of a few types, so a decision's records suffice here:
revocations, removals, static replacement and absence, a classic leader's assignment, a change of the group's protocol.

Laws: a partition that stays with its member is in no effect. A partition is fenced once per move between members,
before it is opened. Nothing here changes the state; a decision without such records costs one type check per record.
Commits are not affected: the coordinator judges them by its own state of the member.
Source: users@kafka 2014-07-14 to -22 (fence, acknowledge, open); requirement H5.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final, NamedTuple

from kohort.base.values import value
from kohort.coordinator.classic import state as classic_state
from kohort.coordinator.classic.state import ClassicGroup, ClassicMember
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE, read_assignment
from kohort.coordinator.configs import effective_settings
from kohort.coordinator.decision import Decision, FencePartitions, OpenPartitions
from kohort.coordinator.model import NO_GRANTS, ConsumerGroup, ConsumerMember, GroupsState, Place
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage
from kohort.ids import TopicId

#: Records by which a member gains or loses partitions.
FOLLOWED: Final = frozenset(
    {
        facts.CurrentAssignmentSet,
        facts.CurrentAssignmentForgotten,
        facts.ConsumerMemberForgotten,
        facts.ConsumerGroupForgotten,
        facts.ClassicGroupStored,
        facts.ClassicGroupForgotten,
        classic_state.MemberPut,
        classic_state.MemberRemoved,
        classic_state.StaticMemberReplaced,
        facts.GroupConfigsSet,
        facts.GroupConfigsForgotten,
    }
)
#: The value of `group.ownership.enforce` with which leaders are told nothing.
OFF: Final = "off"

#: Partitions by topic: grants with their epochs, or partitions alone.
Partitions = Mapping[TopicId, Collection[int]]


class GrantState(Enum):
    """State of a partition in its group."""

    OPEN = "open"
    """Its member reads it."""
    DRAINING = "draining"
    """Reads are refused; the commits of the member that loses it are accepted."""
    RELEASED = "released"
    """No member has it."""


def grant_state_of(groups: GroupsState, group_id: str, place: Place) -> GrantState:
    """Return the state of a partition in a group; RELEASED also if the group is unknown."""
    topic_id, partition = place
    group = groups.consumer.get(group_id)
    if group is not None:
        member = group.members.get(group.holders.get(topic_id, {}).get(partition, ""))
        if member is None:
            return GrantState.RELEASED
        is_pending = partition in member.pending_revocation.get(topic_id, ())
        # The partitions of a member that is away are reserved; it may not read them.
        return GrantState.DRAINING if is_pending or member.member_epoch < 0 else GrantState.OPEN
    classic = groups.classic.get(group_id)
    shares = (
        [] if classic is None else [_share_of(member, classic, groups.image) for member in classic.members.values()]
    )
    is_held = any(partition in share.assigned.get(topic_id, ()) for share in shares)
    return GrantState.OPEN if is_held else GrantState.RELEASED


@value
class LeaseShortened(facts.VolatileRecord):
    """The group has shorter leases now; until `until_ms`, grants with `lease_ms` may still be valid."""

    lease_ms: int
    until_ms: int


def apply_lease_shortened(groups: GroupsState, record: LeaseShortened) -> None:
    """Remember a group's former, longer lease, unless one that ends later is remembered."""
    known = groups.longer_leases.get(record.group_id)
    if known is None or known[1] < record.until_ms:
        groups.longer_leases[record.group_id] = record.lease_ms, record.until_ms


class _Share(NamedTuple):
    """The partitions that one member may read (`assigned`), and those it has to revoke (`pending`)."""

    epoch: int
    assigned: Partitions
    pending: Partitions
    client: tuple[str, str]
    stock_lease_ms: int
    #: Blob of a classic member, by which an unchanged share is known without decoding it.
    blob: bytes | None = None


def follow_ownership(
    groups: GroupsState,
    decision: Decision,
    settings_for: Callable[[str], GroupSettings],
    *,
    base: GroupSettings,
    now_ms: int,
) -> Decision:
    """Add to a decision the fences and openings that follow from its records.

    Args:
        groups: the state before the decision.
        decision: complete, with at least one record of the types in `FOLLOWED`.
        settings_for: group id -> its settings before the decision.
        base: the broker's settings, for groups whose configs change.
        now_ms: coordinator time, milliseconds.
    """
    concerned: dict[str, list[facts.Record]] = {}
    for record in decision.records:
        if type(record) in FOLLOWED:
            concerned.setdefault(record.group_id, []).append(record)
    fences: list[FencePartitions] = []
    opens: list[OpenPartitions] = []
    records: list[facts.Record] = []
    for group_id, own in concerned.items():
        before = after = settings_for(group_id)
        for record in own:
            if isinstance(record, facts.GroupConfigsSet | facts.GroupConfigsForgotten):
                after = effective_settings(base, record.configs if isinstance(record, facts.GroupConfigsSet) else {})
        is_alive = group_id in groups.consumer or group_id in groups.classic
        if is_alive and after.lease_ms < before.lease_ms and before.group_ownership_enforce != OFF:
            records.append(
                LeaseShortened(group_id=group_id, lease_ms=before.lease_ms, until_ms=now_ms + before.lease_ms)
            )
        if before.group_ownership_enforce == after.group_ownership_enforce == OFF:
            continue
        following = _Following(groups, group_id, decision.records, before)
        for record in own:
            following.take(record)
        lease_ms = _lease_ms(groups, group_id, before, now_ms=now_ms)
        if after.group_ownership_enforce == OFF:
            opens += following.open_everything(after, lease_ms)
        elif before.group_ownership_enforce == OFF:
            opens += following.open_present(after.lease_ms)
        else:
            fences += following.fences(lease_ms)
            opens += following.opens(lease_ms)
    if not (fences or opens or records):
        return decision
    # The decision on a held heartbeat comes here twice.
    others = (effect for effect in decision.effects if not isinstance(effect, FencePartitions | OpenPartitions))
    return replace(decision, records=(*decision.records, *records), effects=(*others, *fences, *opens))


def loaded_ownership(
    groups: GroupsState, settings_for: Callable[[str], GroupSettings]
) -> Iterator[FencePartitions | OpenPartitions]:
    """Yield openings for the present owners after a restart, and fences for partitions to be revoked.

    Former owners are no longer known, and only the epochs of grants distinguish members from them. Classic members have
    no grants, so nothing is yielded for classic groups.
    """
    for group_id, group in groups.consumer.items():
        settings = settings_for(group_id)
        if settings.group_ownership_enforce == OFF:
            continue
        for member in list(group.members.values()):
            yield from _of_loaded_member(group, member, settings)


def _of_loaded_member(
    group: ConsumerGroup, member: ConsumerMember, settings: GroupSettings
) -> Iterator[FencePartitions | OpenPartitions]:
    share = _share_of_member(member, member.assigned, member.pending_revocation, member.member_epoch, settings)
    fenced = share.pending if member.member_epoch >= 0 else member.assigned
    if fenced:
        yield _fence(group.group_id, member.member_id, share, _places(fenced), settings.lease_ms)
    # A member may not know its latest epoch yet; it knows each partition by the epoch of its grant.
    by_epoch: dict[int, list[Place]] = {}
    for topic_id, grants in member.assigned.items() if member.member_epoch >= 0 else ():
        for partition, epoch in grants.items():
            by_epoch.setdefault(epoch, []).append((topic_id, partition))
    for epoch, places in by_epoch.items():
        yield OpenPartitions(
            group_id=group.group_id,
            member_id=member.member_id,
            epoch=epoch,
            places=tuple(places),
            lease_ms=settings.lease_ms,
            client=share.client,
            keep=True,
        )


def _lease_ms(groups: GroupsState, group_id: str, settings: GroupSettings, *, now_ms: int) -> int:
    """Return the longest time for which a grant of the group may be valid from now on, ms."""
    lease_ms, until_ms = groups.longer_leases.get(group_id, (0, 0)) if groups.longer_leases else (0, 0)
    return max(lease_ms, settings.lease_ms) if now_ms < until_ms else settings.lease_ms


class _Following:
    """The members of one group before and after a decision; the group itself is not changed."""

    def __init__(
        self, groups: GroupsState, group_id: str, everything: Iterable[facts.Record], settings: GroupSettings
    ) -> None:
        self._group_id: Final = group_id
        self._image: Final = groups.image
        self._settings: Final = settings
        self._consumer: Final = groups.consumer.get(group_id)
        self._classic: Final = groups.classic.get(group_id)
        self._everything: Final = everything
        #: Members that records name -> their shares after the decision; `None`: they are members no more.
        self._after: Final[dict[str, _Share | None]] = {}
        self._before: Final[dict[str, _Share | None]] = {}

    def take(self, record: facts.Record) -> None:
        """Note a record's effect on the partitions of its members."""
        match record:
            case facts.CurrentAssignmentSet():
                self._after[record.member_id] = self._assigned(record)
            case facts.CurrentAssignmentForgotten() | facts.ConsumerMemberForgotten() | classic_state.MemberRemoved():
                self._after[record.member_id] = None
            case facts.ConsumerGroupForgotten() | facts.ClassicGroupForgotten():
                self._after.update(dict.fromkeys((*self._present(), *self._after)))
            case facts.ClassicGroupStored():
                self._after.update(dict.fromkeys((*self._present(), *self._after)))
                for member in record.members:
                    self._put(member, record.protocol_type, record.generation)
            case classic_state.MemberPut():
                generation = 0 if self._classic is None else self._classic.generation
                found = self._after.get(record.member.member_id)
                self._put(record.member, record.protocol_type, generation if found is None else found.epoch)
            case classic_state.StaticMemberReplaced():
                assert self._classic is not None, "its group exists"
                self._after[record.replaced_id] = None
                self._put(record.member, self._classic.protocol_type, self._classic.generation)
            case _:
                pass

    def fences(self, lease_ms: int) -> Iterator[FencePartitions]:
        """Yield fences for the partitions that members may no longer read."""
        for member_id, before, after in self._changes():
            assigned = NO_GRANTS if before is None else before.assigned
            lost = _without(assigned, NO_GRANTS if after is None else after.assigned)
            if after is not None and after.pending:
                # A partition that a member gives up though it was not known to have it.
                pending = _without(after.pending, NO_GRANTS if before is None else before.pending)
                lost = list(dict.fromkeys((*lost, *pending)))
            share = after if before is None else before
            places = self._existing(lost)
            if share is not None and places:
                yield _fence(self._group_id, member_id, share, places, lease_ms)

    def opens(self, lease_ms: int) -> Iterator[OpenPartitions]:
        """Yield openings for the partitions that members may read from now on."""
        for member_id, before, after in self._changes():
            if after is not None:
                gained = _without(after.assigned, NO_GRANTS if before is None else before.assigned)
                places = self._existing(gained)
                if places:
                    yield self._open(member_id, after, places, lease_ms)

    def open_present(self, lease_ms: int) -> Iterator[OpenPartitions]:
        """Yield openings for all present owners, for leaders that have not received any yet."""
        for member_id in self._present():
            share = self._find(member_id)
            places = () if share is None else self._existing(_places(share.assigned))
            if share is not None and places:
                yield replace(self._open(member_id, share, places, lease_ms), keep=True)

    def open_everything(self, settings: GroupSettings, lease_ms: int) -> Iterator[OpenPartitions]:
        """Yield openings of all partitions of the group's topics, so that leaders drop all its fences."""
        topics: dict[TopicId, None] = {}
        for member_id in self._present():
            share = self._find(member_id)
            if share is not None:
                topics.update(dict.fromkeys((*share.assigned, *share.pending)))
        names = () if self._consumer is None else self._consumer.topic_subscribers
        topics.update((topic.topic_id, None) for name in names if (topic := self._image.by_name.get(name)) is not None)
        places = tuple(
            (topic_id, partition)
            for topic_id in topics
            if (found := self._image.by_id.get(topic_id)) is not None
            for partition in range(found.partition_count)
        )
        if places:
            yield OpenPartitions(
                group_id=self._group_id, member_id="", epoch=0, places=places, lease_ms=max(lease_ms, settings.lease_ms)
            )

    def _changes(self) -> Iterator[tuple[str, _Share | None, _Share | None]]:
        for member_id, after in self._after.items():
            before = self._find(member_id)
            if before is None or after is None or not _is_same(before, after):
                yield member_id, before, after

    def _present(self) -> Iterable[str]:
        if self._consumer is not None:
            return self._consumer.members
        return () if self._classic is None else self._classic.members

    def _find(self, member_id: str) -> _Share | None:
        """Return a member's partitions before the decision, `None` if it was not a member."""
        if member_id in self._before:
            return self._before[member_id]
        share: _Share | None = None
        if self._consumer is not None and member_id in self._consumer.members:
            member = self._consumer.members[member_id]
            share = _share_of_member(
                member, member.assigned, member.pending_revocation, member.member_epoch, self._settings
            )
        elif self._classic is not None and member_id in self._classic.members:
            share = _share_of(self._classic.members[member_id], self._classic, self._image)
        self._before[member_id] = share
        return share

    def _assigned(self, record: facts.CurrentAssignmentSet) -> _Share:
        member = None if self._consumer is None else self._consumer.members.get(record.member_id)
        source: ConsumerMember | facts.ConsumerMemberSubscribed | ClassicMember | None = (
            next(
                (
                    each
                    for each in self._everything
                    if isinstance(each, facts.ConsumerMemberSubscribed) and each.member_id == record.member_id
                ),
                None,
            )
            if member is None
            else member
        )
        return _share_of_member(source, record.assigned, record.pending_revocation, record.member_epoch, self._settings)

    def _put(
        self, member: facts.StoredClassicMember | ClassicMember, protocol_type: str | None, generation: int
    ) -> None:
        before = self._find(member.member_id)
        if before is not None and before.blob == member.assignment:
            self._after[member.member_id] = before._replace(epoch=generation)
        else:
            self._after[member.member_id] = _read(member, protocol_type, generation, self._image)

    def _existing(self, places: Iterable[Place]) -> tuple[Place, ...]:
        """Return the partitions of existing topics: those of deleted topics cannot be read."""
        by_id = self._image.by_id
        # Before the first image it is not known which exist.
        return tuple(place for place in places if place[0] in by_id or not self._image.version)

    def _open(self, member_id: str, share: _Share, places: tuple[Place, ...], lease_ms: int) -> OpenPartitions:
        return OpenPartitions(
            group_id=self._group_id,
            member_id=member_id,
            epoch=share.epoch,
            places=places,
            lease_ms=lease_ms,
            client=share.client,
        )


def _fence(group_id: str, member_id: str, share: _Share, places: tuple[Place, ...], lease_ms: int) -> FencePartitions:
    return FencePartitions(
        group_id=group_id,
        member_id=member_id,
        epoch=share.epoch,
        places=places,
        lease_ms=lease_ms,
        stock_lease_ms=share.stock_lease_ms,
        client=share.client,
    )


def _share_of_member(
    member: ConsumerMember | facts.ConsumerMemberSubscribed | ClassicMember | None,
    assigned: facts.Grants,
    pending: facts.Grants,
    epoch: int,
    settings: GroupSettings,
) -> _Share:
    assert member is not None, "a member has subscribed before it is assigned anything"
    own = None if isinstance(member, ClassicMember) else member.classic
    session_ms = settings.group_consumer_session_timeout_ms if own is None else own.session_timeout_ms
    return _Share(
        epoch=epoch,
        # A member that is away uses no partition.
        assigned=assigned if epoch >= 0 else NO_GRANTS,
        pending=pending,
        client=(member.client_id, member.client_host),
        stock_lease_ms=max(session_ms, member.rebalance_timeout_ms),
    )


def _share_of(member: ClassicMember, group: ClassicGroup, image: TopicImage) -> _Share:
    return _read(member, group.protocol_type, group.generation, image)


def _read(
    member: facts.StoredClassicMember | ClassicMember, protocol_type: str | None, generation: int, image: TopicImage
) -> _Share:
    """Decode the partitions of a classic member; bytes of another protocol type count as none."""
    found = read_assignment(member.assignment) if protocol_type == CONSUMER_PROTOCOL_TYPE else None
    by_name = image.by_name
    assigned = {
        topic.topic_id: frozenset(numbers)
        for name, numbers in ({} if found is None else found.partitions).items()
        if numbers and (topic := by_name.get(name)) is not None
    }
    return _Share(
        epoch=generation,
        assigned=assigned,
        pending=NO_GRANTS,
        client=(member.client_id, member.client_host),
        stock_lease_ms=max(member.session_timeout_ms, member.rebalance_timeout_ms),
        blob=member.assignment,
    )


def _is_same(one: _Share, other: _Share) -> bool:
    return one.assigned is other.assigned and one.pending is other.pending


def _places(partitions: Partitions) -> tuple[Place, ...]:
    return tuple((topic_id, each) for topic_id, found in partitions.items() for each in sorted(found))


def _without(those: Partitions, others: Partitions) -> list[Place]:
    """Return the partitions of `those` that are not among `others`, ascending in each topic."""
    left: list[Place] = []
    for topic_id, partitions in those.items():
        known = others.get(topic_id, ())
        if partitions is not known:
            left += [(topic_id, each) for each in sorted(each for each in partitions if each not in known)]
    return left
