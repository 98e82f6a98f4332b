"""The state of a cluster at one moment, as metrics are made of it: brokers, topics, groups with members and offsets.

`collect` reads it from any cluster over the wire; a broker fills it by itself (`broker/metrics.py`).

Laws: no offset is invented: one that is not known is -1 here, and no series anywhere. A group that goes while it is
read is left out.
Source: kafka_exporter and KMinion, which ask the same questions.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from kohort.errors import AuthorizationError, KohortError, UnknownTopicError, UnsupportedFeatureError

#: How often topics are asked for again when one of them was deleted meanwhile.
_TRIES: Final = 3
#: A member that others have waited for so long is stuck, milliseconds: a hand-over takes less.
STUCK_MS: Final = 10_000


@dataclass(slots=True, frozen=True, kw_only=True)
class BrokerState:
    """One broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None = None
    #: Bytes of all logs on its disks; -1: not known.
    log_bytes: int = -1


@dataclass(slots=True, frozen=True, kw_only=True)
class PartitionState:
    """One partition; -1 stands for a leader or an offset that is not known."""

    leader: int
    replicas: Sequence[int]
    in_sync: Sequence[int]
    begin: int
    end: int


@dataclass(slots=True, frozen=True, kw_only=True)
class TopicState:
    """One topic; `partitions` by their numbers."""

    name: str
    partitions: Sequence[PartitionState]
    cleanup_policy: str = "delete"
    min_in_sync: int = 1
    #: Bytes of all copies of its logs; -1: not known.
    log_bytes: int = -1


@dataclass(slots=True, frozen=True, kw_only=True)
class MemberState:
    """One member; times in milliseconds before the snapshot, -1: not known or never.

    `assigned`: topic -> number of partitions. `overdue_ms`: for how long it has not given up what it was told to.
    """

    member_id: str
    client_id: str
    assigned: Mapping[str, int]
    last_heard_ms: int = -1
    last_fetch_ms: int = -1
    last_commit_ms: int = -1
    overdue_ms: int = -1
    last_poll_ms: int = -1


@dataclass(slots=True, frozen=True, kw_only=True)
class GroupState:
    """One group; `offsets`: topic -> partition -> committed offset. `commits`: how many it has made, -1: not known."""

    group_id: str
    state: str
    protocol: str = ""
    protocol_type: str = ""
    members: Sequence[MemberState] = ()
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    coordinator: int = -1
    commits: int = -1


@dataclass(slots=True, kw_only=True)
class ClusterSnapshot:
    """The state of a cluster; `facts`: those of a broker of kohort (`Admin.describe_broker`)."""

    now_ms: int
    cluster_id: str
    controller_id: int
    brokers: Sequence[BrokerState]
    topics: dict[str, TopicState] = field(default_factory=dict)
    groups: list[GroupState] = field(default_factory=list)
    facts: Mapping[str, str] = field(default_factory=dict)

    def end_of(self, topic: str, partition: int) -> int:
        """Return the offset behind the last record that readers may see; -1: not known."""
        found = self.topics.get(topic)
        return found.partitions[partition].end if found is not None and partition < len(found.partitions) else -1


class AdminCalls(Protocol):
    """The calls of `kohort.Admin` that are made."""

    def describe_cluster(self) -> Any: ...
    def describe_broker(self) -> Any: ...
    def describe_log_dirs(self) -> Any: ...
    def list_topics(self) -> Any: ...
    def describe_topics(self, names: Any) -> Any: ...
    def list_groups(self) -> Any: ...
    def describe_groups(self, groups: Any) -> Any: ...
    def list_group_offsets(self, groups: Any) -> Any: ...


def collect(admin: AdminCalls, *, has_sizes: bool = False) -> ClusterSnapshot:
    """Read the state of a cluster, a few requests to each broker however many groups there are.

    `admin`: a `kohort.Admin`. `has_sizes`: also ask for the sizes of logs.

    >>> import kohort
    >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
    ...     _ = admin.create_topic("orders", 2)
    ...     admin.alter_group_offsets("billing", {kohort.TopicPartition("orders", 0): 0})
    ...     found = collect(admin)
    >>> len(found.topics["orders"].partitions), found.groups[0].offsets
    (2, {'orders': {0: 0}})

    Raises:
        KohortError: the cluster does not answer, or refuses it.
    """
    cluster = admin.describe_cluster()
    facts: Mapping[str, str] = {}
    # Apache Kafka has no such call, and not every user may describe a cluster.
    with suppress(UnsupportedFeatureError, AuthorizationError):
        facts = admin.describe_broker()
    # Offsets of groups are read before the ends of partitions: a lag is then never below zero.
    groups = list(_groups(admin))
    bytes_of_topics, bytes_of_brokers = _sizes(admin) if has_sizes else ({}, {})
    return ClusterSnapshot(
        now_ms=time.time_ns() // 1_000_000,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            BrokerState(
                broker_id=each.broker_id,
                host=each.host,
                port=each.port,
                rack=each.rack,
                log_bytes=bytes_of_brokers.get(each.broker_id, -1),
            )
            for each in cluster.brokers
        ],
        topics={each.name: each for each in _topics(admin, bytes_of_topics)},
        groups=groups,
        facts=facts,
    )


def _groups(admin: AdminCalls) -> Iterator[GroupState]:
    listed = {row.group_id: row for row in admin.list_groups()}
    described = admin.describe_groups(list(listed))
    committed = admin.list_group_offsets(list(listed))
    for group_id, row in listed.items():
        found, offsets = described[group_id], committed[group_id]
        if isinstance(found, KohortError) or isinstance(offsets, KohortError):
            continue
        by_topic: dict[str, dict[int, int]] = {}
        for place, each in offsets.items():
            by_topic.setdefault(place.topic, {})[place.partition] = each.offset
        yield GroupState(
            group_id=group_id,
            state=found.state,
            protocol=found.assignor,
            protocol_type=row.protocol_type,
            members=[_member(each) for each in found.members],
            offsets=by_topic,
        )


def is_stuck(member: Any) -> bool:
    """Return whether others have waited for a member, as it is described or in a snapshot, for `STUCK_MS`."""
    return (member.overdue_ms or 0) >= STUCK_MS


def _member(found: Any) -> MemberState:
    assigned: dict[str, int] = {}
    for topic, _ in found.assignment:
        assigned[topic] = assigned.get(topic, 0) + 1
    ages = ("last_heard_ms", "last_fetch_ms", "last_commit_ms", "overdue_ms", "last_poll_ms")
    known = {name: value for name in ages if (value := getattr(found, name, None)) is not None}
    return MemberState(member_id=found.member_id, client_id=found.client_id, assigned=assigned, **known)


def _topics(admin: AdminCalls, bytes_of_topics: Mapping[str, int]) -> Iterator[TopicState]:
    for left in reversed(range(_TRIES)):
        try:
            described = admin.describe_topics([topic.name for topic in admin.list_topics()])
            break
        except UnknownTopicError:
            if not left:
                raise
    for topic in described:
        yield TopicState(
            name=topic.name,
            partitions=[
                PartitionState(
                    leader=row.leader,
                    replicas=row.replicas,
                    in_sync=row.in_sync,
                    begin=row.begin_offset,
                    end=row.end_offset,
                )
                for row in topic.partitions
            ],
            cleanup_policy=topic.configs.get("cleanup.policy", "delete"),
            min_in_sync=int(topic.configs.get("min.insync.replicas", 1)),
            log_bytes=bytes_of_topics.get(topic.name, -1),
        )


def _sizes(admin: AdminCalls) -> tuple[dict[str, int], dict[int, int]]:
    """Return the bytes of the logs of each topic, and of each broker."""
    topics: dict[str, int] = {}
    brokers: dict[int, int] = {}
    for directory in admin.describe_log_dirs():
        brokers.setdefault(directory.broker_id, 0)
        for each in directory.logs:
            topics[each.topic] = topics.get(each.topic, 0) + each.size_bytes
            brokers[directory.broker_id] += each.size_bytes
    return topics, brokers


# Lag in seconds: the age of the oldest record that a group has not committed.
#
# Laws: a group at the end has none, however old the last record is. The age counts from the reading at which
# the record was first seen; where it was there before the first reading, from that: never more than the truth.
# Source: kafka_exporter's issue 22; kafka-lag-exporter's issues 37 and 45, where a silent topic has an invented lag.

#: Readings of the end of one partition that are kept; older ones are thinned out.
_READINGS: Final = 48
#: Partitions of which ends are remembered.
_PARTITIONS: Final = 20_000


class EndOffsets:
    """Readings of the ends of partitions.

    >>> ends = EndOffsets()
    >>> for now_ms, end in ((0, 10), (10_000, 10), (20_000, 30)):
    ...     ends.note("orders", 0, end, now_ms=now_ms)
    >>> [ends.lag_ms("orders", 0, committed, now_ms=30_000) for committed in (30, 10, 20, 5)]
    [0, 20000, 15000, 30000]
    """

    def __init__(self) -> None:
        #: Partition -> ends, ascending, and when each was first and last read, ms.
        self._readings: Final[dict[tuple[str, int], tuple[list[int], list[int], list[int]]]] = {}

    def note(self, topic: str, partition: int, end: int, *, now_ms: int) -> None:
        """Note the end of a partition."""
        found = self._readings.get((topic, partition))
        if found is None or end < found[0][-1]:
            # A topic that was deleted and made again begins anew.
            if len(self._readings) >= _PARTITIONS:
                del self._readings[next(iter(self._readings))]
            self._readings[topic, partition] = [end], [now_ms], [now_ms]
            return
        ends, _, last = found
        if ends[-1] == end:
            last[-1] = now_ms
            return
        for numbers, number in zip(found, (end, now_ms, now_ms), strict=True):
            numbers.append(number)
        if len(ends) > _READINGS:
            # The oldest half loses every second reading, and never the first.
            for numbers in found:
                del numbers[1 : _READINGS // 2 : 2]

    def lag_ms(self, topic: str, partition: int, committed: int, *, now_ms: int) -> int:
        """Return for how long the record at `committed` has been there at least; -1: not known after one reading."""
        found = self._readings.get((topic, partition))
        if found is None:
            return -1
        if committed >= found[0][-1]:
            return 0
        ends, first, last = found
        at = bisect_right(ends, committed)
        if at == 0:
            return now_ms - first[0] or -1
        share = (committed - ends[at - 1]) / (ends[at] - ends[at - 1])
        return max(0, now_ms - round(last[at - 1] + share * (first[at] - last[at - 1])))


def note_ends(ends: EndOffsets, topics: Iterable[TopicState], *, now_ms: int) -> None:
    """Note the ends of all partitions of topics."""
    for topic in topics:
        for number, partition in enumerate(topic.partitions):
            if partition.end >= 0:
                ends.note(topic.name, number, partition.end, now_ms=now_ms)
