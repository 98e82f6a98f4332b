"""The metrics page of one broker: its topics, its groups, and the rebalances in the journal.

Laws: a page is built in short turns of the loop, one page at a time. Scrapers that request it meanwhile get the same
page. The number of counters is bounded: above `_MOST_GROUPS` the group that was counted first is dropped.
Source: architecture rule 18; the families are those of `kohort.metrics.peers`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Final

from kohort.broker.apis.describe_broker import facts_of
from kohort.broker.context import BrokerContext
from kohort.broker.groups.runtime import Runtime
from kohort.broker.groups.shard_log import UnservedShard
from kohort.broker.http import Answer, Asked, Handler
from kohort.coordinator.classic.state import ClassicGroup
from kohort.coordinator.consumer.client_assignors.assignor_metadata import choice_of
from kohort.coordinator.consumer.describe import state_of
from kohort.coordinator.journal_events.entries import read_owned
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.shard import Shard
from kohort.journal.ring import BEGINNINGS, ENDS
from kohort.journal.rows import Row
from kohort.journal.words import read_partitions
from kohort.metrics.cluster import (
    BrokerState,
    ClusterSnapshot,
    EndOffsets,
    GroupState,
    MemberState,
    PartitionState,
    TopicState,
)
from kohort.metrics.exposition import OPEN_TYPE, TEXT_TYPE, Family, Histogram, is_open, write_labels, write_steps
from kohort.metrics.peers import NAMES, Names, build_families, find_problems

#: The most groups whose rebalances and moves are counted.
_MOST_GROUPS: Final = 10_000
#: Partitions and members that are read in one turn of the loop.
_AT_A_TIME: Final = 400
#: Bucket bounds of the durations of rebalances, seconds.
_BOUNDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class JournalCounts:
    """The rebalances and moves of groups since the start, counted from the rows of the journal."""

    def __init__(self) -> None:
        #: Group -> cause -> rebalances.
        self._rebalances: Final[dict[str, Counter[str]]] = {}
        #: Group -> partitions that have moved from one member to another.
        self._moves: Final[Counter[str]] = Counter()
        #: Phase -> times: the whole, the wait for the old owner, the wait for the new one.
        self._phases: Final = {name: Histogram(_BOUNDS) for name in ("whole", "revoke", "grant")}
        self._unread: Final = Histogram(_BOUNDS)

    def note(self, row: Row) -> None:
        """Count a row of the journal."""
        entry = row.entry
        details = dict(entry.details)
        if entry.event in BEGINNINGS and row.cause == row.origin:
            causes = self._rebalances.setdefault(entry.group_id, Counter())
            causes[details.get("trigger") or "unknown"] += 1
            if len(self._rebalances) > _MOST_GROUPS:
                self._forget(next(iter(self._rebalances)))
        elif entry.event == "partitions_moved":
            named, others = read_partitions(details.get("partitions", ""))
            self._moves[entry.group_id] += len(named) + others
            asked, released = details.get("asked_ms"), details.get("released_ms")
            if asked and released:
                self._phases["revoke"].observe(max(0, int(released) - int(asked)) / 1000)
            if released:
                self._phases["grant"].observe(max(0, row.time_ms - int(released)) / 1000)
        elif entry.event == "partitions_read" and details.get("unread_ms"):
            self._unread.observe(int(details["unread_ms"]) / 1000)
        elif entry.event in ENDS:
            self._forget(entry.group_id)
        if details.get("took_ms"):
            self._phases["whole"].observe(int(details["took_ms"]) / 1000)

    def families(self) -> Iterator[Family]:
        """Build the metric families of these counters."""
        rebalances = Family("kohort_group_rebalances", "counter", "Rebalances of a group, by their first cause.")
        for group, causes in self._rebalances.items():
            for cause, count in causes.items():
                rebalances.add(count, group=group, cause=cause)
        moves = Family("kohort_group_moves", "counter", "Partitions of a group that went to another member.")
        for group, count in self._moves.items():
            moves.add(count, group=group)
        phases = Family("kohort_group_rebalance_seconds", "histogram", "Times of rebalances and of their phases.")
        for phase, histogram in self._phases.items():
            phases.rows += histogram.rows(write_labels({"phase": phase}))
        unread = Family(
            "kohort_partition_unread_seconds", "histogram", "Times for which no member read a partition that moved."
        )
        unread.rows += self._unread.rows()
        yield from (rebalances, moves, phases, unread)

    def _forget(self, group_id: str) -> None:
        self._rebalances.pop(group_id, None)
        self._moves.pop(group_id, None)


def paths_of(context: BrokerContext, runtime: Runtime, failure: Callable[[], object]) -> dict[str, Handler]:
    """Return the paths of a broker's HTTP server; `failure`: why the broker stops, `None` while it does not."""
    metrics = BrokerMetrics(context, runtime)

    async def page(asked: Asked) -> Answer:
        names = asked.query.get("families", NAMES[0])
        if names not in NAMES:
            return Answer(f"families is one of {' '.join(NAMES)}\n".encode(), status=HTTPStatus.BAD_REQUEST)
        content_type, body = await metrics.page(asked.headers.get("accept", ""), names)
        return Answer(body, content_type)

    async def health(_: Asked) -> Answer:
        return _verdict([] if failure() is None else [f"the broker stops: {failure()}"])

    async def readiness(_: Asked) -> Answer:
        facts = {name: str(value) for name, value in facts_of(context).items()}
        found = [each.said for each in find_problems(facts) if not each.is_served]
        unserved = sum(isinstance(each, UnservedShard) for each in runtime.shards)
        return _verdict([*found, *([f"{unserved} logs of groups could not be read"] if unserved else [])])

    async def start(_: Asked) -> Answer:
        return Answer(
            b"/metrics /healthz /readyz; with pip install 'kohort[console]' kohort up shows the console here\n"
        )

    return {"/metrics": page, "/healthz": health, "/readyz": readiness, "/": start}


def _verdict(problems: Sequence[str]) -> Answer:
    if problems:
        return Answer("".join(f"{each}\n" for each in problems).encode(), status=HTTPStatus.SERVICE_UNAVAILABLE)
    return Answer(b"ok\n")


class BrokerMetrics:
    """The pages of metrics of one broker."""

    def __init__(self, context: BrokerContext, runtime: Runtime) -> None:
        self._context: Final = context
        self._runtime: Final = runtime
        self._ends: Final = EndOffsets()
        self._counts: Final = JournalCounts()
        #: (names, format) -> the page that is being built.
        self._under_way: Final[dict[tuple[Names, bool], asyncio.Future[bytes]]] = {}
        journal, told = runtime.journal, runtime.journal.on_row

        def note(row: Row) -> None:
            self._counts.note(row)
            told(row)

        journal.on_row = note

    async def page(self, accept: str, names: Names = "kafka-exporter") -> tuple[str, bytes]:
        """Return content type and body of a page, in the format that the header `Accept` prefers."""
        key = names, is_open(accept)
        page = self._under_way.get(key)
        if page is None:
            page = self._under_way[key] = self._context.loop.create_future()
            self._context.cooperative_work.run(self._make(key, page))
        return (OPEN_TYPE if key[1] else TEXT_TYPE), await asyncio.shield(page)

    def _make(self, key: tuple[Names, bool], page: asyncio.Future[bytes]) -> Iterator[None]:
        try:
            body = yield from self._steps(*key)
        except Exception as error:  # raised in `page`, for the scraper
            del self._under_way[key]
            page.set_exception(error)
            return
        del self._under_way[key]
        page.set_result(body)

    def _steps(self, names: Names, as_open: bool) -> Generator[None, None, bytes]:
        snapshot = yield from self._read(has_sizes=names == "kminion")
        parts: list[bytes] = []
        for family in self._families(snapshot, names):
            if family is None:
                yield
                continue
            for text in write_steps([family], as_open=as_open, is_end=False):
                parts.append(text.encode())
                yield
        parts.append(b"# EOF\n" if as_open else b"")
        return b"".join(parts)

    def _families(self, snapshot: ClusterSnapshot, names: Names) -> Iterator[Family | None]:
        yield from build_families(snapshot, self._ends, names=names)
        yield from self._counts.families()
        syncs = Family("kohort_broker_sync_seconds", "histogram", "Times of syncs of logs to the disk.")
        syncs.rows += self._context.durability.sync_times.rows()
        yield syncs

    def _read(self, *, has_sizes: bool) -> Generator[None, None, ClusterSnapshot]:
        """Read the state of the broker in steps; return the snapshot."""
        context = self._context
        node_id = context.leadership.node_id
        host, port = next(iter(context.leadership.addresses.values()))
        facts = {name: str(value) for name, value in facts_of(context).items()}
        yield
        topics: dict[str, TopicState] = {}
        sizes = 0
        for name in list(context.cluster.topics):
            topic = context.cluster.topic(name)
            if topic is None:
                continue
            partitions = []
            for number, log in enumerate(topic.partitions):
                leader = context.leadership.leader_of(log)
                begin, end = (-1, -1) if leader < 0 else (log.log_start_offset, log.high_watermark)
                replicas, in_sync = (node_id,), () if log.offline else (node_id,)
                partitions.append(
                    PartitionState(leader=leader, replicas=replicas, in_sync=in_sync, begin=begin, end=end)
                )
                if end >= 0:
                    self._ends.note(name, number, end, now_ms=context.clock.now_ms())
                if len(partitions) % _AT_A_TIME == 0:
                    yield
            size = sum(log.size_bytes for log in topic.partitions) if has_sizes else -1
            sizes += size
            policy = topic.configs.get("cleanup.policy") or context.settings.topic_defaults()["cleanup.policy"]
            topics[name] = TopicState(name=name, partitions=partitions, cleanup_policy=policy, log_bytes=size)
            if len(topics) % 20 == 0:
                yield
        groups: list[GroupState] = []
        for shard in self._runtime.shards:
            yield from self._read_groups(shard, groups)
        return ClusterSnapshot(
            now_ms=context.clock.now_ms(),
            cluster_id=context.cluster.cluster_id,
            controller_id=node_id,
            brokers=[BrokerState(broker_id=node_id, host=host, port=port, log_bytes=sizes if has_sizes else -1)],
            topics=topics,
            groups=groups,
            facts=facts,
        )

    def _read_groups(self, shard: Shard, found: list[GroupState]) -> Iterator[None]:
        state, rows = shard.groups, 0
        for group_id in dict.fromkeys((*state.consumer, *state.classic, *state.offsets)):
            consumer, classic = state.consumer.get(group_id), state.classic.get(group_id)
            offsets = {
                topic: {partition: each.offset for partition, each in committed.items()}
                for topic, committed in state.offsets.get(group_id, {}).items()
            }
            if consumer is not None:
                settings = shard.settings_for(group_id)
                kinds = (
                    state_of(consumer, is_paused=settings.group_moves_paused),
                    choice_of(consumer, settings).name,
                    "consumer",
                )
                members = [self._member(group_id, *each) for each in _of_consumer(shard, consumer)]
            elif classic is not None:
                kinds = classic.state.value, classic.protocol_name or "", classic.protocol_type or ""
                members = [self._member(group_id, *each) for each in _of_classic(classic)]
            elif offsets:
                kinds, members = ("Empty", "", ""), []
            else:
                continue
            found.append(
                GroupState(
                    group_id=group_id,
                    state=kinds[0],
                    protocol=kinds[1],
                    protocol_type=kinds[2],
                    members=members,
                    offsets=offsets,
                    coordinator=self._context.leadership.node_id,
                    commits=self._runtime.journal.counted(group_id, "commits"),
                )
            )
            rows += 10 + 5 * len(members) + sum(map(len, offsets.values()))
            if rows >= _AT_A_TIME:
                rows = 0
                yield

    def _member(self, group_id: str, member_id: str, client_id: str, assigned: dict[str, int]) -> MemberState:
        signs = self._runtime.member_signs(group_id, member_id)
        ages = (
            {}
            if signs is None
            else {name: value for name, value in signs._asdict().items() if name != "session_left_ms"}
        )
        return MemberState(member_id=member_id, client_id=client_id, assigned=assigned, **ages)


def _of_consumer(shard: Shard, group: ConsumerGroup) -> Iterator[tuple[str, str, dict[str, int]]]:
    by_id = shard.groups.image.by_id
    for member in group.members.values():
        assigned: dict[str, int] = {}
        for held in (member.assigned, member.pending_revocation):
            for topic_id, partitions in held.items():
                if topic_id in by_id:
                    name = by_id[topic_id].name
                    assigned[name] = assigned.get(name, 0) + len(partitions)
        yield member.member_id, member.client_id, assigned


def _of_classic(group: ClassicGroup) -> Iterator[tuple[str, str, dict[str, int]]]:
    for member in group.members.values():
        is_known = group.protocol_type == "consumer" and member.assignment
        yield member.member_id, member.client_id, dict(_counted(member.assignment)) if is_known else {}


@lru_cache(10_000)
def _counted(assignment: bytes) -> Counter[str]:
    return Counter(topic for topic, _ in read_owned(assignment))
