"""Members that hear by the answers to their fetches and commits, and what there is to tell them.

A connection says whose fetches it brings, and what that member knows. From then on the group's coordinator watches the
member for it: what is new is kept here, told with every answer of that member, and ends the wait of its fetch.

Laws: one member of a connection, and one connection of a member, which is the youngest that said so. News are told once
they are durable, and again until a request says what the member knows since. Each has a number that was given when it
was decided; so have the answers to the member's heartbeats.
Source: requirement H10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kohort.broker.connections.memberconnections import MemberKey
from kohort.coordinator.commands import ConsumerGroupHeartbeatReply, Partitions, Refusal, WatchMember
from kohort.errors import ErrorCode
from kohort.ids import CauseId, TopicId
from kohort.wire.messages.consumer_group_heartbeat import Assignment, TopicPartitions
from kohort.wire.messages.membership import MemberNews, MemberWord

if TYPE_CHECKING:
    from kohort.broker.connections.request import Peer, Request
    from kohort.broker.fetch.fetchplan import AskedOf
    from kohort.broker.groups.coordination import Coordination
    from kohort.wire.messages.fetch import FetchRequest

#: A member that is told so asks by a heartbeat; whatever else is wrong is no news of it.
_OVER: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)


class Listener:
    """One member that hears by one connection; to the coordinator it is a request, which is answered with news."""

    __slots__ = ("_is_over", "_listening", "_unsynced", "command", "connection", "is_told", "news")

    def __init__(self, listening: Listening, connection: Peer, command: WatchMember) -> None:
        self._listening: Final = listening
        self.connection = connection
        self.command: Final = command
        #: What the member was not heard to know, once it is durable; `None`: nothing yet.
        self.news: MemberNews | None = None
        #: Whether an answer has told it: no fetch ends for that again.
        self.is_told = False
        self._unsynced: MemberNews | None = None
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """See `Asker.is_open`."""
        return not self._is_over

    @property
    def key(self) -> MemberKey:
        """Group id and member id."""
        return self.command.group_id, self.command.member_id

    def answer(self, body: Any) -> None:
        """See `Asker.answer`."""
        self.answer_unsynced(body)
        self.release()

    def answer_unsynced(self, body: Any) -> None:
        """See `Asker.answer_unsynced`."""
        assert isinstance(body, MemberNews), "that is what it is translated to"
        self._unsynced = body if body.error_code in (ErrorCode.NONE, *_OVER) else None

    def release(self) -> None:
        """See `Asker.release`."""
        if not self._is_over and self._unsynced is not None:
            self.news = self._unsynced
            self._listening.on_news(self.key)

    def end(self) -> None:
        """Nobody listens any more."""
        self._is_over = True


class Look:
    """One question what is new for a member; to the coordinator it is a request."""

    __slots__ = ("connection", "news")

    #: See `Asker.is_open`.
    is_open: Final = True

    def __init__(self, connection: Peer) -> None:
        self.connection = connection
        #: What is new, to be told behind all that its log has now; `None`: nothing, or nothing that is for a commit.
        self.news: MemberNews | None = None

    def answer(self, body: Any) -> None:
        """See `Asker.answer`."""
        self.answer_unsynced(body)

    def answer_unsynced(self, body: Any) -> None:
        """See `Asker.answer_unsynced`."""
        assert isinstance(body, MemberNews), "that is what it is translated to"
        self.news = body if body.assignment is not None else None

    def release(self) -> None:
        """See `Asker.release`."""


class Listening:
    """Every member that listens."""

    def __init__(self, runtime: Coordination, on_news: Callable[[MemberKey], None]) -> None:
        """`on_news`: called with the member for which there is something to tell."""
        self._runtime: Final = runtime
        self.on_news: Final = on_news
        self._listeners: Final[dict[MemberKey, Listener]] = {}
        #: Number of a connection -> the member that listens by it.
        self._keys: Final[dict[int, MemberKey]] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def hear(self, connection: Peer, word: MemberWord) -> None:
        """The fetches of a connection are that member's, from now on."""
        key = (word.group_id, word.member_id)
        former = self._listeners.get(key)
        if former is not None and former.connection.number > connection.number:
            # Late words of a connection that was given up.
            return
        if former is not None:
            self._end(former)
        self.forget(connection)
        listener = Listener(self, connection, self._command(word, is_look=False))
        self._listeners[key] = listener
        self._keys[connection.number] = key
        self._runtime.answer(listener, listener.command, self._translate(listener.command))

    def look(self, connection: Peer, word: MemberWord) -> Look:
        """What is new for a member, now."""
        look = Look(connection)
        command = self._command(word, is_look=True)
        self._runtime.answer(look, command, self._translate(command))
        return look

    def forget(self, connection: Peer) -> None:
        """The fetches of a connection are nobody's, or it is closed."""
        key = self._keys.get(connection.number) if self._keys else None
        if key is not None:
            self._end(self._listeners[key])

    def fetched(
        self,
        request: Request,
        message: FetchRequest,
        asked: Sequence[AskedOf],
        name_of: Callable[[bytes], str],
        now_ms: int,
    ) -> None:
        """A fetch has come: its member reads what it asks for, if not before.

        Args:
            request: by whose connection it came.
            message: what it names.
            asked: all that it asks for, with what its session remembers.
            name_of: a topic's id -> its name.
            now_ms: time of day, milliseconds.
        """
        reads, connection = self._runtime.reads, request.connection
        key = self._keys.get(connection.number) if self._keys else None
        if key is not None:
            reads.note(key, now_ms)
        if not reads.awaited:
            return
        keys = reads.of_client((request.client_id, request.client_host)) if key is None else (key,)
        # A session that goes on is looked at as a whole once; what is new in it later is named.
        news = [each for each in keys if reads.is_new(each, connection.number)]
        if news:
            rows = [(name, topic_id, number) for (name, topic_id), (numbers, *_) in asked for number in numbers]
        elif keys:
            rows = [
                (topic.topic, topic.topic_id, row.partition) for topic in message.topics for row in topic.partitions
            ]
        else:
            return
        if rows:
            self._runtime.begin_to_read(keys, [(name or name_of(topic_id), number) for name, topic_id, number in rows])

    def fetched_until(self, connection: Peer, now_ms: int) -> None:
        """A connection has ended while a fetch of it waited."""
        key = self.member_of(connection)
        if key is not None:
            self._runtime.reads.note(key, now_ms)

    def member_of(self, connection: Peer) -> MemberKey | None:
        """Whose fetches a connection brings."""
        return self._keys.get(connection.number) if self._keys else None

    def has_news(self, key: MemberKey) -> bool:
        """Whether there is something to tell that no answer has told the member."""
        listener = self._listeners.get(key)
        return listener is not None and listener.news is not None and not listener.is_told

    def tell(self, key: MemberKey) -> MemberNews | None:
        """What a member was not heard to know, for an answer that leaves now."""
        listener = self._listeners.get(key)
        if listener is None:
            return None
        listener.is_told = listener.news is not None
        return listener.news

    def _end(self, listener: Listener) -> None:
        listener.end()
        del self._listeners[listener.key]
        del self._keys[listener.connection.number]
        self._runtime.abandon(listener.command)

    def _command(self, word: MemberWord, *, is_look: bool) -> WatchMember:
        token = self._runtime.next_token()
        return WatchMember(
            cause=CauseId(token),
            request=token,
            group_id=word.group_id,
            member_id=word.member_id,
            member_epoch=word.member_epoch,
            assigned=_partitions(word.topic_partitions),
            is_look=is_look,
        )

    def _translate(self, command: WatchMember) -> Callable[[Any, Any], MemberNews]:
        def translate(_: object, body: ConsumerGroupHeartbeatReply | Refusal) -> MemberNews:
            number = self._runtime.next_token()
            if isinstance(body, Refusal):
                return MemberNews(
                    number=number,
                    error_code=body.code,
                    member_id=command.member_id,
                    member_epoch=command.member_epoch,
                )
            assignment = body.assignment
            if assignment is None:
                return MemberNews(number=number, member_id=body.member_id, member_epoch=body.member_epoch)
            rows = [TopicPartitions(topic_id=each, partitions=list(found)) for each, found in assignment.items()]
            return MemberNews(
                number=number,
                member_id=body.member_id,
                member_epoch=body.member_epoch,
                assignment=Assignment(topic_partitions=rows),
                rebalance_reason=self._runtime.journal.reason(command.group_id),
            )

        return translate


def _partitions(rows: list[TopicPartitions]) -> Partitions:
    """By topic, without those of which there is none."""
    found: dict[TopicId, set[int]] = {}
    for row in rows:
        if row.partitions:
            found.setdefault(TopicId(row.topic_id), set()).update(row.partitions)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in found.items()}
