"""Families by the names and labels of kafka_exporter and of KMinion, and kohort's own beside them.

Laws: where nothing is committed there is no series; a lag is never negative; a group without members stays. Beyond
`PARTITION_SERIES` partitions of groups the others have only their sums by topic, and a gauge says how many they are.
Builders pause after a bounded number of rows (`None`), so that a broker makes a long page in short turns.
Source: kafka_exporter 1.9 (issues 22, 28, 226, 437), KMinion 2.2; the dashboards of kafka_exporter and of Strimzi.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

from kohort.base import VERSION
from kohort.metrics.cluster import STUCK_MS, ClusterSnapshot, EndOffsets, GroupState, TopicState, is_stuck
from kohort.metrics.exposition import Family, Row, escape, write_labels

Names = Literal["kafka-exporter", "kminion"]
NAMES: Final[tuple[Names, ...]] = get_args(Names)
#: Families, and `None` where the builder may be interrupted.
Steps = Iterator[Family | None]

#: Partitions of all groups together that have series of their own.
PARTITION_SERIES: Final = 20_000
#: Rows that are built without a pause.
_AT_A_TIME: Final = 500


class _Wording(NamedTuple):
    """The names of labels."""

    group: str
    topic: str
    partition: str


_KAFKA_EXPORTER: Final = _Wording("consumergroup", "topic", "partition")
_KMINION: Final = _Wording("group_id", "topic_name", "partition_id")


def build_families(snapshot: ClusterSnapshot, ends: EndOffsets, *, names: Names = "kafka-exporter") -> Steps:
    """Build the families of a cluster by the names of one exporter, and kohort's own."""
    yield from (_kafka_exporter if names == "kafka-exporter" else _kminion)(snapshot)
    groups = _Groups(snapshot, ends, _KAFKA_EXPORTER if names == "kafka-exporter" else _KMINION)
    yield from groups.walk()
    yield from (_kafka_exporter_groups if names == "kafka-exporter" else _kminion_groups)(groups)
    yield from _own(groups)


class _Groups:
    """The rows of all groups."""

    def __init__(self, snapshot: ClusterSnapshot, ends: EndOffsets, words: _Wording) -> None:
        self.snapshot: Final = snapshot
        self._ends: Final = ends
        self._words: Final = words
        #: By partition: the committed offset and the lag.
        self.offsets: Final[list[Row]] = []
        self.lags: Final[list[Row]] = []
        #: By topic: the sums of both, and the longest lag in milliseconds; labels of a group and a topic.
        self.offset_sums: Final[list[Row]] = []
        self.lag_sums: Final[list[Row]] = []
        #: Group, topic -> longest lag, seconds.
        self.lag_seconds: Final[dict[tuple[str, str], float]] = {}
        #: Partitions that have no series of their own.
        self.summed = 0

    def walk(self) -> Iterator[None]:
        """Build the rows."""
        words, rows, now_ms = self._words, 0, self.snapshot.now_ms
        for group in self.snapshot.groups:
            of_group = f'{words.group}="{escape(group.group_id)}"'
            for topic, committed in group.offsets.items():
                labels = f'{of_group},{words.topic}="{escape(topic)}"'
                is_summed = len(self.offsets) + len(committed) > PARTITION_SERIES
                self.summed += len(committed) * is_summed
                #: -1: of a lag that is there the age is not known.
                sums = known = lag_sum = longest_ms = 0
                for partition, offset in committed.items():
                    end = self.snapshot.end_of(topic, partition)
                    sums += offset
                    lag = max(0, end - offset)
                    if not is_summed:
                        named = f'{labels},{words.partition}="{partition}"'
                        self.offsets.append((named, offset, ""))
                        if end >= 0:
                            self.lags.append((named, lag, ""))
                    if end >= 0:
                        known += 1
                        lag_sum += lag
                        if lag:
                            age_ms = self._ends.lag_ms(topic, partition, offset, now_ms=now_ms)
                            longest_ms = max(longest_ms or -1, age_ms)
                    rows += 1
                    if rows % _AT_A_TIME == 0:
                        yield
                self.offset_sums.append((labels, sums, ""))
                if known:
                    self.lag_sums.append((labels, lag_sum, ""))
                if known and longest_ms >= 0:
                    self.lag_seconds[group.group_id, topic] = longest_ms / 1000


def _per_partition(
    topics: Mapping[str, TopicState],
    words: _Wording,
    families: Sequence[tuple[Family, Callable[[TopicState, int], int]]],
) -> Steps:
    """Build families with a row for each partition; a value below 0 is not known."""
    rows = 0
    for topic in topics.values():
        of_topic = f'{words.topic}="{escape(topic.name)}",{words.partition}='
        for number in range(len(topic.partitions)):
            labels = f'{of_topic}"{number}"'
            for family, read in families:
                value = read(topic, number)
                if value >= 0:
                    family.rows.append((labels, value, ""))
            rows += len(families)
            if rows >= _AT_A_TIME:
                rows = 0
                yield None
    for family, _ in families:
        yield family


def _kafka_exporter(snapshot: ClusterSnapshot) -> Steps:
    brokers = Family("kafka_brokers", "gauge", "Number of brokers in the cluster.")
    brokers.add(len(snapshot.brokers))
    yield brokers
    info = Family("kafka_broker_info", "gauge", "Information about a broker.")
    for broker in snapshot.brokers:
        info.add(1, id=broker.broker_id, address=f"{broker.host}:{broker.port}")
    yield info
    counts = Family("kafka_topic_partitions", "gauge", "Number of partitions of a topic.")
    counts.rows += [(write_labels({"topic": each.name}), len(each.partitions), "") for each in snapshot.topics.values()]
    yield counts

    def family(name: str, doc: str) -> Family:
        return Family(f"kafka_{name}", "gauge", doc)

    yield from _per_partition(
        snapshot.topics,
        _KAFKA_EXPORTER,
        [
            (
                family("topic_partition_current_offset", "Offset behind the last record that readers may see."),
                lambda topic, number: topic.partitions[number].end,
            ),
            (
                family("topic_partition_oldest_offset", "First offset of a partition."),
                lambda topic, number: topic.partitions[number].begin,
            ),
            (
                family("topic_partition_leader", "Broker that leads a partition."),
                lambda topic, number: topic.partitions[number].leader,
            ),
            (
                family("topic_partition_replicas", "Number of replicas of a partition."),
                lambda topic, number: len(topic.partitions[number].replicas),
            ),
            (
                family("topic_partition_in_sync_replica", "Number of in-sync replicas of a partition."),
                lambda topic, number: len(topic.partitions[number].in_sync),
            ),
            (
                family("topic_partition_leader_is_preferred", "1 if the preferred replica leads a partition."),
                lambda topic, number: topic.partitions[number].leader in topic.partitions[number].replicas[:1],
            ),
            (
                family("topic_partition_under_replicated_partition", "1 if a replica of a partition is not in sync."),
                lambda topic, number: len(topic.partitions[number].in_sync) < len(topic.partitions[number].replicas),
            ),
            (
                family("cluster_partition_underminisr", "1 if fewer replicas are in sync than min.insync.replicas."),
                lambda topic, number: len(topic.partitions[number].in_sync) < topic.min_in_sync,
            ),
            (
                family("cluster_partition_atminisr", "1 if as many replicas are in sync as min.insync.replicas."),
                lambda topic, number: len(topic.partitions[number].in_sync) == topic.min_in_sync,
            ),
        ],
    )


def _kafka_exporter_groups(groups: _Groups) -> Steps:
    for name, doc, rows in (
        ("current_offset", "Committed offset of a group in a partition.", groups.offsets),
        ("current_offset_sum", "Committed offsets of a group in a topic, summed.", groups.offset_sums),
        ("lag", "Records of a partition that a group has not committed.", groups.lags),
        ("lag_sum", "Records of a topic that a group has not committed.", groups.lag_sums),
    ):
        yield Family(f"kafka_consumergroup_{name}", "gauge", doc, rows)
    members = Family("kafka_consumergroup_members", "gauge", "Number of members of a group.")
    members.rows += [
        (write_labels({"consumergroup": each.group_id}), len(each.members), "") for each in groups.snapshot.groups
    ]
    yield members


def _kminion(snapshot: ClusterSnapshot) -> Steps:
    up = Family("kminion_exporter_up", "gauge", "1 as long as the page is served.")
    up.add(1, version=f"kohort-{VERSION}")
    yield up
    info = Family("kminion_kafka_cluster_info", "gauge", "Information about the cluster.")
    info.add(
        1,
        broker_count=len(snapshot.brokers),
        cluster_id=snapshot.cluster_id,
        cluster_version=snapshot.facts.get("version", ""),
        controller_id=snapshot.controller_id,
    )
    yield info
    brokers = Family("kminion_kafka_broker_info", "gauge", "Information about a broker.")
    sizes = Family("kminion_kafka_broker_log_dir_size_total_bytes", "gauge", "Bytes of the logs of a broker.")
    for each in snapshot.brokers:
        place = {"address": each.host, "broker_id": each.broker_id, "port": each.port, "rack_id": each.rack or ""}
        brokers.add(1, **place, is_controller=str(each.broker_id == snapshot.controller_id).lower())
        if each.log_bytes >= 0:
            sizes.add(each.log_bytes, **place)
    yield brokers
    yield sizes
    yield from _kminion_topics(snapshot.topics)


def _kminion_topics(topics: Mapping[str, TopicState]) -> Steps:
    info = Family("kminion_kafka_topic_info", "gauge", "Information about a topic.")
    sizes = Family("kminion_kafka_topic_log_dir_size_total_bytes", "gauge", "Bytes of the logs of a topic.")
    lows = Family("kminion_kafka_topic_low_water_mark_sum", "gauge", "First offsets of a topic, summed.")
    highs = Family("kminion_kafka_topic_high_water_mark_sum", "gauge", "High watermarks of a topic, summed.")
    for topic in topics.values():
        copies = max((len(each.replicas) for each in topic.partitions), default=0)
        info.add(
            1,
            cleanup_policy=topic.cleanup_policy,
            partition_count=len(topic.partitions),
            replication_factor=copies,
            topic_name=topic.name,
        )
        if topic.log_bytes >= 0:
            sizes.add(topic.log_bytes, topic_name=topic.name)
        lows.add(sum(max(0, each.begin) for each in topic.partitions), topic_name=topic.name)
        highs.add(sum(max(0, each.end) for each in topic.partitions), topic_name=topic.name)
        yield None
    yield from (info, sizes, lows, highs)
    low = Family("kminion_kafka_topic_partition_low_water_mark", "gauge", "First offset of a partition.")
    high = Family("kminion_kafka_topic_partition_high_water_mark", "gauge", "High watermark of a partition.")
    yield from _per_partition(
        topics,
        _KMINION,
        [
            (low, lambda topic, number: topic.partitions[number].begin),
            (high, lambda topic, number: topic.partitions[number].end),
        ],
    )


def _kminion_groups(groups: _Groups) -> Steps:
    def family(name: str, doc: str) -> Family:
        return Family(f"kminion_kafka_consumer_group_{name}", "gauge", doc)

    info = family("info", "Information about a group.")
    members = family("members", "Number of members of a group.")
    empty = family("empty_members", "Number of members of a group without partitions.")
    reading = family("topic_members", "Number of members that have partitions of a topic.")
    assigned = family("topic_assigned_partitions", "Number of partitions of a topic that members have.")
    commits = Family("kminion_kafka_consumer_group_offset_commits", "counter", "Commits of a group.")
    for number, group in enumerate(groups.snapshot.groups, 1):
        name = {"group_id": group.group_id}
        coordinator = group.coordinator if group.coordinator >= 0 else ""
        kinds = {"protocol": group.protocol, "protocol_type": group.protocol_type, "state": group.state}
        info.add(1, coordinator_id=coordinator, **name, **kinds)
        members.add(len(group.members), **name)
        empty.add(sum(not each.assigned for each in group.members), **name)
        for topic, (count, partitions) in _by_topic(group).items():
            reading.add(count, **name, topic_name=topic)
            assigned.add(partitions, **name, topic_name=topic)
        if group.commits >= 0:
            commits.add(group.commits, **name)
        if number % _AT_A_TIME == 0:
            yield None
    yield from (info, members, empty, reading, assigned, commits)
    sums, lags = family("topic_offset_sum", "Committed offsets of a topic, summed."), family("topic_lag", "")
    lags.doc = "Records of a topic that a group has not committed."
    sums.rows, lags.rows = groups.offset_sums, groups.lag_sums
    parts = family("topic_partition_lag", "Records of a partition that a group has not committed.")
    parts.rows = groups.lags
    yield from (sums, parts, lags)


def _by_topic(group: GroupState) -> dict[str, tuple[int, int]]:
    """Return topic -> how many members have partitions of it, and how many partitions."""
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for member in group.members:
        for topic, count in member.assigned.items():
            members, partitions = found[topic]
            found[topic] = members + 1, partitions + count
    return found


def _own(groups: _Groups) -> Steps:
    summed = Family(
        "kohort_metrics_summed_partitions",
        "gauge",
        f"Partitions of groups beyond {PARTITION_SERIES}, which have only the sums of their topics.",
    )
    summed.add(groups.summed)
    yield summed
    lag = Family(
        "kohort_group_lag_seconds", "gauge", "Age of the oldest record of a topic that a group has not committed."
    )
    for number, ((group_id, topic), seconds) in enumerate(groups.lag_seconds.items(), 1):
        lag.add(seconds, group=group_id, topic=topic)
        if number % _AT_A_TIME == 0:
            yield None
    yield lag
    ages = {
        "last_heard_ms": Family("kohort_member_last_heard_seconds", "gauge", "Time since the last sign of a member."),
        "last_fetch_ms": Family("kohort_member_last_fetch_seconds", "gauge", "Time since the last fetch of a member."),
        "last_commit_ms": Family("kohort_member_last_commit_seconds", "gauge", "Time since a member's last commit."),
        "last_poll_ms": Family("kohort_member_last_poll_seconds", "gauge", "Time since a member's application polled."),
    }
    text = f"1 if a member has not given up for {STUCK_MS // 1000} s what others wait for."
    stuck = Family("kohort_member_stuck", "gauge", text)
    rows = 0
    for group in groups.snapshot.groups:
        for member in group.members:
            labels = write_labels({"group": group.group_id, "member": member.member_id, "client_id": member.client_id})
            for name, family in ages.items():
                age_ms: int = getattr(member, name)
                if age_ms >= 0:
                    family.rows.append((labels, age_ms / 1000, ""))
            if member.last_heard_ms >= 0:
                stuck.rows.append((labels, int(is_stuck(member)), ""))
            rows += 1
            if rows % _AT_A_TIME == 0:
                yield None
    yield from (*ages.values(), stuck)
    yield from broker_families(groups.snapshot.facts)


#: Fact of a broker of kohort -> name of its family behind `kohort_broker_`, kind, unit of the fact, documentation.
_FACTS: Final[Mapping[str, tuple[str, Literal["counter", "gauge"], float, str]]] = {
    "uptime.ms": ("uptime_seconds", "gauge", 1000, "Time since the broker's start."),
    "topics": ("topics", "gauge", 1, "Topics of the broker."),
    "partitions": ("partitions", "gauge", 1, "Partitions of the broker."),
    "groups": ("groups", "gauge", 1, "Groups of the broker."),
    "connections": ("connections", "gauge", 1, "Open connections."),
    "connections.max": ("connections_limit", "gauge", 1, "Most connections at a time."),
    "connections.refused": ("connections_refused", "counter", 1, "Connections that were refused."),
    "reads.refused": (
        "reads_refused",
        "counter",
        1,
        "Partitions of fetches that were refused to members without them.",
    ),
    "disk.refuses": ("disk_refuses", "gauge", 1, "1 while the disk takes no writes."),
    "offline.partitions": ("offline_partitions", "gauge", 1, "Partitions that could not be read at the start."),
    "damaged.ranges": ("damaged_ranges", "gauge", 1, "Ranges of offsets whose records are damaged or gone."),
    "loop.turns": ("loop_turns", "counter", 1, "Turns of the broker's loop."),
    "loop.longest.turn.ms": ("loop_longest_turn_seconds", "gauge", 1000, "Longest turn of the broker's loop."),
}
_LIMIT: Final = "limits.reached."


class Problem(NamedTuple):
    """A fact of a broker that is not as it should be; `is_served`: clients are served all the same."""

    said: str
    is_served: bool


def find_problems(facts: Mapping[str, str]) -> list[Problem]:
    """Return the problems of a broker by its facts.

    >>> [each.said for each in find_problems({"disk.refuses": "true", "damaged.ranges": "0"})]
    ['the disk takes no writes']
    """
    found = []
    if facts.get("disk.refuses") == "true":
        found.append(Problem("the disk takes no writes", is_served=False))
    for fact, said in (
        ("offline.partitions", "partitions could not be read at the start"),
        ("damaged.ranges", "ranges of offsets are damaged or gone"),
    ):
        if int(facts.get(fact, 0)):
            named = facts.get(f"{fact}.first", "")
            found.append(Problem(f"{facts[fact]} {said}: {named}", is_served=True))
    return found


def broker_families(facts: Mapping[str, str]) -> Iterator[Family]:
    """Build the families of a broker's facts; none of a cluster that tells no facts."""
    for fact, (name, kind, unit, doc) in _FACTS.items():
        if fact in facts:
            value = {"true": 1.0, "false": 0.0}.get(facts[fact])
            number = float(facts[fact]) / unit if value is None else value
            family = Family(f"kohort_broker_{name}", kind, doc)
            family.add(int(number) if number.is_integer() else number)
            yield family
    reached = {name.removeprefix(_LIMIT): int(value) for name, value in facts.items() if name.startswith(_LIMIT)}
    if reached:
        limits = Family("kohort_broker_limit_reached", "counter", "How often a limit was reached since the start.")
        for limit, count in reached.items():
            limits.add(count, limit=limit)
        yield limits
