"""The incremental fetch session with one broker: a fetch names only partitions that have changed.

Laws: a session's epoch grows by one with each successful response. After a failed request or an error the client does
not know the broker's state of the session, so the next fetch is a full one. A broker without sessions gets a full fetch
each time. Partitions that returned data move to the back, since a broker fills its response from the front.
Source: KIP-227 (incremental fetch sessions); KIP-516 (a session goes by topic ids or by names, not by both).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kohort.client.consumer.fetch.partition_state import Reading
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition
from kohort.wire.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic
from kohort.wire.messages.membership import KnownMembership

#: Epochs in a request: the first one of a session; no session, or the end of the named one; the greatest one.
_FIRST: Final = 0
NO_SESSION: Final = -1
_LAST: Final = 2**31 - 1


class Asked(NamedTuple):
    """One partition of a fetch: its reading, its topic id and its row in the request."""

    reading: Reading
    topic_id: TopicId
    entry: FetchPartition


class Contents(NamedTuple):
    """The part of a fetch request that names the session and its partitions."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    #: Whether every topic has an id; otherwise the request goes by topic name.
    has_ids: bool


class FetchSession:
    """The partitions of one broker's long fetch."""

    __slots__ = ("_epoch", "_had_ids", "_id", "_nameless", "asked", "names", "said", "token")

    def __init__(self) -> None:
        #: Partitions of the session as of the last request, named in it or not; unchanged while a fetch is under way.
        self.asked: dict[TopicPartition, Asked] = {}
        #: topic id -> name, of all topics that were asked for.
        self.names: dict[bytes, str] = {}
        #: The state of the member that was sent last in this session; `None` if it has to be sent again.
        self.said: KnownMembership | None = None
        #: The member's token that was sent last in this session; `None` if it has to be sent again.
        self.token: str | None = None
        #: Number of asked partitions whose topic has no id.
        self._nameless = 0
        self._had_ids = True
        self._id = 0
        #: Epoch of the next request.
        self._epoch = _FIRST

    def renew(self, changes: Mapping[TopicPartition, Asked | None]) -> Contents:
        """Apply changes of partitions (`None` removes one), and return the contents of the next request."""
        named: list[tuple[TopicPartition, Asked]] = []
        forgotten: list[tuple[TopicPartition, Asked]] = []
        for partition, new in changes.items():
            old = self.asked.get(partition)
            # Mostly the offset has changed; then the rest need not be compared.
            if (
                old is not None
                and new is not None
                and old.entry.fetch_offset == new.entry.fetch_offset
                and old[1:] == new[1:]
            ):
                self.asked[partition] = new
                continue
            if old is not None:
                # A changed partition is inserted again below, at the end: a broker fills its answer from the front.
                del self.asked[partition]
                self._nameless -= old.topic_id == ZERO_TOPIC_ID
            if new is not None:
                self.asked[partition] = new
                self._nameless += new.topic_id == ZERO_TOPIC_ID
                self.names[bytes(new.topic_id)] = partition.topic
                named.append((partition, new))
            if old is not None and (new is None or new.topic_id != old.topic_id):
                forgotten.append((partition, old))
        has_ids = not self._nameless
        # KIP-516: a session goes by ids or by names, so the other kind needs a new session.
        if has_ids != self._had_ids:
            self._had_ids, self._epoch = has_ids, _FIRST
        if self._epoch == _FIRST:
            self.said = self.token = None
            return Contents(self._id, _FIRST, topics_of(self.asked.items()), [], has_ids)
        return Contents(self._id, self._epoch, topics_of(named), _forgotten_topics(forgotten), has_ids)

    def on_answer(self, response: FetchResponse) -> None:
        """Update the session by the error code or the session id of a response."""
        code = ErrorCode.of(response.error_code)
        if code is not ErrorCode.NONE:
            if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = 0
            self._epoch = _FIRST
        elif self._epoch == _FIRST:
            self._id = response.session_id
            self._epoch = 1 if self._id else _FIRST
        elif response.session_id != self._id:
            # The broker has closed the session for others.
            self._id, self._epoch = 0, _FIRST
        else:
            # 0 and -1 have meanings of their own, so the epoch goes on with 1.
            self._epoch = 1 if self._epoch == _LAST else self._epoch + 1

    def on_failure(self) -> None:
        """Start a new session with the next request: the last one may have arrived or not."""
        self._epoch = _FIRST

    def end(self) -> int:
        """Forget the session; return its id for the request that closes it, 0 without a session."""
        ended, self._id, self._epoch = self._id, 0, _FIRST
        return ended


def topics_of(asked: Iterable[tuple[TopicPartition, Asked]]) -> list[FetchTopic]:
    """Build the rows of a request, in the order in which their topics first come up."""
    topics: dict[tuple[str, TopicId], FetchTopic] = {}
    for (name, _), each in asked:
        topic = topics.get((name, each.topic_id))
        if topic is None:
            topic = topics[name, each.topic_id] = FetchTopic(topic=name, topic_id=each.topic_id)
        topic.partitions.append(each.entry)
    return list(topics.values())


def _forgotten_topics(asked: Iterable[tuple[TopicPartition, Asked]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, TopicId], ForgottenTopic] = {}
    for (name, partition), each in asked:
        topic = topics.get((name, each.topic_id))
        if topic is None:
            topic = topics[name, each.topic_id] = ForgottenTopic(topic=name, topic_id=each.topic_id)
        topic.partitions.append(partition)
    return list(topics.values())
