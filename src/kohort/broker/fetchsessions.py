"""Fetch sessions: what a client has asked for, so that its next fetch names only what is different.

Laws: a connection has one session at most, which ends with it; so there is nothing to make room for, and a client that
comes over another connection begins anew. An answer within a session has the partitions that a full answer would show
otherwise than the one before: with records, an error, or a log whose beginning or end has moved. Partitions that were
answered with records move to the back, so that each has its turn.
Source: KIP-227 (incremental fetch sessions); KIP-516 (topic ids or names, not both).
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from kohort.broker.request import Peer
from kohort.errors import ErrorCode, Refused
from kohort.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

#: From this version on topics go by id.
_FIRST_BY_ID: Final = 13
#: Epochs of a request: without a session, and the first one of a session.
_NO_SESSION: Final = -1
_FIRST: Final = 0
_LAST: Final = 2**31 - 1
#: More partitions are fetched without a session.
_MOST_PARTITIONS: Final = 20_000

#: A topic by name and id, one of which is empty.
_Topic = tuple[str, bytes]


class FetchSession:
    """What one connection's fetches stand for."""

    __slots__ = ("_asked", "_by_id", "_told", "epoch", "id")

    def __init__(self, session_id: int, *, by_id: bool) -> None:
        self.id: Final = session_id
        #: Of the next request.
        self.epoch = 1
        self._by_id: Final = by_id
        #: Topic -> partition -> what is asked of it, the one that has waited longest for records first.
        self._asked: dict[_Topic, dict[int, FetchPartition]] = {}
        #: Topic and partition -> beginning and end of its log as last answered; nothing behind an error.
        self._told: dict[tuple[_Topic, int], tuple[int, int, int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._asked.values()))

    def update(self, message: FetchRequest) -> None:
        """The request names these partitions anew, and no more those that it forgets."""
        for topic in message.topics:
            rows = self._asked.setdefault((topic.topic, topic.topic_id), {})
            for row in topic.partitions:
                rows[row.partition] = row
        for gone in message.forgotten_topics_data:
            key = (gone.topic, gone.topic_id)
            rows = self._asked.get(key, {})
            for partition in gone.partitions:
                rows.pop(partition, None)
                self._told.pop((key, partition), None)
            if not rows:
                self._asked.pop(key, None)

    def advance(self, message: FetchRequest, *, by_id: bool) -> None:
        """Take the next request in; `Refused` if it is another one."""
        if message.session_epoch != self.epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if by_id != self._by_id:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self.epoch = 1 if self.epoch == _LAST else self.epoch + 1
        self.update(message)

    def topics(self) -> list[FetchTopic]:
        """Everything that is asked for."""
        return [
            FetchTopic(topic=name, topic_id=topic_id, partitions=list(rows.values()))
            for (name, topic_id), rows in self._asked.items()
        ]

    def reduce(self, response: FetchResponse) -> FetchResponse:
        """What of a full answer the client does not know yet; from now on it does."""
        topics = []
        for topic in response.responses:
            key = (topic.topic, topic.topic_id)
            rows = [row for row in topic.partitions if self._is_news(key, row)]
            if rows:
                topics.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
        return FetchResponse(session_id=self.id, responses=topics)

    def _is_news(self, key: _Topic, row: PartitionData) -> bool:
        place = (key, row.partition_index)
        if row.error_code or row.diverging_epoch.end_offset >= 0:
            self._told.pop(place, None)
            return True
        ends = (row.log_start_offset, row.last_stable_offset, row.high_watermark)
        if row.records:
            self._to_back(key, row.partition_index)
        elif self._told.get(place) == ends:
            return False
        self._told[place] = ends
        return True

    def _to_back(self, key: _Topic, partition: int) -> None:
        # It may have been forgotten since this answer was begun.
        rows = self._asked.get(key, {})
        if partition in rows:
            rows[partition] = rows.pop(partition)
            self._asked[key] = self._asked.pop(key)


class FetchSessions:
    """The sessions of all connections."""

    def __init__(self) -> None:
        self._sessions: Final[WeakKeyDictionary[Peer, FetchSession]] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, connection: Peer, message: FetchRequest, version: int) -> FetchSession | None:
        """The session of a request, which it may begin, go on with or end; `None` if it has none.

        Raises:
            Refused: it goes on with a session that is not there, or not at that epoch.
        """
        by_id = version >= _FIRST_BY_ID
        if message.session_epoch == _NO_SESSION:
            if message.session_id:
                self._sessions.pop(connection, None)
            return None
        if message.session_epoch == _FIRST:
            session = FetchSession(connection.number & _LAST or 1, by_id=by_id)
            session.update(message)
            if not 0 < len(session) <= _MOST_PARTITIONS:
                self._sessions.pop(connection, None)
                return None
            self._sessions[connection] = session
            return session
        known = self._sessions.get(connection)
        if known is None or known.id != message.session_id:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        known.advance(message, by_id=by_id)
        if len(known) > _MOST_PARTITIONS:
            del self._sessions[connection]
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return known
