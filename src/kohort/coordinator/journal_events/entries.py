"""Journal entries of records: of the consumer protocol, classic groups, static members, configs.

Laws: no decision is made here. A record type that is not in `CONSUMER_EVENTS` has no entry.
Source: requirements G4 and J1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from kohort.coordinator.classic import state as classic
from kohort.coordinator.classic import subscriptions
from kohort.coordinator.consumer.assignment import balance, volatile
from kohort.coordinator.consumer.client_assignors.assignment_request import ComputationFailed
from kohort.coordinator.consumer.reconciliation.effective_target import MovesBegun, MovesHeldBack, places_of
from kohort.coordinator.journal_events.decision_view import DecisionView
from kohort.coordinator.model import Place, WaitingMove
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.clock import NO_WINDOW
from kohort.journal.rows import Entry
from kohort.journal.words import PARTITIONS_SHOWN, Partition, write_partitions

#: Most members that are named with the partitions to revoke; the rest is a number.
GIVERS_SHOWN: Final = 100
#: Reason for a member without partitions, beside the configs by which it has fewer than others.
NO_TOPIC: Final = "no topic"
#: Fields of a member's subscription.
_WISHES: Final = ("subscribed_topic_names", "subscribed_topic_regex", "server_assignor")
#: Records that tell a member its assignment.
_OF_ASSIGNMENTS: Final = (facts.CurrentAssignmentSet, facts.ConsumerMemberForgotten)


def _epoch_set(view: DecisionView, record: facts.ConsumerGroupEpochSet) -> Iterable[Entry]:
    if view.consumer is not None and record.epoch == view.consumer.epoch:
        # New members of a static group wait; their topics are noted.
        return ()
    trigger = view.step or view.trigger
    view.rebalance.begin(trigger, now_ms=view.now_ms)
    return (view.decision("epoch_bumped", epoch=str(record.epoch), trigger=trigger),)


def _target_set(view: DecisionView, _: facts.MemberTargetSet) -> Iterable[Entry]:
    # Targets are summed up: a rebalance of a large group has thousands.
    view.targets += 1
    return ()


def _target_computed(view: DecisionView, record: facts.TargetAssignmentEpochSet) -> Iterator[Entry]:
    view.rebalance.is_answered = True
    yield view.decision(
        "target_computed", epoch=str(record.assignment_epoch), members_changed=str(view.targets), by=view.computed_by
    )
    yield from _plans(view)


def _plans(view: DecisionView) -> Iterator[Entry]:
    """Report members that have to revoke partitions by the new target, unless this decision tells them."""
    told = {record.member_id for record in view.records if isinstance(record, _OF_ASSIGNMENTS)}
    waiting: Mapping[Place, WaitingMove] = {} if view.consumer is None else view.consumer.waiting
    if MovesHeldBack in view.kinds:
        # This decision may hold back moves itself.
        waiting = next(record.waiting for record in view.records if isinstance(record, MovesHeldBack))
    shown = 0
    for record in view.records:
        if not isinstance(record, facts.MemberTargetSet) or record.member_id in told or shown == GIVERS_SHOWN:
            continue
        member = view.members.get(record.member_id)
        # A member that is away cannot be told.
        if member is None or member.member_epoch < 0:
            continue
        surplus = places_of(member.assigned) - places_of(record.partitions) - waiting.keys()
        if surplus:
            shown += 1
            yield _planned(view, record.member_id, surplus)


def _planned(view: DecisionView, member_id: str, places: Collection[Place]) -> Entry:
    view.rebalance.awaited.setdefault(member_id, view.now_ms)
    return view.decision("revocation_planned", member_id, partitions=view.show(places), **view.reach(member_id))


def _moves_held_back(view: DecisionView, record: MovesHeldBack) -> Iterable[Entry]:
    """Report that moves are deferred, or that none is deferred any more."""
    waiting = {} if view.consumer is None else view.consumer.waiting
    # The same moves wait: the record only sorts them.
    if waiting.keys() == record.waiting.keys():
        return ()
    count, partitions = str(len(record.waiting)), view.show(record.waiting)
    return (view.decision("moves_waiting", moves=count, partitions=partitions, pace=view.pace),)


def _moves_begun(view: DecisionView, record: MovesBegun) -> Iterator[Entry]:
    waiting = {} if view.consumer is None else view.consumer.waiting
    begun = {place: waiting[place] for place in record.places if place in waiting}
    left = len(waiting) - len(begun)
    yield view.decision("moves_begun", moves=str(len(begun)), partitions=view.show(begun), left=str(left))
    by_keeper: dict[str, list[Place]] = {}
    for place, move in begun.items():
        # A keeper is told of all its partitions at once.
        by_keeper.setdefault(move.keeper, []).append(place)
    for member_id, places in list(by_keeper.items())[:GIVERS_SHOWN]:
        yield _planned(view, member_id, places)


def _subscribed(view: DecisionView, record: facts.ConsumerMemberSubscribed) -> Iterable[Entry]:
    before = view.members.get(record.member_id)
    wants = {
        "topics": ",".join(record.subscribed_topic_names[:PARTITIONS_SHOWN]),
        "pattern": record.subscribed_topic_regex or "",
        "assignor": record.server_assignor or "",
    }
    if before is None:
        # A process that replaces a static member takes over its moves as well.
        borne = {} if view.consumer is None else view.consumer.instance_ids
        view.former[record.member_id] = borne.get(record.instance_id or "", "")
        is_kept = record.classic is not None and record.member_id in view.kept
        entry = view.transition(
            "member_kept" if is_kept else "member_joined",
            record.member_id,
            instance=record.instance_id or "",
            client=record.client_id,
            host=record.client_host,
            **wants,
        )
    elif all(getattr(before, name) == getattr(record, name) for name in _WISHES):
        entry = view.transition("member_changed", record.member_id, client=record.client_id)
    else:
        entry = view.transition("subscription_changed", record.member_id, **wants)
    return (entry,)


def _member_forgotten(view: DecisionView, record: facts.ConsumerMemberForgotten) -> Iterable[Entry]:
    # The member goes on in the other protocol: it has not left.
    if record.member_id in view.kept:
        return ()
    before = view.members.get(record.member_id)
    instance = "" if before is None else before.instance_id or ""
    # Others do not wait for a removed member any more.
    view.rebalance.awaited.pop(record.member_id, None)
    heard = view.farewell(record.member_id)
    return (view.transition("member_removed", record.member_id, instance=instance, reason=view.trigger, **heard),)


def _assignment_set(view: DecisionView, record: facts.CurrentAssignmentSet) -> Iterator[Entry]:
    member_id, rebalance, now_ms = record.member_id, view.rebalance, view.now_ms
    before = view.members.get(member_id)
    new, pending = places_of(record.assigned), places_of(record.pending_revocation)
    old = places_of(before.assigned) if before is not None else set()
    old_pending = places_of(before.pending_revocation) if before is not None else set()
    released = (old | old_pending) - new - pending
    asked_back, gained = pending - old_pending, new - old
    # Last reads are taken before the partitions change their owner.
    read = view.let_go(member_id, view.granted(before, released)) if released else {}
    if record.state == facts.MemberState.UNREVOKED_PARTITIONS:
        rebalance.ask(member_id, view.named(asked_back), now_ms=now_ms)
    else:
        rebalance.awaited.pop(member_id, None)
    # Epoch -2: the member leaves for a while, and gets no assignment.
    if before is not None and record.member_epoch < 0 <= before.member_epoch:
        yield view.transition(
            "member_away",
            member_id,
            instance=before.instance_id or "",
            held=view.show(new),
            released=view.show(released),
            **read,
        )
        return
    # A member that comes with its group has its partitions already: it gains none.
    is_new = before is not None or member_id not in view.kept
    yield view.transition(
        "assignment_changed",
        member_id,
        epoch=str(record.member_epoch),
        state=record.state.name,
        **{"gained" if is_new else "held": view.show(gained)},
        asked_back=view.show(asked_back),
        released=view.show(released),
        **read,
    )
    if gained:
        yield from view.arrivals(member_id, view.named(gained))


def _assignment_forgotten(view: DecisionView, record: facts.CurrentAssignmentForgotten) -> Iterable[Entry]:
    before = view.members.get(record.member_id)
    # The partitions go on with the member in the other protocol.
    if before is None or record.member_id in view.kept:
        return ()
    held = places_of(before.assigned) | places_of(before.pending_revocation)
    read = view.let_go(record.member_id, view.granted(before, held))
    return (view.transition("assignment_released", record.member_id, released=view.show(held), **read),) if held else ()


def _group_forgotten(view: DecisionView, _: facts.ConsumerGroupForgotten) -> Iterable[Entry]:
    if view.goes_on_as == "classic":
        return (view.transition("group_converted", to="classic"),)
    return (view.transition("group_forgotten"),)


def _computation_noted(view: DecisionView, record: volatile.ComputationNoted) -> Iterable[Entry]:
    asked_of, failure = record.computing, record.failure
    if asked_of is not None:
        if asked_of.is_prepared:
            # The member was asked before, and fetches the input now.
            return ()
        entry = view.decision(
            "assignor_asked",
            asked_of.member_id,
            assignor=asked_of.assignor,
            epoch=str(asked_of.epoch),
            members=str(len(asked_of.assignable.members)),
            partitions=str(len(asked_of.assignable.space)),
        )
    # A result is reported by its target, and a known failure only once.
    elif failure is None or (view.consumer is not None and failure == view.consumer.failure):
        return ()
    else:
        entry = view.decision(
            "assignor_failed", assignor=failure.assignor, why=failure.error, failures=str(failure.count)
        )
    return (entry,)


def _configs_set(view: DecisionView, record: facts.GroupConfigsSet | facts.GroupConfigsForgotten) -> Iterable[Entry]:
    before = view.configs
    after = record.configs if isinstance(record, facts.GroupConfigsSet) else {}
    changed = {name: after.get(name, "(default)") for name in sorted(before.keys() | after.keys())}
    # Only changed configs are reported.
    different = {name: value for name, value in changed.items() if before.get(name, "(default)") != value}
    return (view.transition("configs_changed", **different),)


def _offset_forgotten(view: DecisionView, _: facts.OffsetForgotten) -> Iterable[Entry]:
    view.forgotten_offsets += 1
    return ()


def tell_short(view: DecisionView) -> Iterator[Entry]:
    """Report why members of a group at rest have no partitions, or fewer than others."""
    group, limit = view.consumer, _limit_of(view.settings)
    if group is not None and group.classic_count:
        return
    targets = {} if group is None else group.targets
    counts = {member_id: balance.load_of(targets.get(member_id, {})) for member_id in view.members}
    patterns = {} if group is None else {pattern: found.topics for pattern, found in group.regexes.items()}
    joined: dict[str, facts.ConsumerMemberSubscribed] = {}
    for record in view.records:
        if isinstance(record, facts.ConsumerMemberSubscribed):
            joined[record.member_id] = record
            counts.setdefault(record.member_id, 0)
        elif isinstance(record, facts.RegularExpressionResolved):
            patterns[record.regex] = record.topics
        elif isinstance(record, facts.ConsumerMemberForgotten):
            counts.pop(record.member_id, None)
    for record in view.records:
        if isinstance(record, facts.MemberTargetSet) and record.member_id in counts:
            counts[record.member_id] = balance.load_of(record.partitions)
    # An even share is defined only where all members have the same topics.
    is_alike = group is None or len(group.subscriptions) <= 1
    even = sum(counts.values()) // len(counts) if is_alike and counts else 0
    shown = 0
    for member_id, count in counts.items():
        # A member with an even share, or without a limit, needs no explanation.
        if count and not (limit and count < even):
            continue
        wishes = joined.get(member_id) or view.members[member_id]
        topics = {*wishes.subscribed_topic_names, *patterns.get(wishes.subscribed_topic_regex or "", ())}
        if not any(name in view.image.by_name for name in topics):
            wanted = ",".join(sorted(topics)) or wishes.subscribed_topic_regex or ""
            yield view.decision("share_short", member_id, has="0", because=NO_TOPIC, topics=wanted)
        elif limit and count < even:
            yield view.decision("share_short", member_id, has=str(count), even=str(even), because=limit)
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
    volatile.ComputationNoted: _computation_noted,
    ComputationFailed: lambda view, record: [
        view.decision("assignor_failed", record.member_id, assignor=record.assignor, why=record.why)
    ],
    MovesHeldBack: _moves_held_back,
    MovesBegun: _moves_begun,
    facts.MemberConnectionSeen: lambda view, record: [
        view.transition("connection_lost" if record.is_gone else "connection_back", record.member_id)
    ],
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


def _member_put(view: DecisionView, record: classic.MemberPut) -> Iterable[Entry]:
    member = record.member
    is_known = view.classic is not None and member.member_id in view.classic.members
    event = "member_rejoined" if is_known else "member_joined"
    view.rebalance.awaited.pop(member.member_id, None)
    entry = view.transition(
        "member_kept" if member.member_id in view.kept else event,
        member.member_id,
        instance=member.instance_id or "",
        client=member.client_id,
        host=member.client_host,
        protocols=",".join(member.protocol_names),
    )
    return (entry,)


def _member_removed(view: DecisionView, record: classic.MemberRemoved) -> Iterator[Entry]:
    member, group = _find_member(view, record.member_id), view.classic
    is_read = group is not None and group.protocol_type == subscriptions.CONSUMER_PROTOCOL_TYPE
    held = read_owned(member.assignment) if member is not None and is_read else set()
    awaited_ms = view.rebalance.awaited.pop(record.member_id, None)
    if held:
        read = view.let_go(record.member_id, dict.fromkeys(held), asked_ms=awaited_ms)
        yield view.transition("assignment_released", record.member_id, released=write_partitions(held), **read)
    heard = view.farewell(record.member_id)
    yield view.transition("member_removed", record.member_id, reason=view.trigger, **heard)


def _member_replaced(view: DecisionView, record: classic.StaticMemberReplaced) -> Iterable[Entry]:
    member, former = record.member, record.replaced_id
    return (view.transition("member_replaced", member.member_id, instance=member.instance_id or "", former=former),)


def _rebalance_begun(view: DecisionView, record: classic.RebalanceBegun) -> Iterable[Entry]:
    view.rebalance.begin(view.trigger, now_ms=view.now_ms, is_new=True)
    members = () if view.classic is None else view.classic.members
    view.rebalance.awaited = dict.fromkeys(members, view.now_ms)
    return (view.decision("rebalance_began", trigger=view.trigger, why=record.reason),)


def _generation_begun(view: DecisionView, record: classic.GenerationBegun) -> Iterable[Entry]:
    view.rebalance.awaited = {record.leader: view.now_ms}
    return (
        view.decision(
            "generation_began", record.leader, generation=str(record.generation), protocol=record.protocol_name
        ),
    )


def _stored(view: DecisionView, record: facts.ClassicGroupStored) -> Iterator[Entry]:
    """Report the assignments of a generation, or that the group has become empty."""
    if record.state_timestamp_ms == classic.NOT_REBALANCED:
        return
    generation = str(record.generation)
    moves = [(member.member_id, *_moves(view, record, member)) for member in record.members]
    # A member that gives partitions is reported before the one that gets them.
    for member_id, gained, released in sorted(moves, key=lambda move: not move[2]):
        if gained or released:
            read = view.let_go(member_id, dict.fromkeys(released), asked_ms=view.rebalance.began_ms)
            yield view.transition(
                "assignment_changed",
                member_id,
                epoch=generation,
                state="STABLE",
                gained=write_partitions(gained),
                released=write_partitions(released),
                **read,
            )
            yield from view.arrivals(member_id, gained)
    state, members = "Stable" if record.members else "Empty", str(len(record.members))
    yield view.transition("group_at_rest", state=state, generation=generation, members=members, **view.cost())
    if record.protocol_type == subscriptions.CONSUMER_PROTOCOL_TYPE:
        yield from _tell_short(view, record.members)


def _tell_short(view: DecisionView, members: Iterable[facts.StoredClassicMember]) -> Iterator[Entry]:
    """Report members without partitions because none of their topics exists; the leader gives no reason."""
    shown = 0
    for member in members:
        wishes = None if read_owned(member.assignment) else subscriptions.read_subscription(member.subscription)
        if wishes is None or any(name in view.image.by_name for name in wishes.topics) or shown == GIVERS_SHOWN:
            continue
        shown += 1
        wanted = ",".join(sorted(wishes.topics))
        yield view.decision("share_short", member.member_id, has="0", because=NO_TOPIC, topics=wanted)


def _classic_group_forgotten(
    view: DecisionView, _: facts.ClassicGroupForgotten | classic.ClassicGroupDropped
) -> Iterable[Entry]:
    if view.goes_on_as == "consumer":
        return (view.transition("group_converted", to="consumer"),)
    return (view.transition("group_forgotten"),)


def _moves(
    view: DecisionView, record: facts.ClassicGroupStored, member: facts.StoredClassicMember
) -> tuple[set[Partition], set[Partition]]:
    """Return the partitions that the leader assigned to a member and took from it, if readable."""
    former = _find_member(view, member.member_id, member.instance_id)
    before = b"" if former is None else former.assignment
    if record.protocol_type != subscriptions.CONSUMER_PROTOCOL_TYPE or before == member.assignment:
        return set(), set()
    old, new = read_owned(before), read_owned(member.assignment)
    return new - old, old - new


def _find_member(view: DecisionView, member_id: str, instance_id: str | None = None) -> classic.ClassicMember | None:
    """Return the member, or the former one of its instance id, in the group's present state."""
    group = view.classic
    if group is None:
        return None
    return group.members.get(member_id) or group.members.get(group.instance_ids.get(instance_id or "", ""))


def read_owned(assignment: bytes) -> set[Partition]:
    """Return the partitions of an assignment, as far as it is readable."""
    found = subscriptions.read_assignment(assignment)
    return set() if found is None else {(topic, each) for topic, own in found.partitions.items() for each in own}


#: Record type -> function that builds its entries.
CLASSIC_EVENTS: Final[dict[type[facts.Record], Callable[..., Iterable[Entry]]]] = {
    classic.MemberPut: _member_put,
    classic.MemberRemoved: _member_removed,
    classic.StaticMemberReplaced: _member_replaced,
    classic.MemberIdHandedOut: lambda view, record: [view.decision("member_id_required", record.member_id)],
    classic.ClassicConnectionLost: lambda view, record: [view.transition("connection_lost", record.member_id)],
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


def _offline(view: DecisionView, record: facts.OfflineMemberSet) -> Iterable[Entry]:
    if _is_told(view, record.member_id):
        return ()
    # The record has the time of the group's clock, which is behind.
    since_ms = record.since_ms + (0 if view.clock is None else view.clock.lost_ms)
    name = view.instance_of(record.member_id)
    silent_ms = str(max(0, view.now_ms - since_ms))
    return (view.transition("member_offline", record.member_id, instance=name, silent_ms=silent_ms),)


def _back(view: DecisionView, record: facts.OfflineMemberForgotten) -> Iterator[Entry]:
    since_ms = None if view.clock is None else view.clock.offline_since(record.member_id)
    if since_ms is None or not view.kinds.isdisjoint(_OF_THE_GROUP):
        return
    member_id = _goes_on_as(view, record.member_id)
    if member_id is not None:
        name = view.instance_of(record.member_id)
        away_ms = str(max(0, view.now_ms - since_ms))
        yield view.transition("member_back", member_id, instance=name, away_ms=away_ms)


def _clock_set(view: DecisionView, record: facts.StaticClockSet) -> Iterable[Entry]:
    """Report that an expansion window has opened or closed; other changes of the clock get no row."""
    before = view.clock is not None and view.clock.has_window
    after = record.window_opened_ms != NO_WINDOW
    if before == after:
        return ()
    wait_ms = view.settings.group_expansion_timeout_ms
    return (
        view.decision("window_opened", ends_ms=str(view.now_ms + wait_ms)) if after else view.decision("window_closed"),
    )


def _is_told(view: DecisionView, member_id: str) -> bool:
    return any(
        isinstance(record, facts.CurrentAssignmentSet) and record.member_id == member_id and record.member_epoch < 0
        for record in view.records
    )


def _goes_on_as(view: DecisionView, member_id: str) -> str | None:
    """Return the id of a member, or of its static successor, after the records; `None`: removed."""
    for record in view.records:
        if isinstance(record, classic.StaticMemberReplaced) and record.replaced_id == member_id:
            return record.member.member_id
        if isinstance(record, classic.MemberRemoved) and record.member_id == member_id:
            return None
    if not any(
        isinstance(each, facts.ConsumerMemberForgotten) and each.member_id == member_id for each in view.records
    ):
        return member_id
    return next((new_id for new_id, former_id in view.former.items() if former_id == member_id), None)


#: Record type -> function that builds its entries.
STATIC_EVENTS: Final[dict[type[facts.Record], Callable[..., Iterable[Entry]]]] = {
    facts.OfflineMemberSet: _offline,
    facts.OfflineMemberForgotten: _back,
    facts.StaticClockSet: _clock_set,
}
