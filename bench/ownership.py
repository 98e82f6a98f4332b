"""What ownership at the leader costs: one broker that enforces it beside one that does not, fetches of members.

Each connection is of a member of a group of its own, which has all partitions and reads one. At the broker that
enforces ownership it has a grant, which its first fetch shows. Another group has just moved half of the partitions, so
that these have a fence. Five fetches are in flight on a connection, each with the next offset in its session (KIP-227).
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from typing import Any, Final

import fetch
from generator import Line
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.membership import KnownMembership
from kohort.wire.registry import ApiKey
from load import RawConnection, frame, place_of_error
from pressure import Prepared, Pressure, under_pressure
from produce import over
from report import Row, Table, compare
from servers import KohortServer
from topics import batch_of, create_writable_topic, produce_request

ENFORCE: Final = "group.ownership.enforce"
#: The answer to a join has the assignment.
AT_ONCE: Final[dict[str, object]] = {"group.consumer.assignment.window.ms": 0}
PEER: Final = f"{ENFORCE}=off"
#: Topics by id, which a session is asked about once.
VERSION: Final = 13
#: More requests than are answered in one run: an epoch of a session does not come again.
REQUESTS: Final = {64 << 10: 400_000, 1 << 20: 60_000}
#: Reads by a former owner, in each move.
READS: Final = 1_000
#: Numbers that are found again in the bytes of a request.
EPOCH: Final = 0x11223344
OFFSET: Final = 0x5566778811223399
_EPOCH: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")
LOADS: Final = (
    ("64 KB", 64 << 10, 1, ">= 0.98x"),
    ("1 MB", 1 << 20, 1, ">= 0.98x"),
    ("64 KB", 64 << 10, 50, ">= 0.98x"),
    ("1 MB", 1 << 20, 50, ">= 0.98x"),
)


def join(connection: RawConnection, group_id: str, topic: str) -> Any:
    """Join a group as a new member of ours; the answer, with an assignment and perhaps a grant."""
    request = ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=str(uuid.uuid4()),
        member_epoch=0,
        rebalance_timeout_ms=600_000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
        wants_numbers=True,
    )
    answer = connection.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert answer.error_code == 0, answer
    return answer


def move(connection: RawConnection, topic: str) -> None:
    """Have a second member join a group, which takes half of the partitions from the first."""
    group_id = f"moves-{uuid.uuid4()}"
    for _ in range(2):
        join(connection, group_id, topic)


def request(
    known: TopicPartitions, partition: int, size: int, *, session_id: int = 0, epoch: int = 0, offset: int = 0
) -> FetchRequest:
    """Ask for one partition from an offset on, in a session."""
    row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=size)
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=size,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic_id=known.topic_id, partitions=[row])],
    )


def numbered(form: bytes, offsets: Sequence[int], count: int) -> list[bytes]:
    """Requests like this one, with the epochs from 2 on and the offsets in a circle."""
    (epoch_at, offset_at), buffer = (
        (form.index(each) for each in (_EPOCH.pack(EPOCH), _OFFSET.pack(OFFSET))),
        bytearray(form),
    )
    found = []
    for number in range(count):
        _EPOCH.pack_into(buffer, epoch_at, number + 2)
        _OFFSET.pack_into(buffer, offset_at, offsets[number % len(offsets)])
        found.append(bytes(buffer))
    return found


@contextmanager
def members(server: Any, *, connections: int, size: int, enforces: Any) -> Iterator[Prepared]:
    """A member for each partition, with its fetch session; `enforces`: the server whose members have grants."""
    topic, batches = fetch.TOPIC.format(connections=connections), fetch.BATCHES // connections
    at_once = max(1, size // fetch.BATCH_BYTES)
    raw, lines, place = [], [], 0
    steward = RawConnection(server.port)
    move(steward, topic)
    for number in range(connections):
        connection = RawConnection(server.port)
        raw.append(connection)
        group_id = f"reads-{uuid.uuid4()}"
        joined = join(connection, group_id, topic)
        assert (joined.grant is not None) == (server is enforces), joined
        (known,) = joined.assignment.topic_partitions

        offsets = [turn * at_once % (batches - at_once) * fetch.BATCH_RECORDS for turn in range(fetch.CIRCLE)]
        first = request(known, number, size)
        first.member = KnownMembership(
            group_id=group_id, member_id=joined.member_id, member_epoch=joined.member_epoch, topic_partitions=[known]
        )
        first.grant = None if joined.grant is None else joined.grant.token
        session_id = connection.ask(ApiKey.FETCH, VERSION, first).session_id
        answer = connection.ask(ApiKey.FETCH, VERSION, request(known, number, size, session_id=session_id, epoch=1))
        row = answer.responses[0].partitions[0]
        assert row.error_code == 0 and len(row.records) >= at_once * fetch.BATCH_BYTES * 0.9, answer
        place = place_of_error(ApiKey.FETCH, VERSION, answer, row)
        form = frame(
            ApiKey.FETCH, VERSION, request(known, number, size, session_id=session_id, epoch=EPOCH, offset=OFFSET)
        )
        lines.append(Line(connection.descriptor, numbered(form, offsets, REQUESTS[size] // connections)))
    yield Prepared(lines, place)
    for connection in (steward, *raw):
        connection.close()


def former_reads(server: Any) -> float:
    """Reads that are served of those by a former owner, 100 ms after it has acknowledged a planned move."""
    topic = f"moved-{uuid.uuid4()}"
    setting, former, heir = (RawConnection(server.port) for _ in range(3))
    create_writable_topic(setting, topic, 2)
    for partition in (0, 1):
        setting.ask(ApiKey.PRODUCE, 8, produce_request(topic, partition, batch_of(1, b"record")))
    group_id = f"moves-{uuid.uuid4()}"
    joined = join(former, group_id, topic)
    (known,) = joined.assignment.topic_partitions
    assert known.partitions == [0, 1], "it has both"
    reads = [read for token in (None, _token_of(joined)) for read in _reads_of(group_id, joined, known, token)]
    assert all(map(partial(is_served, former), reads)), "they are served before"
    heired = join(heir, group_id, topic)
    asked = beat(former, group_id, joined, [known])
    (kept,) = asked.assignment.topic_partitions
    (lost,) = set(known.partitions) - set(kept.partitions)
    asked = beat(former, group_id, asked, [kept])
    while asked.member_epoch == joined.member_epoch:
        asked = beat(former, group_id, asked, [kept])
    assert lost in _partitions_of(heired) + _partitions_of(beat(heir, group_id, heired, [])), "the other one has it"
    time.sleep(0.1)
    reads = [
        read
        for said, token in ((joined, _token_of(joined)), (joined, None), (asked, _token_of(joined)))
        for read in _reads_of(group_id, said, known, token)
        if read.topics[0].partitions[0].partition == lost
    ]
    served = sum(is_served(former, read) for read in islice(cycle(reads), READS))
    for connection in (setting, former, heir):
        connection.close()
    return float(served)


def _partitions_of(answer: Any) -> list[int]:
    rows = [] if answer.assignment is None else answer.assignment.topic_partitions
    return [number for row in rows for number in row.partitions]


def _token_of(answer: Any) -> str | None:
    return None if answer.grant is None else answer.grant.token


def _reads_of(group_id: str, said: Any, known: TopicPartitions, token: str | None) -> list[FetchRequest]:
    """A fetch of each partition without a session, by a member that has all of them as far as it says."""
    word = KnownMembership(
        group_id=group_id, member_id=said.member_id, member_epoch=said.member_epoch, topic_partitions=[known]
    )
    return [
        FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1_000,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic_id=known.topic_id, partitions=[FetchPartition(partition=number, partition_max_bytes=1_000)]
                )
            ],
            member=word,
            grant=token,
        )
        for number in known.partitions
    ]


def is_served(connection: RawConnection, read: FetchRequest) -> bool:
    """Whether a fetch of one partition gets records."""
    (topic,) = connection.ask(ApiKey.FETCH, VERSION, read).responses
    return bool(topic.partitions[0].records)


def beat(connection: RawConnection, group_id: str, said: Any, owned: list[TopicPartitions]) -> Any:
    """Heartbeat as a member that has these partitions."""
    answer = connection.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=said.member_id,
            member_epoch=said.member_epoch,
            topic_partitions=owned,
            wants_numbers=True,
        ),
    )
    assert answer.error_code == 0, answer
    return answer


def moves(servers: Sequence[Any], runs: int) -> Row:
    """A planned move, enforced and not."""
    ours, theirs = ([former_reads(server) for _ in range(runs)] for server in servers)
    return compare(
        f"planned move: {READS:,} reads by the former owner, from 100 ms after its acknowledgement",
        ours,
        theirs,
        unit="served",
        reach="0",
        peer_name=PEER,
        how=f"{runs}",
        less_is_better=True,
    )


def measure(runs: int) -> list[Table]:
    rows = []
    with KohortServer(AT_ONCE) as ours, KohortServer({**AT_ONCE, ENFORCE: "off"}) as theirs:
        servers = [ours, theirs]
        for server in servers:
            for connections in (1, 50):
                fetch.fill_partitions(server, connections)
        for what, size, connections, reach in LOADS:
            prepare = partial(members, connections=connections, size=size, enforces=ours)
            pressure = Pressure(
                what=f"fetch {what}, {over(connections)}",
                in_flight=fetch.IN_FLIGHT,
                reach=reach,
                unit="MB/s",
                peer=PEER,
            )
            rows.append(under_pressure(pressure, prepare, servers, runs))
        rows.append(moves(servers, runs))
    return [Table("ownership", "Ownership: enforced beside not", rows, [])]
