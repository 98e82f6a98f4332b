"""Kill -9 and start again, seen by the members of each client: nobody joins again, nobody is called back.

What the log says of the group is compared before and after, record for record: epochs or generation, members, targets,
assignments, static names. The log is compacted all the while, so that some kills fall into a compaction.
Source: requirement G1; KIP-848 and KIP-345 (what is durable); the classic protocol.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import kohort
from kohort.broker.groups.shard_log import GroupLogLoader
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.ids import OFFSETS_TOPIC
from kohort.storage.store import Store
from support.peers.java_member import JavaMember
from support.peers.polled_members import AioMember, ConfluentMember, KafkaPythonMember, OurMember, PolledMember
from support.peers.restarts import MortalBroker, wait_until
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.interop

TOPIC = "load"
PARTITIONS = 4
CONFIG = {
    "offsets.topic.segment.bytes": 65_536,
    "log.cleaner.backoff.ms": 1,
    "log.cleaner.min.cleanable.ratio": 0.01,
}


#: Sessions outlast any restart, on a busy machine too.
CLASSIC = {"session_timeout_ms": 60_000, "heartbeat_interval_ms": 200}
PROMPT = {"reconnect_backoff_max_ms": 200}
LIBRDKAFKA = {**PROMPT, "reconnect_backoff_ms": 20, "fetch_wait_max_ms": 100, "log_level": 0}
#: Client -> class and options; a static one gets a name.
CLIENTS: dict[str, tuple[Callable[..., PolledMember], dict[str, object]]] = {
    "kohort, consumer": (OurMember, PROMPT),
    "kohort, classic": (OurMember, {**PROMPT, "group_protocol": "classic", "heartbeat_interval_ms": 200}),
    "librdkafka, consumer": (ConfluentMember, {**LIBRDKAFKA, "group_protocol": "consumer"}),
    "librdkafka, consumer, static": (ConfluentMember, {**LIBRDKAFKA, "group_protocol": "consumer"}),
    "librdkafka, classic": (ConfluentMember, {**LIBRDKAFKA, **CLASSIC}),
    "librdkafka, cooperative": (
        ConfluentMember,
        {**LIBRDKAFKA, **CLASSIC, "partition_assignment_strategy": "cooperative-sticky"},
    ),
    "librdkafka, classic, static": (ConfluentMember, {**LIBRDKAFKA, **CLASSIC}),
    "kafka-python": (KafkaPythonMember, {**PROMPT, **CLASSIC, "reconnect_backoff_ms": 20}),
    "aiokafka": (AioMember, {**CLASSIC, "retry_backoff_ms": 50}),
}


def member_of(client: str, address: str, number: int) -> PolledMember:
    """One of a client's pair, in the group that is called like it."""
    make, options = CLIENTS[client]
    name = {"group_instance_id": f"static-{number}"} if client.endswith("static") else {}
    return make(address, client, TOPIC, **options, **name)


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
        self.members = [member_of(client, address, number) for number in range(2)]
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
            member.commit(member.done)

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
    "consumer, one of them static": ({}, (None, "one")),
    "classic": (JAVA_CLASSIC, (None, None)),
}


@pytest.mark.apache
@pytest.mark.timeout(400)
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

        # Four virtual machines start at once.
        wait_until(
            lambda: all(len(line.split()) == 3 for line in hear()),
            "the members hold two partitions each",
            seconds=3 * PATIENCE_SECONDS,
        )
        read_on("before")
        states = kill_and_revive(broker, read_on, turns=2)
        assert len(states[0]) == len(JAVA_GROUPS), "the groups are in the log"
        assert all(state == states[0] for state in states), "a restart changed a group"
        assert [member.said() for member in members] == [[] for _ in members], "members went on with what they held"
