"""Laws of published metadata: it moves no partition and reaches every member that watches it.

| law | check |
| --- | --- |
| MetadataMovesNothing | `check_moves_nothing`: a heartbeat decides the same with and without metadata |
| PublishedIsTold | `check_told`: at rest a watcher believes what the coordinator has, as members want to say it |

Source: requirement G10; KIP-848's motivation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kohort.coordinator import records as facts
from kohort.coordinator.commands.base import Command
from kohort.coordinator.commands.groups import ConsumerGroupHeartbeat
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import GroupsState
from kohort.coordinator.shard import Shard
from kohort.testing.members.consumer import ConsumerMember
from kohort.testing.members.process import MemberProcess
from kohort.testing.trace import LawBroken

_METADATA = (facts.MemberMetadataSet, facts.MemberMetadataForgotten, facts.VolatileRecord)


def check_moves_nothing(shard: Shard, command: Command | None, decision: Decision, *, now_ms: int) -> None:
    """MetadataMovesNothing: check a decision between `handle` and `commit`."""
    if not isinstance(command, ConsumerGroupHeartbeat) or command.metadata is None:
        return
    plain = shard.handle(replace(command, metadata=None, watched_version=-1), now_ms=now_ms)
    if _others(decision) != _others(plain):
        why = f"{command.member_id} publishes, and that leads to {_others(decision)} in place of {_others(plain)}"
        raise LawBroken("MetadataMovesNothing", why, group_id=command.group_id)


def check_told(groups: GroupsState, group_id: str, living: Iterable[MemberProcess]) -> None:
    """PublishedIsTold: check members' pictures, once all is published and every member has heartbeated."""
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
