"""Heartbeats that are held, as a connection sees them: whose, for how long, and what else comes by it (H1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kohort.errors import ErrorCode
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from kohort.wire.messages.sync_group import SyncGroupRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import encode_request
from support.dialogues.wired_connection import WiredConnection, wired_broker

BEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
#: Correlation id of the heartbeat that is held.
HELD = 5


class Clients:
    """Connections of one software to a broker with a topic "t" of four partitions."""

    def __init__(self, context: Any, topic_id: bytes) -> None:
        self.context = context
        self.topic_id = topic_id

    async def connect(self, software: str = "librdkafka") -> WiredConnection:
        connection = WiredConnection(self.context)
        await connection.ask(ApiKey.API_VERSIONS, 3, ApiVersionsRequest(client_software_name=software))
        return connection

    async def join(self, connection: WiredConnection, member_id: str) -> None:
        """A member whose acknowledgement, the heartbeat `HELD`, has no news."""
        joined = await connection.ask(BEAT, 1, beat(member_id, 0))
        connection.feed(self.listing(member_id, joined.member_epoch, partitions_in(joined)))

    async def join_classic(self, connection: WiredConnection, group_id: str) -> dict[str, Any]:
        """The first member of a classic group; what it says of itself in each request."""
        join = JoinGroupRequest(
            group_id=group_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            session_timeout_ms=10_000,
            rebalance_timeout_ms=1,
        )
        joined = await connection.ask(ApiKey.JOIN_GROUP, 3, join)
        speaker = {"group_id": group_id, "member_id": joined.member_id, "generation_id": joined.generation_id}
        await connection.ask(ApiKey.SYNC_GROUP, 3, SyncGroupRequest(**speaker))
        return speaker

    def listing(self, member_id: str, epoch: int, partitions: list[int], *, number: int = HELD) -> bytes:
        """A heartbeat that says what the member owns."""
        owned = [TopicPartitions(topic_id=self.topic_id, partitions=partitions)] if partitions else []
        return encode_request(BEAT, 1, beat(member_id, epoch, topic_partitions=owned), correlation_id=number)

    @property
    def held(self) -> int:
        """Heartbeats that the coordinator holds."""
        return sum(len(home.shard.all_held()) for home in self.context.runtime._shard_logs)

    def deadline(self, member_id: str) -> int:
        """When the hold of a member's heartbeat ends, ms."""
        runtime = self.context.runtime
        deadline_ms = runtime._shard_logs[runtime.index_of("g")].shard.timers.deadline(("hold", "g", member_id))
        assert deadline_ms is not None, "it is held"
        return int(deadline_ms)


def beat(member_id: str, epoch: int, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    if epoch == 0:
        fields = {"rebalance_timeout_ms": 10_000, "subscribed_topic_names": ["t"], "topic_partitions": [], **fields}
    return ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)


def partitions_in(told: Any) -> list[int]:
    return [] if told.assignment is None else [n for row in told.assignment.topic_partitions for n in row.partitions]


def wired(dialogue: Callable[[Clients], Awaitable[None]], **config: object) -> None:
    async def main() -> None:
        settings = {"group.push.enable": True, "group.consumer.assignment.window.ms": 0, **config}
        with wired_broker(settings) as context:
            row = CreatableTopic(name="t", num_partitions=4, replication_factor=1)
            created = await WiredConnection(context).ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[row]))
            await dialogue(Clients(context, created.topics[0].topic_id))

    asyncio.run(main())


def test_partition_moves_as_fast_as_its_owner_gives_it_up() -> None:
    async def dialogue(clients: Clients) -> None:
        one, two = await clients.connect(), await clients.connect()
        await clients.join(one, "a")
        assert (one.take_written(), clients.held) == (b"", 1)
        two.feed(encode_request(BEAT, 1, beat("b", 0), correlation_id=6))
        ((number, told),) = await one.receive(BEAT, 1)
        assert (number, partitions_in(told), told.heartbeat_interval_ms) == (HELD, [0, 1], 5_000)

        one.feed(clients.listing("a", told.member_epoch, [0, 1]))
        ((number, given),) = await two.receive(BEAT, 1)
        assert (number, partitions_in(given), given.heartbeat_interval_ms) == (6, [2, 3], 5_000)
        assert clients.held == 1, "its acknowledgement"

    wired(dialogue)


@pytest.mark.parametrize(
    ("software", "further", "is_held"),
    [
        ("apache-kafka-java", [], True),
        ("confluent-kafka-python", [], True),
        ("kafkajs", [], False),
        ("kohort", [], True),
        ("kgo", [], True),
        ("platformatic-kafka", [], True),
        # Not franz-go, by its name; and sarama waits for its heartbeat when it closes.
        ("kgometer", [], False),
        ("sarama", [], False),
        ("kafkajs", ["kafkajs"], True),
        ("kafkajs", ["*"], True),
    ],
)
def test_only_clients_that_bear_it_are_held(software: str, further: list[str], is_held: bool) -> None:
    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect(software)
        await clients.join(connection, "a")
        assert (clients.held, connection.take_written() == b"") == (int(is_held), is_held)

    wired(dialogue, **{"group.push.clients": further})


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("software", ["kafkajs", ""])
def test_client_that_waits_for_each_heartbeat_notices_nothing(software: str, is_held: bool) -> None:
    """KafkaJS awaits its heartbeat between two messages; kafka-go, which names no software, gives one up after 5 s."""

    async def dialogue(clients: Clients) -> None:
        inline, other = await clients.connect(software), await clients.connect()
        speaker, neighbour = await clients.join_classic(inline, "inline"), await clients.join_classic(other, "other")
        other.feed(encode_request(ApiKey.HEARTBEAT, 4, HeartbeatRequest(**neighbour)))
        next_message = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        for _ in range(20):
            inline.feed(encode_request(ApiKey.HEARTBEAT, 4, HeartbeatRequest(**speaker)))
            answers = [answer.error_code for _, answer in inline.take_answers(ApiKey.HEARTBEAT, 4)]
            assert answers == ([] if is_held else [ErrorCode.NONE])
            inline.feed(encode_request(ApiKey.FIND_COORDINATOR, 4, next_message))
            assert len(inline.take_written()) > 0
        assert (clients.held, other.take_written()) == (1, b"")

    wired(dialogue, **{"group.push.clients": ["*"] if is_held else []})


def test_nobody_is_held_without_push() -> None:
    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect()
        await clients.join(connection, "a")
        assert [number for number, _ in connection.take_answers(BEAT, 1)] == [HELD]

    wired(dialogue, **{"group.push.enable": False})


def test_hold_is_shorter_than_the_interval_that_this_connection_was_told() -> None:
    """A client takes the interval for the time in which the answer has to come; a new connection was told none yet."""

    async def dialogue(clients: Clients) -> None:
        one, two = await clients.connect(), await clients.connect()
        await clients.join(one, "a")
        now_ms = clients.context.clock.now_ms()
        assert now_ms < clients.deadline("a") <= now_ms + 4_000
        two.feed(clients.listing("a", 1, [0, 1, 2, 3], number=6))
        assert [number for number, _ in await two.receive(BEAT, 1)] == [6]
        assert clients.held == 0, "a member has one heartbeat"

    wired(dialogue)


@pytest.mark.parametrize("software", ["kgo", "platformatic-kafka"])
def test_client_that_counts_its_interval_from_the_answer_is_held_long_and_told_a_short_one(software: str) -> None:
    """Nothing tells it of a move between the answer and its next heartbeat: that time is the interval."""

    async def dialogue(clients: Clients) -> None:
        one, two = await clients.connect(software), await clients.connect()
        await clients.join(one, "a")
        now_ms = clients.context.clock.now_ms()
        assert now_ms + 7_000 < clients.deadline("a") <= now_ms + 8_000, "longer than the interval"
        two.feed(encode_request(BEAT, 1, beat("b", 0), correlation_id=6))
        ((_, told),) = await one.receive(BEAT, 1)
        assert (partitions_in(told), told.heartbeat_interval_ms) == ([0, 1], 1_000)

    wired(dialogue)


@pytest.mark.parametrize(
    ("software", "join_hold_ms", "held_ms"),
    [("librdkafka", 1_000, 1_000), ("apache-kafka-java", 1_000, 300), ("apache-kafka-java", 50, 50)],
)
def test_who_joins_waits_for_its_share(software: str, join_hold_ms: int, held_ms: int) -> None:
    """Java's consumer keeps a processor busy until its first answer is there (KAFKA-21031)."""

    async def dialogue(clients: Clients) -> None:
        one, two = await clients.connect(), await clients.connect(software)
        await clients.join(one, "a")
        clock = clients.context.clock
        before_ms = clock.now_ms()
        two.feed(encode_request(BEAT, 1, beat("b", 0), correlation_id=6))
        deadline_ms = clients.deadline("b")
        assert before_ms + held_ms <= deadline_ms <= clock.now_ms() + held_ms

    wired(dialogue, **{"group.push.join.hold.ms": join_hold_ms})


def test_who_joins_again_waits_for_less_than_the_interval_that_it_was_told() -> None:
    """A client that was fenced may still take its interval for the time in which it is answered."""

    async def dialogue(clients: Clients) -> None:
        one, two, other = await clients.connect(), await clients.connect(), await clients.connect()
        told = await two.ask(BEAT, 1, beat("b", 0))
        assert told.heartbeat_interval_ms == 1_000
        await other.ask(BEAT, 1, beat("b", -1))
        await clients.join(one, "a")
        assert (await two.ask(BEAT, 1, beat("b", told.member_epoch))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        two.feed(encode_request(BEAT, 1, beat("b", 0), correlation_id=6))
        assert clients.deadline("b") <= clients.context.clock.now_ms() + 800

    often = {"group.consumer.heartbeat.interval.ms": 1_000, "group.consumer.min.heartbeat.interval.ms": 1_000}
    wired(dialogue, **often)


def test_nobody_waits_with_its_join_where_that_is_off() -> None:
    async def dialogue(clients: Clients) -> None:
        one, two = await clients.connect(), await clients.connect()
        await clients.join(one, "a")
        joined = await two.ask(BEAT, 1, beat("b", 0))
        assert (partitions_in(joined), joined.heartbeat_interval_ms) == ([], 500)

    wired(dialogue, **{"group.push.join.hold.ms": 0})


def test_member_that_commits_is_asked_to_come_often() -> None:
    """Its hold ends with the commit, behind which nobody could tell it of a move; so does Java's."""

    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect("apache-kafka-java")
        await clients.join(connection, "a")
        commit = OffsetCommitRequest(group_id="g", member_id="a", generation_id_or_member_epoch=1, topics=[])
        connection.feed(encode_request(ApiKey.OFFSET_COMMIT, 9, commit, correlation_id=6))
        assert connection.connection.told_intervals == {("g", "a"): 1_000}
        connection.take_written()
        connection.feed(encode_request(BEAT, 1, beat("a", 1), correlation_id=7))
        # Java's consumer takes its interval for no time-out: it is out of reach for a tenth of a second of it.
        assert clients.context.clock.now_ms() + 700 < clients.deadline("a") <= clients.context.clock.now_ms() + 900

    wired(dialogue)


@pytest.mark.parametrize(
    ("software", "client_id", "is_held"),
    [
        ("kafka-python", "a", True),
        ("librdkafka", "a", True),
        ("", "aiokafka-0.14", True),
        ("", "a", False),
        ("kafkajs", "aiokafka", False),
    ],
)
def test_classic_heartbeats_of_clients_that_bear_it_are_held(software: str, client_id: str, is_held: bool) -> None:
    """KafkaJS waits for its heartbeat between two messages."""

    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect(software)
        speaker = await clients.join_classic(connection, "g")
        connection.feed(encode_request(ApiKey.HEARTBEAT, 4, HeartbeatRequest(**speaker), client_id=client_id))
        assert (clients.held, connection.take_written() == b"") == (int(is_held), is_held)
        if is_held:
            assert clients.deadline(speaker["member_id"]) <= clients.context.clock.now_ms() + 2_500
            leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=speaker["member_id"])])
            connection.feed(encode_request(ApiKey.LEAVE_GROUP, 5, leave))
            assert (clients.held, len(connection.take_written()) > 0) == (0, True)

    wired(dialogue)


@pytest.mark.parametrize("software", ["kohort", "librdkafka", "apache-kafka-java", ""])
def test_session_of_its_group_is_told_to_a_member_that_counts_it(software: str) -> None:
    """With each answer, for it may change; to kohort's clients alone. Others count their own from the answer."""

    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect(software)
        said = []

        async def hear() -> int:
            """What the answer to the heartbeat says."""
            clients.context.runtime.release_all()
            ((_, told),) = await connection.receive(BEAT, 1)
            assert told.assignment is None
            said.append(told.session_timeout_ms)
            return int(told.member_epoch)

        joined = await connection.ask(BEAT, 1, beat("a", 0))
        said.append(joined.session_timeout_ms)
        connection.feed(clients.listing("a", joined.member_epoch, [0, 1, 2, 3]))
        epoch = await hear()
        connection.feed(encode_request(BEAT, 1, beat("a", epoch), correlation_id=7))
        await hear()
        row = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="8000")
        resource = AlterConfigsResource(resource_type=32, resource_name="g", configs=[row])
        admin = await clients.connect()
        await admin.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[resource]))
        connection.feed(encode_request(BEAT, 1, beat("a", epoch), correlation_id=7))
        await hear()
        assert said == ([9_000, 9_000, 9_000, 8_000] if software == "kohort" else [-1] * 4)

    sessions = {"group.consumer.session.timeout.ms": 9_000, "group.consumer.min.session.timeout.ms": 6_000}
    wired(dialogue, **sessions)


@pytest.mark.parametrize(("software", "join_ms", "held_ms"), [("kohort", 1_000, 800), ("librdkafka", 2_500, 2_320)])
def test_member_that_counts_its_requests_is_held_for_a_third_of_its_session(
    software: str, join_ms: int, held_ms: int
) -> None:
    """Two that are held, and one that is lost, fit into it; whatever interval an administrator has set."""

    async def dialogue(clients: Clients) -> None:
        one, two = await clients.connect(software), await clients.connect(software)
        clock = clients.context.clock
        await clients.join(one, "a")
        assert clients.deadline("a") <= clock.now_ms() + held_ms
        before_ms = clock.now_ms()
        two.feed(encode_request(BEAT, 1, beat("b", 0), correlation_id=6))
        assert before_ms + join_ms <= clients.deadline("b") <= clock.now_ms() + join_ms

    config = {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 2_900}
    limits = {f"group.consumer.{which}{name}": value for name, value in config.items() for which in ("", "min.")}
    wired(dialogue, **limits, **{"group.push.join.hold.ms": 2_500})


@pytest.mark.parametrize("software", ["kohort", "librdkafka"])
def test_session_of_a_classic_member_counts_as_its_client_counts(software: str) -> None:
    """From the request, or with what was held of the answer added."""

    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect(software)
        speaker = await clients.join_classic(connection, "g")
        connection.feed(encode_request(ApiKey.HEARTBEAT, 4, HeartbeatRequest(**speaker)))
        runtime = clients.context.runtime
        held = runtime._shard_logs[runtime.index_of("g")].shard.held("g", speaker["member_id"])
        assert held.counts_requests is (software == "kohort")

    wired(dialogue)


async def settled(clients: Clients, software: str = "librdkafka") -> tuple[WiredConnection, bytes]:
    """Member "a" and its heartbeat, which has been read once."""
    connection = await clients.connect(software)
    await clients.join(connection, "a")
    again = encode_request(BEAT, 1, beat("a", 1), correlation_id=7)
    connection.feed(again)
    assert [number for number, _ in connection.take_answers(BEAT, 1)] == [HELD]
    clients.context.runtime.release_all()
    assert [number for number, _ in await connection.receive(BEAT, 1)] == [7]
    return connection, again


#: Holds of 100 ms.
SHORT = {"group.consumer.min.heartbeat.interval.ms": 200, "group.consumer.heartbeat.interval.ms": 200}


def test_heartbeat_that_comes_again_word_for_word_is_held_and_not_read() -> None:
    """Until its hold ends, and then it is told the same without a decision."""

    async def dialogue(clients: Clients) -> None:
        connection, again = await settled(clients)
        read, counted = connection.requests_carried_out(), connection.counted("g", "heartbeats")
        for _ in range(3):
            connection.feed(again)
            assert (clients.held, connection.take_written()) == (1, b"")
            ((number, told),) = await connection.receive(BEAT, 1)
            assert (number, told.member_epoch, told.heartbeat_interval_ms, told.assignment) == (7, 1, 200, None)
            assert clients.held == 0
        assert connection.requests_carried_out() == read + 1
        assert connection.counted("g", "heartbeats") == counted + 3

    wired(dialogue, **SHORT)


def test_repeat_that_is_held_has_news_once() -> None:
    """What its member says after that is another request, though its words are the same."""

    async def dialogue(clients: Clients) -> None:
        connection, again = await settled(clients)
        connection.feed(again)
        read = connection.requests_carried_out()
        other = await clients.connect()
        other.feed(encode_request(BEAT, 1, beat("b", 0), correlation_id=6))
        ((number, told),) = await connection.receive(BEAT, 1)
        assert (number, told.member_epoch, partitions_in(told)) == (7, 1, [0, 1])
        connection.feed(again)
        assert connection.requests_carried_out() > read + 2, "the join, and this one"

    wired(dialogue)


@pytest.mark.parametrize(("software", "held", "cuts"), [("kohort", 0, [("g", "a")]), ("librdkafka", 1, [])])
def test_repeat_that_is_held_gives_way_to_another_and_to_what_is_behind_it(
    software: str, held: int, cuts: list[tuple[str, str]]
) -> None:
    async def dialogue(clients: Clients) -> None:
        connection, again = await settled(clients, software)
        connection.feed(again)
        connection.feed(again)
        assert [number for number, _ in await connection.receive(BEAT, 1)] == [7]
        assert clients.held == 1
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        connection.feed(encode_request(ApiKey.FIND_COORDINATOR, 4, request, correlation_id=8))
        assert (clients.held, list(connection.connection.cuts)) == (held, cuts)
        read = connection.requests_carried_out()
        connection.feed(again)
        assert connection.requests_carried_out() == read + 2, "it is read anew: there is one before it, or a cut"

    wired(dialogue)


def test_heartbeat_by_a_connection_that_does_not_wait_ends_the_hold_of_another() -> None:
    async def dialogue(clients: Clients) -> None:
        connection, again = await settled(clients)
        connection.feed(again)
        assert clients.held == 1
        other = WiredConnection(clients.context)
        for number in (8, 9):
            other.feed(encode_request(BEAT, 1, beat("a", 1), correlation_id=number))
            assert clients.held == 0
        assert [number for number, _ in await connection.receive(BEAT, 1)] == [7]
        assert [number for number, _ in await other.receive(BEAT, 1)] == [8, 9]

    wired(dialogue)


def test_repeat_that_is_held_goes_with_its_connection() -> None:
    async def dialogue(clients: Clients) -> None:
        connection, again = await settled(clients)
        connection.feed(again)
        assert clients.held == 1
        connection.connection.connection_lost(None)
        assert (clients.held, clients.context.runtime._waiting) == (0, {})

    wired(dialogue)


def test_answer_behind_a_hold_does_not_wait_for_it() -> None:
    """Java's consumer commits and leaves by the connection of its heartbeats; answers leave in order."""

    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect("apache-kafka-java")
        await clients.join(connection, "a")
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        connection.feed(encode_request(ApiKey.FIND_COORDINATOR, 4, request, correlation_id=6))
        assert clients.held == 0
        assert len(connection.take_written()) > 0

    wired(dialogue)


@pytest.mark.parametrize("software", ["librdkafka", "confluent-kafka-python"])
def test_held_heartbeat_of_a_client_that_finds_requests_by_their_numbers_is_overtaken(software: str) -> None:
    """librdkafka asks for committed offsets right behind the heartbeat that follows an assignment, and comes again only
    after its interval: answered before them, that heartbeat could tell it of nothing."""

    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect(software)
        await clients.join(connection, "a")
        commit = OffsetCommitRequest(group_id="g", member_id="a", generation_id_or_member_epoch=1, topics=[])
        assert (await connection.ask(ApiKey.OFFSET_COMMIT, 9, commit)).topics == []
        assert (clients.held, len(connection.connection._replies)) == (1, 1)

        other = await clients.connect(software)
        other.feed(encode_request(BEAT, 1, beat("b", 0), correlation_id=6))
        ((number, told),) = await connection.receive(BEAT, 1)
        assert (number, partitions_in(told)) == (HELD, [0, 1])
        assert len(connection.connection._replies) == 0

    wired(dialogue)


def test_heartbeats_of_several_members_on_one_connection_are_held_together() -> None:
    """Up to half of what a connection may have open: the rest is for requests that others wait for."""

    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect()
        epochs = {}
        for member_id in "abcdef":
            joined = await connection.ask(BEAT, 1, beat(member_id, 0, subscribed_topic_names=["u"]))
            epochs[member_id] = joined.member_epoch
        for member_id, epoch in epochs.items():
            connection.feed(clients.listing(member_id, epoch, [], number=ord(member_id)))
        assert clients.held == 4
        assert [number for number, _ in connection.take_answers(BEAT, 1)] == [ord("a"), ord("b")]

    wired(dialogue, **{"queued.max.requests": 8})


def test_heartbeats_of_other_members_on_a_connection_are_no_reason_to_come_often() -> None:
    """They end the holds before them, since answers leave in order; nobody is asked to come sooner for that."""

    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect("apache-kafka-java")
        epochs = {}
        for member_id in "ab":
            joined = await connection.ask(BEAT, 1, beat(member_id, 0, subscribed_topic_names=["u"]))
            epochs[member_id] = joined.member_epoch
        connection.feed(*(clients.listing(each, epoch, [], number=ord(each)) for each, epoch in epochs.items()))
        assert clients.held == 2
        connection.feed(encode_request(BEAT, 1, beat("b", epochs["b"]), correlation_id=7))
        told = await connection.receive(BEAT, 1)
        assert [(number, answer.heartbeat_interval_ms) for number, answer in told] == [(97, 5_000), (98, 5_000)]

        connection.feed(encode_request(BEAT, 1, beat("c", 0, subscribed_topic_names=["u"]), correlation_id=8))
        (number, told_b), (joined, _) = await connection.receive(BEAT, 1)
        assert (number, told_b.heartbeat_interval_ms, joined) == (7, 5_000, 8)

    wired(dialogue)


@pytest.mark.large
def test_answer_behind_very_many_holds() -> None:
    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect("apache-kafka-java")
        joins = [beat(f"m{number}", 0, subscribed_topic_names=["u"]) for number in range(240)]
        epochs = [(await connection.ask(BEAT, 1, join)).member_epoch for join in joins]
        beats = [clients.listing(f"m{number}", epoch, [], number=number) for number, epoch in enumerate(epochs)]
        for each in beats:
            connection.feed(each)
        assert clients.held == 240
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        connection.feed(encode_request(ApiKey.FIND_COORDINATOR, 4, request, correlation_id=6))
        assert clients.held == 0

    wired(dialogue)


def test_closed_connection_takes_its_holds_along() -> None:
    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect()
        await clients.join(connection, "a")
        connection.connection.connection_lost(None)
        assert (clients.held, clients.context.runtime._waiting) == (0, {})

    wired(dialogue)


def test_broker_that_stops_answers_what_it_holds() -> None:
    async def dialogue(clients: Clients) -> None:
        connection = await clients.connect()
        await clients.join(connection, "a")
        clients.context.runtime.release_all()
        ((number, told),) = await connection.receive(BEAT, 1)
        assert (number, told.error_code, told.assignment) == (HELD, ErrorCode.NONE, None)

    wired(dialogue)
