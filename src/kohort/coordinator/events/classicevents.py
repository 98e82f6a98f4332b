"""Journal entries of records of classic groups.

Only the leader of a classic group knows the owners of partitions; its blobs are read here where they are consumers'.

Laws: no decision is made here. A record type that is not in `CLASSIC_EVENTS` has no entry.
Source: requirements G4 and J1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kohort.coordinator import records as facts
from kohort.coordinator.classic import volatile as classic
from kohort.coordinator.classic.state import NOT_REBALANCED, ClassicMember
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE
from kohort.coordinator.embeddedcodec import read_assignment, read_subscription
from kohort.coordinator.events.consumerevents import GIVERS_SHOWN, NO_TOPIC
from kohort.coordinator.events.decision_view import Scene
from kohort.journal.rows import Entry
from kohort.journal.words import Partition, write_partitions


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


def _group_forgotten(scene: Scene, _: facts.ClassicGroupForgotten | classic.ClassicGroupDropped) -> Iterable[Entry]:
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
    facts.ClassicGroupForgotten: _group_forgotten,
    classic.ClassicGroupDropped: _group_forgotten,
}
