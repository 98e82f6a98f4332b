"""Fetch sessions: what a client has asked for, so that its next fetch names only what is different.

Laws: a connection has one session at most, which ends with it; a client that comes over another connection begins anew.
There are so many sessions as slots: one that nobody used for two minutes makes room, otherwise fetches go without. An
answer within a session has the partitions that a full answer would show otherwise than the one before: with records, an
error, or a log whose beginning or end has moved. Partitions that were answered with records move to the back, so that
each has its turn.
Source: KIP-227 (incremental fetch sessions), its cache and `min.incremental.fetch.session.eviction.ms`; KIP-516 (topic
ids or names, not both).
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from kohort.broker.connections.request import Peer
from kohort.broker.fetch.fetchplan import Asked, AskedOf, TopicKey, asked_of
from kohort.errors import ErrorCode, Refused
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

#: From this version on topics go by id.
_FIRST_BY_ID: Final = 13
#: Epochs of a request: without a session, and the first one of a session.
_NO_SESSION: Final = -1
_FIRST: Final = 0
_LAST: Final = 2**31 - 1
#: More partitions are fetched without a session.
_MOST_PARTITIONS: Final = 20_000
#: Those of all sessions together.
_MOST_IN_ALL: Final = 1_000_000
#: A session that was not used for so long makes room for another.
_IDLE_MS: Final = 120_000

#: Beginning and end of a log as clients are told: start offset, last stable offset, high watermark.
Ends = tuple[int, int, int]


class FetchSession:
    """What one connection's fetches stand for."""

    __slots__ = ("_asked", "_by_id", "_told", "epoch", "id", "size", "used_ms")

    def __init__(self, session_id: int, *, by_id: bool, now_ms: int) -> None:
        self.id: Final = session_id
        #: Of the next request.
        self.epoch = 1
        self._by_id: Final = by_id
        #: Topic -> partition -> what is asked of it, the one that has waited longest for records first.
        self._asked: dict[TopicKey, dict[int, Asked]] = {}
        #: Topic -> partition -> what was answered last; nothing behind an error.
        self._told: dict[TopicKey, dict[int, Ends]] = {}
        #: Partitions.
        self.size = 0
        #: When it was used last.
        self.used_ms = now_ms

    @property
    def asked(self) -> AskedOf:
        """Everything that is asked for."""
        return self._asked

    def update(self, message: FetchRequest) -> None:
        """The request names these partitions anew, and no more those that it forgets."""
        for topic in message.topics:
            self._asked.setdefault((topic.topic, topic.topic_id), {}).update(asked_of(topic))
        for gone in message.forgotten_topics_data:
            key = (gone.topic, gone.topic_id)
            rows = self._asked.get(key, {})
            for partition in gone.partitions:
                rows.pop(partition, None)
                self._told.get(key, {}).pop(partition, None)
            if not rows:
                self._asked.pop(key, None)
                self._told.pop(key, None)
        if message.topics or message.forgotten_topics_data:
            self.size = sum(map(len, self._asked.values()))

    def advance(self, message: FetchRequest, *, by_id: bool) -> None:
        """Take the next request in; `Refused` if it is another one."""
        if message.session_epoch != self.epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if by_id != self._by_id:
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self.epoch = 1 if self.epoch == _LAST else self.epoch + 1
        self.update(message)

    def knows(self, key: TopicKey, partition: int, ends: Ends) -> bool:
        """Whether a partition without records is no news: the client was told these ends."""
        told = self._told.get(key)
        return told is not None and told.get(partition) == ends

    def reduce(self, response: FetchResponse) -> FetchResponse:
        """What of a full answer the client does not know yet; from now on it does."""
        topics = []
        for topic in response.responses:
            key = (topic.topic, topic.topic_id)
            rows = [row for row in topic.partitions if self._is_news(key, row)]
            if rows:
                topics.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
        return FetchResponse(session_id=self.id, responses=topics)

    def _is_news(self, key: TopicKey, row: PartitionData) -> bool:
        told, number = self._told.setdefault(key, {}), row.partition_index
        if row.error_code or row.diverging_epoch.end_offset >= 0:
            told.pop(number, None)
            return True
        ends = (row.log_start_offset, row.last_stable_offset, row.high_watermark)
        if row.records:
            self._to_back(key, number)
        elif told.get(number) == ends:
            return False
        told[number] = ends
        return True

    def _to_back(self, key: TopicKey, partition: int) -> None:
        # It may have been forgotten since this answer was begun.
        rows = self._asked.get(key, {})
        if partition in rows:
            rows[partition] = rows.pop(partition)
            self._asked[key] = self._asked.pop(key)


class FetchSessions:
    """The sessions of all connections."""

    def __init__(self, slots: int) -> None:
        """`slots`: how many there may be."""
        self._slots: Final = slots
        self._sessions: Final[WeakKeyDictionary[Peer, FetchSession]] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, connection: Peer, message: FetchRequest, version: int, *, now_ms: int) -> FetchSession | None:
        """The session of a request, which it may begin, go on with or end; `None` if it has none.

        Raises:
            Refused: it goes on with a session that is not there, or not at that epoch.
        """
        if message.session_epoch == _NO_SESSION:
            if message.session_id:
                self._sessions.pop(connection, None)
            return None
        by_id = version >= _FIRST_BY_ID
        if message.session_epoch == _FIRST:
            self._sessions.pop(connection, None)
            session = FetchSession(connection.number & _LAST or 1, by_id=by_id, now_ms=now_ms)
            session.update(message)
            if not self._has_room(session.size, now_ms):
                return None
            self._sessions[connection] = session
            return session
        known = self._sessions.get(connection)
        if known is None or known.id != message.session_id:
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        known.advance(message, by_id=by_id)
        known.used_ms = now_ms
        if known.size > _MOST_PARTITIONS or (message.topics and self._partitions() > _MOST_IN_ALL):
            del self._sessions[connection]
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return known

    def _has_room(self, size: int, now_ms: int) -> bool:
        """Whether one more may begin, if need be in the place of one that nobody uses."""
        if not 0 < size <= _MOST_PARTITIONS:
            return False
        if len(self._sessions) >= self._slots:
            oldest = min(self._sessions.items(), key=_used_ms, default=None)
            if oldest is None or now_ms - oldest[1].used_ms < _IDLE_MS:
                return False
            del self._sessions[oldest[0]]
        return self._partitions() + size <= _MOST_IN_ALL

    def _partitions(self) -> int:
        return sum(session.size for session in self._sessions.values())


def _used_ms(entry: tuple[Peer, FetchSession]) -> int:
    return entry[1].used_ms
