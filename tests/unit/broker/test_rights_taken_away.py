"""A right that is taken away ends what is under way: fetches and heartbeats that wait, and those kept for later."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kohort.broker.context import BrokerContext
from kohort.broker.groups.waiting_rights import EXAMINED_AT_ONCE, RightsExamination
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, AclPermission, PatternType, ResourceType
from kohort.security.authorizer import Acl
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.membership import KnownMembership
from kohort.wire.messages.sync_group import SyncGroupRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import batch_of, encode_request, produce_request
from support.dialogues.wired_connection import WiredConnection, wired_broker
from support.waiting import PATIENCE_SECONDS

BEAT, FETCH, CLASSIC = ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.FETCH, ApiKey.HEARTBEAT
JOIN, SYNC, PRODUCE = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.PRODUCE
ALICE, BOB, ROOT = "User:alice", "User:bob", "User:root"
FETCH_VERSION, FOREVER_MS = 17, 60_000
NO_TOPIC, NO_GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
CONFIG: dict[str, object] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ROOT,
    "group.push.enable": True,
    "group.consumer.assignment.window.ms": 0,
    "group.initial.rebalance.delay.ms": 0,
}


def reads(principal: str, resource: ResourceType, name: str) -> Acl:
    """An entry that lets a principal read."""
    return Acl(resource, PatternType.LITERAL, name, principal, "*", AclOperation.READ, AclPermission.ALLOW)


TOPIC = reads(ALICE, ResourceType.TOPIC, "t")
GROUP = reads(ALICE, ResourceType.GROUP, "g")


class World:
    """A broker with the topic "t" of four partitions, which alice and bob may read as members of the group "g"."""

    def __init__(self, context: BrokerContext) -> None:
        self.context = context
        self.topic_id = context.cluster.create_topic("t", 4, {}).topic_id
        self.give(TOPIC, GROUP, reads(BOB, ResourceType.TOPIC, "t"), reads(BOB, ResourceType.GROUP, "g"))

    def give(self, *acls: Acl) -> None:
        """Add entries, in force at once."""
        assert self.context.acls is not None
        self.context.cluster.work.ask([self.context.acls.addition(acls, check_done)])

    def take(self, *acls: Acl) -> None:
        """Remove entries."""
        assert self.context.acls is not None
        self.context.cluster.work.ask([self.context.acls.removal(acls, check_done)])

    async def connect(self, principal: str = ALICE) -> WiredConnection:
        """A connection of a principal, by a client that bears late answers."""
        wired = WiredConnection(self.context)
        wired.connection.principal = principal
        wired.connection.rights = self.context.authorization.rights_of(principal, "127.0.0.1")
        await wired.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name="kohort"))
        return wired

    def fetch(self, by: WiredConnection, member: KnownMembership | None = None, **fields: Any) -> None:
        """Begin a fetch that waits for a minute."""
        rows = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1_000) for number in range(2)]
        values: dict[str, Any] = {"session_epoch": -1, "max_wait_ms": FOREVER_MS, "min_bytes": 1, **fields}
        values.setdefault("topics", [FetchTopic(topic_id=self.topic_id, partitions=rows)])
        by.feed(encode_request(FETCH, FETCH_VERSION, FetchRequest(member=member, **values)))

    async def join(self, by: WiredConnection, member_id: str = "a") -> int:
        """Join the group and acknowledge what it gives; that heartbeat is held."""
        joined = await by.ask(BEAT, 1, beat(member_id, 0))
        owned = [] if joined.assignment is None else joined.assignment.topic_partitions
        by.feed(encode_request(BEAT, 1, beat(member_id, joined.member_epoch, topic_partitions=owned)))
        epoch: int = joined.member_epoch
        return epoch

    @property
    def held(self) -> int:
        """Heartbeats that the coordinator holds."""
        return sum(len(home.shard.all_held()) for home in self.context.runtime._shard_logs)  # type: ignore[attr-defined]


def check_done(why: object) -> None:
    assert why is None


def beat(member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": [], **fields}
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)


def join_request(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g", member_id=member_id, protocol_type="consumer", session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000, protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )  # fmt: skip


def codes(answer: Any) -> list[int]:
    """The error of each partition in the answer to a fetch."""
    return [row.error_code for topic in answer.responses for row in topic.partitions]


def wired(dialogue: Callable[[World], Awaitable[None]], **config: object) -> None:
    async def main() -> None:
        with wired_broker(CONFIG | config) as context:
            await asyncio.wait_for(dialogue(World(context)), PATIENCE_SECONDS)

    asyncio.run(main())


def test_parked_fetch_is_answered_anew() -> None:
    """And leaves nothing behind at the logs that it waited for; those of others wait on."""

    async def dialogue(world: World) -> None:
        alice, bob = await world.connect(), await world.connect(BOB)
        world.fetch(alice)
        world.fetch(bob)
        assert len(world.context.purgatory) == 2

        world.take(TOPIC)

        ((_, answer),) = await alice.receive(FETCH, FETCH_VERSION)
        assert codes(answer) == [NO_TOPIC] * 2
        assert not bob.has_written
        assert len(world.context.purgatory) == 1
        waiting = world.context.purgatory._by_log.values()
        assert [len(fetches) for fetches in waiting] == [1, 1], "bob's"

        root = await world.connect(ROOT)
        await root.ask(PRODUCE, 9, produce_request("t", batch_of(b"x")))
        ((_, answer),) = await bob.receive(FETCH, FETCH_VERSION)
        assert codes(answer) == [0, 0]

    wired(dialogue)


def test_fetch_in_the_middle_of_its_reading_tells_nothing() -> None:
    """Many partitions are read in slices: what was read before the right was taken away is not in the answer."""

    async def dialogue(world: World) -> None:
        wide = world.context.cluster.create_topic("wide", 600, {})
        root, alice = await world.connect(ROOT), await world.connect()
        for number in (0, 599):
            await root.ask(PRODUCE, 9, produce_request("wide", batch_of(b"secret"), partition=number))
        entry = reads(ALICE, ResourceType.TOPIC, "wide")
        world.give(entry)
        rows = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1_000) for number in range(600)]
        world.fetch(alice, topics=[FetchTopic(topic_id=wide.topic_id, partitions=rows)])
        assert not alice.has_written

        world.take(entry)

        ((_, answer),) = await alice.receive(FETCH, FETCH_VERSION)
        assert codes(answer) == [NO_TOPIC] * 600
        assert not any(bytes(row.records or b"") for topic in answer.responses for row in topic.partitions)

    wired(dialogue)


def test_rows_of_a_fetch_session_are_asked_for_their_right_again() -> None:
    """KIP-227: the client names them once; after a change of rights they are denied, and given again."""

    async def dialogue(world: World) -> None:
        alice, root = await world.connect(), await world.connect(ROOT)
        world.fetch(alice, session_epoch=0, max_wait_ms=0)
        ((_, first),) = await alice.receive(FETCH, FETCH_VERSION)
        assert (codes(first), first.session_id > 0) == ([0, 0], True)

        world.take(TOPIC)
        await root.ask(PRODUCE, 9, produce_request("t", batch_of(b"x")))
        world.fetch(alice, session_id=first.session_id, session_epoch=1, max_wait_ms=0, topics=[])
        ((_, denied),) = await alice.receive(FETCH, FETCH_VERSION)
        assert codes(denied) == [NO_TOPIC] * 2

        world.give(TOPIC)
        world.fetch(alice, session_id=first.session_id, session_epoch=2, max_wait_ms=0, topics=[])
        ((_, given),) = await alice.receive(FETCH, FETCH_VERSION)
        assert set(codes(given)) == {0}
        assert bytes(given.responses[0].partitions[0].records)

    wired(dialogue)


def test_held_heartbeat_is_refused() -> None:
    """KIP-848; the coordinator holds it no longer."""

    async def dialogue(world: World) -> None:
        alice = await world.connect()
        await world.join(alice)
        assert (world.held, alice.has_written) == (1, False)

        world.take(GROUP)

        ((_, refused),) = await alice.receive(BEAT, 1)
        assert (refused.error_code, refused.error_message) == (NO_GROUP, "Group authorization failed.")
        assert world.held == 0

    wired(dialogue)


def test_held_heartbeat_of_the_classic_protocol_is_refused() -> None:
    """Like that of KIP-848."""

    async def dialogue(world: World) -> None:
        alice = await world.connect()
        joined = await alice.ask(JOIN, 3, join_request())
        speaker = {"group_id": "g", "member_id": joined.member_id, "generation_id": joined.generation_id}
        await alice.ask(SYNC, 3, SyncGroupRequest(**speaker))
        alice.feed(encode_request(CLASSIC, 3, HeartbeatRequest(**speaker)))
        assert (world.held, alice.has_written) == (1, False)

        world.take(GROUP)

        ((_, refused),) = await alice.receive(CLASSIC, 3)
        assert (refused.error_code, world.held) == (NO_GROUP, 0)

    wired(dialogue)


def test_join_that_waits_is_refused_and_holds_up_no_other() -> None:
    """The other member's JoinGroup is answered; the member stays for its session, as one whose connection closed."""

    async def dialogue(world: World) -> None:
        alice, bob = await world.connect(), await world.connect(BOB)
        joined = await bob.ask(JOIN, 3, join_request())
        await bob.ask(
            SYNC, 3, SyncGroupRequest(group_id="g", member_id=joined.member_id, generation_id=joined.generation_id)
        )
        alice.feed(encode_request(JOIN, 3, join_request()))
        assert not alice.has_written, "it waits for bob"

        world.take(GROUP)

        ((_, refused),) = await alice.receive(JOIN, 3)
        assert refused.error_code == NO_GROUP
        again = await bob.ask(JOIN, 3, join_request(joined.member_id))
        assert (again.error_code, again.leader) == (0, joined.member_id)

    wired(dialogue)


def test_sync_that_waits_is_refused() -> None:
    """A follower that waits for its leader's assignments does not get them any more."""

    async def dialogue(world: World) -> None:
        alice, bob = await world.connect(), await world.connect(BOB)
        leader = await bob.ask(JOIN, 3, join_request())
        alice.feed(encode_request(JOIN, 3, join_request()))
        bob.feed(encode_request(JOIN, 3, join_request(leader.member_id)))
        ((_, follower),) = await alice.receive(JOIN, 3)
        alice.feed(
            encode_request(
                SYNC, 3,
                SyncGroupRequest(
                    group_id="g", member_id=follower.member_id, generation_id=follower.generation_id
                ),
            )
        )  # fmt: skip
        assert not alice.has_written

        world.take(GROUP)

        ((_, refused),) = await alice.receive(SYNC, 3)
        assert (refused.error_code, refused.assignment) == (NO_GROUP, b"")

    wired(dialogue)


@pytest.mark.parametrize("is_examined", [True, False])
def test_heartbeat_that_comes_again_word_for_word_is_refused(
    is_examined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered without parsing only while the edition of the rights is that of its reading.

    Also where the connection was not examined yet.
    """
    if not is_examined:
        monkeypatch.setattr(RightsExamination, "begin", lambda _: None)

    async def dialogue(world: World) -> None:
        alice = await world.connect()
        joined = await alice.ask(BEAT, 1, beat("a", 0))
        epoch, owned = joined.member_epoch, joined.assignment.topic_partitions
        await alice.ask(BEAT, 1, beat("a", epoch, topic_partitions=owned))
        for _ in range(3):
            assert (await alice.ask(BEAT, 1, beat("a", epoch))).error_code == 0
        read = alice.requests_carried_out()
        await alice.ask(BEAT, 1, beat("a", epoch))
        assert alice.requests_carried_out() == read + 1, "it was not read"

        world.take(GROUP)
        assert (await alice.ask(BEAT, 1, beat("a", epoch))).error_code == NO_GROUP
        world.give(GROUP)
        assert (await alice.ask(BEAT, 1, beat("a", epoch))).error_code == 0

    wired(dialogue, **{"group.push.enable": False})


def test_news_of_a_group_are_told_by_fetches_no_longer() -> None:
    """The fetch itself waits on: the topic may still be read."""

    async def dialogue(world: World) -> None:
        beats, fetches = await world.connect(), await world.connect()
        epoch = await world.join(beats)
        known = KnownMembership(
            group_id="g",
            member_id="a",
            member_epoch=epoch,
            topic_partitions=[TopicPartitions(topic_id=world.topic_id, partitions=[0, 1, 2, 3])],
        )
        world.fetch(fetches, known)
        assert len(world.context.membership_updates) == 1

        world.take(GROUP)
        await world.connect()

        assert (len(world.context.membership_updates), fetches.has_written) == (0, False)

    wired(dialogue)


def test_a_thousand_connections_are_ended_in_some_turns() -> None:
    """Each with a fetch and a heartbeat that wait: a hundred of them in a turn of the loop, and none is forgotten."""

    async def dialogue(world: World) -> None:
        connections = [await world.connect() for _ in range(1_000)]
        world.give(GROUP._replace(pattern=PatternType.PREFIXED))
        for number, each in enumerate(connections):
            if number % 2:
                world.fetch(each)
            else:
                member = {"group_id": f"g{number}", "member_id": "a"}
                joined = await each.ask(
                    BEAT, 1,
                    ConsumerGroupHeartbeatRequest(
                        **member, member_epoch=0, rebalance_timeout_ms=10_000, subscribed_topic_names=["t"],
                        topic_partitions=[],
                    ),
                )  # fmt: skip
                owned = joined.assignment.topic_partitions
                held = ConsumerGroupHeartbeatRequest(**member, member_epoch=joined.member_epoch, topic_partitions=owned)
                each.feed(encode_request(BEAT, 1, held))
        unrestricted = await world.connect(ROOT)
        world.fetch(unrestricted)
        assert (len(world.context.purgatory), world.held) == (501, 500)

        deny = Acl(ResourceType.GROUP, PatternType.LITERAL, "*", ALICE, "*", AclOperation.READ, AclPermission.DENY)
        world.give(deny, deny._replace(resource=ResourceType.TOPIC))
        turns = 0
        while not all(each.has_written for each in connections):
            turns += 1
            assert turns <= 1_000 // EXAMINED_AT_ONCE + 3
            await asyncio.sleep(0)
        assert (len(world.context.purgatory), world.held, unrestricted.has_written) == (1, 0, False)

    wired(dialogue)


def test_answered_requests_are_gone_at_once() -> None:
    """What examines a request while it waits has no share in a circle: its data would stay until a collection."""

    async def dialogue(world: World) -> None:
        alice = await world.connect()
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                world.fetch(alice, max_wait_ms=0)
                await alice.receive(FETCH, FETCH_VERSION)
            assert gc.collect() < 100
        finally:
            gc.enable()

    wired(dialogue)


def test_connections_of_a_user_are_closed() -> None:
    """As when the user, or its certificate, is taken away."""

    async def dialogue(world: World) -> None:
        alice, bob = await world.connect(), await world.connect(BOB)

        closed = world.context.close_connections(lambda each: each.principal == ALICE, "its user was removed")

        assert (closed, alice.is_closed, bob.is_closed) == (1, True, False)

    wired(dialogue)


@pytest.mark.logs_bugs
def test_connection_that_cannot_be_examined_is_closed_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of ours must not leave a right in force."""

    async def dialogue(world: World) -> None:
        broken, alice = await world.connect(), await world.connect()
        world.fetch(alice)

        def fail() -> None:
            raise RuntimeError("planted")

        monkeypatch.setattr(broken.connection, "examine_rights", fail)

        world.take(TOPIC)

        ((_, answer),) = await alice.receive(FETCH, FETCH_VERSION)
        assert codes(answer) == [NO_TOPIC] * 2
        assert (broken.is_closed, alice.is_closed) == (True, False)
        assert "event=examination_failed" in caplog.text

    wired(dialogue)
