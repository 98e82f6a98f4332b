"""Members that hear by their fetches and commits, as connections see them (H10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from kohort.broker.apis import offset_commit
from kohort.errors import ErrorCode
from kohort.wire.codec import decode, encode
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.membership import KnownMembership
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.registry import ApiKey, response_class
from kohort.wire.schema import Message
from support.dialogues.broker_wire import encode_request
from support.dialogues.wired_connection import WiredConnection, wired_broker

BEAT, FETCH, COMMIT = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.FETCH, ApiKey.OFFSET_COMMIT
FETCH_VERSION = 17
FOREVER_MS = 60_000


class Members:
    """Members of the group "g", each with connections for its heartbeats and for its fetches."""

    def __init__(self, context: Any, topic_id: bytes, other_id: bytes) -> None:
        self.context = context
        self.topic_id = topic_id
        #: Of a topic that the group does not read: nothing of it is ever refused to a member.
        self.other_id = other_id

    @property
    def parked(self) -> int:
        """Fetches that wait."""
        return len(self.context.purgatory)

    @property
    def watched(self) -> int:
        """Members whose news somebody waits for."""
        return sum(
            len(each) for home in self.context.runtime._shard_logs for each in home.shard.groups.watches.values()
        )

    async def connect(self) -> WiredConnection:
        connection = WiredConnection(self.context)
        await connection.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="kohort"))
        return connection

    async def beat(
        self, by: WiredConnection, member_id: str, epoch: int, owned: list[int] | None = None, **fields: Any
    ) -> Any:
        if epoch == 0:
            fields |= {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"]}
            owned = []
        rows = None if owned is None else [TopicPartitions(topic_id=self.topic_id, partitions=owned)] if owned else []
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, topic_partitions=rows, **fields
        )
        return await by.ask(BEAT, 1, request)

    def word(self, member_id: str, epoch: int, *known: int) -> KnownMembership:
        rows = [TopicPartitions(topic_id=self.topic_id, partitions=list(known))] if known else []
        return KnownMembership(group_id="g", member_id=member_id, member_epoch=epoch, topic_partitions=rows)

    async def commit(
        self,
        by: WiredConnection,
        member_id: str,
        epoch: int,
        *partitions: int,
        released: list[int] | None = None,
        knows: list[int] | None = None,
    ) -> Any:
        """A commit, with partitions that the member gives up by it, and with what the member knows."""
        rows = [OffsetCommitRequestPartition(partition_index=number, committed_offset=1) for number in partitions]
        given_up = None if released is None else [TopicPartitions(topic_id=self.topic_id, partitions=released)]
        request = OffsetCommitRequest(
            group_id="g",
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            topics=[OffsetCommitRequestTopic(name="t", partitions=rows)],
            member=None if knows is None else self.word(member_id, epoch, *knows),
            released=given_up,
        )
        return await by.ask(COMMIT, 9, request)

    def fetch(self, by: WiredConnection, word: KnownMembership | None, **fields: Any) -> None:
        """A fetch that waits for a minute, of a topic without records."""
        rows = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)]
        values = {"session_epoch": -1, "max_wait_ms": FOREVER_MS, "min_bytes": 1, **fields}
        request = FetchRequest(topics=[FetchTopic(topic_id=self.other_id, partitions=rows)], member=word, **values)
        by.feed(encode_request(FETCH, FETCH_VERSION, request))


def partitions_in(told: Any) -> list[int]:
    return [] if told.assignment is None else [n for row in told.assignment.topic_partitions for n in row.partitions]


async def news(by: WiredConnection) -> Any:
    """What the next answer to a fetch tells the member."""
    ((_, answer),) = await by.receive(FETCH, FETCH_VERSION)
    return answer.membership_update


def wired(dialogue: Callable[[Members], Awaitable[None]]) -> None:
    async def main() -> None:
        # Nothing but fetches tells anybody of a change before its next heartbeat.
        with wired_broker({"group.push.enable": False, "group.consumer.assignment.window.ms": 0}) as context:
            rows = [CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in ("t", "u")]
            created = await WiredConnection(context).ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=rows))
            await dialogue(Members(context, *(topic.topic_id for topic in created.topics)))

    asyncio.run(main())


def test_parked_fetch_of_a_member_with_news_ends_at_once() -> None:
    async def dialogue(members: Members) -> None:
        beats, fetches = await members.connect(), await members.connect()
        await members.beat(beats, "a", 0)
        await members.beat(beats, "a", 1, [0, 1, 2, 3])
        members.fetch(fetches, members.word("a", 1, 0, 1, 2, 3))
        assert (members.parked, members.watched, fetches.has_written) == (1, 1, False)

        await members.beat(await members.connect(), "b", 0)

        told = await news(fetches)
        assert (told.member_epoch, partitions_in(told), told.error_code) == (1, [0, 1], ErrorCode.NONE)
        assert told.rebalance_reason
        assert (members.parked, members.watched) == (0, 0)

    wired(dialogue)


def test_news_come_again_until_a_request_shows_that_they_arrived() -> None:
    async def dialogue(members: Members) -> None:
        beats, fetches = await members.connect(), await members.connect()
        await members.beat(beats, "a", 0)
        await members.beat(beats, "a", 1, [0, 1, 2, 3])
        await members.beat(await members.connect(), "b", 0)
        members.fetch(fetches, members.word("a", 1, 0, 1, 2, 3))
        first = await news(fetches)
        # By another connection, since that one was lost.
        younger = await members.connect()
        members.fetch(younger, members.word("a", 1, 0, 1, 2, 3))
        again = await news(younger)
        assert partitions_in(first) == partitions_in(again) == [0, 1]
        assert again.number > first.number
        members.fetch(younger, members.word("a", 1, 0, 1))
        assert (members.parked, members.watched) == (1, 1)

    wired(dialogue)


def test_fetch_that_says_nothing_is_nobodys_unless_its_session_goes_on() -> None:
    async def dialogue(members: Members) -> None:
        beats, fetches = await members.connect(), await members.connect()
        await members.beat(beats, "a", 0)
        members.fetch(fetches, members.word("a", 1, 0, 1, 2, 3), session_epoch=0, max_wait_ms=0)
        ((_, answer),) = await fetches.receive(FETCH, FETCH_VERSION)
        assert members.watched == 1
        members.fetch(fetches, None, session_id=answer.session_id, session_epoch=1, max_wait_ms=0)
        await fetches.receive(FETCH, FETCH_VERSION)
        assert members.watched == 1
        members.fetch(fetches, None, max_wait_ms=0)
        await fetches.receive(FETCH, FETCH_VERSION)
        assert members.watched == 1, "beside a session it is of the same member"
        members.fetch(fetches, None, session_id=answer.session_id, session_epoch=-1, max_wait_ms=0)
        await fetches.receive(FETCH, FETCH_VERSION)
        assert (members.watched, len(members.context.membership_updates)) == (0, 0)

    wired(dialogue)


def test_what_was_told_ends_no_fetch_again() -> None:
    """A member that cannot act on it yet fetches on, and is not answered as fast as it asks."""

    async def dialogue(members: Members) -> None:
        beats, fetches = await members.connect(), await members.connect()
        await members.beat(beats, "a", 0)
        members.fetch(fetches, members.word("a", 1, 0, 1, 2, 3), session_epoch=0, max_wait_ms=0)
        ((_, answer),) = await fetches.receive(FETCH, FETCH_VERSION)
        await members.beat(await members.connect(), "b", 0)
        members.fetch(fetches, None, session_id=answer.session_id, session_epoch=1)
        assert partitions_in(await news(fetches)) == [0, 1]
        members.fetch(fetches, None, session_id=answer.session_id, session_epoch=2)
        assert members.parked == 1
        members.context.purgatory.release_all()
        assert partitions_in(await news(fetches)) == [0, 1]

    wired(dialogue)


def test_late_word_of_a_connection_that_was_given_up_is_no_word() -> None:
    async def dialogue(members: Members) -> None:
        beats, older, younger = [await members.connect() for _ in range(3)]
        await members.beat(beats, "a", 0)
        members.fetch(younger, members.word("a", 1, 0, 1, 2, 3))
        members.fetch(older, members.word("a", 1))
        assert members.context.membership_updates.member_of(younger.connection) == ("g", "a")
        assert members.context.membership_updates.member_of(older.connection) is None
        assert (members.parked, members.watched) == (2, 1)

    wired(dialogue)


def test_closed_connection_listens_no_more() -> None:
    async def dialogue(members: Members) -> None:
        beats, fetches = await members.connect(), await members.connect()
        await members.beat(beats, "a", 0)
        members.fetch(fetches, members.word("a", 1, 0, 1, 2, 3))
        fetches.connection.connection_lost(None)
        assert (members.parked, members.watched, len(members.context.membership_updates)) == (0, 0, 0)
        assert not members.context.runtime._waiting

    wired(dialogue)


def test_commit_is_answered_with_news() -> None:
    async def dialogue(members: Members) -> None:
        beats = await members.connect()
        await members.beat(beats, "a", 0)
        await members.beat(beats, "a", 1, [0, 1, 2, 3])

        async def commit() -> Any:
            rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
            request = OffsetCommitRequest(
                group_id="g",
                member_id="a",
                generation_id_or_member_epoch=1,
                topics=[OffsetCommitRequestTopic(name="t", partitions=rows)],
                member=members.word("a", 1, 0, 1, 2, 3),
            )
            answer = await beats.ask(COMMIT, 9, request)
            assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
            return answer.membership_update

        assert await commit() is None
        await members.beat(await members.connect(), "b", 0)
        assert partitions_in(await commit()) == [0, 1]
        assert members.watched == 0

    wired(dialogue)


def test_commit_is_not_told_what_it_shows_to_be_known() -> None:
    """News that wait for the member's next fetch were told by a heartbeat meanwhile."""

    async def dialogue(members: Members) -> None:
        beats, fetches = await members.connect(), await members.connect()
        await members.beat(beats, "a", 0)
        await members.beat(beats, "a", 1, [0, 1, 2, 3])
        members.fetch(fetches, members.word("a", 1, 0, 1, 2, 3))
        await members.beat(await members.connect(), "b", 0)
        assert partitions_in(await news(fetches)) == [0, 1]
        await members.beat(beats, "a", 1, [0, 1])
        answer = await members.commit(beats, "a", 2, 0, knows=[0, 1])
        assert answer.membership_update is None

    wired(dialogue)


def test_commit_releases_partitions_and_the_gainers_fetch_is_answered_at_once() -> None:
    """T14, steps 8 and 9, on the wire."""

    async def dialogue(members: Members) -> None:
        beats, others, fetches = [await members.connect() for _ in range(3)]
        await members.beat(beats, "a", 0)
        await members.beat(beats, "a", 1, [0, 1, 2, 3])
        await members.beat(others, "b", 0)
        assert partitions_in(await members.beat(beats, "a", 1)) == [0, 1]
        members.fetch(fetches, members.word("b", 2))
        assert members.parked == 1
        answer = await members.commit(beats, "a", 1, 2, 3, released=[2, 3], knows=[0, 1])
        assert [row.error_code for row in answer.topics[0].partitions] == [ErrorCode.NONE] * 2
        assert (answer.membership_update.member_epoch, partitions_in(answer.membership_update)) == (2, [0, 1])
        told = await news(fetches)
        assert (told.member_epoch, partitions_in(told)) == (2, [2, 3])
        assert (await members.beat(beats, "a", 2, [0, 1])).error_code == ErrorCode.NONE

    wired(dialogue)


def test_refused_commit_releases_nothing_on_the_wire() -> None:
    async def dialogue(members: Members) -> None:
        beats, others, fetches = [await members.connect() for _ in range(3)]
        await members.beat(beats, "a", 0)
        await members.beat(beats, "a", 1, [0, 1, 2, 3])
        await members.beat(others, "b", 0)
        await members.beat(beats, "a", 1)
        members.fetch(fetches, members.word("b", 2))
        answer = await members.commit(beats, "a", 7, 2, 3, released=[2, 3])
        assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.STALE_MEMBER_EPOCH}
        await asyncio.sleep(0)
        assert members.parked == 1
        answer = await members.commit(beats, "a", 1, 2, released=[2, 3])
        assert partitions_in(await news(fetches)) == [2, 3]
        assert answer.membership_update is None

    wired(dialogue)


def test_topic_whose_commit_is_refused_before_the_coordinator_is_asked_is_not_released() -> None:
    async def dialogue(members: Members) -> None:
        topics = [OffsetCommitRequestTopic(name="t"), OffsetCommitRequestTopic(name="u")]
        rows = [TopicPartitions(topic_id=members.topic_id, partitions=[1, 1, 0])]
        request = OffsetCommitRequest(topics=topics, released=rows)
        released, denied = offset_commit._released, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert released(members.context, request, ["t", denied]) == {members.topic_id: (0, 1)}
        assert released(members.context, request, [denied, "u"]) == {}
        assert released(members.context, OffsetCommitRequest(topics=topics), ["t", "u"]) is None

    wired(dialogue)


def test_answers_to_who_says_no_word_are_byte_for_byte_what_they_were() -> None:
    """A stock client's fetches, commits and heartbeats while its group moves, and there is news for it."""

    async def dialogue(members: Members) -> None:
        stock = await members.connect()

        async def ask(key: ApiKey, version: int, request: Message) -> Any:
            stock.feed(encode_request(key, version, request))
            for _ in range(20):
                await asyncio.sleep(0)
            written = stock.take_written()
            # Length, number, and no tag in the header, then the body of Kafka's fields.
            answer, end = decode(response_class(key), version, memoryview(written), 9)
            assert end == len(written)
            assert written[9:] == encode(answer, version)
            return answer

        await members.beat(stock, "a", 0)
        await members.beat(stock, "a", 1, [0, 1, 2, 3])
        await members.beat(await members.connect(), "b", 0)
        fetched = FetchRequest(
            session_epoch=-1,
            topics=[FetchTopic(topic_id=members.topic_id, partitions=[FetchPartition(partition_max_bytes=1_000)])],
        )
        rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
        topics = [OffsetCommitRequestTopic(name="t", partitions=rows)]
        committed = OffsetCommitRequest(group_id="g", member_id="a", generation_id_or_member_epoch=1, topics=topics)
        beat = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=1, topic_partitions=None)

        assert (await ask(FETCH, FETCH_VERSION, fetched)).membership_update is None
        assert (await ask(COMMIT, 9, committed)).membership_update is None
        told = await ask(BEAT, 1, beat)
        assert (partitions_in(told), told.number, members.watched) == ([0, 1], 0, 0)

    wired(dialogue)


def test_member_that_is_gone_is_told_so_and_a_strangers_word_costs_nothing() -> None:
    async def dialogue(members: Members) -> None:
        beats, fetches = await members.connect(), await members.connect()
        await members.beat(beats, "a", 0)
        members.fetch(fetches, members.word("a", 1, 0, 1, 2, 3))
        await members.beat(beats, "a", -1)
        told = await news(fetches)
        assert (told.error_code, told.member_epoch) == (ErrorCode.UNKNOWN_MEMBER_ID, 1)
        members.fetch(fetches, members.word("nobody", 3, 1))
        assert (await news(fetches)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        members.fetch(fetches, KnownMembership(group_id="", member_id="a", member_epoch=1))
        # An impossible group has no news: the fetch waits like any other.
        assert (members.parked, members.watched, len(members.context.membership_updates)) == (1, 0, 1)

    wired(dialogue)


def test_assignments_are_numbered_for_who_wants_it() -> None:
    """In the order in which they were decided, whichever way they are told."""

    async def dialogue(members: Members) -> None:
        beats, fetches = await members.connect(), await members.connect()
        assert (await members.beat(beats, "a", 0)).number == 0
        joined = await members.beat(beats, "a", 0, wants_numbers=True)
        assert joined.number > 0
        await members.beat(await members.connect(), "b", 0)
        members.fetch(fetches, members.word("a", 1, 0, 1, 2, 3))
        first = await news(fetches)
        told = await members.beat(beats, "a", 1, wants_numbers=True)
        assert partitions_in(told) == partitions_in(first)
        assert joined.number < first.number < told.number

    wired(dialogue)
