"""Fetch sessions: the partitions that a client has asked for, so that later fetches name only changes.

Laws: a connection has one session at most, which ends with the connection. Without a free slot a session that was
unused for two minutes is evicted, and if there is none the fetch is served without a session. A response within a
session only has the partitions that changed since the last one: with records, an error, or a log start offset or high
watermark that has moved. Partitions answered with records move to the back of the reading order: each has its turn.
Source: KIP-227 (incremental fetch sessions), its cache and `min.incremental.fetch.session.eviction.ms`; KIP-516 (topic
ids or names, not both).
"""

from __future__ import annotations

import contextlib
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from operator import attrgetter, itemgetter
from struct import Struct
from typing import Final, Protocol

from kohort.broker.access.rights import Rights
from kohort.broker.connections.request import Peer, ReplyQueue, Request
from kohort.broker.fetch.ownership import Claim
from kohort.broker.fetch.purgatory import DelayedFetch
from kohort.broker.topics.metadata import Cluster
from kohort.errors import ErrorCode, Refused
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.topics import Topic
from kohort.wire.codec import encode
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, FetchTopic, PartitionData

#: From this version on topics go by id.
_FIRST_BY_ID: Final = 13
#: Epochs of a request: without a session, and the first one of a session.
_NO_SESSION: Final = -1
_FIRST: Final = 0
_LAST: Final = 2**31 - 1
#: More partitions are fetched without a session.
MOST_PARTITIONS: Final = 20_000
#: Partitions of all sessions together.
MOST_IN_ALL: Final = 1_000_000
#: So many partitions of sessions that are gone leave enough free memory to give it back to the system.
_TRIMMED_AFTER: Final = 200_000
#: A session that was not used for so long makes room for another.
_IDLE_MS: Final = 120_000

#: Log start offset, high watermark and last stable offset of a log as clients are told.
Ends = tuple[int, int, int]
#: In place of a beginning: the client was told an error, or nothing yet.
_UNTOLD: Final = -1
#: A place among the rows below the number of its partition, so that such numbers sort by partition.
_PLACE_BITS: Final = 32
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1


class SessionTopic:
    """The partitions of one topic in a session and their last answers: columns, 40 bytes a partition."""

    __slots__ = ("_columns", "_ends", "_index", "_numbers", "_order", "_stable", "_starts")

    def __init__(self) -> None:
        #: By place, in the order in which partitions were named first: partition, and the numbers of `Asked`.
        self._columns = empty_columns()
        self._numbers = self._columns[0]
        #: By place: beginning and end of its log as they were told last; the first `_UNTOLD` behind an error.
        self._starts, self._ends = array("q"), array("q")
        #: Place -> last stable offset, where that is not the end: few logs have an open transaction.
        self._stable: dict[int, int] = {}
        #: Places in the order in which they are read, the one that has waited longest for records first; `None`: as
        #: they are.
        self._order: array[int] | None = None
        #: Partition and place as one number, ascending; `None` until a place is not where it would be in a row of
        #: partitions without gaps.
        self._index: array[int] | None = None

    def __len__(self) -> int:
        return len(self._numbers)

    def columns(self) -> Columns:
        """Return a copy of the requested partitions' columns, in reading order."""
        order = self._order
        if order is None:
            numbers, offsets, limits, leader_epochs, last_epochs = (column[:] for column in self._columns)
        else:
            pick = itemgetter(*order)
            numbers, offsets, limits, leader_epochs, last_epochs = map(pick, self._columns)
        return numbers, offsets, limits, leader_epochs, last_epochs

    def find(self, partition: int) -> int | None:
        """Return the index of a partition in the columns; `None` if the session does not have the partition."""
        numbers = self._numbers
        if not numbers:
            return None
        place = partition - numbers[0]
        if 0 <= place < len(numbers) and numbers[place] == partition:
            return place
        if self._index is None:
            named = sorted(number << _PLACE_BITS | place for place, number in enumerate(numbers))
            self._index = array("q", named)
        at = bisect_left(self._index, partition << _PLACE_BITS)
        if at == len(self._index) or self._index[at] >> _PLACE_BITS != partition:
            return None
        return self._index[at] & _PLACE_MASK

    def update(self, rows: Mapping[int, Asked]) -> bool:
        """Add these partitions, or replace their offsets and limits; return whether any partition is new."""
        new: dict[int, Asked] = {}
        _, *columns = self._columns
        for partition, asked in rows.items():
            place = self.find(partition)
            if place is None:
                new[partition] = asked
                continue
            for column, value in zip(columns, asked, strict=True):
                column[place] = value
        if new:
            if self._order is not None:
                self._order.extend(range(len(self), len(self) + len(new)))
            for column, values in zip(self._columns, columns_of(new), strict=True):
                column.extend(values)
            self._starts.extend([_UNTOLD] * len(new))
            self._ends.extend([_UNTOLD] * len(new))
            self._index = None
        return bool(new)

    def forget(self, partitions: Sequence[int]) -> None:
        """Remove these partitions."""
        gone = {place for place in map(self.find, partitions) if place is not None}
        if not gone:
            return
        kept = [place for place in self._order or range(len(self)) if place not in gone]
        self._columns = [array(column.typecode, map(column.__getitem__, kept)) for column in self._columns]
        self._numbers = self._columns[0]
        self._starts = array("q", map(self._starts.__getitem__, kept))
        self._ends = array("q", map(self._ends.__getitem__, kept))
        self._stable = {at: self._stable[place] for at, place in enumerate(kept) if place in self._stable}
        self._order = self._index = None

    def is_told(self, partition: int, ends: Ends) -> bool:
        """Return whether the client was sent these offsets of a partition last."""
        place = self.find(partition)
        if place is None:
            return False
        end = self._ends[place]
        return (self._starts[place], end, self._stable.get(place, end)) == ends

    def tell(self, place: int, ends: Ends) -> None:
        """Record the offsets that the client is sent for the row at `place`."""
        self._starts[place], self._ends[place], stable = ends
        if stable != ends[1]:
            self._stable[place] = stable
        elif self._stable:
            self._stable.pop(place, None)

    def to_back(self, places: Sequence[int]) -> None:
        """Move the rows with these indexes to the back of the reading order."""
        if len(self) == 1:
            return
        moved = dict.fromkeys(places)
        order = [place for place in self._order or range(len(self)) if place not in moved]
        self._order = array("i", (*order, *moved))


class FetchSession:
    """The fetch session of one connection."""

    __slots__ = (
        "_by_id",
        "_nothing_new",
        "_topics",
        "allowed_by",
        "changes",
        "epoch",
        "id",
        "is_over",
        "is_overtaken",
        "served_to",
        "size",
        "used_ms",
        "waiting",
    )

    def __init__(self, session_id: int, *, by_id: bool, now_ms: int) -> None:
        self.id: Final = session_id
        #: The epoch of the next request.
        self.epoch = 1
        self._by_id: Final = by_id
        #: The requested topics, the one that has waited longest for records first.
        self._topics: Final[dict[TopicKey, SessionTopic]] = {}
        #: Number of partitions.
        self.size = 0
        #: When it was used last.
        self.used_ms = now_ms
        #: The rights, and their edition, by which every topic may be read; `None`: they have to be asked.
        self.allowed_by: tuple[Rights, int] | None = None
        #: Rises when it gets or loses partitions.
        self.changes = 0
        #: The claim, the edition of the fences and `changes` by which all is served; `None`: the fences are asked.
        self.served_to: tuple[Claim, int, int] | None = None
        #: Whether it has made room for another one, or was ended.
        self.is_over = False
        #: Its latest fetch, if that was parked; and whether one that does not wait has come behind it.
        self.waiting: DelayedFetch | None = None
        self.is_overtaken = False
        #: Version and body of the latest answer without news.
        self._nothing_new = (-1, b"")

    @property
    def is_by_id(self) -> bool:
        """Whether the session names its topics by id."""
        return self._by_id

    @property
    def is_new(self) -> bool:
        """Whether the session has had only its first request."""
        return self.epoch == 1

    def asked(self) -> list[AskedOf]:
        """Return all requested partitions."""
        return [(key, topic.columns()) for key, topic in self._topics.items()]

    def update(self, message: FetchRequest) -> None:
        """Add or change the partitions that a request names, and remove its forgotten partitions."""
        for topic in message.topics:
            key = (topic.topic, topic.topic_id)
            if key not in self._topics:
                self._topics[key] = SessionTopic()
                self.allowed_by = None
            if self._topics[key].update(asked_of(topic)):
                self.changes += 1
        for gone in message.forgotten_topics_data:
            key = (gone.topic, gone.topic_id)
            known = self._topics.get(key)
            if known is not None:
                known.forget(gone.partitions)
                self.changes += 1
                if not len(known):
                    del self._topics[key]
        if message.topics or message.forgotten_topics_data:
            self.size = sum(map(len, self._topics.values()))

    def advance(self, message: FetchRequest, *, by_id: bool) -> None:
        """Apply the session's next request; raise `Refused` if its epoch or its use of ids does not match."""
        if message.session_epoch != self.epoch:
            raise Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if by_id != self._by_id:
            # KIP-516: a session names its topics either by name or by id.
            raise Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        self.step()
        self.update(message)

    def step(self) -> None:
        """Advance the session's epoch for the next request."""
        self.is_overtaken = False
        # KIP-227: epochs wrap around to 1, since 0 begins a session.
        self.epoch = 1 if self.epoch == _LAST else self.epoch + 1

    def overtake(self) -> None:
        """Answer the session's parked fetch at once, since a later fetch of the session does not wait."""
        self.is_overtaken = True
        if self.waiting is not None and self.waiting.is_parked:
            self.waiting.expire()

    def nothing_new(self, version: int) -> bytes:
        """Return the encoded body of a response without changed partitions."""
        if self._nothing_new[0] != version:
            self._nothing_new = version, bytes(encode(FetchResponse(session_id=self.id), version))
        return self._nothing_new[1]

    def knows(self, key: TopicKey, partition: int, ends: Ends) -> bool:
        """Return whether a partition without records has not changed: the client was sent these offsets."""
        topic = self._topics.get(key)
        return topic is not None and topic.is_told(partition, ends)

    def reduce(self, response: FetchResponse) -> FetchResponse:
        """Reduce a full response to the rows that have changed since the client's last response."""
        topics = []
        for topic in response.responses:
            key = (topic.topic, topic.topic_id)
            # The topic may have been forgotten since this answer was begun.
            known = self._topics.get(key)
            rows = topic.partitions if known is None else self._take_news(key, known, topic.partitions)
            if rows:
                topics.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
        return FetchResponse(session_id=self.id, responses=topics)

    def _take_news(self, key: TopicKey, topic: SessionTopic, rows: Sequence[PartitionData]) -> list[PartitionData]:
        """Return the changed rows, record them as sent, and move rows with records to the back."""
        news: list[PartitionData] = []
        read: list[int] = []
        for row in rows:
            place = topic.find(row.partition_index)
            ends = row.log_start_offset, row.high_watermark, row.last_stable_offset
            if place is not None:
                if row.error_code or row.diverging_epoch.end_offset >= 0:
                    ends = _UNTOLD, _UNTOLD, _UNTOLD
                elif row.records:
                    read.append(place)
                elif topic.is_told(row.partition_index, ends):
                    continue
                topic.tell(place, ends)
            news.append(row)
        if read:
            topic.to_back(read)
            # Topics and partitions with records move to the back, so that each has its turn.
            self._topics[key] = self._topics.pop(key)
        return news


class FetchSessions:
    """The sessions of all connections."""

    def __init__(self, slots: int) -> None:
        """Create the sessions; at most `slots` exist at a time."""
        self._slots: Final = slots
        #: Partitions of sessions that have gone since free memory was given back.
        self._gone = 0
        self._sessions: Final[dict[Peer, FetchSession]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, connection: Peer) -> FetchSession | None:
        """Return the session of a connection."""
        return self._sessions.get(connection)

    def forget(self, connection: Peer) -> bool:
        """Drop the session of a closed connection; return whether to call `trim_heap` now."""
        self._drop(connection)
        is_worth = self._gone >= _TRIMMED_AFTER
        if is_worth:
            self._gone = 0
        return is_worth

    def find(self, connection: Peer, message: FetchRequest, version: int, *, now_ms: int) -> FetchSession | None:
        """Start, continue or end the session of a request and return it; `None`: served without a session.

        Raises:
            Refused: the session does not exist, is at another epoch, or has too many partitions.
        """
        if message.session_epoch == _NO_SESSION:
            if message.session_id:
                self._drop(connection)
            return None
        by_id = version >= _FIRST_BY_ID
        if message.session_epoch == _FIRST:
            self._drop(connection)
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
        if known.size > MOST_PARTITIONS or (message.topics and self._partitions() > MOST_IN_ALL):
            self._drop(connection)
            raise Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        return known

    def _has_room(self, size: int, now_ms: int) -> bool:
        """Return whether one more session may start; evict the longest idle one if there is no free slot."""
        if not 0 < size <= MOST_PARTITIONS:
            return False
        if len(self._sessions) >= self._slots:
            oldest = min(self._sessions.items(), key=_used_ms, default=None)
            # Without a free or idle slot the client fetches without a session.
            if oldest is None or now_ms - oldest[1].used_ms < _IDLE_MS:
                return False
            self._drop(oldest[0])
        return self._partitions() + size <= MOST_IN_ALL

    def _drop(self, connection: Peer) -> None:
        dropped = self._sessions.pop(connection, None)
        if dropped is not None:
            dropped.is_over = True
            self._gone += dropped.size

    def _partitions(self) -> int:
        return sum(session.size for session in self._sessions.values())


# The latest fetch of a session that had nothing new in its time, which its client sends again with the next epoch.
#
# An idle consumer sends nothing else. What it asks for, and where its rows are, was found before: it waits once more,
# without being read. Laws: it is carried out exactly as if it were read anew, or not at all, and then it is read anew.
# One is kept of a connection, of `MOST_REPEATED` partitions at most.

#: Partitions of a fetch that is kept, at most.
MOST_REPEATED: Final = 200
#: Where things stand in a request with its length in front: correlation id, length of the client id; and, behind an
#: empty section of tags, the epoch of the session.
_ID_AT: Final = 8
_NAME_SIZE_AT: Final = 12
_NAME_AT: Final = 14
_EPOCH_BEHIND: Final = 17
_ID: Final = Struct(">i")
_NAME_SIZE: Final = Struct(">h")


class RepeatableFetch(Protocol):
    """A fetch that its client may send again with the next epoch."""

    def wait_again(self, request: Request, epoch: int) -> bool:
        """Park the fetch again for a request with that epoch; `False`: nothing was done, decode the request."""


class CachedFetch:
    """The bytes of one fetch request, which match the same request with a new correlation id and epoch."""

    __slots__ = ("_client_id", "_epoch_at", "_fetch", "_head", "_middle", "_route", "_tail", "size")

    @classmethod
    def of(cls, frame: memoryview, request: Request, fetch: RepeatableFetch) -> CachedFetch | None:
        """Cache `frame`, a request with topic ids without its length prefix; `None` if its header has tags."""
        whole = len(frame).to_bytes(4) + frame
        (name_size,) = _NAME_SIZE.unpack_from(whole, _NAME_SIZE_AT)
        tags_at = _NAME_AT + max(name_size, 0)
        return None if whole[tags_at] else cls(whole, tags_at + 1, request, fetch)

    def __init__(self, whole: bytes, body_at: int, request: Request, fetch: RepeatableFetch) -> None:
        self.size: Final = len(whole)
        # KIP-903: from version 15 on no replica id stands in front.
        self._epoch_at: Final = body_at + _EPOCH_BEHIND + (4 if request.version < 15 else 0)
        self._head: Final = whole[:_ID_AT]
        self._middle: Final = whole[_ID_AT + _ID.size : self._epoch_at]
        self._tail: Final = whole[self._epoch_at + _ID.size :]
        self._route: Final = request.route
        self._client_id: Final = request.client_id
        self._fetch: Final = fetch

    def carry_out(self, connection: Peer, received: memoryview, open_before: ReplyQueue) -> Request | None:
        """See `CachedRequest.carry_out`."""
        epoch_at = self._epoch_at
        if (
            received[epoch_at + _ID.size : self.size] != self._tail
            or received[_ID_AT + _ID.size : epoch_at] != self._middle
            or received[:_ID_AT] != self._head
            or open_before.is_full
        ):
            return None
        correlation_id, epoch = _ID.unpack_from(received, _ID_AT)[0], _ID.unpack_from(received, epoch_at)[0]
        request = Request(connection, self._route, correlation_id, self._client_id)
        return request if self._fetch.wait_again(request, epoch) else None


def trim_heap() -> None:
    """Return free heap memory to the operating system, where the allocator can (`malloc_trim`)."""
    import ctypes

    # Callers use a thread: this takes milliseconds.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def _used_ms(entry: tuple[Peer, FetchSession]) -> int:
    return entry[1].used_ms


# The rows of a fetch, in compact arrays instead of its message while the fetch waits.
#
# Laws: a partition that is named twice counts once, as it was named last. Topics are looked up again before each
# reading: one that was deleted meanwhile is answered as one that there is not, and one that may not be read any more as
# one that never could. A denied topic is not looked for: nothing is told of whether there is one.
# Source: Apache Kafka's fetch purgatory, which keeps offsets and sizes.

#: A topic by name and id, one of which is empty.
TopicKey = tuple[str, bytes]

_BY_FIRST: Final = attrgetter("first")
#: So many rows of one topic are kept as they come, which is faster than compacting them.
_FEW: Final = 16


#: A requested partition: fetch offset, most bytes, the client's leader epoch and that of its last record.
#: -1 stands for an epoch that the client did not send. The garbage collector soon stops tracking plain tuples.
Asked = tuple[int, int, int, int]
#: By row, in the order in which they are read: partition, and the numbers of `Asked`.
Columns = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], Sequence[int]]
#: A topic and its requested partitions.
AskedOf = tuple[TopicKey, Columns]
#: The columns of a topic that was named without partitions.
_NO_ROWS: Final[Columns] = ((), (), (), (), ())


def asked_of(topic: FetchTopic) -> dict[int, Asked]:
    """Return the requested partitions of a topic as partition -> `Asked`."""
    return {
        row.partition: (row.fetch_offset, row.partition_max_bytes, row.current_leader_epoch, row.last_fetched_epoch)
        for row in topic.partitions
    }


def columns_of(rows: Mapping[int, Asked]) -> Columns:
    """Convert requested partitions to columns."""
    return ((*rows,), *zip(*rows.values(), strict=True)) if rows else _NO_ROWS  # type: ignore[return-value]


def empty_columns() -> list[array[int]]:
    """Return empty growable columns; each has the smallest integer type that fits its values."""
    return [array("i"), array("q"), array("i"), array("i"), array("i")]


def all_asked(message: FetchRequest) -> list[AskedOf]:
    """Return the rows of a fetch without a session, by topic."""
    found: dict[TopicKey, dict[int, Asked]] = {}
    for topic in message.topics:
        found.setdefault((topic.topic, topic.topic_id), {}).update(asked_of(topic))
    return [(key, columns_of(rows)) for key, rows in found.items()]


class TopicRows:
    """The rows of one topic in a fetch: from `first` up to, without, `stop`."""

    __slots__ = ("first", "key", "missing", "stop", "topic")

    def __init__(self, key: TopicKey, first: int, stop: int) -> None:
        self.key = key
        self.first = first
        self.stop = stop
        #: The topic as it was looked up last, and the error if there was none.
        self.topic: Topic | None = None
        self.missing = ErrorCode.NONE


#: Each fetch asks for these: an enumeration's member costs more to find than a name of the module.
_READ: Final = AclOperation.READ
_TOPIC: Final = ResourceType.TOPIC
_NO_TOPICS: Final[frozenset[TopicKey]] = frozenset()


class FetchPlan:
    """The requested partitions of one fetch: a row for each, with its log and the numbers of `Asked`."""

    __slots__ = (
        "_allowed_by",
        "_cluster",
        "_connection",
        "_edition",
        "_is_replica",
        "_latest",
        "_session",
        "denied",
        "last_epochs",
        "leader_epochs",
        "limits",
        "logs",
        "numbers",
        "offsets",
        "topics",
    )

    def __init__(
        self,
        cluster: Cluster,
        asked: Sequence[AskedOf],
        connection: Peer,
        session: FetchSession | None = None,
        *,
        is_replica: bool = False,
    ) -> None:
        """Look up the topics and logs of `asked` for `connection`; `session`: the one that `asked` comes from."""
        self._cluster = cluster
        self._connection = connection
        self._session = session
        #: Whether the client calls itself a replica, which needs another right than a consumer (CVE-2018-1288).
        self._is_replica = is_replica
        #: The rights, and their edition, by which `denied` was found.
        self._allowed_by: Rights | None = None
        self._edition = 0
        #: The topics that may not be read.
        self.denied = _NO_TOPICS
        #: The topic that was looked for last.
        self._latest: TopicRows | None = None
        self.topics: list[TopicRows] = []
        #: By row: partition, and the numbers of `Asked`.
        self.numbers: Sequence[int]
        self.offsets: Sequence[int]
        self.limits: Sequence[int]
        self.leader_epochs: Sequence[int]
        self.last_epochs: Sequence[int]
        key, columns = asked[0] if len(asked) == 1 else (None, _NO_ROWS)
        if key is not None and 0 < len(columns[0]) <= _FEW:
            self.numbers, self.offsets, self.limits, self.leader_epochs, self.last_epochs = columns
            self.topics.append(TopicRows(key, 0, len(columns[0])))
        else:
            self._take_many(asked)
        #: By row: its log, `None` if there is no such partition.
        self.logs: list[PartitionLog | None] = [None] * len(self.numbers)
        self.resolve()

    def __len__(self) -> int:
        return len(self.numbers)

    def _take_many(self, asked: Sequence[AskedOf]) -> None:
        """Copy the rows of several topics, or many rows of one topic, into compact columns."""
        kept = numbers, offsets, limits, leader_epochs, last_epochs = empty_columns()
        # Topics that were named without partitions are answered so, before the rows of the other topics.
        self.topics += [TopicRows(key, 0, 0) for key, columns in asked if not columns[0]]
        for key, columns in asked:
            if not columns[0]:
                continue
            first = len(numbers)
            for column, values in zip(kept, columns, strict=True):
                column.extend(values)
            self.topics.append(TopicRows(key, first, len(numbers)))
        self.numbers, self.offsets, self.limits = numbers, offsets, limits
        self.leader_epochs, self.last_epochs = leader_epochs, last_epochs

    def found_topics(self) -> list[Topic]:
        """Return the topics that were found."""
        return [rows.topic for rows in self.topics if rows.topic is not None]

    def resolve(self) -> bool:
        """Look the topics up again; return whether they are the same as before."""
        is_same = True
        if self._connection.rights.is_restricted:
            self._ask_rights(self._connection.rights)
        find = self._find_allowed if self.denied else self._cluster.find
        for rows in self.topics:
            topic, missing = find(*rows.key)
            if topic is rows.topic and topic is not None:
                continue
            is_same = is_same and rows.topic is None and rows.missing is missing
            rows.topic, rows.missing = topic, missing
            partitions = topic.partitions if topic is not None else []
            for at in range(rows.first, rows.stop):
                number = self.numbers[at]
                self.logs[at] = partitions[number] if 0 <= number < len(partitions) else None
            if topic is not None and self._connection.rights.is_partial:
                self._leave_out(rows, topic)
        return is_same

    def _ask_rights(self, rights: Rights) -> None:
        """Find the topics that the client may not read, unless its rights are unchanged since the last check."""
        edition = rights.edition
        if self._allowed_by is rights and self._edition == edition:
            return
        self._allowed_by, self._edition = rights, edition
        session = None if self._is_replica else self._session
        # A session of thousands of topics is decided once, not with each of its fetches.
        if session is not None and session.allowed_by == (rights, edition):
            self.denied = _NO_TOPICS
            return
        if self._is_replica:
            is_allowed = rights.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
            self.denied = _NO_TOPICS if is_allowed else frozenset(rows.key for rows in self.topics)
            return
        allows = rights.allows
        denied = [
            rows.key
            for rows in self.topics
            if (name := rows.key[0] or self._name_of(rows.key)) and not allows(_READ, _TOPIC, name)
        ]
        self.denied = frozenset(denied) if denied else _NO_TOPICS
        if session is not None and not denied:
            session.allowed_by = rights, edition

    def _leave_out(self, rows: TopicRows, topic: Topic) -> None:
        """Remove the logs of partitions of a topic that the client may not read."""
        allows = self._connection.rights.allows_partition
        for at in range(rows.first, rows.stop):
            if not allows(topic.name, topic.topic_id, self.numbers[at]):
                self.logs[at] = None

    def _name_of(self, key: TopicKey) -> str:
        name, topic_id = key
        topic = None if name else self._cluster.topic_by_id(topic_id)
        return name if topic is None else topic.name

    def _find_allowed(self, name: str, topic_id: bytes) -> tuple[Topic | None, ErrorCode]:
        if (name, topic_id) in self.denied:
            return None, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self._cluster.find(name, topic_id)

    def topic_of(self, at: int) -> TopicRows:
        """Return the topic of a row."""
        latest = self._latest
        if latest is None or not latest.first <= at < latest.stop:
            # Rows are read one after the other.
            latest = self._latest = self.topics[bisect_right(self.topics, at, key=_BY_FIRST) - 1]
        return latest

    def missing_code(self, at: int) -> ErrorCode:
        """Return the error code for a row without a log."""
        rows = self.topic_of(at)
        topic, rights = rows.topic, self._connection.rights
        if (
            topic is not None
            and rights.is_partial
            and not rights.allows_partition(topic.name, topic.topic_id, self.numbers[at])
        ):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if rows.topic is not None else rows.missing
