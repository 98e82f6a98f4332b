"""Membership updates in the responses to fetches and commits, and the members that take them.

A connection says whose fetches it brings, and what that member knows. From then on the group's coordinator watches the
member for it: what is new is kept here, told with every answer of that member, and ends the wait of its fetch.

Laws: one member of a connection, and one connection of a member, which is the youngest that said so. News are told once
they are durable, and again until a request says what the member knows since. Each has a number that was given when it
was decided; so have the answers to the member's heartbeats.
Source: requirement H10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kohort.broker.connections.memberconnections import TOKEN_PREFIX, MemberConnections, MemberKey
from kohort.broker.connections.request import Peer, Request
from kohort.broker.fetch.fetchsessions import AskedOf
from kohort.broker.groups.coordination import Coordination
from kohort.broker.groups.grants import LOOK_MS, MemberGrants
from kohort.coordinator.commands import ConsumerGroupHeartbeatReply, Partitions, Refusal, WatchMember
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.wire.messages.consumer_group_heartbeat import Assignment, TopicPartitions
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.membership import KnownMembership, MembershipUpdate

#: Errors that are told as news, upon which the member heartbeats; other errors are not told.
_OVER: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)
#: Told once, upon which the member heartbeats as well.
_ASKS: Final = ErrorCode.REBALANCE_IN_PROGRESS


class MemberWatch:
    """One member that one connection serves; the coordinator answers it with news, like a request."""

    __slots__ = (
        "_is_answered",
        "_is_over",
        "_unsynced",
        "_updates",
        "command",
        "connection",
        "counted_ms",
        "due_ms",
        "is_counted",
        "is_told",
        "news",
    )

    def __init__(self, updates: MembershipUpdates, connection: Peer, command: WatchMember) -> None:
        self._updates: Final = updates
        self.connection = connection
        self.command: Final = command
        #: Durable news that the member has not acknowledged; `None` if there are none.
        self.news: MembershipUpdate | None = None
        #: Whether the member's fetches have counted as heartbeats.
        self.is_counted = False
        #: When a fetch was counted last, and when the next one is, time of day, ms.
        self.counted_ms = self.due_ms = 0
        #: Whether an answer has told the news; then no further fetch ends early for them.
        self.is_told = False
        self._unsynced: MembershipUpdate | None = None
        self._is_answered = self._is_over = False

    @property
    def is_open(self) -> bool:
        """Implement `Asker.is_open`."""
        return not self._is_over

    @property
    def key(self) -> MemberKey:
        """The group id and member id."""
        return self.command.group_id, self.command.member_id

    def answer(self, body: Any) -> None:
        """Implement `Asker.answer`."""
        self.answer_unsynced(body)
        self.release()

    def answer_unsynced(self, body: Any) -> None:
        """Implement `Asker.answer_unsynced`."""
        assert isinstance(body, MembershipUpdate), "that is what it is translated to"
        self._is_answered = True
        self._unsynced = body if body.error_code in (ErrorCode.NONE, *_OVER) else None

    def release(self) -> None:
        """Implement `Asker.release`."""
        if not self._is_over and self._unsynced is not None:
            self.news = self._unsynced
            self._updates.on_news(self.key)

    def waits_alike(self, epoch: int, assigned: Partitions) -> bool:
        """Whether the watch waits for updates to a member with this epoch and these partitions."""
        is_alike = (self.command.member_epoch, self.command.assigned) == (epoch, assigned)
        return is_alike and not self._is_answered and not self._is_over

    def ask_for_heartbeat(self, number: int) -> None:
        """Have the next answer ask the member for a heartbeat: its fetches do not count any more."""
        command = self.command
        if self.news is None:
            self.news = MembershipUpdate(
                number=number, error_code=_ASKS, member_id=command.member_id, member_epoch=command.member_epoch
            )

    def end(self) -> None:
        """End the watch; later answers are ignored."""
        self._is_over = True


class UpdateQuery:
    """One question for a member's news, asked for a commit; to the coordinator it is a request."""

    __slots__ = ("connection", "news", "number")

    #: See `Asker.is_open`.
    is_open: Final = True

    def __init__(self, connection: Peer) -> None:
        self.connection = connection
        #: The news, to be told once the present log is durable; `None` if there are none for a commit's answer.
        self.news: MembershipUpdate | None = None
        #: The number of the answer; 0: there is none yet.
        self.number = 0

    def answer(self, body: Any) -> None:
        """Implement `Asker.answer`."""
        self.answer_unsynced(body)

    def answer_unsynced(self, body: Any) -> None:
        """Implement `Asker.answer_unsynced`."""
        assert isinstance(body, MembershipUpdate), "that is what it is translated to"
        self.news = body if body.assignment is not None else None
        # A refusal does not say that older news are known.
        self.number = 0 if body.error_code else body.number

    def release(self) -> None:
        """Implement `Asker.release`."""


class MembershipUpdates:
    """The members that take membership updates, by their connections."""

    def __init__(
        self,
        runtime: Coordination,
        on_news: Callable[[MemberKey], None],
        connections: MemberConnections | None = None,
    ) -> None:
        """Create an empty registry.

        `on_news` is called with a member that has news to be told. `connections`: those of the members, to know a stock
        client's fetches by the token of its login.
        """
        self._runtime: Final = runtime
        self._connections: Final = connections
        #: The grants of members; `None`: none are told here.
        self.grants: MemberGrants | None = None
        self.on_news: Final = on_news
        self._watches: Final[dict[MemberKey, MemberWatch]] = {}
        #: Number of a connection -> the member that listens by it.
        self._keys: Final[dict[int, MemberKey]] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def watch(self, connection: Peer, known: KnownMembership) -> None:
        """Watch the member that a connection's fetches name, from now on."""
        key = (known.group_id, known.member_id)
        former = self._watches.get(key)
        if former is not None and former.connection.number > connection.number:
            # This request comes late, by a connection that the client has given up.
            return
        # An offline member that is back by this is told its news.
        is_counted = self._hear(connection, key, known.member_epoch) is not None
        # The member says it again: the coordinator waits for news as before.
        assigned = partitions_of(known.topic_partitions)
        if former is not None and former.connection is connection and former.waits_alike(known.member_epoch, assigned):
            return
        if former is not None:
            self._end(former)
        self.forget(connection)
        watch = MemberWatch(self, connection, self._command(known, assigned, is_look=False))
        watch.is_counted = is_counted
        self._watches[key] = watch
        self._keys[connection.number] = key
        self._runtime.answer(watch, watch.command, self._translate(watch.command))

    def look(self, connection: Peer, known: KnownMembership) -> UpdateQuery:
        """Ask the coordinator for the present news of a member."""
        look = UpdateQuery(connection)
        command = self._command(known, partitions_of(known.topic_partitions), is_look=True)
        self._runtime.answer(look, command, self._translate(command))
        return look

    def forget(self, connection: Peer) -> None:
        """End the watch of a connection that is closed, or that fetches for no member any more."""
        key = self._keys.get(connection.number) if self._keys else None
        if key is not None:
            self._end(self._watches[key])

    def fetched(
        self,
        request: Request,
        message: FetchRequest,
        asked: Sequence[AskedOf],
        name_of: Callable[[bytes], str],
        now_ms: int,
    ) -> None:
        """Note that a member has begun to read the partitions of a fetch.

        Args:
            request: the request of the fetch.
            message: the fetch, with the partitions that it names.
            asked: all partitions of the fetch, those of its session included.
            name_of: a topic's id -> its name.
            now_ms: time of day, milliseconds.
        """
        reads, connection = self._runtime.reads, request.connection
        key = self._keys.get(connection.number) if self._keys else None
        if key is not None:
            reads.note(key, now_ms)
            self._count(self._watches[key], now_ms)
        elif connection.principal.startswith(TOKEN_PREFIX):
            self._heard_by_token(connection, now_ms)
        if not reads.awaited:
            return
        keys = reads.of_client((request.client_id, request.client_host)) if key is None else (key,)
        # All partitions of a session are noted once; later fetches name those that are new in it.
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

    def fetched_again(self, connection: Peer, now_ms: int) -> bool:
        """Note another fetch of a session; return whether nothing else has to be noted."""
        reads = self._runtime.reads
        key = self._keys.get(connection.number) if self._keys else None
        if reads.awaited or (key is None and connection.principal.startswith(TOKEN_PREFIX)):
            return False
        if key is not None:
            reads.note(key, now_ms)
            self._count(self._watches[key], now_ms)
        return True

    def fetched_until(self, connection: Peer, now_ms: int) -> None:
        """Note the end of a connection with a waiting fetch: its member has read until now."""
        key = self.member_of(connection)
        if key is not None:
            self._runtime.reads.note(key, now_ms)
            self.waited(connection, now_ms)

    def waited(self, connection: Peer, now_ms: int) -> None:
        """Note the end of a waiting fetch, which shows that its member has been there until now."""
        key = self._keys.get(connection.number) if self._keys else None
        watch = None if key is None else self._watches[key]
        if watch is not None and watch.is_counted and not watch.counted_ms <= now_ms < watch.due_ms:
            left_ms = self._runtime.member_fetched(*watch.key, epoch=watch.command.member_epoch, is_over=True)
            watch.counted_ms, watch.due_ms = now_ms, now_ms + left_ms

    def _count(self, watch: MemberWatch, now_ms: int) -> None:
        """Count the fetch of a member as a heartbeat, or have the member heartbeat again, as its group says now."""
        # Most fetches are those of a member that was counted a moment ago. The clock may have been set back.
        if watch.counted_ms <= now_ms < watch.due_ms:
            return
        was_counted, left_ms = watch.is_counted, self._hear(watch.connection, watch.key, watch.command.member_epoch)
        watch.is_counted = left_ms is not None
        watch.counted_ms, watch.due_ms = now_ms, now_ms + (LOOK_MS if left_ms is None else left_ms)
        if was_counted and not watch.is_counted:
            watch.ask_for_heartbeat(self._runtime.next_token())

    def _hear(self, connection: Peer, key: MemberKey, epoch: int = -1) -> int | None:
        """Count a fetch as a heartbeat of its member, where the member's group says so.

        Returns:
            How long later ones need not be counted, milliseconds; `None`: the group does not count fetches.
        """
        if not self._runtime.counts_fetches(key[0]):
            return None
        left_ms = self._runtime.member_fetched(*key, epoch=epoch)
        if self._connections is not None and self._runtime.is_member(*key):
            # The member is connected as long as it fetches by this connection.
            self._connections.fetched(connection, *key)
        return left_ms

    def _heard_by_token(self, connection: Peer, now_ms: int) -> None:
        """Count the fetch of a stock client as a heartbeat of the one member that logs in with its token."""
        key = None if self._connections is None else self._connections.member_of_token(connection)
        if key is not None and self._runtime.counts_fetches(key[0]):
            self._runtime.reads.note(key, now_ms)
            self._hear(connection, key)

    def member_of(self, connection: Peer) -> MemberKey | None:
        """Return the member of a connection's fetches, if any."""
        return self._keys.get(connection.number) if self._keys else None

    def has_news(self, key: MemberKey) -> bool:
        """Whether a member has an update that no response has carried."""
        watch = self._watches.get(key)
        return watch is not None and watch.news is not None and not watch.is_told

    def tell(self, key: MemberKey, now_ms: int, *, known: int = 0) -> MembershipUpdate | None:
        """Return a member's update for a response at `now_ms`, time of day, and note that it was sent.

        `known`: the member has shown that it knows the news up to this number.
        """
        watch = self._watches.get(key)
        if watch is None:
            return None
        news, watch.is_told = watch.news, watch.news is not None
        if news is not None and not news.error_code and news.number < known:
            news = None
        if news is not None and news.error_code == _ASKS:
            watch.news = None
        return self.with_grant(news, watch.connection, key, now_ms)

    def with_grant(
        self, news: MembershipUpdate | None, connection: Peer, key: MemberKey, now_ms: int
    ) -> MembershipUpdate | None:
        """Add the grant that belongs to news, or that is to be renewed, to the news of an answer."""
        grants = self.grants
        if grants is None:
            return news
        if news is None:
            grant = grants.renew(connection, key, now_ms)
            epoch = None if grant is None else grants.epoch_of(key)
            if epoch is None:
                return None
            number = self._runtime.next_token()
            return MembershipUpdate(number=number, member_id=key[1], member_epoch=epoch, grant=grant)
        # The member gets grants once a heartbeat of it has asked for numbers.
        is_known = grants.epoch_of(key) is not None
        if is_known and news.error_code == ErrorCode.NONE and news.assignment is not None:
            news.grant = grants.tell(connection, key, is_new=True)
        return news

    def _end(self, watch: MemberWatch) -> None:
        watch.end()
        del self._watches[watch.key]
        del self._keys[watch.connection.number]
        # The coordinator stops watching the member for this connection.
        self._runtime.abandon(watch.command)

    def _command(self, known: KnownMembership, assigned: Partitions, *, is_look: bool) -> WatchMember:
        token = self._runtime.next_token()
        return WatchMember(
            cause=token,
            request=token,
            group_id=known.group_id,
            member_id=known.member_id,
            member_epoch=known.member_epoch,
            assigned=assigned,
            is_look=is_look,
        )

    def _translate(self, command: WatchMember) -> Callable[[Any, Any], MembershipUpdate]:
        def translate(_: object, body: ConsumerGroupHeartbeatReply | Refusal) -> MembershipUpdate:
            if not isinstance(body, Refusal):
                return build_update(self._runtime, command.group_id, body)
            return MembershipUpdate(
                number=self._runtime.next_token(),
                error_code=body.code,
                member_id=command.member_id,
                member_epoch=command.member_epoch,
            )

        return translate


def build_update(runtime: Coordination, group_id: str, body: ConsumerGroupHeartbeatReply) -> MembershipUpdate:
    """Build the update that a heartbeat of the member would get now."""
    news = MembershipUpdate(number=runtime.next_token(), member_id=body.member_id, member_epoch=body.member_epoch)
    if body.assignment is not None:
        rows = body.assignment.items()
        partitions = [TopicPartitions(topic_id=each, partitions=list(found)) for each, found in rows]
        news.assignment = Assignment(topic_partitions=partitions)
        news.rebalance_reason = runtime.journal.reason(group_id)
    return news


def partitions_of(rows: list[TopicPartitions]) -> Partitions:
    """Return the partitions by topic, without topics that have none."""
    found: dict[TopicId, set[int]] = {}
    for row in rows:
        if row.partitions:
            found.setdefault(TopicId(row.topic_id), set()).update(row.partitions)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in found.items()}
