"""Journal entries of records of the consumer protocol, and of a group's configs.

Laws: no decision is made here. A record type that is not in `CONSUMER_EVENTS` has no entry.
Source: requirements G4 and J1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from kohort.coordinator import records as facts
from kohort.coordinator.consumer.client_assignors.records import ComputationFailed
from kohort.coordinator.consumer.reconciliation.effective_target import MovesBegun, MovesHeldBack
from kohort.coordinator.consumer.targets.volatile import ComputationNoted
from kohort.coordinator.events.decision_view import Scene, flatten
from kohort.coordinator.model import Place, WaitingMove
from kohort.coordinator.settings import GroupSettings
from kohort.ids import TopicId
from kohort.journal.rows import Entry
from kohort.journal.words import PARTITIONS_SHOWN

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
