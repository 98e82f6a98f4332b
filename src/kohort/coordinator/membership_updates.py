"""News for a member in responses to its fetches and commits, in addition to heartbeats.

The shell watches a member with its known state: its epoch, and all its assigned partitions. If a heartbeat now would
return anything else, the watch gets its reply at once; otherwise it waits until there is news.

Laws: the news equals the response to a heartbeat sent now, and changes the state alike; a watch without news changes
nothing. A watch renews no session and acknowledges nothing: only a heartbeat that lists the owned partitions releases
a partition. A member that does not know its news yet is not fenced for that. A watch does not mark an offline member of
a static group as online: that member gets no news before its heartbeat.
Source: requirement H10; KIP-848 (a coordinator answers heartbeats).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kohort.coordinator import commands, delayed_heartbeats
from kohort.coordinator.classic import state as classic
from kohort.coordinator.commands import (
    AnyHeartbeat,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    Refusal,
    WatchMember,
)
from kohort.coordinator.consumer.assignment.volatile import ComputationNoted
from kohort.coordinator.consumer.heartbeat import decide_member, decide_settled
from kohort.coordinator.consumer.member_metadata import EditionIssued, watches
from kohort.coordinator.consumer.reconciliation.effective_target import MovesBegun, MovesHeldBack
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.delayed_heartbeats import (
    MemberHeard,
    MemberWatched,
    WatchEnded,
    hold_heartbeat,
    without_life,
)
from kohort.coordinator.model import NO_TARGET, ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import is_offline
from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId

#: Records that a watch leaves out: a fetch tells nothing of the connection for heartbeats, and delivers assignments
#: alone.
_OF_HEARTBEATS: Final = (facts.MemberConnectionSeen, delayed_heartbeats.AssignmentTold)


def decide_watch(groups: GroupsState, command: WatchMember, settings: GroupSettings, *, now_ms: int) -> Decision:
    """Reply to a watch with the news for its member, or let it wait; a reply ends the watch."""
    try:
        return _decide(groups, command, settings, now_ms=now_ms)
    except Refused as refused:
        refusal = Refusal(code=refused.code, message=refused.message)
        return Decision(_ended(command), (Reply(command.request, refusal),))


def drop_watch(command: WatchMember) -> Decision:
    """Drop the watch of a member that has disconnected."""
    return Decision(_ended(command))


def _decide(groups: GroupsState, command: WatchMember, settings: GroupSettings, *, now_ms: int) -> Decision:
    member = groups.find_member(command.group_id, command.member_id)
    if member is None or member.classic is not None or member.member_epoch < 0:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    if command.member_epoch > member.member_epoch:
        raise Refused(ErrorCode.FENCED_MEMBER_EPOCH)
    # Only static groups have clocks.
    if groups.clocks and is_offline(groups, command.group_id, command.member_id):
        return _tell_nothing(command)
    is_known = command.member_epoch == member.member_epoch and _is_same(member.assigned, command.assigned)
    heartbeat = _heartbeat_of(member, command, tells_all=not is_known)
    # Most looks come with a commit of a member without news.
    decision = decide_settled(groups, heartbeat, settings, now_ms=now_ms)
    if decision is None:
        decision = decide_member(groups, heartbeat, settings, now_ms=now_ms)
    decision = hold_heartbeat(groups, heartbeat, decision, now_ms=now_ms)
    body = next(
        effect.body for effect in decision.effects if isinstance(effect, Reply) and effect.request == command.request
    )
    assert isinstance(body, ConsumerGroupHeartbeatReply), "a refusal is raised"
    has_news = body.assignment is not None
    heard = MemberHeard(
        group_id=command.group_id, member_id=command.member_id, epoch=command.member_epoch, is_behind=has_news
    )
    records = [heard] if (heard.epoch, has_news) != (member.known_epoch, member.is_told_aside) else []
    if has_news:
        told = [record for record in decision.records if not isinstance(record, _OF_HEARTBEATS)]
        return Decision((*told, *records, *_ended(command)), without_life(decision.effects))
    if command.is_look:
        return Decision(tuple(records), (Reply(command.request, body),))
    return Decision((*records, MemberWatched(group_id=command.group_id, command=command)))


def _tell_nothing(command: WatchMember) -> Decision:
    """Let the watch of an offline member wait, or, if it does not wait, reply without news."""
    # The next heartbeat of the member brings it back, and gets all news.
    if not command.is_look:
        return Decision((MemberWatched(group_id=command.group_id, command=command),))
    nothing = ConsumerGroupHeartbeatReply(
        member_id=command.member_id, member_epoch=command.member_epoch, heartbeat_interval_ms=0, assignment=None
    )
    return Decision((), (Reply(command.request, nothing),))


def _heartbeat_of(member: ConsumerMember, command: WatchMember, *, tells_all: bool) -> ConsumerGroupHeartbeat:
    """Build the heartbeat that the member would send now if its state had not changed."""
    return ConsumerGroupHeartbeat(
        cause=command.cause,
        request=command.request,
        group_id=command.group_id,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        hold_ms=0,
        tells_all=tells_all,
        is_aside=True,
    )


def _ended(command: WatchMember) -> tuple[WatchEnded, ...]:
    return () if command.is_look else (WatchEnded(group_id=command.group_id, command=command),)


def _is_same(grants: facts.Grants, known: commands.Partitions) -> bool:
    return grants.keys() == known.keys() and all(
        found.keys() == set(known[topic_id]) for topic_id, found in grants.items()
    )


# Held heartbeats and watches for which a decision may be news.
#
# Only the members that a decision concerns are looked at: those whose target has a released partition, those with a new
# target, those that another member's request changed. So the cost of a change depends on its moves, and not on the
# number of held heartbeats.
#
# Laws: every member with news is found; a member that is found without news goes on waiting.
# Source: requirements H1, G7.

#: Group id and member id of a member.
Place = tuple[str, str]
#: A partition of a topic.
Spot = tuple[TopicId, int]

#: News for every member of a group if the heartbeat interval changes by them.
_OF_CONFIGS: Final = (facts.GroupConfigsSet, facts.GroupConfigsForgotten)
#: Perhaps news for every member of a group.
_OF_GROUP: Final = (
    *_OF_CONFIGS,
    facts.ConsumerGroupForgotten,
    facts.ClassicGroupForgotten,
    facts.ClassicGroupStored,
    classic.ClassicGroupDropped,
    classic.RebalanceBegun,
    classic.GenerationBegun,
)
#: Perhaps news for the named member.
_OF_MEMBER: Final = (
    facts.MemberTargetSet,
    facts.ConsumerMemberForgotten,
    facts.CurrentAssignmentSet,
    facts.ClientAssignmentSet,
    facts.ClientAssignmentForgotten,
    classic.MemberRemoved,
)
#: Records that may change which partitions the waiting members are to get.
_OF_TARGET: Final = (facts.MemberTargetSet, facts.TargetAssignmentEpochSet, MovesHeldBack, MovesBegun)


def find_freed(groups: GroupsState, records: Iterable[facts.Record]) -> list[tuple[str, Spot]]:
    """Return (group id, partition) for each partition that no member has once `records` are applied.

    Only groups with held heartbeats or watches are considered.
    """
    freed: list[tuple[str, Spot]] = []
    for record in records:
        if not isinstance(record, facts.CurrentAssignmentSet | facts.ConsumerMemberForgotten):
            continue
        # Without held heartbeats and watches no member waits for a partition.
        if record.group_id not in groups.holds and record.group_id not in groups.watches:
            continue
        member = groups.find_member(record.group_id, record.member_id)
        if member is None:
            continue
        # A revoked partition of a member that is away blocks no one.
        after: tuple[facts.Grants, ...] = ()
        if isinstance(record, facts.CurrentAssignmentSet) and record.member_epoch > 0:
            after = record.assigned, record.pending_revocation
        for grants in (member.assigned, member.pending_revocation):
            for topic_id, partitions in grants.items():
                kept = [each[topic_id] for each in after if topic_id in each]
                freed += [
                    (record.group_id, (topic_id, partition))
                    for partition in partitions
                    if not any(partition in each for each in kept)
                ]
    return freed


class UpdatedMembers:
    """Members with a held heartbeat or a watch for which there may be news."""

    __slots__ = ("_paced", "_places", "_wanted")

    def __init__(self) -> None:
        #: Member of a held heartbeat or watch -> whether there is news for sure.
        self._places: Final[dict[Place, bool]] = {}
        #: Groups whose heartbeat interval changed since the latest `note`.
        self._paced: Final[set[str]] = set()
        #: group id -> partition -> id of the member that is behind, or waits for a move, and is to own it; of groups
        #: with holds, since their latest target.
        self._wanted: Final[dict[str, dict[Spot, str]]] = {}

    def __bool__(self) -> bool:
        return bool(self._places)

    def take(self) -> tuple[Place, bool]:
        """Remove and return one member, and whether there is certainly news for it."""
        place = next(iter(self._places))
        # A member stays out until the next record that concerns it.
        return place, self._places.pop(place)

    def put_back(self, place: Place, *, is_sure: bool) -> None:
        """Put a member back, because there may be more news for it."""
        self._places[place] = is_sure

    def note_interval(self, group_id: str) -> None:
        """Note a group config that changes the heartbeat interval."""
        self._paced.add(group_id)

    def note(self, groups: GroupsState, records: Iterable[facts.Record], freed: Iterable[tuple[str, Spot]]) -> None:
        """Note the members that committed records concern; `freed` is the earlier result of `find_freed`."""
        if not groups.holds and not groups.watches:
            self._wanted.clear()
            self._paced.clear()
            return
        for record in records:
            group_id = record.group_id
            held = _waiting(groups, group_id)
            if held is None:
                self._wanted.pop(group_id, None)
            elif isinstance(record, delayed_heartbeats.HeartbeatHeld):
                # News before this heartbeat was told to an earlier one.
                if record.command.member_id not in groups.watches.get(group_id, ()):
                    self._places.pop((group_id, record.command.member_id), None)
            elif isinstance(record, _OF_CONFIGS) and group_id in self._paced:
                # Every response has the new interval, so there is news for sure.
                self._places.update(dict.fromkeys(((group_id, each) for each in held), True))
            elif isinstance(record, _OF_GROUP):
                self._add(group_id, held)
            elif isinstance(record, _OF_MEMBER) and record.member_id in held:
                self._add(group_id, (record.member_id,))
            elif isinstance(record, ComputationNoted):
                # Only the chosen member has to learn of the computation.
                asked = "" if record.computing is None else record.computing.member_id
                self._add(group_id, (asked,) if asked in held else ())
            elif isinstance(record, MemberHeard) and record.is_behind and record.member_id in held:
                # The member has both a hold and a watch: either may deliver the news first.
                self._add(group_id, (record.member_id,))
            elif isinstance(record, EditionIssued):
                self._add(group_id, [each for each, command in held.items() if watches(command)])
            elif isinstance(record, classic.StaticMemberReplaced):
                self._add(group_id, (record.replaced_id,))
            elif isinstance(record, MovesBegun) and group_id in groups.consumer:
                # The owner is asked to revoke the partition; the next owner gets its news when it is free.
                holders = groups.consumer[group_id].holders
                keepers = {holders.get(topic_id, {}).get(partition, "") for topic_id, partition in record.places}
                self._add(group_id, sorted(keepers & held.keys()))
            self._note_wanted(groups, record)
            # A complete target may end the wait of joining members.
            if held is not None and isinstance(record, facts.TargetAssignmentEpochSet):
                self._add(group_id, [each for each, command in held.items() if _waits_for_target(command)])
        self._paced.clear()
        # The member that is to own a freed partition may take it now.
        for group_id, spot in freed:
            group, held = groups.consumer.get(group_id), _waiting(groups, group_id)
            if group is None or held is None:
                continue
            member_id = self._wanted_in(group).get(spot)
            if member_id is not None and member_id in held:
                self._add(group_id, (member_id,))

    def _add(self, group_id: str, member_ids: Iterable[str]) -> None:
        for member_id in member_ids:
            # A member with news for sure keeps that mark.
            self._places.setdefault((group_id, member_id), False)

    def _note_wanted(self, groups: GroupsState, record: facts.Record) -> None:
        wanted, group = self._wanted.get(record.group_id), groups.consumer.get(record.group_id)
        if isinstance(record, _OF_TARGET) or group is None:
            # Another target: the wanted partitions are computed again when they are needed.
            self._wanted.pop(record.group_id, None)
        elif wanted is not None and isinstance(record, facts.CurrentAssignmentSet) and record.member_id in group.behind:
            wanted.update(_spots(group, record.member_id))

    def _wanted_in(self, group: ConsumerGroup) -> Mapping[Spot, str]:
        wanted = self._wanted.get(group.group_id)
        if wanted is None:
            wanted = self._wanted[group.group_id] = {}
            takers = {move.taker for move in group.waiting.values()}
            for member_id in group.behind | takers:
                wanted.update(_spots(group, member_id))
        return wanted


def _waiting(groups: GroupsState, group_id: str) -> Mapping[str, AnyHeartbeat | WatchMember] | None:
    """Return member id -> held heartbeat or watch of a group; `None` if there are none."""
    held = groups.holds.get(group_id)
    watched = groups.watches.get(group_id) if groups.watches else None
    if held is None or watched is None:
        return watched if held is None else held
    return ChainMap[str, AnyHeartbeat | WatchMember](held, watched)  # type: ignore[arg-type]


def _waits_for_target(command: AnyHeartbeat | WatchMember) -> bool:
    """Return whether a new target may be news for a member whose own target is unchanged."""
    # It may complete the assignment of a joining member. A classic member rejoins once per target for free partitions.
    return isinstance(command, commands.Heartbeat) or command.member_epoch == commands.JOIN_EPOCH


def _spots(group: ConsumerGroup, member_id: str) -> Iterator[tuple[Spot, str]]:
    for topic_id, partitions in group.targets.get(member_id, NO_TARGET).items():
        for partition in partitions:
            yield (topic_id, partition), member_id
