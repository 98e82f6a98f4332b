"""Fetches of partitions that a member must not read any more: waiting, in sessions, in the middle of reading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kohort.base.clock import SystemClock
from kohort.broker.apis import fetch as fetching
from kohort.broker.context import BrokerContext
from kohort.broker.fetch.claims import LONGEST_GRANT, MOST_LINES, Claims
from kohort.broker.fetch.ownership import Claim, OwnershipChange, Sender
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.security.access_control import AclOperation, AclPermission, PatternType, ResourceType
from kohort.security.authorizer import Acl
from kohort.security.capabilities.capability import attenuate
from kohort.security.capabilities.capability import mint as mint_token
from kohort.security.capabilities.caveats import (
    Caveat,
    epoch,
    groups,
    label,
    member,
    not_after,
    operations,
    partitions,
    peers,
    topics,
)
from kohort.security.capabilities.root_keys import RootKeys
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.membership import KnownMembership
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import batch_of, encode_request, produce_request
from support.dialogues.wired_connection import WiredConnection, wired_broker
from support.waiting import PATIENCE_SECONDS

FETCH, PRODUCE = ApiKey.FETCH, ApiKey.PRODUCE
VERSION, FOREVER_MS = 17, 60_000
FENCED, STRICT = ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER
STOCK = {"sender": Sender("", "raw", "/127.0.0.1", is_unique=True), "enforce": "all"}


class SetClock(SystemClock):
    """Goes on by itself, and at once where the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.later_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.later_ms


class World:
    """A broker with the topic "t" of four partitions, a connection that fetches, and the coordinator's messages."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.topic_id = context.cluster.create_topic("t", 4, {}).topic_id
        self.by = WiredConnection(context)
        self.steward = WiredConnection(context)

    def tell(self, member_id: str, epoch: int, *partitions: int, is_open: bool, group: str = "g", **more: Any) -> None:
        places = tuple((self.topic_id, partition) for partition in partitions)
        values = {"lease_ms": 3_000, "stock_lease_ms": 10_000, **more}
        change = OwnershipChange(group, member_id, epoch, places, is_open, **values)
        self.context.ownership.change(change, self.context.monotonic_ms())

    def close(self, member_id: str, epoch: int, *partitions: int, **more: Any) -> None:
        self.tell(member_id, epoch, *partitions, is_open=False, **more)

    def open(self, member_id: str, epoch: int, *partitions: int, **more: Any) -> None:
        self.tell(member_id, epoch, *partitions, is_open=True, **more)

    async def produce(self, *partitions: int, topic: str = "t", records: bytes = b"x") -> None:
        for partition in partitions:
            await self.steward.ask(PRODUCE, 9, produce_request(topic, batch_of(records), partition=partition))

    def word(self, member_id: str, epoch: int, *known: int, group: str = "g") -> KnownMembership:
        rows = [TopicPartitions(topic_id=self.topic_id, partitions=list(known))]
        return KnownMembership(group_id=group, member_id=member_id, member_epoch=epoch, topic_partitions=rows)

    def send(
        self,
        *partitions: int,
        member: KnownMembership | None = None,
        by: WiredConnection | None = None,
        topic_id: TopicId | None = None,
        **fields: Any,
    ) -> None:
        rows = [FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=1_000) for each in partitions]
        topics = [FetchTopic(topic_id=topic_id or self.topic_id, partitions=rows)] if rows else []
        values: dict[str, Any] = {"session_epoch": -1, "max_wait_ms": 0, "min_bytes": 1, **fields}
        (by or self.by).feed(encode_request(FETCH, VERSION, FetchRequest(topics=topics, member=member, **values)))

    async def receive(self, by: WiredConnection | None = None) -> dict[int, object]:
        """Partition -> error, or number of bytes of records."""
        ((_, answer),) = await (by or self.by).receive(FETCH, VERSION)
        self.session_id = answer.session_id
        assert answer.error_code == 0
        return {
            row.partition_index: ErrorCode(row.error_code) if row.error_code else bool(bytes(row.records or b""))
            for topic in answer.responses
            for row in topic.partitions
        }

    async def fetch(self, *partitions: int, **fields: Any) -> dict[int, object]:
        self.send(*partitions, **fields)
        return await self.receive(fields.get("by"))

    async def join(self) -> KnownMembership:
        """The member "a" joins; return its word, after which the coordinator has no news for it."""
        beat = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="a",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        joined = await self.steward.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat)
        known = [number for row in joined.assignment.topic_partitions for number in row.partitions]
        return self.word("a", joined.member_epoch, *known)

    async def passes(self) -> None:
        """Whatever is due is done: another connection is answered meanwhile."""
        await self.produce(3)


def wired(dialogue: Callable[[World], Awaitable[None]], **config: object) -> None:
    async def main() -> None:
        with wired_broker({"group.consumer.assignment.window.ms": 0, **config}, clock=SetClock()) as context:
            await asyncio.wait_for(dialogue(World(context)), PATIENCE_SECONDS)

    asyncio.run(main())


def test_member_of_ours_is_told_for_the_row_and_reads_the_others() -> None:
    async def dialogue(world: World) -> None:
        await world.produce(0, 1)
        a = world.word("a", 5, 0, 1)
        assert await world.fetch(0, 1, member=a) == {0: True, 1: True}
        world.close("a", 5, 0)
        assert await world.fetch(0, 1, member=a) == {0: FENCED, 1: True}
        world.open("b", 6, 0)
        assert await world.fetch(0, 1, member=a) == {0: FENCED, 1: True}
        assert await world.fetch(0, member=world.word("b", 6, 0)) == {0: True}
        world.close("b", 6, 0)
        world.open("a", 7, 0)
        assert await world.fetch(0, 1, member=world.word("a", 7, 0, 1)) == {0: True, 1: True}
        assert world.context.refused_reads.rows == 2

    wired(dialogue)


@pytest.mark.parametrize(("refusal", "found"), [("quiet", False), ("strict", STRICT)])
def test_stock_client_gets_no_records_or_an_error(refusal: str, found: object) -> None:
    async def dialogue(world: World) -> None:
        await world.produce(0, 1)
        world.close("a", 5, 0, refusal=refusal, **STOCK)
        assert await world.fetch(0, 1) == {0: found, 1: True}
        world.open("a", 5, 0, refusal=refusal, **STOCK)
        assert await world.fetch(0, 1) == {0: True, 1: True}

    wired(dialogue)


def test_fetch_of_no_member_is_served() -> None:
    async def dialogue(world: World) -> None:
        await world.produce(0)
        world.close("a", 5, 0)
        assert await world.fetch(0) == {0: True}

    wired(dialogue)


def test_waiting_fetch_of_ours_is_answered_for_the_row_at_once() -> None:
    async def dialogue(world: World) -> None:
        word = await world.join()
        world.send(0, 1, member=word, max_wait_ms=FOREVER_MS)
        assert len(world.context.purgatory) == 1
        world.close("a", word.member_epoch, 0)
        assert (await world.receive())[0] is FENCED

    wired(dialogue)


def test_append_behind_a_fence_answers_no_waiting_fetch() -> None:
    """Of a stock client: it waits on for its other rows, and is answered with what these have."""

    async def dialogue(world: World) -> None:
        world.send(0, 1, max_wait_ms=FOREVER_MS)
        world.close("a", 5, 0, **STOCK)
        await world.produce(0)
        await world.passes()
        assert (len(world.context.purgatory), world.by.has_written) == (1, False)
        await world.produce(1)
        assert await world.receive() == {0: False, 1: True}

    wired(dialogue)


def test_fetch_that_was_woken_before_the_fence_gives_nothing_out() -> None:
    """It looks only when the fence is there; what it had found of the partition before counts no more."""

    async def dialogue(world: World) -> None:
        await world.produce(0)
        world.send(0, 1, min_bytes=500, max_wait_ms=FOREVER_MS)
        world.context.purgatory.notify(world.context.cluster.topics["t"].partitions[0])
        world.close("a", 5, 0, **STOCK)
        await world.passes()
        assert not world.by.has_written
        await world.produce(1, records=b"x" * 600)
        assert await world.receive() == {0: False, 1: True}

    wired(dialogue)


def test_strict_refusal_does_not_end_the_wait_of_a_fetch() -> None:
    """The client would ask again at once, and again; it is told with the next records, or at the end of its wait."""

    async def dialogue(world: World) -> None:
        world.send(0, 1, max_wait_ms=FOREVER_MS)
        world.close("a", 5, 0, refusal="strict", **STOCK)
        await world.produce(0)
        await world.passes()
        assert not world.by.has_written
        await world.produce(1)
        assert await world.receive() == {0: STRICT, 1: True}
        assert await world.fetch(0, max_wait_ms=1) == {0: STRICT}

    wired(dialogue)


def test_withheld_row_does_not_count_towards_the_least_bytes() -> None:
    async def dialogue(world: World) -> None:
        await world.produce(0, records=b"x" * 900)
        world.close("a", 5, 0, **STOCK)
        world.send(0, 1, min_bytes=800, max_wait_ms=FOREVER_MS)
        await world.passes()
        assert not world.by.has_written
        await world.produce(1, records=b"y" * 900)
        assert await world.receive() == {0: False, 1: True}

    wired(dialogue)


def test_waiting_fetch_is_answered_when_its_partition_opens_again() -> None:
    """A revocation that was taken back: what came meanwhile is there."""

    async def dialogue(world: World) -> None:
        world.send(0, max_wait_ms=FOREVER_MS)
        world.close("a", 5, 0, **STOCK)
        await world.produce(0)
        await world.passes()
        assert not world.by.has_written
        world.open("a", 5, 0, **STOCK)
        assert await world.receive() == {0: True}

    wired(dialogue)


def test_row_of_a_fetch_session_is_told_again_when_it_opens() -> None:
    """KIP-227: what a session withholds stays news."""

    async def dialogue(world: World) -> None:
        assert await world.fetch(0, 1, session_epoch=0) == {0: False, 1: False}
        session = world.session_id
        world.close("a", 5, 0, **STOCK)
        await world.produce(0)
        # The end of the log is news; its records are not given out.
        assert await world.fetch(session_id=session, session_epoch=1) == {0: False}
        assert await world.fetch(session_id=session, session_epoch=2) == {}
        world.open("a", 6, 0, **STOCK)
        assert await world.fetch(session_id=session, session_epoch=3) == {0: True}

    wired(dialogue)


def test_refused_row_of_a_session_is_told_again_when_it_opens_without_new_records() -> None:
    async def dialogue(world: World) -> None:
        assert await world.fetch(0, 1, session_epoch=0, member=world.word("a", 5, 0, 1)) == {0: False, 1: False}
        session = world.session_id
        world.close("a", 5, 0)
        assert await world.fetch(session_id=session, session_epoch=1) == {0: FENCED}
        assert await world.fetch(session_id=session, session_epoch=2) == {0: FENCED}
        world.open("a", 6, 0)
        word = world.word("a", 6, 0, 1)
        assert await world.fetch(session_id=session, session_epoch=3, member=word) == {0: False}
        assert await world.fetch(session_id=session, session_epoch=4) == {}

    wired(dialogue)


@pytest.mark.parametrize("is_slow", [False, True])
def test_fetch_that_does_not_wait_ends_the_wait_in_front_of_it(is_slow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer would stand behind the other one's for as long; one that waits itself is in no hurry.

    `is_slow`: the rows of the session's fetch are read in several turns of the loop, and it has not begun to wait.
    """
    monkeypatch.setattr(fetching, "ROWS_AT_ONCE", 1 if is_slow else 250)

    async def dialogue(world: World) -> None:
        await world.fetch(0, 1, 2, session_epoch=0, member=world.word("a", 5, 0, 1, 2))
        session = world.session_id
        world.send(session_id=session, session_epoch=1, max_wait_ms=FOREVER_MS)
        world.send(3)
        answers = await several(world.by, 2)
        assert [len(each.responses) for _, each in answers] == [0, 1]
        assert len(world.context.claims) == 1, "it is of the same member"

        world.send(session_id=session, session_epoch=2, max_wait_ms=FOREVER_MS)
        world.send(3, max_wait_ms=FOREVER_MS)
        await world.produce(1)
        assert [len(each.responses) for _, each in await several(world.by, 1)] == [1]
        assert not world.by.has_written, "nothing ends the wait of one without a session"
        await world.produce(3)
        await several(world.by, 1)
        assert await world.fetch(session_id=session, session_epoch=3) == {1: True}

    async def several(by: WiredConnection, count: int) -> list[tuple[int, Any]]:
        answers: list[tuple[int, Any]] = []
        while len(answers) < count:
            answers += await by.receive(FETCH, VERSION)
        return answers

    wired(dialogue)


def test_connection_may_change_its_member_within_a_session() -> None:
    async def dialogue(world: World) -> None:
        await world.produce(0)
        world.close("a", 5, 0)
        world.open("b", 6, 0)
        assert await world.fetch(0, session_epoch=0, member=world.word("a", 5, 0)) == {0: FENCED}
        session = world.session_id
        word = world.word("b", 6, 0)
        assert await world.fetch(session_id=session, session_epoch=1, member=word) == {0: True}
        assert await world.fetch(0, session_epoch=-1) == {0: True}
        assert len(world.context.claims) == 1, "beside a session it is of the same member"
        assert await world.fetch(0, session_id=session, session_epoch=-1) == {0: True}
        assert len(world.context.claims) == 0, "whose it is has to be said without a session"

    wired(dialogue)


def test_groups_that_read_one_partition_do_not_hinder_each_other() -> None:
    async def dialogue(world: World) -> None:
        await world.produce(0)
        world.close("a", 5, 0)
        assert await world.fetch(0, member=world.word("a", 5, 0, group="h")) == {0: True}
        world.close("a", 5, 0, group="h")
        world.open("b", 6, 0)
        assert await world.fetch(0, member=world.word("a", 5, 0, group="h")) == {0: FENCED}
        assert await world.fetch(0, member=world.word("b", 6, 0)) == {0: True}

    wired(dialogue)


def test_topic_made_anew_knows_no_fences() -> None:
    async def dialogue(world: World) -> None:
        world.close("a", 5, 0)
        assert await world.fetch(0, member=world.word("a", 5, 0)) == {0: FENCED}
        again = world.context.cluster.create_topic("u", 1, {})
        world.close("a", 6, 0)
        await world.produce(0, topic="u")
        assert await world.fetch(0, topic_id=again.topic_id, member=world.word("a", 5, 0)) == {0: True}

    wired(dialogue)


def test_fence_in_the_middle_of_reading_gives_nothing_out() -> None:
    """Many partitions are read in slices; what was read of the first is not in the answer, and is of no size."""

    async def dialogue(world: World) -> None:
        wide = world.context.cluster.create_topic("wide", 600, {})
        await world.produce(0, 300, 599, topic="wide")
        world.send(*range(600), topic_id=wide.topic_id, member=world.word("a", 5, 0))
        assert not world.by.has_written
        world.topic_id = wide.topic_id
        world.close("a", 5, 0, 1, 599)
        found = await world.receive()
        assert [number for number, told in found.items() if told is FENCED] == [0, 1, 599]
        assert [number for number, told in found.items() if told is True] == [300]

    wired(dialogue)


def test_tag_without_a_right_to_the_group_is_no_claim() -> None:
    def reads(resource: ResourceType, name: str) -> Acl:
        return Acl(
            resource, PatternType.LITERAL, name, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW
        )  # fmt: skip

    def check_done(why: object) -> None:
        assert why is None

    async def dialogue(world: World) -> None:
        acls = world.context.acls
        assert acls is not None
        work = world.context.cluster.work
        work.ask([acls.addition([reads(ResourceType.TOPIC, "t")], check_done)])
        world.by.connection.principal = "User:alice"
        world.by.connection.rights = world.context.authorization.rights_of("User:alice", "127.0.0.1")
        world.close("a", 5, 0)
        assert await world.fetch(0, member=world.word("a", 5, 0)) == {0: False}
        work.ask([acls.addition([reads(ResourceType.GROUP, "g")], check_done)])
        assert await world.fetch(0, member=world.word("a", 5, 0)) == {0: FENCED}

    wired(dialogue, **{"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"})


def test_topic_for_members_only_refuses_fetches_that_are_of_none() -> None:
    async def dialogue(world: World) -> None:
        private = world.context.cluster.create_topic("private", 2, {"kohort.read.members.only": "true"})
        await world.produce(0, topic="private")
        world.topic_id = private.topic_id
        assert await world.fetch(0, 1) == dict.fromkeys((0, 1), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert await world.fetch(0, 1, member=world.word("a", 5, 0, 1)) == {0: True, 1: False}

    wired(dialogue)


# Grants.


class Verifier:
    """Knows tokens by what they are, and counts how often it is asked."""

    def __init__(self, **claims: Claim) -> None:
        self.claims = claims
        self.asked: list[str] = []

    def __call__(self, token: str, host: str) -> Claim | None:
        assert host == "127.0.0.1"
        self.asked.append(token)
        return self.claims.get(token)


def granted(world: World, member_id: str, epoch: int, *partitions: int, not_after_ms: int = 1 << 62) -> Claim:
    listed = {TopicId(world.topic_id): frozenset(partitions)}
    return Claim("g", member_id, epoch, listed, not_after_ms, is_granted=True)


def test_grant_is_verified_once_and_only_its_partitions_are_read() -> None:
    async def dialogue(world: World) -> None:
        verify = Verifier(good=granted(world, "a", 5, 0, 1))
        world.context.claims = Claims(verify)
        await world.produce(0, 1, 2)
        a = world.word("a", 5, 0, 1, 2)
        assert await world.fetch(0, 1, 2, session_epoch=0, member=a, grant="good") == {0: True, 1: True, 2: FENCED}
        assert await world.fetch(session_id=world.session_id, session_epoch=1) == {0: True, 1: True, 2: FENCED}
        other = WiredConnection(world.context)
        assert await world.fetch(0, session_epoch=0, by=other, member=a, grant="good") == {0: True}
        session = world.session_id
        # What is served whole is not asked about again, but for what the session gets in addition.
        assert await world.fetch(0, session_id=session, session_epoch=1, by=other) == {0: True}
        assert await world.fetch(2, session_id=session, session_epoch=2, by=other) == {0: True, 2: FENCED}
        world.close("a", 5, 0)
        assert await world.fetch(session_id=session, session_epoch=3, by=other) == {0: FENCED, 2: FENCED}
        world.open("a", 5, 0)
        assert await world.fetch(0, 2, member=a, grant="good", by=other) == {0: True, 2: FENCED}
        assert verify.asked == ["good"]

    wired(dialogue)


@pytest.mark.parametrize("grant", ["unknown", "g" * (LONGEST_GRANT + 1), "g" * 32_000])
def test_grant_that_is_not_valid_refuses_all_rows(grant: str) -> None:
    async def dialogue(world: World) -> None:
        verify = Verifier()
        world.context.claims = Claims(verify)
        assert await world.fetch(0, 1, member=world.word("a", 5, 0, 1), grant=grant) == {0: FENCED, 1: FENCED}
        assert verify.asked == ([grant] if len(grant) <= LONGEST_GRANT else []), "longer ones are not read"

    wired(dialogue)


def test_empty_grant_takes_the_former_one_back() -> None:
    """Nothing is enforced for the group any more; its lease would end, and the member get no other."""

    async def dialogue(world: World) -> None:
        world.context.claims = Claims(Verifier(over=granted(world, "a", 5, 0, not_after_ms=1)))
        await world.produce(0)
        a = world.word("a", 5, 0)
        assert await world.fetch(0, session_epoch=0, member=a, grant="over") == {0: FENCED}
        again = {"session_id": world.session_id, "session_epoch": 1}
        assert await world.fetch(0, **again, grant="") == {0: True}

    wired(dialogue)


def test_session_that_begins_anew_says_anew_whose_it_is() -> None:
    """A member that has joined again has no grant yet, and shows its leaders only the tag."""

    async def dialogue(world: World) -> None:
        world.context.claims = Claims(Verifier(over=granted(world, "a", 5, 0, not_after_ms=1)))
        await world.produce(0)
        assert await world.fetch(0, session_epoch=0, member=world.word("a", 5, 0), grant="over") == {0: FENCED}
        again = {"session_id": world.session_id, "session_epoch": 1}
        assert await world.fetch(0, **again, member=world.word("a", 6, 0)) == {0: FENCED}
        assert await world.fetch(0, session_epoch=0, member=world.word("a", 7, 0)) == {0: True}

    wired(dialogue)


def test_grant_of_another_member_than_the_connection_says_refuses_all_rows() -> None:
    async def dialogue(world: World) -> None:
        world.context.claims = Claims(Verifier(of_a=granted(world, "a", 5, 0), of_b=granted(world, "b", 5, 0)))
        assert await world.fetch(0, member=world.word("b", 5, 0), grant="of_a") == {0: FENCED}
        assert await world.fetch(0, member=world.word("a", 5, 0, group="h"), grant="of_a") == {0: FENCED}
        assert await world.fetch(0, session_epoch=0, member=world.word("a", 5, 0)) == {0: False}
        assert await world.fetch(session_id=world.session_id, session_epoch=1, grant="of_b") == {0: FENCED}
        assert await world.fetch(0, grant="of_b") == {0: False}

    wired(dialogue)


def test_grant_ends_with_its_lease_and_goes_on_with_the_next() -> None:
    """Also for a fetch that waits, as soon as there is something to read."""

    async def dialogue(world: World) -> None:
        now_ms = world.context.clock.now_ms()
        grants = {
            "old": granted(world, "a", 5, 0, not_after_ms=now_ms - 1),
            "ends": granted(world, "a", 5, 0, not_after_ms=now_ms + 600_000),
            "new": granted(world, "a", 5, 0),
        }
        world.context.claims = Claims(Verifier(**grants))
        a = await world.join()
        assert await world.fetch(0, member=a, grant="old") == {0: FENCED}
        world.send(0, member=a, grant="ends", max_wait_ms=FOREVER_MS)
        assert len(world.context.purgatory) == 1
        assert isinstance(world.context.clock, SetClock)
        world.context.clock.later_ms = 600_000
        await world.passes()
        assert not world.by.has_written
        await world.produce(0)
        # The member may have the next grant by now: it is no removal.
        assert await world.receive() == {0: False}
        assert await world.fetch(0, grant="ends", member=a) == {0: FENCED}
        assert await world.fetch(0, member=a, grant="new") == {0: True}

    wired(dialogue)


def test_kept_tokens_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.broker.fetch.claims.MOST_KEPT", 3)

    async def dialogue(world: World) -> None:
        names = [f"t{number}" for number in range(5)]
        verify = Verifier(**{name: granted(world, "a", 5, 0) for name in names})
        world.context.claims = Claims(verify)
        for name in [*names, "t4", "t2", "t0"]:
            await world.fetch(0, member=world.word("a", 5, 0), grant=name)
        assert verify.asked == [*names, "t0"]

    wired(dialogue)


def test_grants_of_the_brokers_keys_are_verified() -> None:
    """The links of a token narrow it; what is no member's grant to read, or was changed, is none."""

    async def dialogue(world: World) -> None:
        keys = world.context.capabilities._keys = RootKeys.of(bytes(32))
        end_ms = world.context.clock.now_ms() + 60_000

        def mint(*more: Caveat, by: RootKeys = keys, ranges: tuple[int | tuple[int, int], ...] = ((0, 1),)) -> str:
            of_member = (groups("g"), member("a"), epoch(5), operations("read", "commit"), not_after(end_ms))
            return mint_token(by, partitions({world.topic_id: ranges}), *of_member, *more, token_id=bytes(16))

        good = mint()
        a = world.word("a", 5, 0, 1, 2)
        assert await world.fetch(0, 1, 2, member=a, grant=good) == {0: False, 1: False, 2: FENCED}
        assert await world.fetch(0, 1, member=a, grant=mint(peers("127.0.0.1"))) == {0: False, 1: False}
        assert await world.fetch(0, member=a, grant=mint(ranges=((0, 2**31 - 1),))) == {0: False}
        refused = {
            "another key": mint(by=RootKeys.of(b"x" * 32)),
            "a stolen one": mint(peers("10.0.0.7")),
            "of another group": attenuate(good, groups("h")),
            "to write": attenuate(good, operations("write")),
            "over": attenuate(good, not_after(end_ms - 120_000)),
            "of a name": attenuate(good, topics("t")),
            "no token": "kh1.",
            "changed": good[:-2] + ("AA" if good[-2:] != "AA" else "BB"),
            "nobody's": mint_token(keys, groups("g"), token_id=bytes(16)),
        }
        for why, grant in refused.items():
            assert await world.fetch(0, member=a, grant=grant) == {0: FENCED}, why
        world.context.capabilities._keys = keys.rotated(b"y" * 32)
        assert await world.fetch(1, member=a, grant=attenuate(good, label("x"))) == {1: False}

    wired(dialogue)


def test_claim_goes_with_its_connection() -> None:
    async def dialogue(world: World) -> None:
        await world.fetch(0, member=world.word("a", 5, 0))
        assert len(world.context.claims) == 1
        world.by.connection.connection_lost(None)
        assert len(world.context.claims) == 0

    wired(dialogue)


def test_refused_read_is_logged_once_and_not_without_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kohort.broker")

    async def dialogue(world: World) -> None:
        world.close("a", 5, 0, 1)
        for _ in range(3):
            await world.fetch(0, member=world.word("a", 5, 0))
        for number in range(2 * MOST_LINES):
            await world.fetch(0, member=world.word(f"m{number}", 5, 0))

    wired(dialogue)
    lines = [record.getMessage() for record in caplog.records if "read_refused" in record.getMessage()]
    assert lines[0] == (
        "event=read_refused group='g' member='a' topic='t' partition=0 answer=FENCED_MEMBER_EPOCH "
        "reason='the partition is changing its owner'"
    )
    assert len(lines) == MOST_LINES
