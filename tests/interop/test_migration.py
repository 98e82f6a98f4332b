"""Stock clients rolled one by one from the classic protocol to the consumer protocol and back, while records flow.

Each member closes cleanly with its offsets committed: nothing may be lost, and nothing processed twice.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

import kohort
from kohort import Broker, TopicPartition
from support.peers.apache import java_command
from support.peers.group_members import ConfluentMember, KohortMember, Ledger
from support.peers.python_members import AiokafkaMember, KafkaPythonMember
from support.peers.restarts import MortalBroker, Worker
from support.waiting import until

pytestmark = pytest.mark.interop

PARTITIONS = 6
#: Members leave, and none is silent; but one whose broker is away gives its membership up by itself after so long.
SESSION_MS = 60_000
#: What a virtual machine may take to start, and a group to share then, on a machine that is busy with others.
START_S = 80.0
CONFIG = {
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.min.session.timeout.ms": 500,
}


class Stream:
    """A producer that goes on and on, and how many records each partition has."""

    def __init__(self, address: str) -> None:
        # Without idempotence a retry through a kill is stored twice now and then.
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 1, "enable.idempotence": True})
        self._numbers = itertools.count()
        self._pause = threading.Event()
        self.ends = dict.fromkeys((TopicPartition("t", number) for number in range(PARTITIONS)), 0)

    def turn(self) -> None:
        """A few records to every partition."""
        for partition in self.ends:
            self._producer.produce("t", value=b"%d" % next(self._numbers), partition=partition.partition)
            self.ends[partition] += 1
        self._producer.poll(0)
        self._pause.wait(0.02)

    def finish(self) -> dict[TopicPartition, int]:
        """Everything is acknowledged."""
        assert self._producer.flush(30) == 0
        return dict(self.ends)


def create(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(20)


def stock(ledger: Ledger, name: str, address: str, protocol: str, **config: Any) -> ConfluentMember:
    """A confluent-kafka member; `protocol` is "consumer" or the name of a classic assignor."""
    settings: dict[str, Any] = {"bootstrap_servers": address, "group_id": "g", **config}
    if protocol == "consumer":
        settings["group_protocol"] = "consumer"
    else:
        settings |= {
            "partition_assignment_strategy": protocol,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": 200,
        }
    return ConfluentMember(ledger, name, topic="t", **settings)


def group_type(address: str) -> str:
    with kohort.Admin(bootstrap_servers=address) as admin:
        (listed,) = admin.list_groups()
        return str(listed.group_type)


def roll(members: list[Any], fresh: Callable[[str, int], Any], kind: str, ledger: Ledger) -> list[Any]:
    """Replace members one by one by members of the other kind."""
    for number, member in enumerate(list(members)):
        member.leave()
        members[number] = fresh(kind, number).start()
        ledger.wait_for_shares(*(each.name for each in members), partitions=PARTITIONS)
    return members


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_confluent_members_are_rolled_there_and_back(assignor: str) -> None:
    """KIP-848, design goals: rolling the consumers is enough."""
    ledger = Ledger()
    with Broker(config=CONFIG) as broker, ExitStack() as stack:
        address = broker.bootstrap_servers
        create(address)
        stream = Stream(address)
        generations = itertools.count()

        def fresh(kind: str, number: int) -> ConfluentMember:
            return stock(ledger, f"{kind}-{number}-{next(generations)}", address, kind)

        # Three that start at once rebalance twice: a commit may lose its race with both, and is no matter of the roll.
        members = [fresh(assignor, number).start() for number in range(3)]
        stack.callback(lambda: [member.leave() for member in members])
        ledger.wait_for_shares(*(member.name for member in members), partitions=PARTITIONS)
        assert group_type(address) == "classic"
        with Worker(stream.turn):
            roll(members, fresh, "consumer", ledger)
            assert group_type(address) == "consumer"
            roll(members, fresh, assignor, ledger)
            assert group_type(address) == "classic"
        ledger.wait_for_records(stream.finish())
    assert ledger.repeated() == {}


@pytest.mark.parametrize("member_of", [KafkaPythonMember, AiokafkaMember])
def test_python_clients_share_a_group_with_members_of_the_consumer_protocol(member_of: type[Any]) -> None:
    """Clients that know the classic protocol only stay beside those that are rolled."""
    ledger = Ledger()
    with Broker(config=CONFIG) as broker, ExitStack() as stack:
        address = broker.bootstrap_servers
        create(address)
        stream = Stream(address)
        with Worker(stream.turn):
            old = [stack.enter_context(member_of(ledger, f"old-{number}", address)) for number in range(2)]
            ledger.wait_for_shares("old-0", "old-1", partitions=PARTITIONS)
            new = stack.enter_context(stock(ledger, "new", address, "consumer"))
            ledger.wait_for_shares("old-0", "old-1", "new", partitions=PARTITIONS)
            assert group_type(address) == "consumer"
            old[0].leave()
            ledger.wait_for_shares("old-1", "new", partitions=PARTITIONS)
            new.leave()
            ledger.wait_for_shares("old-1", partitions=PARTITIONS)
            assert group_type(address) == "classic"
            stack.enter_context(member_of(ledger, "old-2", address))
            ledger.wait_for_shares("old-1", "old-2", partitions=PARTITIONS)
        ledger.wait_for_records(stream.finish())
    assert ledger.repeated() == {}


def test_our_client_is_rolled_there_and_back() -> None:
    ledger = Ledger()
    with Broker(config=CONFIG) as broker, ExitStack() as stack:
        address = broker.bootstrap_servers
        create(address)
        stream = Stream(address)
        generations = itertools.count()

        def fresh(kind: str, number: int) -> KohortMember:
            options = {"heartbeat_interval_ms": 100, "session_timeout_ms": SESSION_MS} if kind == "classic" else {}
            name = f"{kind}-{number}-{next(generations)}"
            return KohortMember(
                ledger, name, topic="t", bootstrap_servers=address, group_id="g", group_protocol=kind, **options
            )

        with Worker(stream.turn):
            members = [fresh("classic", number).start() for number in range(3)]
            stack.callback(lambda: [member.leave() for member in members])
            ledger.wait_for_shares(*(member.name for member in members), partitions=PARTITIONS)
            roll(members, fresh, "consumer", ledger)
            assert group_type(address) == "consumer"
            roll(members, fresh, "classic", ledger)
            assert group_type(address) == "classic"
        ledger.wait_for_records(stream.finish())
    assert ledger.repeated() == {}


def test_mixed_group_lives_through_a_kill(tmp_path: Path) -> None:
    """kill -9 in a mixed group: everybody goes on with what it had, and nothing is lost."""
    ledger = Ledger()
    with MortalBroker(tmp_path, CONFIG) as broker, ExitStack() as stack:
        create(broker.address)
        stream = Stream(broker.address)
        with Worker(stream.turn):
            for number, kind in enumerate(["cooperative-sticky", "consumer", "cooperative-sticky"]):
                stack.enter_context(stock(ledger, f"{kind}-{number}", broker.address, kind))
                names = [
                    f"{each}-{i}" for i, each in enumerate(["cooperative-sticky", "consumer", "cooperative-sticky"])
                ]
                ledger.wait_for_shares(*names[: number + 1], partitions=PARTITIONS)
            before = {name: set(owned) for name, owned in ledger.owned.items()}
            callbacks = len(ledger.callbacks)
            done = sum(ledger.counts().values())
            broker.kill()
            broker.revive()
            ledger.wait_until(lambda: sum(ledger.counts().values()) > done + 60, "they go on")
            assert group_type(broker.address) == "consumer"
            assert {name: set(owned) for name, owned in ledger.owned.items()} == before
            # Who gave up for the last to join may be told of the end of that round, which gave it nothing, only now.
            assert [each for each in ledger.callbacks[callbacks:] if each[2]] == []
        ledger.wait_for_records(stream.finish())


def test_who_cannot_join_is_told_why_and_nobody_else_is_disturbed() -> None:
    """INCONSISTENT_GROUP_PROTOCOL is fatal to stock clients, as Kafka's GROUP_ID_NOT_FOUND is, and tells the reason."""
    ledger = Ledger()
    with Broker(config={**CONFIG, "group.consumer.migration.policy": "disabled"}) as broker:
        create(broker.bootstrap_servers)
        with stock(ledger, "old", broker.bootstrap_servers, "range"):
            ledger.wait_for_shares("old", partitions=PARTITIONS)
            consumer = ConfluentConsumer(
                {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "group.protocol": "consumer"}
            )
            consumer.subscribe(["t"])
            errors: list[KafkaError] = []

            def step() -> None:
                message = consumer.poll(0.2)
                if message is not None and message.error() is not None:
                    errors.append(message.error())

            until(lambda: bool(errors), what="the member is refused", step=step)
            consumer.close()
            assert errors[0].code() == KafkaError._FATAL
            assert "Inconsistent group protocol" in errors[0].str()
            assert ledger.kinds("old") == ["assigned"]
            assert group_type(broker.bootstrap_servers) == "classic"


class JavaMember:
    """Apache Kafka's console consumer in a JVM of its own; it prints each record's partition, offset and value."""

    def __init__(self, address: str, name: str, **config: str) -> None:
        self.name = name
        self.lines: list[str] = []
        command = java_command("org.apache.kafka.tools.consumer.ConsoleConsumer", heap="128m")
        command += ["--bootstrap-server", address, "--topic", "t", "--group", "g"]
        command += ["--formatter-property", "print.partition=true"]
        command += ["--formatter-property", "print.offset=true"]
        for key, value in {"auto.offset.reset": "earliest", "auto.commit.interval.ms": "200", **config}.items():
            command += ["--command-property", f"{key}={value}"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())

    @property
    def records(self) -> list[tuple[int, int]]:
        """(partition, offset) of what it printed."""
        found = [re.match(r"Partition:(\d+)\s+Offset:(\d+)", line) for line in self.lines]
        return [(int(match[1]), int(match[2])) for match in found if match is not None]

    def partitions_since(self, count: int) -> set[int]:
        """Of which partitions it has printed records after the first `count`."""
        return {partition for partition, _ in self.records[count:]}

    def leave(self) -> None:
        """Let it close its consumer, which commits."""
        self._process.terminate()
        self._process.wait(60)
        self._reader.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(30)
        self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.mark.timeout(400)
def test_java_members_of_both_protocols_share_a_group() -> None:
    """Java's classic member (range and cooperative-sticky, as by default) is rolled to the consumer protocol."""
    with Broker(config=CONFIG) as broker, ExitStack() as stack:
        address = broker.bootstrap_servers
        create(address)
        stream = Stream(address)
        pause = threading.Event()

        def all_partitions(*members: JavaMember) -> None:
            marks = {member.name: len(member.records) for member in members}

            def is_shared() -> bool:
                seen = [member.partitions_since(marks[member.name]) for member in members]
                if any(len(each) > PARTITIONS // len(members) for each in seen):
                    # They have moved meanwhile: look at what is read from now on.
                    marks.update({member.name: len(member.records) for member in members})
                    return False
                return set().union(*seen) == set(range(PARTITIONS))

            until(
                is_shared,
                what=f"{[member.name for member in members]} share",
                step=lambda: pause.wait(0.2),
                seconds=START_S,
            )

        with Worker(stream.turn):
            classic = {
                "heartbeat.interval.ms": "200",
                "session.timeout.ms": f"{SESSION_MS}",
                "group.protocol": "classic",
            }
            old = stack.enter_context(JavaMember(address, "old", **classic))
            all_partitions(old)
            new = stack.enter_context(JavaMember(address, "new", **{"group.protocol": "consumer"}))
            all_partitions(old, new)
            assert group_type(address) == "consumer"
            old.leave()
            all_partitions(new)
            again = stack.enter_context(JavaMember(address, "again", **classic))
            all_partitions(new, again)
            new.leave()
            all_partitions(again)
            assert group_type(address) == "classic"
        ends = stream.finish()
        members = (old, new, again)
        everything = sum(ends.values())
        until(
            lambda: sum(len(member.records) for member in members) >= everything,
            what=f"{everything} records are read",
            step=lambda: pause.wait(0.2),
        )
        again.leave()
    done = [record for member in members for record in member.records]
    assert len(done) == len(set(done)) == everything
