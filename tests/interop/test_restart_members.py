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
TURNS = 2
CONFIG = {
    "offsets.topic.segment.bytes": 65_536,
    "log.cleaner.backoff.ms": 1,
    "log.cleaner.min.cleanable.ratio": 0.01,
}


class Member(Protocol):
    """One member of group g; `called` has each callback."""

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

    def __init__(self, address: str, **options: Any) -> None:
        self.called: list[str] = []
        self.values: list[bytes] = []
        self._consumer = kohort.Consumer(
            bootstrap_servers=address,
            group_id="g",
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

    def __init__(self, address: str, **config: Any) -> None:
        self.called: list[str] = []
        self.values: list[bytes] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "g",
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

    def __init__(self, address: str, **config: Any) -> None:
        self.called: list[str] = []
        self.values: list[bytes] = []
        self._consumer = kafka.KafkaConsumer(
            bootstrap_servers=address,
            group_id="g",
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

    def __init__(self, address: str, **config: Any) -> None:
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
                group_id="g",
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
CLIENTS: dict[str, Callable[[str, int], Member]] = {
    "kohort, consumer": lambda address, _: OurMember(address),
    "kohort, classic": lambda address, _: OurMember(address, group_protocol="classic", heartbeat_interval_ms=200),
    "librdkafka, consumer": lambda address, _: ConfluentMember(address, **{"group.protocol": "consumer"}),
    "librdkafka, consumer, static": lambda address, number: ConfluentMember(
        address, **{"group.protocol": "consumer", "group.instance.id": f"static-{number}"}
    ),
    "librdkafka, classic": lambda address, _: ConfluentMember(address, **CLASSIC),
    "librdkafka, cooperative": lambda address, _: ConfluentMember(
        address, **CLASSIC, **{"partition.assignment.strategy": "cooperative-sticky"}
    ),
    "librdkafka, classic, static": lambda address, number: ConfluentMember(
        address, **CLASSIC, **{"group.instance.id": f"static-{number}"}
    ),
    "kafka-python": lambda address, _: KafkaPythonMember(address),
    "aiokafka": lambda address, _: AioMember(address),
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


#: It holds while the fixtures are torn down, too.
MAY_LEAVE_SOCKETS = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.mark.parametrize(
    "client", [pytest.param(name, marks=MAY_LEAVE_SOCKETS if name == "kafka-python" else ()) for name in CLIENTS]
)
def test_members_notice_nothing(broker: MortalBroker, client: str) -> None:
    with ExitStack() as stack:
        members = [CLIENTS[client](broker.address, number) for number in range(2)]
        for member in members:
            stack.callback(member.close)
        producer = stack.enter_context(kohort.Producer(bootstrap_servers=broker.address, reconnect_backoff_max_ms=200))
        admin = stack.enter_context(kohort.Admin(bootstrap_servers=broker.address, reconnect_backoff_max_ms=200))

        def poll_all() -> list[set[int]]:
            for member in members:
                member.poll()
            return [member.owned() for member in members]

        def read_on(turn: str) -> None:
            values = [f"{turn} {partition}".encode() for partition in range(PARTITIONS)]
            for partition, value in enumerate(values):
                producer.send(TOPIC, value, partition=partition).result(20)
            wait_until(
                lambda: poll_all() and {value for member in members for value in member.values} >= set(values),
                f"the members read on, {turn}",
            )
            for member in members:
                member.commit()

        wait_until(lambda: [len(owned) for owned in poll_all()] == [2, 2], "the members share the partitions")
        read_on("before")
        wait_until(lambda: poll_all() and admin.describe_group("g").state == "Stable", "the group is stable")
        called, owned = [list(member.called) for member in members], poll_all()
        states: list[dict[str, object]] = []
        for turn in range(TURNS + 1):
            broker.kill()
            states.append(stored(broker.data_dir))
            broker.revive()
            read_on(f"after {turn}")
        assert len(states[0]) == 1, "the group is in the log"
        assert all(state == states[0] for state in states), "a restart changed the group"
        assert poll_all() == owned
        assert [member.called for member in members] == called, "a member was called back"


#: As it comes, a leader that reaches no broker forgets its topics and rejoins when it finds them again (KIP-899).
JAVA_CLASSIC = {
    "group_protocol": "classic",
    "heartbeat_interval_ms": "200",
    "session_timeout_ms": "60000",
    "metadata_recovery_strategy": "none",
}


@pytest.mark.apache
@pytest.mark.parametrize(
    ("config", "names"),
    [
        pytest.param({}, (None, None), id="consumer"),
        pytest.param({}, ("one", "two"), id="consumer, static"),
        pytest.param(JAVA_CLASSIC, (None, None), id="classic"),
    ],
)
def test_java_members_notice_nothing(
    broker: MortalBroker, config: dict[str, str], names: tuple[str | None, ...]
) -> None:
    """Apache Kafka's own consumer; that it goes on shows in what it commits."""
    often = {"auto_commit_interval_ms": "100", "reconnect_backoff_max_ms": "200"}
    with ExitStack() as stack:
        producer = stack.enter_context(kohort.Producer(bootstrap_servers=broker.address, reconnect_backoff_max_ms=200))
        admin = stack.enter_context(kohort.Admin(bootstrap_servers=broker.address, reconnect_backoff_max_ms=200))
        members = [
            stack.enter_context(JavaMember(broker.address, topic=TOPIC, instance_id=name, **config, **often))
            for name in names
        ]

        def read_on(turn: int) -> None:
            for partition in range(PARTITIONS):
                producer.send(TOPIC, b"value", partition=partition).result(20)
            wait_until(
                lambda: [row.committed for row in admin.group_offsets("g")] == [turn + 1] * PARTITIONS,
                f"the members commit all of turn {turn}",
            )

        held = ["", ""]

        def hear() -> list[str]:
            for number, member in enumerate(members):
                held[number : number + 1] = member.said()[-1:] or [held[number]]
            return held

        wait_until(lambda: [len(line.split()) for line in hear()] == [3, 3], "the members hold two partitions each")
        read_on(0)
        states: list[dict[str, object]] = []
        for turn in (1, 2):
            broker.kill()
            states.append(stored(broker.data_dir))
            broker.revive()
            read_on(turn)
        assert len(states[0]) == 1, "the group is in the log"
        assert all(state == states[0] for state in states), "a restart changed the group"
        assert [member.said() for member in members] == [[], []], "members went on with what they held"
