"""The check that a group is at rest: all live processes are members, each partition has one owner.

Laws: the coordinator's state and the members' own state have to agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands import Command, ConsumerGroupHeartbeat
from kohort.coordinator.consumer.describe import state_of
from kohort.coordinator.consumer.subscription_metadata import topics_of
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.shard import Shard
from kohort.simulation.members.classic import ClassicMember
from kohort.simulation.members.consumer import ConsumerMember
from kohort.simulation.members.process import MemberProcess, Owned
from kohort.simulation.topics import SimulatedTopics, name_of
from kohort.simulation.trace import LawBroken


def why_not_at_rest(
    groups: GroupsState, group_id: str, processes: Sequence[MemberProcess], topics: SimulatedTopics
) -> str | None:
    """Explain why a group is not at rest; `None` if it is.

    `processes`: the living members of the group.
    """
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    if not processes:
        left = [*(consumer.members if consumer else ()), *(classic.members if classic else ())]
        return f"{left} are dead and still members" if left else None
    if group_id in groups.clocks:
        return "a member is offline, or new members wait"
    group = consumer if consumer is not None else classic
    if group is None or sorted(group.members) != sorted(process.member_id for process in processes):
        return f"the members are {sorted(group.members) if group is not None else 'none'}"
    if consumer is not None and state_of(consumer) != "Stable":
        return f"the group is {state_of(consumer)}"
    if classic is not None and classic.state is not ClassicGroupState.STABLE:
        return f"the group is {classic.state.value}"
    for process in processes:
        reason = _why_member_is_not(process, consumer, classic, topics)
        if reason is not None:
            return reason
    return _why_not_shared_out(processes, topics)


def progress_of(groups: GroupsState, group_id: str) -> int:
    """Return the group epoch or generation, which rises with every rebalance."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    return consumer.epoch if consumer is not None else classic.generation if classic is not None else 0


def _why_member_is_not(
    process: MemberProcess, consumer: ConsumerGroup | None, classic: ClassicGroup | None, topics: SimulatedTopics
) -> str | None:
    """Compare the coordinator's state of one member with the member's own; `None` if they agree."""
    if consumer is None:
        assert isinstance(process, ClassicMember), "a classic group has classic members"
        generation = classic.generation if classic is not None else 0
        if process.is_rejoining or process.generation != generation:
            return f"{process.name} is rejoining or in generation {process.generation}"
        return None
    member = consumer.members[process.member_id]
    if isinstance(process, ConsumerMember) and process.member_epoch != member.member_epoch:
        return f"{process.name} does not know its epoch"
    if isinstance(process, ClassicMember) and process.is_rejoining:
        return f"{process.name} is rejoining"
    existing = topics.image.by_name.keys()
    if existing & set(topics_of(consumer, member)) != existing & set(process.wanted_topics):
        return f"the coordinator does not know what {process.name} subscribes to"
    labels = ((topics.label_of(topic_id), grants) for topic_id, grants in member.assigned.items())
    assigned = {(label, number) for label, grants in labels for number in grants}
    if not process.knows_topic_ids:
        assigned = {(name_of(label), number) for label, number in assigned}
    if process.owned != assigned:
        return f"{process.name} believes to own {sorted(process.owned)}, and is assigned {sorted(assigned)}"
    return None


def _why_not_shared_out(processes: Sequence[MemberProcess], topics: SimulatedTopics) -> str | None:
    owners: dict[Owned, list[str]] = {}
    for process in processes:
        for label, number in process.owned:
            owners.setdefault((name_of(label), number), []).append(process.name)
        unknown = process.owned - process.positions.keys()
        if unknown:
            return f"{process.name} does not know where to begin with {sorted(unknown)}"
    wanted = topics.partitions_of(tuple(dict.fromkeys(name for process in processes for name in process.wanted_topics)))
    if sorted(owners) != sorted(wanted):
        return f"owned are {sorted(owners)}, and there are {sorted(wanted)}"
    double = {partition: names for partition, names in owners.items() if len(names) > 1}
    return f"several own {double}" if double else None


# Laws of published metadata: it moves no partition and reaches every member that watches it.
#
# | law | check |
# | --- | --- |
# | MetadataMovesNothing | `check_moves_nothing`: a heartbeat decides the same with and without metadata |
# | PublishedIsTold | `check_told`: at rest a watcher believes what the coordinator has, as members want to say it |
#
# Source: requirement G10; KIP-848's motivation.

_METADATA = (facts.MemberMetadataSet, facts.MemberMetadataForgotten, facts.VolatileRecord)


def check_moves_nothing(shard: Shard, command: Command | None, decision: Decision, *, now_ms: int) -> None:
    """MetadataMovesNothing: check a decision before its commit."""
    if not isinstance(command, ConsumerGroupHeartbeat) or command.metadata is None:
        return
    plain = shard.handle(replace(command, metadata=None, watched_version=-1), now_ms=now_ms)
    if _others(decision) != _others(plain):
        why = f"{command.member_id} publishes, and that leads to {_others(decision)} in place of {_others(plain)}"
        raise LawBroken("MetadataMovesNothing", why, group_id=command.group_id)


def check_told(groups: GroupsState, group_id: str, living: Iterable[MemberProcess]) -> None:
    """PublishedIsTold: check each member's view of published metadata, after all have heartbeated."""
    group = groups.consumer.get(group_id)
    if group is None:
        return
    stored = {} if group.published is None else {name: data for name, (data, _) in group.published.living().items()}
    for process in living:
        if not isinstance(process, ConsumerMember) or process.member_id not in group.members:
            continue
        publisher, name = process.publisher, process.member_id
        # A member that has published nothing itself keeps the metadata published under its name.
        if publisher.wanted is not None and stored.get(name) != (publisher.wanted or None):
            why = f"{name} publishes {publisher.wanted!r}, and the coordinator has {stored.get(name)!r}"
            raise LawBroken("PublishedIsTold", why, group_id=group_id)
        if publisher.watches and publisher.picture != stored:
            why = f"{name} was told {publisher.picture}, and what is published is {stored}"
            raise LawBroken("PublishedIsTold", why, group_id=group_id)


def _others(decision: Decision) -> list[facts.Record]:
    return [record for record in decision.records if not isinstance(record, _METADATA)]
