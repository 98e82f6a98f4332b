"""The law that leaders know the present owners: the messages to them give the coordinator's state.

Laws: LeadersKnow: each partition that a member may read was opened for it, and each that a member is to give up is
fenced; a partition is fenced once between two owners, before it is opened, and nothing is told of a partition that
stays with its member.
Source: requirement H5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE, read_assignment
from kohort.coordinator.decision import Decision, FencePartitions, OpenPartitions
from kohort.coordinator.model import GroupsState
from kohort.coordinator.ownership.fences import FOLLOWED
from kohort.coordinator.records import types as facts
from kohort.ids import TopicId
from kohort.simulation.trace import LawBroken

#: Topic id and partition.
_Place = tuple[TopicId, int]
#: What a group's leaders know: partition -> member that may read it, `None`: it is fenced.
_Known = dict[_Place, str | None]


class ToldOwners:
    """What the leaders of partitions know by the messages of one coordinator."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        #: Partitions of the present decision that were opened though another member has them.
        self._unfenced: dict[str, dict[_Place, str]] = {}

    def load(self, groups: GroupsState) -> None:
        """Begin with the state of a coordinator that has read its log."""
        self._known = {group_id: dict(_owners_in(groups, group_id)) for group_id in (*groups.consumer, *groups.classic)}

    def after_step(self, groups: GroupsState, decision: Decision, *, is_on: bool = True) -> None:
        """Follow the messages of a committed decision, and compare the groups that it concerns.

        `is_on`: ownership is enforced.
        """
        self._unfenced = {}
        for effect in decision.effects:
            if isinstance(effect, FencePartitions):
                # What a classic member gives up between two rounds was fenced by the first of them.
                is_again = any(isinstance(record, facts.ClassicGroupForgotten) for record in decision.records)
                self._fence(effect, is_again=is_again)
            elif isinstance(effect, OpenPartitions):
                self._open(effect)
        told = [each for each in decision.effects if isinstance(each, FencePartitions | OpenPartitions)]
        if len(told) > 1:
            _check_moves(told)
        if is_on and not FOLLOWED.isdisjoint(map(type, decision.records)):
            for group_id in dict.fromkeys(record.group_id for record in decision.records if type(record) in FOLLOWED):
                self._check(groups, group_id)

    def _fence(self, effect: FencePartitions, *, is_again: bool) -> None:
        known = self._known.setdefault(effect.group_id, {})
        for place in effect.places:
            if is_again and place in known and known[place] is None:
                continue
            if known.get(place, effect.member_id) != effect.member_id:
                owner = known[place] or "no member"
                why = f"{_name(place)} is fenced for {effect.member_id}, and {owner} has it"
                raise LawBroken("LeadersKnow", why, group_id=effect.group_id)
            known[place] = None

    def _open(self, effect: OpenPartitions) -> None:
        known = self._known.setdefault(effect.group_id, {})
        for place in effect.places:
            if known.get(place) is not None and not effect.keep and effect.member_id:
                why = f"{_name(place)} is opened for {effect.member_id}, and {known[place]} has it unfenced"
                self._unfenced.setdefault(effect.group_id, {})[place] = why
            known[place] = effect.member_id

    def _check(self, groups: GroupsState, group_id: str) -> None:
        known, owners = self._known.get(group_id, {}), dict[_Place, str | None]()
        shared: set[_Place] = set()
        for place, owner in _owners_in(groups, group_id):
            # A classic leader's mistake: one partition for two members.
            if place in owners:
                shared.add(place)
            owners[place] = owner
        for place, why in self._unfenced.get(group_id, {}).items():
            if place not in shared:
                raise LawBroken("LeadersKnow", why, group_id=group_id)
        if group_id not in groups.consumer and group_id not in groups.classic:
            self._known.pop(group_id, None)
        for place, owner in owners.items():
            if known.get(place) != owner and place not in shared:
                why = f"{_name(place)} is {owner or 'fenced'}, and the leaders know {known.get(place)}"
                raise LawBroken("LeadersKnow", why, group_id=group_id)
        for place, owner in list(known.items()):
            if owner is not None and place not in owners and place[0] in groups.image.by_id:
                raise LawBroken("LeadersKnow", f"{_name(place)} is open for {owner} still", group_id=group_id)


def _owners_in(groups: GroupsState, group_id: str) -> Iterable[tuple[_Place, str | None]]:
    """Yield the partitions of existing topics with the members that may read them; `None`: fenced."""
    by_id, consumer, classic = groups.image.by_id, groups.consumer.get(group_id), groups.classic.get(group_id)
    for member in () if consumer is None else consumer.members.values():
        reader = None if member.member_epoch < 0 else member.member_id
        for owner, grants in ((reader, member.assigned), (None, member.pending_revocation)):
            for topic_id, granted in grants.items():
                if topic_id in by_id or not groups.image.version:
                    yield from (((topic_id, each), owner) for each in granted)
    if classic is None or classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return
    for other in classic.members.values():
        found = read_assignment(other.assignment)
        partitions: Mapping[str, Iterable[int]] = {} if found is None else found.partitions
        for name, numbers in partitions.items():
            topic = groups.image.by_name.get(name)
            for number in numbers if topic is not None else ():
                assert topic is not None
                yield (topic.topic_id, number), other.member_id


def _check_moves(told: Iterable[FencePartitions | OpenPartitions]) -> None:
    """Check that no partition is taken from a member and given back to it by one decision."""
    taken: set[tuple[str, str, _Place]] = set()
    for each in told:
        places = {(each.group_id, each.member_id, place) for place in each.places}
        if isinstance(each, FencePartitions):
            taken |= places
        elif taken & places:
            _, member_id, place = min(taken & places)
            why = f"{_name(place)} is fenced and opened for {member_id}, which keeps it"
            raise LawBroken("LeadersKnow", why, group_id=each.group_id)


def _name(place: _Place) -> str:
    return f"{place[0].hex()}-{place[1]}"
