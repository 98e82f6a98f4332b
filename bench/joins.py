"""One join into a large group at rest: processor time of the coordinator, without sockets and disk; and one into a
small group of stock clients (`stockjoins`).

A join is the new member's first heartbeat, its window, and the heartbeats of all whom it concerns until they have what
they shall have. Records are encoded as they would be for the log. Peer: the same group without the balance that is
kept, which is what a pass over all members and partitions costs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import stockjoins
from kohort.coordinator import commands
from kohort.coordinator.decision import Decision
from kohort.coordinator.records import codec
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.ids import CauseId, RequestToken, TopicId
from report import Row, Table, compare

#: (members, partitions) of the groups; all are of `TOPICS` topics.
SIZES = ((1_000, 4_000), (10_000, 40_000))
TOPICS = 4
#: Joins that one run measures, one after the other.
JOINS = 5
#: So large that no group's balance is kept.
NEVER = 2**31 - 1
GROUP = "g"
WINDOW_MS = 50


class BenchedGroup:
    """A shard with one group, and heartbeats to it."""

    def __init__(self, *, members: int, partitions: int, incremental_from: int) -> None:
        self.shard = Shard(
            GroupSettings(group_consumer_assignment_window_ms=WINDOW_MS, incremental_from_partitions=incremental_from)
        )
        self.now_ms = 1_000_000
        names = [f"topic-{number}" for number in range(TOPICS)]
        facts = [
            TopicFacts(name=name, topic_id=TopicId(name.encode().rjust(16, b"-")), partition_count=partitions // TOPICS)
            for name in names
        ]
        self.names = tuple(names)
        self.commit(
            self.shard.handle(
                commands.TopicsChanged(cause=CauseId(1), image=TopicImage.of(facts, version=1)), now_ms=self.now_ms
            )
        )
        for number in range(members):
            self.join(f"member-{number:06}")
        self.close_window()
        self.settle()

    def commit(self, decision: Decision) -> None:
        """Encode, apply, ask for the next deadline as the runtime does, and throw the bytes away."""
        codec.encode_durable(decision.records)
        self.shard.commit(decision, now_ms=self.now_ms)
        self.shard.next_deadline()

    def heartbeat(self, member_id: str, epoch: int, **fields: object) -> None:
        """One heartbeat, carried out."""
        command = commands.ConsumerGroupHeartbeat(
            cause=CauseId(1),
            request=RequestToken(1),
            group_id=GROUP,
            member_id=member_id,
            member_epoch=epoch,
            client_id="bench",
            client_host="/127.0.0.1",
            **fields,  # type: ignore[arg-type]
        )
        self.commit(self.shard.handle(command, now_ms=self.now_ms))

    def join(self, member_id: str) -> None:
        """The first heartbeat."""
        self.heartbeat(
            member_id, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=self.names, topic_partitions={}
        )

    def close_window(self) -> None:
        """The target is computed."""
        self.now_ms += WINDOW_MS
        while (decision := self.shard.expire(self.now_ms)) is not None:
            self.commit(decision)

    def behind(self) -> Iterator[str]:
        """Members that have another step to take, in the order of their names."""
        yield from sorted(self.shard.groups.consumer[GROUP].behind)

    def settle(self) -> None:
        """Every member that is behind heartbeats until none is."""
        group = self.shard.groups.consumer[GROUP]
        while behind := list(self.behind()):
            for member_id in behind:
                member = group.members[member_id]
                owned = {topic_id: tuple(grants) for topic_id, grants in member.assigned.items()}
                self.heartbeat(member_id, member.member_epoch, topic_partitions=owned)


def microseconds(group: BenchedGroup, prefix: str) -> float:
    """Of one join until the group is at rest, the average over `JOINS`."""
    joins = 0.0
    for number in range(JOINS):
        member_id = f"{prefix}-{number:06}"
        began = time.process_time()
        group.join(member_id)
        group.close_window()
        group.settle()
        joins += time.process_time() - began
    return joins / JOINS * 1e6


def measure(runs: int) -> list[Table]:
    rows: list[Row] = []
    for members, partitions in SIZES:
        ours = BenchedGroup(members=members, partitions=partitions, incremental_from=1)
        whole = BenchedGroup(members=members, partitions=partitions, incremental_from=NEVER)
        # The first joins warm up, and build the balance as after a restart.
        microseconds(ours, "a-first")
        microseconds(whole, "a-first")
        measured = [(microseconds(ours, f"b{run}"), microseconds(whole, f"b{run}")) for run in range(runs)]
        size = f"{members:,} x {partitions:,}"
        rows += [
            _row(f"join and its assignment, {size}", [one for one, _ in measured], [other for _, other in measured])
        ]
    return [Table("joins", "Joins into a group at rest", rows), *stockjoins.measure(runs)]


def _row(what: str, ours: list[float], whole: list[float]) -> Row:
    return compare(
        what,
        ours,
        whole,
        unit="us",
        reach="same for both sizes",
        peer_name="ours, whole assignor each time",
        how=f"{len(ours)} of {JOINS} joins, after {JOINS} to warm up",
        less_is_better=True,
    )
