"""Journal entries of records: of the consumer protocol, classic groups, static members, configs.

Laws: no decision is made here. A record type that is not in `CONSUMER_EVENTS` has no entry.
Source: requirements G4 and J1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from kohort.coordinator.classic import state as classic
from kohort.coordinator.classic.state import NOT_REBALANCED, ClassicMember
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE, read_assignment, read_subscription
from kohort.coordinator.consumer.assignment.volatile import ComputationNoted
from kohort.coordinator.consumer.client_assignors.assignment_request import ComputationFailed
from kohort.coordinator.consumer.reconciliation.effective_target import MovesBegun, MovesHeldBack
from kohort.coordinator.journal_events.decision_view import Scene, flatten
from kohort.coordinator.model import Place, WaitingMove
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.clock import NO_WINDOW
from kohort.ids import TopicId
from kohort.journal.rows import Entry
from kohort.journal.words import PARTITIONS_SHOWN, Partition, write_partitions

#: Most members that are named with the partitions to revoke; the rest is a number.
GIVERS_SHOWN: Final = 100
#: Reason for a member without partitions, beside the configs by which it has fewer than others.
NO_TOPIC: Final = "no topic"
#: Fields of a member's subscription.
_WISHES: Final = ("subscribed_topic_names", "subscribed_topic_regex", "server_assignor")
#: Records that tell a member its assignment.
_OF_STANDING: Final = (facts.CurrentAssignmentSet, facts.ConsumerMemberForgotten)


def _epoch_set(scene: Scene, record: facts.ConsumerGroupEpochSet) -> Iterable[Entry]:
    if scene.consumer is not None and record.epoch == scene.consumer.epoch:
        # New members of a static group wait; their topics are noted.
        return ()
    trigger = scene.step or scene.trigger
    scene.course.begin(trigger, now_ms=scene.now_ms)
    return (scene.decision("epoch_bumped", epoch=str(record.epoch), trigger=trigger),)


def _target_set(scene: Scene, _: facts.MemberTargetSet) -> Iterable[Entry]:
    # Targets are summed up: a rebalance of a large group has thousands.
    scene.targets += 1
    return ()


def _target_computed(scene: Scene, record: facts.TargetAssignmentEpochSet) -> Iterator[Entry]:
    scene.course.is_answered = True
    yield scene.decision(
        "target_computed",
        epoch=str(record.assignment_epoch),
        members_changed=str(scene.targets),
        by=scene.computed_by,
    )
    yield from _plans(scene)


def _plans(scene: Scene) -> Iterator[Entry]:
    """Report members that have to revoke partitions by the new target, unless this decision tells them."""
    told = {record.member_id for record in scene.records if isinstance(record, _OF_STANDING)}
    waiting: Mapping[Place, WaitingMove] = {} if scene.consumer is None else scene.consumer.waiting
    if MovesHeldBack in scene.kinds:
        # This decision may hold back moves itself.
        waiting = next(record.waiting for record in scene.records if isinstance(record, MovesHeldBack))
    shown = 0
    for record in scene.records:
        if not isinstance(record, facts.MemberTargetSet) or record.member_id in told or shown == GIVERS_SHOWN:
            continue
        member = scene.members.get(record.member_id)
        # A member that is away cannot be told.
        if member is None or member.member_epoch < 0:
            continue
        surplus = flatten(member.assigned) - flatten(record.partitions) - waiting.keys()
        if surplus:
            shown += 1
            yield _planned(scene, record.member_id, surplus)


def _planned(scene: Scene, member_id: str, places: Collection[Place]) -> Entry:
    scene.course.awaited.setdefault(member_id, scene.now_ms)
    return scene.decision("revocation_planned", member_id, partitions=scene.show(places), **scene.reach(member_id))


def _moves_held_back(scene: Scene, record: MovesHeldBack) -> Iterable[Entry]:
    """Report that moves wait for their turn, or that none does any more."""
    waiting = {} if scene.consumer is None else scene.consumer.waiting
    # The same moves wait: the record only sorts them.
    if waiting.keys() == record.waiting.keys():
        return ()
    count, partitions = str(len(record.waiting)), scene.show(record.waiting)
    return (scene.decision("moves_waiting", moves=count, partitions=partitions, pace=scene.pace),)


def _moves_begun(scene: Scene, record: MovesBegun) -> Iterator[Entry]:
    waiting = {} if scene.consumer is None else scene.consumer.waiting
    begun = {place: waiting[place] for place in record.places if place in waiting}
    left = len(waiting) - len(begun)
    yield scene.decision("moves_begun", moves=str(len(begun)), partitions=scene.show(begun), left=str(left))
    by_keeper: dict[str, list[Place]] = {}
    for place, move in begun.items():
        # A keeper is told of all its partitions at once.
        by_keeper.setdefault(move.keeper, []).append(place)
    for member_id, places in list(by_keeper.items())[:GIVERS_SHOWN]:
        yield _planned(scene, member_id, places)


def _subscribed(scene: Scene, record: facts.ConsumerMemberSubscribed) -> Iterable[Entry]:
    before = scene.members.get(record.member_id)
    wants = {
        "topics": ",".join(record.subscribed_topic_names[:PARTITIONS_SHOWN]),
        "pattern": record.subscribed_topic_regex or "",
        "assignor": record.server_assignor or "",
    }
    if before is None:
        # A process that replaces a static member takes over its moves as well.
        borne = {} if scene.consumer is None else scene.consumer.instance_ids
        scene.former[record.member_id] = borne.get(record.instance_id or "", "")
        is_kept = record.classic is not None and record.member_id in scene.kept
        entry = scene.transition(
            "member_kept" if is_kept else "member_joined",
            record.member_id,
            instance=record.instance_id or "",
            client=record.client_id,
            host=record.client_host,
            **wants,
        )
    elif all(getattr(before, name) == getattr(record, name) for name in _WISHES):
        entry = scene.transition("member_changed", record.member_id, client=record.client_id)
    else:
        entry = scene.transition("subscription_changed", record.member_id, **wants)
    return (entry,)


def _member_forgotten(scene: Scene, record: facts.ConsumerMemberForgotten) -> Iterable[Entry]:
    # The member goes on in the other protocol: it has not left.
    if record.member_id in scene.kept:
        return ()
    before = scene.members.get(record.member_id)
    instance = "" if before is None else before.instance_id or ""
    # Others do not wait for a removed member any more.
    scene.course.awaited.pop(record.member_id, None)
    heard = scene.farewell(record.member_id)
    return (scene.transition("member_removed", record.member_id, instance=instance, reason=scene.trigger, **heard),)


def _assignment_set(scene: Scene, record: facts.CurrentAssignmentSet) -> Iterator[Entry]:
    member_id, course, now_ms = record.member_id, scene.course, scene.now_ms
    before = scene.members.get(member_id)
    new, pending = flatten(record.assigned), flatten(record.pending_revocation)
    old = flatten(before.assigned) if before is not None else set()
    old_pending = flatten(before.pending_revocation) if before is not None else set()
    released = (old | old_pending) - new - pending
    asked_back, gained = pending - old_pending, new - old
    # Last reads are taken before the partitions change their owner.
    read = scene.let_go(member_id, scene.granted(before, released)) if released else {}
    if record.state == facts.MemberState.UNREVOKED_PARTITIONS:
        course.ask(member_id, scene.named(asked_back), now_ms=now_ms)
    else:
        course.awaited.pop(member_id, None)
    # Epoch -2: the member leaves for a while, and gets no assignment.
    if before is not None and record.member_epoch < 0 <= before.member_epoch:
        yield scene.transition(
            "member_away",
            member_id,
            instance=before.instance_id or "",
            held=scene.show(new),
            released=scene.show(released),
            **read,
        )
        return
    # A member that comes with its group has its partitions already: it gains none.
    is_new = before is not None or member_id not in scene.kept
    yield scene.transition(
        "assignment_changed",
        member_id,
        epoch=str(record.member_epoch),
        state=record.state.name,
        **{"gained" if is_new else "held": scene.show(gained)},
        asked_back=scene.show(asked_back),
        released=scene.show(released),
        **read,
    )
    if gained:
        yield from scene.arrivals(member_id, scene.named(gained))


def _assignment_forgotten(scene: Scene, record: facts.CurrentAssignmentForgotten) -> Iterable[Entry]:
    before = scene.members.get(record.member_id)
    # The partitions go on with the member in the other protocol.
    if before is None or record.member_id in scene.kept:
        return ()
    held = flatten(before.assigned) | flatten(before.pending_revocation)
    read = scene.let_go(record.member_id, scene.granted(before, held))
    return (
        (scene.transition("assignment_released", record.member_id, released=scene.show(held), **read),) if held else ()
    )


def _group_forgotten(scene: Scene, _: facts.ConsumerGroupForgotten) -> Iterable[Entry]:
    if scene.goes_on_as == "classic":
        return (scene.transition("group_converted", to="classic"),)
    return (scene.transition("group_forgotten"),)


def _computation_noted(scene: Scene, record: ComputationNoted) -> Iterable[Entry]:
    asked_of, failure = record.computing, record.failure
    if asked_of is not None:
        if asked_of.is_prepared:
            # The member was asked before, and fetches the input now.
            return ()
        entry = scene.decision(
            "assignor_asked",
            asked_of.member_id,
            assignor=asked_of.assignor,
            epoch=str(asked_of.epoch),
            members=str(len(asked_of.assignable.members)),
            partitions=str(len(asked_of.assignable.space)),
        )
    # A result is reported by its target, and a known failure only once.
    elif failure is None or (scene.consumer is not None and failure == scene.consumer.failure):
        return ()
    else:
        entry = scene.decision(
            "assignor_failed", assignor=failure.assignor, why=failure.error, failures=str(failure.count)
        )
    return (entry,)


def _computation_failed(scene: Scene, record: ComputationFailed) -> Iterable[Entry]:
    return (scene.decision("assignor_failed", record.member_id, assignor=record.assignor, why=record.why),)


def _connection_seen(scene: Scene, record: facts.MemberConnectionSeen) -> Iterable[Entry]:
    return (scene.transition("connection_lost" if record.is_gone else "connection_back", record.member_id),)


def _configs_set(scene: Scene, record: facts.GroupConfigsSet | facts.GroupConfigsForgotten) -> Iterable[Entry]:
    before = scene.configs
    after = record.configs if isinstance(record, facts.GroupConfigsSet) else {}
    changed = {name: after.get(name, "(default)") for name in sorted(before.keys() | after.keys())}
    # Only changed configs are reported.
    different = {name: value for name, value in changed.items() if before.get(name, "(default)") != value}
    return (scene.transition("configs_changed", **different),)


def _offset_forgotten(scene: Scene, _: facts.OffsetForgotten) -> Iterable[Entry]:
    scene.forgotten_offsets += 1
    return ()


def tell_short(scene: Scene) -> Iterator[Entry]:
    """Explain why members of a group at rest have no partitions, or fewer than others."""
    group, limit = scene.consumer, _limit_of(scene.settings)
    if group is not None and group.classic_count:
        return
    targets = {} if group is None else group.targets
    counts = {member_id: _count(targets.get(member_id, {})) for member_id in scene.members}
    patterns = {} if group is None else {pattern: found.topics for pattern, found in group.regexes.items()}
    joined: dict[str, facts.ConsumerMemberSubscribed] = {}
    for record in scene.records:
        if isinstance(record, facts.ConsumerMemberSubscribed):
            joined[record.member_id] = record
            counts.setdefault(record.member_id, 0)
        elif isinstance(record, facts.RegularExpressionResolved):
            patterns[record.regex] = record.topics
        elif isinstance(record, facts.ConsumerMemberForgotten):
            counts.pop(record.member_id, None)
    for record in scene.records:
        if isinstance(record, facts.MemberTargetSet) and record.member_id in counts:
            counts[record.member_id] = _count(record.partitions)
    # An even share is defined only where all members have the same topics.
    is_alike = group is None or len(group.subscriptions) <= 1
    even = sum(counts.values()) // len(counts) if is_alike and counts else 0
    shown = 0
    for member_id, count in counts.items():
        # A member with an even share, or without a limit, needs no explanation.
        if count and not (limit and count < even):
            continue
        wishes = joined.get(member_id) or scene.members[member_id]
        topics = {*wishes.subscribed_topic_names, *patterns.get(wishes.subscribed_topic_regex or "", ())}
        if not any(name in scene.image.by_name for name in topics):
            wanted = ",".join(sorted(topics)) or wishes.subscribed_topic_regex or ""
            yield scene.decision("share_short", member_id, has="0", because=NO_TOPIC, topics=wanted)
        elif limit and count < even:
            yield scene.decision("share_short", member_id, has=str(count), even=str(even), because=limit)
        else:
            continue
        shown += 1
        if shown == GIVERS_SHOWN:
            return


def _limit_of(settings: GroupSettings) -> str:
    """Return the config that allows a group at rest to be uneven."""
    if settings.group_assignor_max_moves == 0:
        return "group.assignor.max.moves"
    return "group.assignor.imbalance" if settings.group_assignor_imbalance > 0 else ""


def _count(target: Mapping[TopicId, tuple[int, ...]]) -> int:
    return sum(map(len, target.values()))


#: Record type -> function that builds its entries.
CONSUMER_EVENTS: Final[dict[type[facts.Record], Callable[..., Iterable[Entry]]]] = {
    facts.ConsumerGroupEpochSet: _epoch_set,
    facts.MemberTargetSet: _target_set,
    facts.TargetAssignmentEpochSet: _target_computed,
    facts.ConsumerMemberSubscribed: _subscribed,
    facts.ConsumerMemberForgotten: _member_forgotten,
    facts.CurrentAssignmentSet: _assignment_set,
    facts.CurrentAssignmentForgotten: _assignment_forgotten,
    facts.ConsumerGroupForgotten: _group_forgotten,
    ComputationNoted: _computation_noted,
    ComputationFailed: _computation_failed,
    MovesHeldBack: _moves_held_back,
    MovesBegun: _moves_begun,
    facts.MemberConnectionSeen: _connection_seen,
    facts.GroupConfigsSet: _configs_set,
    facts.GroupConfigsForgotten: _configs_set,
    facts.OffsetForgotten: _offset_forgotten,
}


# Journal entries of records of classic groups.
#
# Only the leader of a classic group knows the owners of partitions; its blobs are read here where they are consumers'.
#
# Laws: no decision is made here. A record type that is not in `CLASSIC_EVENTS` has no entry.
# Source: requirements G4 and J1.


def _member_put(scene: Scene, record: classic.MemberPut) -> Iterable[Entry]:
    member = record.member
    is_known = scene.classic is not None and member.member_id in scene.classic.members
    event = "member_rejoined" if is_known else "member_joined"
    scene.course.awaited.pop(member.member_id, None)
    entry = scene.transition(
        "member_kept" if member.member_id in scene.kept else event,
        member.member_id,
        instance=member.instance_id or "",
        client=member.client_id,
        host=member.client_host,
        protocols=",".join(member.protocol_names),
    )
    return (entry,)


def _member_removed(scene: Scene, record: classic.MemberRemoved) -> Iterator[Entry]:
    member, group = _find_member(scene, record.member_id), scene.classic
    is_read = group is not None and group.protocol_type == CONSUMER_PROTOCOL_TYPE
    held = read_owned(member.assignment) if member is not None and is_read else set()
    awaited_ms = scene.course.awaited.pop(record.member_id, None)
    if held:
        read = scene.let_go(record.member_id, dict.fromkeys(held), asked_ms=awaited_ms)
        yield scene.transition("assignment_released", record.member_id, released=write_partitions(held), **read)
    heard = scene.farewell(record.member_id)
    yield scene.transition("member_removed", record.member_id, reason=scene.trigger, **heard)


def _member_replaced(scene: Scene, record: classic.StaticMemberReplaced) -> Iterable[Entry]:
    member, former = record.member, record.replaced_id
    return (scene.transition("member_replaced", member.member_id, instance=member.instance_id or "", former=former),)


def _id_handed_out(scene: Scene, record: classic.MemberIdHandedOut) -> Iterable[Entry]:
    return (scene.decision("member_id_required", record.member_id),)


def _connection_lost(scene: Scene, record: classic.ClassicConnectionLost) -> Iterable[Entry]:
    return (scene.transition("connection_lost", record.member_id),)


def _rebalance_begun(scene: Scene, record: classic.RebalanceBegun) -> Iterable[Entry]:
    scene.course.begin(scene.trigger, now_ms=scene.now_ms, is_new=True)
    members = () if scene.classic is None else scene.classic.members
    scene.course.awaited = dict.fromkeys(members, scene.now_ms)
    return (scene.decision("rebalance_began", trigger=scene.trigger, why=record.reason),)


def _generation_begun(scene: Scene, record: classic.GenerationBegun) -> Iterable[Entry]:
    scene.course.awaited = {record.leader: scene.now_ms}
    return (
        scene.decision(
            "generation_began", record.leader, generation=str(record.generation), protocol=record.protocol_name
        ),
    )


def _stored(scene: Scene, record: facts.ClassicGroupStored) -> Iterator[Entry]:
    """Report the assignments of a generation, or the end of the last member."""
    if record.state_timestamp_ms == NOT_REBALANCED:
        return
    generation = str(record.generation)
    moves = [(member.member_id, *_moves(scene, record, member)) for member in record.members]
    # A member that gives partitions is reported before the one that gets them.
    for member_id, gained, released in sorted(moves, key=lambda move: not move[2]):
        if gained or released:
            read = scene.let_go(member_id, dict.fromkeys(released), asked_ms=scene.course.began_ms)
            yield scene.transition(
                "assignment_changed",
                member_id,
                epoch=generation,
                state="STABLE",
                gained=write_partitions(gained),
                released=write_partitions(released),
                **read,
            )
            yield from scene.arrivals(member_id, gained)
    state, members = "Stable" if record.members else "Empty", str(len(record.members))
    yield scene.transition("group_at_rest", state=state, generation=generation, members=members, **scene.cost())
    if record.protocol_type == CONSUMER_PROTOCOL_TYPE:
        yield from _tell_short(scene, record.members)


def _tell_short(scene: Scene, members: Iterable[facts.StoredClassicMember]) -> Iterator[Entry]:
    """Report members without partitions because none of their topics exists; the leader gives no reason."""
    shown = 0
    for member in members:
        wishes = None if read_owned(member.assignment) else read_subscription(member.subscription)
        if wishes is None or any(name in scene.image.by_name for name in wishes.topics) or shown == GIVERS_SHOWN:
            continue
        shown += 1
        wanted = ",".join(sorted(wishes.topics))
        yield scene.decision("share_short", member.member_id, has="0", because=NO_TOPIC, topics=wanted)


def _classic_group_forgotten(
    scene: Scene, _: facts.ClassicGroupForgotten | classic.ClassicGroupDropped
) -> Iterable[Entry]:
    if scene.goes_on_as == "consumer":
        return (scene.transition("group_converted", to="consumer"),)
    return (scene.transition("group_forgotten"),)


def _moves(
    scene: Scene, record: facts.ClassicGroupStored, member: facts.StoredClassicMember
) -> tuple[set[Partition], set[Partition]]:
    """Return the partitions that the leader assigned to a member and took from it, if readable."""
    former = _find_member(scene, member.member_id, member.instance_id)
    before = b"" if former is None else former.assignment
    if record.protocol_type != CONSUMER_PROTOCOL_TYPE or before == member.assignment:
        return set(), set()
    old, new = read_owned(before), read_owned(member.assignment)
    return new - old, old - new


def _find_member(scene: Scene, member_id: str, instance_id: str | None = None) -> ClassicMember | None:
    """Return the member, or the former one of its instance id, in the group's present state."""
    group = scene.classic
    if group is None:
        return None
    return group.members.get(member_id) or group.members.get(group.instance_ids.get(instance_id or "", ""))


def read_owned(assignment: bytes) -> set[Partition]:
    """Return the partitions of an assignment, as far as it is readable."""
    found = read_assignment(assignment)
    return set() if found is None else {(topic, each) for topic, own in found.partitions.items() for each in own}


#: Record type -> function that builds its entries.
CLASSIC_EVENTS: Final[dict[type[facts.Record], Callable[..., Iterable[Entry]]]] = {
    classic.MemberPut: _member_put,
    classic.MemberRemoved: _member_removed,
    classic.StaticMemberReplaced: _member_replaced,
    classic.MemberIdHandedOut: _id_handed_out,
    classic.ClassicConnectionLost: _connection_lost,
    classic.RebalanceBegun: _rebalance_begun,
    classic.GenerationBegun: _generation_begun,
    facts.ClassicGroupStored: _stored,
    facts.ClassicGroupForgotten: _classic_group_forgotten,
    classic.ClassicGroupDropped: _classic_group_forgotten,
}


# Journal entries of members of a static group that go offline or come back, in either protocol.
#
# Laws: no decision is made here. `member_away` alone reports a member of a KIP-848 group that leaves for a while, or is
# silent. A removed member, or one with a session again as its group is dynamic now, is not reported as back.
# Source: requirements G4, J1 and S1.

#: Records that end the offline times of members without a sign of life.
_OF_THE_GROUP: Final = (
    facts.GroupConfigsSet,
    facts.GroupConfigsForgotten,
    facts.ClassicGroupForgotten,
    facts.ConsumerGroupForgotten,
)


def _offline(scene: Scene, record: facts.OfflineMemberSet) -> Iterable[Entry]:
    if _is_told(scene, record.member_id):
        return ()
    # The record has the time of the group's clock, which is behind.
    since_ms = record.since_ms + (0 if scene.clock is None else scene.clock.lost_ms)
    name = _instance_of(scene, record.member_id)
    silent_ms = str(max(0, scene.now_ms - since_ms))
    return (scene.transition("member_offline", record.member_id, instance=name, silent_ms=silent_ms),)


def _back(scene: Scene, record: facts.OfflineMemberForgotten) -> Iterator[Entry]:
    since_ms = None if scene.clock is None else scene.clock.offline_since(record.member_id)
    if since_ms is None or not scene.kinds.isdisjoint(_OF_THE_GROUP):
        return
    member_id = _goes_on_as(scene, record.member_id)
    if member_id is not None:
        name = _instance_of(scene, record.member_id)
        away_ms = str(max(0, scene.now_ms - since_ms))
        yield scene.transition("member_back", member_id, instance=name, away_ms=away_ms)


def _clock_set(scene: Scene, record: facts.StaticClockSet) -> Iterable[Entry]:
    """Report that new members wait from now on, or do no longer; the clock's progress is not reported."""
    before = scene.clock is not None and scene.clock.has_window
    after = record.window_opened_ms != NO_WINDOW
    if before == after:
        return ()
    wait_ms = scene.settings.group_expansion_timeout_ms
    return (
        scene.decision("window_opened", ends_ms=str(scene.now_ms + wait_ms))
        if after
        else scene.decision("window_closed"),
    )


def _is_told(scene: Scene, member_id: str) -> bool:
    return any(
        isinstance(record, facts.CurrentAssignmentSet) and record.member_id == member_id and record.member_epoch < 0
        for record in scene.records
    )


def _goes_on_as(scene: Scene, member_id: str) -> str | None:
    """Return a member's id after the records, which another process may have; `None`: it is removed."""
    for record in scene.records:
        if isinstance(record, classic.StaticMemberReplaced) and record.replaced_id == member_id:
            return record.member.member_id
        if isinstance(record, classic.MemberRemoved) and record.member_id == member_id:
            return None
    if not any(
        isinstance(each, facts.ConsumerMemberForgotten) and each.member_id == member_id for each in scene.records
    ):
        return member_id
    return next((new_id for new_id, former_id in scene.former.items() if former_id == member_id), None)


def _instance_of(scene: Scene, member_id: str) -> str:
    hosted = scene.members.get(member_id)
    if hosted is not None:
        return hosted.instance_id or ""
    member = None if scene.classic is None else scene.classic.members.get(member_id)
    return "" if member is None else member.instance_id or ""


#: Record type -> function that builds its entries.
STATIC_EVENTS: Final[dict[type[facts.Record], Callable[..., Iterable[Entry]]]] = {
    facts.OfflineMemberSet: _offline,
    facts.OfflineMemberForgotten: _back,
    facts.StaticClockSet: _clock_set,
}
