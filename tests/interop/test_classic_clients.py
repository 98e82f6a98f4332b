"""Stock clients of the classic protocol against our broker: static members that are restarted, cooperative members.

KIP-345: a static member that stops does not leave; when it is back within its session it has its partitions again, and
nobody else notices. KIP-429: only what moves is given up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import ConsumerRebalanceListener as KafkaPythonListener
from kafka import KafkaConsumer

from kohort.broker.embedded import Broker
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient
from support.peers.confluent_member import Member, settle
from support.peers.kafka_python_client import subscribe
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.interop

#: Longer than any of these tests: nobody is given up.
SESSION_MS = 30_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config={"group.min.session.timeout.ms": 500}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 4, 1)])["t"].result(20)
        yield broker


def described(broker: Broker) -> tuple[str, dict[str | None, str]]:
    """State of group "g", and instance id -> member id."""
    with RawClient(broker.port) as client:
        (group,) = client.ask(ApiKey.DESCRIBE_GROUPS, 5, DescribeGroupsRequest(groups=["g"])).groups
    return group.group_state, {member.group_instance_id: member.member_id for member in group.members}


# ---- confluent-kafka


def confluent(broker: Broker, instance: str | None = None, **config: object) -> Member:
    settings: dict[str, object] = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 200, **config}
    if instance is not None:
        settings["group.instance.id"] = instance
    return Member(broker, "classic", **settings).subscribe("t")


@pytest.mark.parametrize("restarted", ["leader", "follower"])
def test_confluent_static_member_is_restarted_and_the_other_goes_on(broker: Broker, restarted: str) -> None:
    first, second = confluent(broker, "one"), confluent(broker, "two")
    with first, second:
        settle(first, second, owned=[2, 2])
        mine, other = (first, second) if restarted == "leader" else (second, first)
        name, before = ("one" if restarted == "leader" else "two"), mine.owned
        state, ids = described(broker)
        other.revoked.clear()
        mine.consumer.close()
        assert described(broker) == (state, ids) == ("Stable", ids), "a static member does not leave"

        with confluent(broker, name) as mine:
            until(lambda: mine.owned == before, what="the same partitions", step=lambda: (mine.poll(), other.poll()))
            state, after = described(broker)
            assert (state, after.keys()) == ("Stable", ids.keys())
            assert [after[instance] != ids[instance] for instance in sorted(ids)] == [
                instance == name for instance in sorted(ids)
            ]
            assert other.revoked == []
            for partition in range(4):
                assert (partition in mine.owned) != (partition in other.owned)


def test_confluent_static_member_that_is_started_twice_is_fenced(broker: Broker) -> None:
    """The one that came last goes on; the other is told so, fatally."""
    seen: list[KafkaError] = []
    older = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "group.protocol": "classic",
            "group.instance.id": "one",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 200,
            "error_cb": seen.append,
        }
    )
    older.subscribe(["t"])
    until(lambda: len(older.assignment()) == 4, what="it owns everything", step=lambda: older.poll(0.05))

    with confluent(broker, "one") as younger:

        def step() -> None:
            younger.poll()
            try:
                message = older.poll(0.05)
            except KafkaException as error:
                seen.append(error.args[0])
            else:
                if message is not None and message.error() is not None:
                    seen.append(message.error())

        until(lambda: bool(seen), what="the older one is told", step=step)
        assert seen[0].code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)
        until(lambda: len(younger.owned) == 4, what="the younger one owns everything", step=younger.poll)
    older.close()


def test_confluent_cooperative_members_give_up_what_moves_and_nothing_else(broker: Broker) -> None:
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    with confluent(broker, **cooperative) as first:
        settle(first, owned=[4])
        with confluent(broker, **cooperative) as second:
            settle(first, second, owned=[2, 2])
            assert sorted(first.revoked) == sorted(second.owned)
            assert second.revoked == []
        settle(first, owned=[4])


def test_confluent_members_without_a_common_protocol_do_not_form_a_group(broker: Broker) -> None:
    """The one that came second is refused; the first goes on."""
    with confluent(broker, **{"partition.assignment.strategy": "range"}) as first:
        settle(first, owned=[4])
        seen: list[KafkaError] = []
        with confluent(broker, **{"partition.assignment.strategy": "roundrobin", "error_cb": seen.append}) as second:

            def step() -> None:
                first.poll()
                message = second.consumer.poll(0.05)
                if message is not None and message.error() is not None:
                    seen.append(message.error())

            until(lambda: bool(seen), what="the second one is told", step=step)
            assert seen[0].code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
            assert (len(first.owned), first.revoked) == (4, [])


# ---- kafka-python


class Noted(KafkaPythonListener):
    """What a member was told to give up."""

    def __init__(self) -> None:
        self.revoked: list[int] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked += [each.partition for each in revoked]

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Nothing to note: `assignment` tells it."""


def kafka_python(broker: Broker, instance: str, stack: ExitStack) -> tuple[KafkaConsumer, Noted]:
    """A static member that is closed with `stack`, if not before."""
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        group_instance_id=instance,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=200,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    stack.callback(consumer.close)
    noted = Noted()
    subscribe(consumer, "t", listener=noted)
    return consumer, noted


def owned(consumer: Any) -> set[int]:
    return {each.partition for each in consumer.assignment()}


def read_something(consumer: KafkaConsumer) -> None:
    """Join in a single poll, which ends with the first record.

    One of kafka-python 3.0.12 that runs out while its join is under way lets the next one join again, when that finds
    the join done: a leader has everybody share out once more.
    """
    consumer.poll(timeout_ms=int(PATIENCE_SECONDS * 1_000))


def poll_all(*consumers: KafkaConsumer) -> Callable[[], None]:
    def step() -> None:
        for consumer in consumers:
            consumer.poll(timeout_ms=100)

    return step


def test_kafka_python_static_member_is_restarted_and_the_other_goes_on(broker: Broker) -> None:
    with ExitStack() as stack:
        with RawClient(broker.port) as client:
            for partition in range(4):
                client.produce("t", b"x", partition=partition)
        first, _ = kafka_python(broker, "one", stack)
        until(lambda: len(owned(first)) == 4, what="it owns everything", step=poll_all(first))
        second, noted = kafka_python(broker, "two", stack)
        until(lambda: len(owned(first)) == len(owned(second)) == 2, what="they share", step=poll_all(first, second))
        before, kept = owned(first), owned(second)
        noted.revoked.clear()
        first.close()
        state, ids = described(broker)
        assert (state, sorted(map(str, ids))) == ("Stable", ["one", "two"])

        first, _ = kafka_python(broker, "one", stack)
        until(lambda: owned(first) == before, what="the same partitions", step=lambda: read_something(first))

        assert (owned(second), noted.revoked) == (kept, [])
        assert described(broker)[1]["one"] != ids["one"]


# ---- aiokafka


class AsyncNoted(ConsumerRebalanceListener):
    """What a member was told to give up."""

    def __init__(self) -> None:
        self.revoked: list[int] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.revoked += [each.partition for each in revoked]

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Nothing to note: `assignment` tells it."""


async def aiokafka_member(broker: Broker, instance: str) -> tuple[AIOKafkaConsumer, AsyncNoted]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        group_instance_id=instance,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=200,
        enable_auto_commit=False,
    )
    noted = AsyncNoted()
    consumer.subscribe(["t"], listener=noted)
    await consumer.start()
    return consumer, noted


async def until_true(happened: Callable[[], bool], *consumers: AIOKafkaConsumer) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not happened():
            await asyncio.gather(*(consumer.getmany(timeout_ms=50) for consumer in consumers))


def test_aiokafka_static_member_is_restarted_and_the_other_goes_on(broker: Broker) -> None:
    async def dialogue() -> None:
        first, _ = await aiokafka_member(broker, "one")
        second, noted = await aiokafka_member(broker, "two")
        await until_true(lambda: len(owned(first)) == len(owned(second)) == 2, first, second)
        before, kept = owned(first), owned(second)
        noted.revoked.clear()
        await first.stop()
        state, ids = described(broker)
        assert (state, sorted(map(str, ids))) == ("Stable", ["one", "two"])

        first, _ = await aiokafka_member(broker, "one")
        await until_true(lambda: owned(first) == before, first, second)

        assert (owned(second), noted.revoked) == (kept, [])
        assert described(broker)[1]["one"] != ids["one"]
        await first.stop()
        await second.stop()

    asyncio.run(dialogue())
