"""Kill -9 and start again, seen by the members of each client: nobody joins again, nobody is called back.

What the log says of the group is compared before and after, record for record: epochs or generation, members, targets,
assignments, static names. The log is compacted all the while, so that some kills fall into a compaction.
Source: requirement G1; KIP-848 and KIP-345 (what is durable); the classic protocol.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.abc import ConsumerRebalanceListener as AioListener

import kohort
from kohort.broker.grouplog import GroupLogLoader
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.ids import OFFSETS_TOPIC
from kohort.storage.store import Store
from support.java_member import JavaMember
from support.kafka_python_client import subscribe
from support.restarts import DEADLINE_SECONDS, MortalBroker, wait_until

pytestmark = pytest.mark.interop

T = TypeVar("T")

TOPIC = "load"
PARTITIONS = 4
CONFIG = {
    "offsets.topic.segment.bytes": 65_536,
    "log.cleaner.backoff.ms": 1,
    "log.cleaner.min.cleanable.ratio": 0.01,
}


class Member(Protocol):
    """One member of a group; `called` has each callback."""

    called: list[str]
    values: list[bytes]

    def poll(self) -> None:
        """Read for a moment."""
        ...

    def owned(self) -> set[int]:
        """Partitions that it has."""
        ...

    def commit(self) -> None:
        """Commit what was read."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class OurMember:
    """kohort.Consumer."""

    def __init__(self, address: str, group: str, **options: Any) -> None:
        self.called: list[str] = []
        self.values: list[bytes] = []
        self._consumer = kohort.Consumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            reconnect_backoff_max_ms=200,
            **options,
        )
        self._consumer.subscribe(
            [TOPIC],
            on_assigned=lambda *_: self.called.append("assigned"),
            on_revoked=lambda *_: self.called.append("revoked"),
            on_lost=lambda *_: self.called.append("lost"),
        )

    def poll(self) -> None:
        self.values += [record.value or b"" for record in self._consumer.poll(0.05)]

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(timeout=20.0)

    def close(self) -> None:
        self._consumer.close()


class ConfluentMember:
    """librdkafka."""

    def __init__(self, address: str, group: str, **config: Any) -> None:
        self.called: list[str] = []
        self.values: list[bytes] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
                **config,
            }
        )
        self._consumer.subscribe(
            [TOPIC],
            on_assign=lambda *_: self.called.append("assigned"),
            on_revoke=lambda *_: self.called.append("revoked"),
            on_lost=lambda *_: self.called.append("lost"),
        )

    def poll(self) -> None:
        for message in self._consumer.consume(100, 0.05):
            if message.error() is None:
                self.values.append(message.value() or b"")

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonMember:
    """kafka-python, classic."""

    def __init__(self, address: str, group: str, **config: Any) -> None:
        self.called: list[str] = []
        self.values: list[bytes] = []
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            heartbeat_interval_ms=200,
            session_timeout_ms=60_000,
            **config,
        )
        called = self.called

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: object) -> None:
                called.append("revoked")

            def on_partitions_assigned(self, assigned: object) -> None:
                called.append("assigned")

        subscribe(self._consumer, TOPIC, listener=Listener())

    def poll(self) -> None:
        for records in self._consumer.poll(timeout_ms=50).values():
            self.values += [record.value for record in records]

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class AioMember:
    """aiokafka, classic, on a thread of its own.

    Its loop has to turn while nobody polls: a member that joins would wait for another one that is silent.
    """

    def __init__(self, address: str, group: str, **config: Any) -> None:
        self.called: list[str] = []
        self.values: list[bytes] = []
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()
        called = self.called

        class Listener(AioListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: object) -> None:
                called.append("revoked")

            async def on_partitions_assigned(self, assigned: object) -> None:
                called.append("assigned")

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=address,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                heartbeat_interval_ms=200,
                session_timeout_ms=60_000,
                retry_backoff_ms=50,
                **config,
            )
            consumer.subscribe([TOPIC], listener=Listener())
            await consumer.start()
            return consumer

        self._consumer = self._run(start())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_SECONDS)

    def poll(self) -> None:
        for records in self._run(self._consumer.getmany(timeout_ms=50)).values():
            self.values += [record.value for record in records]

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self) -> None:
        self._run(self._consumer.commit())

    def close(self) -> None:
        try:
            self._run(self._consumer.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(DEADLINE_SECONDS)
            self._runner.close()


#: Sessions outlast any restart, on a busy machine too.
CLASSIC = {"session.timeout.ms": 60_000, "heartbeat.interval.ms": 200}
CLIENTS: dict[str, Callable[[str, str, int], Member]] = {
    "kohort, consumer": lambda address, group, _: OurMember(address, group),
    "kohort, classic": lambda address, group, _: OurMember(
        address, group, group_protocol="classic", heartbeat_interval_ms=200
    ),
    "librdkafka, consumer": lambda address, group, _: ConfluentMember(address, group, **{"group.protocol": "consumer"}),
    "librdkafka, consumer, static": lambda address, group, number: ConfluentMember(
        address, group, **{"group.protocol": "consumer", "group.instance.id": f"static-{number}"}
    ),
    "librdkafka, classic": lambda address, group, _: ConfluentMember(address, group, **CLASSIC),
    "librdkafka, cooperative": lambda address, group, _: ConfluentMember(
        address, group, **CLASSIC, **{"partition.assignment.strategy": "cooperative-sticky"}
    ),
    "librdkafka, classic, static": lambda address, group, number: ConfluentMember(
        address, group, **CLASSIC, **{"group.instance.id": f"static-{number}"}
    ),
    "kafka-python": lambda address, group, _: KafkaPythonMember(address, group),
    "aiokafka": lambda address, group, _: AioMember(address, group),
}


def stored(data_dir: Path) -> dict[str, object]:
    """What the log of the killed broker says of groups, offsets left out; an empty shard says nothing."""
    store = Store.open(str(data_dir))
    state: dict[str, object] = {}
    for log in store.topics[OFFSETS_TOPIC].partitions:
        shard = Shard(GroupSettings())
        GroupLogLoader().load(shard, log)
        digest = shard.state_digest()
        for kind in ("consumer", "classic"):
            groups = digest[kind]
            assert isinstance(groups, dict)
            state.update({f"{kind} {name}": group for name, group in groups.items()})
    store.close(clean=False)
    return state


@pytest.fixture
def leftovers(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Collect what a client has left behind before any other test runs.

    kafka-python closes no socket whose connection was refused: the traceback of the refusal keeps it until the garbage
    collector comes by, which warns of it in whatever test is running then. A refusal that was logged would be kept by
    pytest until after the last fixture: it is not logged.
    """
    caplog.set_level(logging.CRITICAL + 1, "kafka")
    yield
    gc.collect()


@pytest.fixture
def broker(leftovers: None, tmp_path: Path) -> Iterator[MortalBroker]:
    with MortalBroker(tmp_path / "data", CONFIG) as broker:
        with kohort.Admin(bootstrap_servers=broker.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS)
        yield broker


class Pair:
    """Two members of one client, in the group that is called like it, who share the topic."""

    def __init__(self, address: str, client: str, stack: ExitStack) -> None:
        self.client = client
        self.members = [CLIENTS[client](address, client, number) for number in range(2)]
        for member in self.members:
            stack.callback(member.close)
        wait_until(lambda: [len(owned) for owned in self.poll()] == [2, 2], f"{client}: they share the partitions")

    def poll(self) -> list[set[int]]:
        """Let both read for a moment; what each has."""
        for member in self.members:
            member.poll()
        return [member.owned() for member in self.members]

    def read_on(self, values: set[bytes]) -> None:
        """Wait until they have read all of that, and commit."""

        def have_read() -> bool:
            self.poll()
            return {value for member in self.members for value in member.values} >= values

        wait_until(have_read, f"{self.client}: they read on")
        for member in self.members:
            member.commit()

    def called(self) -> list[list[str]]:
        """The callbacks of both."""
        return [list(member.called) for member in self.members]


def kill_and_revive(broker: MortalBroker, read_on: Callable[[str], None], turns: int) -> list[dict[str, object]]:
    """What the log says of the groups after each kill."""
    states = []
    for turn in range(turns):
        broker.kill()
        states.append(stored(broker.data_dir))
        broker.revive()
        read_on(f"after {turn}")
    return states


#: It holds while the fixtures are torn down, too.
MAY_LEAVE_SOCKETS = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.mark.parametrize(
    "clients",
    [
        pytest.param(sorted(CLIENTS.keys() - {"kafka-python"}), id="all"),
        pytest.param(["kafka-python"], marks=MAY_LEAVE_SOCKETS, id="kafka-python"),
    ],
)
def test_members_notice_nothing(broker: MortalBroker, clients: list[str]) -> None:
    """A group of each client, at one broker."""
    with ExitStack() as stack:
        producer = stack.enter_context(kohort.Producer(bootstrap_servers=broker.address, reconnect_backoff_max_ms=200))
        admin = stack.enter_context(kohort.Admin(bootstrap_servers=broker.address, reconnect_backoff_max_ms=200))
        pairs = [Pair(broker.address, client, stack) for client in clients]

        def read_on(turn: str) -> None:
            values = [f"{turn} {partition}".encode() for partition in range(PARTITIONS)]
            for partition, value in enumerate(values):
                producer.send(TOPIC, value, partition=partition).result(20)
            for pair in pairs:
                pair.read_on(set(values))

        read_on("before")
        for pair in pairs:
            wait_until(
                lambda pair=pair: pair.poll() and admin.describe_group(pair.client).state == "Stable",  # type: ignore[misc]
                f"{pair.client}: the group is stable",
            )
        called, owned = {pair.client: pair.called() for pair in pairs}, {pair.client: pair.poll() for pair in pairs}
        states = kill_and_revive(broker, read_on, turns=3)
        assert len(states[0]) == len(clients), "the groups are in the log"
        assert all(state == states[0] for state in states), "a restart changed a group"
        assert {pair.client: pair.poll() for pair in pairs} == owned
        assert {pair.client: pair.called() for pair in pairs} == called, "a member was called back"


#: As it comes, a leader that reaches no broker forgets its topics and rejoins when it finds them again (KIP-899).
JAVA_CLASSIC = {
    "group_protocol": "classic",
    "heartbeat_interval_ms": "200",
    "session_timeout_ms": "60000",
    "metadata_recovery_strategy": "none",
}
#: Group -> config and names of its members.
JAVA_GROUPS: dict[str, tuple[dict[str, str], tuple[str | None, ...]]] = {
    "consumer": ({}, (None, None)),
    "consumer, static": ({}, ("one", "two")),
    "classic": (JAVA_CLASSIC, (None, None)),
}


@pytest.mark.apache
def test_java_members_notice_nothing(broker: MortalBroker) -> None:
    """Apache Kafka's own consumer, in a group of each kind; that it goes on shows in what it commits."""
    often = {"auto_commit_interval_ms": "100", "reconnect_backoff_max_ms": "200"}
    with ExitStack() as stack:
        producer = stack.enter_context(kohort.Producer(bootstrap_servers=broker.address, reconnect_backoff_max_ms=200))
        admin = stack.enter_context(kohort.Admin(bootstrap_servers=broker.address, reconnect_backoff_max_ms=200))
        members = [
            stack.enter_context(
                JavaMember(broker.address, topic=TOPIC, group_id=group, instance_id=name, **config, **often)
            )
            for group, (config, names) in JAVA_GROUPS.items()
            for name in names
        ]
        sent = 0

        def read_on(turn: str) -> None:
            nonlocal sent
            sent += 1
            for partition in range(PARTITIONS):
                producer.send(TOPIC, turn, partition=partition).result(20)
            for group in JAVA_GROUPS:
                wait_until(
                    lambda group=group: [row.committed for row in admin.group_offsets(group)] == [sent] * PARTITIONS,  # type: ignore[misc]
                    f"{group}: the members commit all, {turn}",
                )

        held = ["" for _ in members]

        def hear() -> list[str]:
            for number, member in enumerate(members):
                held[number : number + 1] = member.said()[-1:] or [held[number]]
            return held

        wait_until(lambda: all(len(line.split()) == 3 for line in hear()), "the members hold two partitions each")
        read_on("before")
        states = kill_and_revive(broker, read_on, turns=2)
        assert len(states[0]) == len(JAVA_GROUPS), "the groups are in the log"
        assert all(state == states[0] for state in states), "a restart changed a group"
        assert [member.said() for member in members] == [[] for _ in members], "members went on with what they held"
