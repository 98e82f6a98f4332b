"""Two brokers with logs that grow, leaders that move and fetch sessions (KIP-227), strict about every rule of them.

They answer the fetches of a consumer's dialogue, in any order that a test chooses.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from kohort.client.core.actions import Endpoint, Lane, Send
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition
from kohort.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue, batch

NODES = {1: Endpoint("127.0.0.1", 9092), 2: Endpoint("127.0.0.1", 9093)}


@dataclass(slots=True)
class Session:
    """What one broker remembers of one consumer."""

    id: int
    epoch: int = 1
    asked: dict[int, FetchPartition] = field(default_factory=dict)


class SessionCluster:
    """Logs of the partitions of orders; every offset is in one batch."""

    def __init__(self, consumer: ConsumerDialogue, seed: int) -> None:
        self.consumer = consumer
        self.random = random.Random(seed)
        count = consumer.topics["orders"][1]
        #: Partition -> first offset of each batch, and the batch.
        self.logs: dict[int, list[tuple[int, bytes]]] = {index: [] for index in range(count)}
        self.ends = dict.fromkeys(range(count), 0)
        self.sessions: dict[Endpoint, Session] = {}
        self._last_id = 100

    def append(self, index: int) -> None:
        """A log grows by a batch."""
        count = self.random.choice([1, 5, 20])
        self.logs[index].append((self.ends[index], batch(self.ends[index], count)))
        self.ends[index] += count

    def move(self, index: int) -> None:
        """Another broker leads, under the next epoch."""
        partition = TopicPartition("orders", index)
        self.consumer.leaders[partition] = 3 - self.leader(index)
        self.consumer.leader_epochs[partition] = self.consumer.leader_epochs.get(partition, 3) + 1

    def leader(self, index: int) -> int:
        """Who leads a partition."""
        return self.consumer.leaders.get(TopicPartition("orders", index), 1)

    def answer(self, send: Send) -> None:
        """Answer one open fetch."""
        request = send.request
        assert isinstance(request, FetchRequest)
        named = {entry.partition: entry for topic in request.topics for entry in topic.partitions}
        gone = [index for topic in request.forgotten_topics_data for index in topic.partitions]
        assert len(named) == sum(len(topic.partitions) for topic in request.topics), "named twice"
        asked, session = named, None
        if send.lane is Lane.FETCH:
            session = self._session(send.to, request, named, gone)
            if isinstance(session, ErrorCode):
                self.consumer.answer(request, FetchResponse(error_code=session), version=17)
                return
            asked = session.asked
        else:
            assert (request.session_id, request.session_epoch, gone) == (0, -1, [])
        response = FetchResponse(session_id=0 if session is None else session.id)
        rows = self._rows(send.to, asked, request.max_bytes, is_whole=session is None)
        if rows:
            response.responses = [FetchableTopicResponse(topic_id=ORDERS, partitions=rows)]
        self.consumer.answer(request, response, version=17)

    def _session(
        self, broker: Endpoint, request: FetchRequest, named: dict[int, FetchPartition], gone: list[int]
    ) -> Session | ErrorCode:
        session = self.sessions.get(broker)
        if request.session_epoch == 0:
            assert not gone, "a session that begins has nothing to forget"
            if session is not None and request.session_id:
                assert request.session_id == session.id or session.id > request.session_id
            self._last_id += 1
            session = self.sessions[broker] = Session(self._last_id)
        elif session is None or session.id != request.session_id:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        else:
            assert request.session_epoch == session.epoch, "an epoch that was left out or comes twice"
            session.epoch += 1
        assert set(gone) <= session.asked.keys(), "what is forgotten was asked for"
        assert not set(gone) & named.keys()
        for index in gone:
            del session.asked[index]
        session.asked.update(named)
        believed = self.consumer.machine._sender._targets._table[broker].session.asked
        assert session.asked == {partition.partition: asked.entry for partition, asked in believed.items()}
        return session

    def _rows(
        self, broker: Endpoint, asked: dict[int, FetchPartition], room: int, *, is_whole: bool
    ) -> list[PartitionData]:
        """News of what is asked, or all of it, as much as there is room for, but for one batch."""
        rows = []
        for index in self.random.sample(sorted(asked), len(asked)):
            entry = asked[index]
            if NODES[self.leader(index)] != broker:
                code, records = ErrorCode.NOT_LEADER_OR_FOLLOWER, b""
            else:
                code, records = (
                    ErrorCode.NONE,
                    self._read(index, entry.fetch_offset, room, is_first=not any(row.records for row in rows)),
                )
            room -= len(records)
            if code or records or is_whole:
                rows.append(PartitionData(partition_index=index, error_code=code, records=memoryview(records)))
        return rows

    def _read(self, index: int, offset: int, room: int, *, is_first: bool) -> bytes:
        found = b""
        for first, data in self.logs[index]:
            # Offsets of a batch go up to where the next one begins.
            if first + _count(data) <= offset:
                continue
            if len(found) + len(data) > room and not (is_first and not found):
                break
            found += data
        return found


def _count(data: bytes) -> int:
    return int.from_bytes(data[57:61], "big")
