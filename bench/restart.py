"""Kill -9 and start: how long until the offsets of 10,000 groups of 10 partitions are answered; also with members.

The groups without members commit like simple consumers; those with five have settled KIP-848 members, which joined over
a raw connection. While those come, and after the last restart, it is also measured what they take in memory. Peer:
Apache Kafka 4.3 with the same requests. Both are loaded, then killed and started in turn; a start is cold by nature.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kohort.wire.codec import decode
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kohort.wire.registry import ApiKey, response_class
from load import RawConnection, frame
from memory import EARLIER, GROUPS, MEMBERS, live_mb, rows_of_memory
from readiness import until, wait_for_coordinators
from report import APACHE_KAFKA, Row, Table, compare
from servers import KohortServer, apache_left_out, start_both
from topics import PAGE_CACHE, create_topic

PARTITIONS = 10
TOPIC = "restart"
#: Groups that one OffsetFetch asks for, and members that are heard in one round trip.
AT_ONCE = 100
IN_FLIGHT = 50
ROUNDS = 30
#: Members must not time out while the others still join.
PROPERTIES = {
    "group.consumer.session.timeout.ms": 600_000,
    "group.consumer.max.session.timeout.ms": 600_000,
    "group.consumer.min.session.timeout.ms": 45_000,
    "offsets.retention.minutes": 100_000,
}
OURS = {"log.flush.interval.messages": PAGE_CACHE, "group.consumer.assignment.window.ms": 0}
THEIRS = {"group.consumer.min.assignment.interval.ms": 0, "group.consumer.assignment.interval.ms": 0}
SETTINGS = "both: sessions of 600 s, no pause before an assignment; ours: log.flush.interval.messages=2^63-1"


def group_name(number: int) -> str:
    return f"group-{number:05}"


def answers(connection: RawConnection, key: ApiKey, version: int, requests: list[Any]) -> Iterator[Any]:
    """Decoded answers, in order, with a limited number of requests on their way."""
    frames = [frame(key, version, request) for request in requests]
    connection.send(b"".join(frames[:IN_FLIGHT]))
    for number in range(len(frames)):
        body = connection.receive()
        if number + IN_FLIGHT < len(frames):
            connection.send(frames[number + IN_FLIGHT])
        # Both APIs have flexible response headers in the versions used: id and an empty tag section.
        yield decode(response_class(key), version, body, 5)[0]


class Member:
    """One settled member in the making: says what it was given until nothing changes."""

    def __init__(self, number: int) -> None:
        self.group = group_name(number // MEMBERS)
        self.member_id = str(UUID(int=(1 << 100) + number))
        self.epoch = 0
        self.owned: list[TopicPartitions] = []
        self.is_new = True

    def request(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=600_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=self.owned,
        )

    def take(self, answer: Any) -> bool:
        """Whether the answer changed something."""
        assert answer.error_code == 0, answer
        is_changed = self.epoch != answer.member_epoch
        self.epoch = answer.member_epoch
        if answer.assignment is not None and answer.assignment.topic_partitions != self.owned:
            self.owned = list(answer.assignment.topic_partitions)
            is_changed = True
        return is_changed


def commit_request(number: int, member_id: str, epoch: int, partitions: list[int]) -> OffsetCommitRequest:
    rows = [
        OffsetCommitRequestPartition(partition_index=partition, committed_offset=number, committed_metadata="")
        for partition in partitions
    ]
    return OffsetCommitRequest(
        group_id=group_name(number),
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=rows)],
    )


def commit_offsets(connection: RawConnection, members: list[Member]) -> None:
    """Ten partitions of each group: all at once, or by each member those that it holds."""
    if members:
        requests = [
            commit_request(
                number // MEMBERS, member.member_id, member.epoch, [at for row in member.owned for at in row.partitions]
            )
            for number, member in enumerate(members)
        ]
    else:
        requests = [commit_request(number, "", -1, list(range(PARTITIONS))) for number in range(GROUPS)]
    for answer in answers(connection, ApiKey.OFFSET_COMMIT, 9, requests):
        assert {row.error_code for row in answer.topics[0].partitions} == {0}, answer


def settle_members(connection: RawConnection, *, first: int = 0, end: int = GROUPS) -> list[Member]:
    """Let five members join each group and share its partitions."""
    members = [Member(number) for number in range(first * MEMBERS, end * MEMBERS)]
    for _ in range(ROUNDS):
        requests = [member.request() for member in members]
        found = answers(connection, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, requests)
        changed = sum(member.take(answer) for member, answer in zip(members, found, strict=True))
        if not changed and all(sum(len(row.partitions) for row in member.owned) == 2 for member in members):
            return members
    raise AssertionError("the members did not settle")


def await_groups(server: Any, connection: RawConnection) -> None:
    """Until every group is served; Apache Kafka names a coordinator before that."""
    wait_for_coordinators(connection, [group_name(number) for number in range(100)])
    time.sleep(0 if isinstance(server, KohortServer) else 3)


@dataclass
class Loaded:
    """A server with all groups; `members` none or five a group. Megabytes in use: empty, with the earlier groups, with
    all; none where there are no members."""

    server: Any
    members: list[Member] = field(default_factory=list)
    megabytes: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)


def load(server: Any, *, with_members: bool) -> Loaded:
    """Let the groups come."""
    loaded = Loaded(server)
    connection = RawConnection(server.port)
    create_topic(connection, TOPIC, PARTITIONS)
    await_groups(server, connection)
    if with_members:
        loaded.megabytes.append(live_mb(server))
        for first, end in ((0, EARLIER), (EARLIER, GROUPS)):
            loaded.members += settle_members(connection, first=first, end=end)
            loaded.megabytes.append(live_mb(server))
    commit_offsets(connection, loaded.members)
    connection.close()
    return loaded


def fetch_all(port: int) -> bool:
    """Whether the offsets of all groups are served."""
    try:
        connection = RawConnection(port)
    except OSError:
        return False
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(PARTITIONS)))]
    names = [group_name(number) for number in range(GROUPS)]
    requests = [
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=name, topics=topics) for name in names[at : at + AT_ONCE]]
        )
        for at in range(0, GROUPS, AT_ONCE)
    ]
    expected = 0
    try:
        for answer in answers(connection, ApiKey.OFFSET_FETCH, 8, requests):
            for group in answer.groups:
                if group.error_code:
                    return False
                offsets = {row.committed_offset for row in group.topics[0].partitions}
                assert offsets == {expected}, (group.group_id, offsets)
                expected += 1
    except OSError:
        return False
    finally:
        connection.close()
    return expected == GROUPS


def check_member(port: int, member: Member) -> None:
    """A member goes on as if nothing was."""
    connection = RawConnection(port)
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    assert connection.ask(ApiKey.METADATA, 9, metadata).topics[0].error_code == 0
    request = ConsumerGroupHeartbeatRequest(
        group_id=member.group,
        member_id=member.member_id,
        member_epoch=member.epoch,
        rebalance_timeout_ms=-1,
        topic_partitions=None,
    )
    answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert (answer.error_code, answer.member_epoch) == (0, member.epoch), answer
    connection.close()


def kill_and_time(server: Any, is_served: Callable[[int], bool], what: str) -> float:
    """Kill a server; seconds from the start of the next process until `is_served` with its port."""
    server.process.kill()
    server.process.wait(30)
    began = time.monotonic()
    server.start()
    until(lambda: is_served(server.port), what, seconds=180)
    return time.monotonic() - began


def restart_in_turn(runs: int, *, with_members: bool) -> tuple[list[Loaded], float]:
    """Every server loaded, killed and started again; and what ours has in memory after the last start, megabytes."""
    with ExitStack() as stack:
        servers, _ = start_both(stack, PROPERTIES, ours=OURS, peer=THEIRS)
        loaded = [load(server, with_members=with_members) for server in servers]
        for _ in range(runs):
            for each in loaded:
                each.took.append(kill_and_time(each.server, fetch_all, "every group's offsets"))
                for member in each.members[:20]:
                    check_member(each.server.port, member)
        server = servers[0]
        # Reading all offsets leaves buffers behind; what is asked is what the groups take.
        server.process.kill()
        server.process.wait(30)
        server.start()
        connection = RawConnection(server.port)
        create_topic(connection, "ready", 1)
        return loaded, live_mb(server)


def measure(runs: int) -> list[Table]:
    rows: list[Row] = []
    left_out = apache_left_out()
    for what, reach, with_members in (
        ("offsets of 10,000 groups", "<= 2 s", False),
        ("the same with 5 members each", "<= 4 s", True),
    ):
        loaded, restarted_mb = restart_in_turn(runs, with_members=with_members)
        rows.append(
            compare(
                what,
                loaded[0].took,
                loaded[1].took if len(loaded) > 1 else [],
                unit="s",
                reach=reach,
                peer_name=APACHE_KAFKA,
                how=f"{runs}, cold",
                settings=SETTINGS,
                less_is_better=True,
            )
        )
    memory = rows_of_memory([each.megabytes for each in loaded], restarted_mb, settings=SETTINGS)
    return [
        Table("restart", "Restart after kill -9", rows, left_out),
        Table("memory", "Memory of idle groups", memory, left_out),
    ]
