"""Conversion of a KIP-848 group with only classic members left to a classic group.

Laws: the tombstones of the old group and the record of the new one are one batch. The members stay. A rebalance begins
at once, because the partitions of the others have to be assigned; after a restart in its midst it begins again. Until
the members rejoin, they commit with the epochs that they know, so that a clean hand-over loses no commit.
Source: KIP-848 (online migration); Apache Kafka's `validateOnlineDowngrade`, `ClassicGroup.fromConsumerGroup`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from kohort.coordinator.classic.join import decide_join
from kohort.coordinator.classic.pending_decision import Draft
from kohort.coordinator.classic.rebalance import begin_rebalance
from kohort.coordinator.classic.state import NOT_REBALANCED, ClassicGroup, ClassicMember, build_stored_member
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE
from kohort.coordinator.classic.volatile import MemberPut
from kohort.coordinator.commands.groups import JoinGroup
from kohort.coordinator.commands.values import ClassicMemberFacts
from kohort.coordinator.consumer.targets.batching_window import assignment_key
from kohort.coordinator.consumer.tombstones import build_group_tombstones
from kohort.coordinator.decision import Decision, Disarm, Effect, TimerKey, TimerKind
from kohort.coordinator.embeddedcodec import write_assignment
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records import ClassicGroupStored, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage

_MEMBER_TIMERS: Final[tuple[TimerKind, ...]] = ("session", "rebalance", "join", "sync")


def can_downgrade(group: ConsumerGroup, gone: Collection[str], settings: GroupSettings) -> bool:
    """Whether the group has to become classic once the members in `gone` are removed."""
    left = len(group.members) - len(gone)
    gone_classic = sum(group.members[member_id].classic is not None for member_id in gone)
    return (
        left > 0
        and group.classic_count - gone_classic == left
        and settings.can_downgrade
        and left <= settings.group_max_size
    )


def decide_downgrade(
    groups: GroupsState, group: ConsumerGroup, gone: Sequence[str], settings: GroupSettings, *, now_ms: int, reason: str
) -> tuple[Decision, ClassicGroup] | None:
    """Make the group classic, without the members in `gone`.

    Returns:
        The decision, and the classic group after it; `None` if the remaining members have no common protocol, which no
        coordinator allows.
    """
    assert can_downgrade(group, gone, settings)
    draft = Draft(None, group.group_id, now_ms=now_ms, known=groups)
    members = [
        _build_member(left, left.classic, groups.image)
        for member_id in sorted(group.members.keys() - set(gone))
        if (left := group.members[member_id]).classic is not None
    ]
    protocol_name = _elect(group.group_id, members, now_ms=now_ms)
    if protocol_name is None:
        return None
    draft.record(_build_stored(group, members, protocol_name))
    for member in members:
        # The record keeps one protocol of each member; the coming vote needs them all.
        draft.record(MemberPut(group_id=group.group_id, protocol_type=CONSUMER_PROTOCOL_TYPE, member=member))
        if not draft.is_offline(member.member_id):
            draft.arm("session", member.session_timeout_ms, member.member_id)
    begin_rebalance(draft, settings, reason=reason)
    begun = draft.decision()
    records, effects = build_end(group)
    return Decision((*records, *begun.records), (*effects, *begun.effects)), draft.group


def is_last_of_its_kind(group: ConsumerGroup, member: ConsumerMember, settings: GroupSettings) -> bool:
    """Whether the group has to become classic once a classic member replaces `member`."""
    others = len(group.members) - 1
    return (
        member.classic is None
        and group.classic_count == others
        and settings.can_downgrade
        and len(group.members) <= settings.group_max_size
    )


def decide_succession(
    groups: GroupsState,
    group: ConsumerGroup,
    former: ConsumerMember,
    command: JoinGroup,
    settings: GroupSettings,
    *,
    now_ms: int,
) -> Decision:
    """Let a classic member replace the last static member of the consumer protocol.

    Raises:
        Refused: the refusals of a classic group.
    """
    gone = [former.member_id]
    if can_downgrade(group, gone, settings):
        reason = f"the member {former.member_id} was replaced by one of the classic protocol"
        found = decide_downgrade(groups, group, gone, settings, now_ms=now_ms, reason=reason)
        assert found is not None, "who joins has a protocol in common with all others"
        ended, classic = found
        joined = decide_join(classic, command, settings, now_ms=now_ms, image=groups.image, groups=groups)
    else:
        records, effects = build_end(group)
        ended = Decision(tuple(records), tuple(effects))
        joined = decide_join(None, command, settings, now_ms=now_ms, groups=groups)
    return Decision((*ended.records, *joined.records), (*ended.effects, *joined.effects))


def build_end(group: ConsumerGroup) -> tuple[list[Record], list[Effect]]:
    """Build the end of a KIP-848 group with its members."""
    group_id = group.group_id
    effects: list[Effect] = [Disarm(assignment_key(group_id))]
    for member_id in sorted(group.members):
        effects.extend(Disarm(TimerKey(kind, group_id, member_id)) for kind in _MEMBER_TIMERS)
    return build_group_tombstones(group), effects


def _build_member(member: ConsumerMember, classic: ClassicMemberFacts, image: TopicImage) -> ClassicMember:
    # A member owns its pending revocations, too.
    held: dict[str, list[int]] = {}
    for grants in (member.assigned, member.pending_revocation):
        for topic_id, partitions in grants.items():
            facts = image.by_id.get(topic_id)
            if facts is not None:
                held.setdefault(facts.name, []).extend(partitions)
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=classic.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=classic.protocols,
        assignment=write_assignment(
            {name: sorted(held[name]) for name in sorted(held)}, subscription=classic.protocols[0][1]
        ),
    )


def _elect(group_id: str, members: Sequence[ClassicMember], *, now_ms: int) -> str | None:
    """Elect the protocol by the members' votes; `None` if they have no common one."""
    common = set.intersection(*(set(member.protocol_names) for member in members))
    if not common:
        return None
    ballot = ClassicGroup(group_id)
    draft = Draft(ballot, group_id, now_ms=now_ms)
    for member in members:
        draft.record(MemberPut(group_id=group_id, protocol_type=CONSUMER_PROTOCOL_TYPE, member=member))
    return draft.group.elect_protocol()


def _build_stored(group: ConsumerGroup, members: Sequence[ClassicMember], protocol_name: str) -> ClassicGroupStored:
    return ClassicGroupStored(
        group_id=group.group_id,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        generation=group.epoch,
        protocol_name=protocol_name,
        leader=members[0].member_id,
        state_timestamp_ms=NOT_REBALANCED,
        members=tuple(build_stored_member(member, protocol_name) for member in members),
    )
