"""What may happen to a cluster while two members of ours read: restarts, moves, a stall, topics that change.

Each place is a kind of cluster that some of it can happen to; the scenario is the same everywhere.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import ClassVar, Final, NamedTuple, TypeVar

from kohort import Admin, Broker, Consumer, Producer
from kohort.client.admin.results.topics import PartitionDescription
from kohort.errors import KohortError
from kohort.testing.cluster import Cluster
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.registry import ApiKey
from support.depth import IS_SOAK
from support.dialogues.broker_wire import RawClient
from support.peers.apache_broker import ApacheKafka
from support.peers.apache_cluster import ApacheCluster
from support.peers.group_members import KohortMember, Ledger
from support.peers.lossy_proxy import LossyProxy
from support.ports import quiet_port
from support.scenarios.client_scenarios import (
    BROKER_CONFIG,
    Load,
    fresh,
    group_options,
    is_listed,
    patient_options,
    wait_until,
)

#: Way of being a member -> its assignor.
MODES: Final = (
    ("consumer", "uniform"),
    ("consumer", "range"),
    ("classic", "range"),
    ("classic", "roundrobin"),
    ("classic", "cooperative-sticky"),
)
PARTITIONS: Final = 4
#: Nobody is cut off by these, so nothing may be read twice.
ORDERLY: Final = frozenset({"leader", "grown", "deleted", "pattern"})
#: Records of each partition before, meanwhile and afterwards.
RECORDS: Final = 20


class Case(NamedTuple):
    """One field of the matrix."""

    event: str
    protocol: str
    assignor: str
    is_static: bool

    def __str__(self) -> str:
        return f"{self.event}-{self.protocol}-{self.assignor}-{'static' if self.is_static else 'dynamic'}"


class Place(ABC):
    """A cluster with `BROKER_CONFIG`."""

    #: Whose brokers.
    kind: ClassVar[str]
    #: What can happen to it.
    events: ClassVar[tuple[str, ...]]
    #: What happens in each run of the tests, in some of the ways; the rest takes long.
    daily: ClassVar[tuple[str, ...]]
    bootstrap_servers: str

    def group(self) -> str:
        """A name for a group whose coordinator everything can happen to."""
        return fresh("matrix")

    @abstractmethod
    def happen(self, event: str, topic: str, group: str) -> None:
        """Let it happen, if it is for brokers; whoever was away is back when this returns."""

    @abstractmethod
    def close(self) -> None:
        """End it."""

    @classmethod
    def fields(cls, events: Sequence[str]) -> list[Case]:
        """These events, each to members of every way and kind."""
        return [Case(event, *mode, is_static) for event, mode, is_static in product(events, MODES, (False, True))]


def answers_nobody(bootstrap: str) -> bool:
    """Whether a broker keeps a newcomer waiting."""
    try:
        with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=500, request_timeout_ms=500) as admin:
            admin.list_topics()
    except KohortError:
        return True
    return False


def stall(process_id: int, bootstrap: str) -> None:
    """Stop a broker's process (SIGSTOP) until somebody has noticed, then let it go on."""
    os.kill(process_id, signal.SIGSTOP)
    try:
        wait_until(lambda: answers_nobody(bootstrap), "the broker stands still")
    finally:
        os.kill(process_id, signal.SIGCONT)


class OurBroker(Place):
    """Our broker in a process of its own, on disk."""

    kind = "ours"
    events = daily = ("restart", "kill", "stall", "grown", "deleted", "pattern")

    def __init__(self, directory: Path) -> None:
        self._make = lambda: Broker(data_dir=directory, port=port, process=True, config=BROKER_CONFIG)
        port = quiet_port()
        self._broker = self._make().start()
        self.bootstrap_servers = self._broker.bootstrap_servers

    def happen(self, event: str, topic: str, group: str) -> None:
        match event:
            case "restart":
                self._broker.stop()
                self._broker.start()
            case "kill":
                self._broker.kill()
                self._broker = self._make().start()
            case "stall":
                assert self._broker.process_id is not None
                stall(self._broker.process_id, self.bootstrap_servers)

    def close(self) -> None:
        self._broker.stop()


class OurCluster(Place):
    """Three of our brokers in this process."""

    kind = "ours"
    events = daily = ("leader", "coordinator", "restart", "kill", "grown", "deleted", "pattern")

    def __init__(self) -> None:
        self._cluster = Cluster(3, config=BROKER_CONFIG).open()
        self.bootstrap_servers = self._cluster.bootstrap_servers

    def happen(self, event: str, topic: str, group: str) -> None:
        cluster = self._cluster
        leader, coordinator = cluster.leader(topic, 0), cluster.coordinator(group)
        assert leader is not None and coordinator is not None
        match event:
            case "leader":
                for partition in range(PARTITIONS):
                    cluster.move_leader(topic, partition, 1 + (cluster.leader(topic, partition) or 0) % 3)
            case "coordinator":
                cluster.move_coordinator(group, 1 + coordinator % 3)
            case "restart":
                cluster.stop(leader)
                cluster.start(leader)
            case "kill":
                cluster.kill(coordinator)
                cluster.start(coordinator)

    def close(self) -> None:
        self._cluster.close()


class ApacheBroker(Place):
    """One broker of Apache Kafka 4.3, and a proxy through which it is reached, too."""

    kind = "Apache"
    events = ("restart", "kill", "stall", "grown", "deleted", "pattern")
    daily = ("stall", "grown", "deleted", "pattern")

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.proxy: Final = self._stack.enter_context(LossyProxy())
        self._kafka = self._stack.enter_context(ApacheKafka(BROKER_CONFIG, proxy_port=self.proxy.port))
        self.proxy.target_port = self._kafka.proxied_port
        self.bootstrap_servers = self._kafka.bootstrap_servers

    def happen(self, event: str, topic: str, group: str) -> None:
        if event in ("restart", "kill"):
            self._kafka.stop(kill=event == "kill")
            self._kafka.start()
        elif event == "stall":
            assert self._kafka.process is not None
            stall(self._kafka.process.pid, self.bootstrap_servers)

    def close(self) -> None:
        self._stack.close()


class ApacheBrokers(Place):
    """Three brokers of Apache Kafka 4.3 with three replicas of everything; the first is their controller.

    Only a rolling restart stops that one: nobody can tell meanwhile who leads.
    """

    kind = "Apache"
    events = ("leader", "coordinator", "restart", "kill", "stall", "grown", "deleted", "pattern")
    daily = ("leader", "grown", "deleted")
    #: The last two: a replica that lags behind is noticed soon, and may lead soon where a topic allows that.
    _config: Final = {
        "default.replication.factor": 3,
        "offsets.topic.replication.factor": 3,
        "replica.lag.time.max.ms": 2_000,
        "unclean.leader.election.interval.ms": 1_000,
        # A transaction that hangs, as older brokers leave some behind, can be made then.
        "transaction.partition.verification.enable": "false",
    }

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.cluster = self._stack.enter_context(ApacheCluster(3, {**BROKER_CONFIG, **self._config}))
        self.bootstrap_servers = self.cluster.bootstrap_servers

    def group(self) -> str:
        while True:
            name = super().group()
            if self._coordinator(name) != 1:
                return name

    def happen(self, event: str, topic: str, group: str) -> None:
        match event:
            case "leader":
                number = next(row.leader for row in self._partitions(topic) if row.leader != 1)
                self._broker(number).stop()
                wait_until(lambda: number not in [row.leader for row in self._partitions(topic)], "others lead")
                self._broker(number).start()
            case "coordinator":
                number = self._coordinator(group)
                self._broker(number).stop()
                wait_until(lambda: self._coordinator(group) not in (number, -1), "another one coordinates")
                self._broker(number).start()
            case "restart":
                for broker in self.cluster.brokers:
                    broker.stop()
                    broker.start()
                    wait_until(lambda: self._is_in_step(topic), "every replica is in step")
            case "kill":
                broker = self._broker(self._coordinator(group))
                broker.stop(kill=True)
                broker.start()
            case "stall":
                broker = self._broker(self._coordinator(group))
                assert broker.process is not None
                stall(broker.process.pid, broker.bootstrap_servers)

    def _broker(self, number: int) -> ApacheKafka:
        return self.cluster.brokers[number - 1]

    def _partitions(self, topic: str) -> Sequence[PartitionDescription]:
        with Admin(bootstrap_servers=self._broker(1).bootstrap_servers) as admin:
            return admin.describe_topics([topic])[0].partitions

    def _is_in_step(self, topic: str) -> bool:
        return all(len(row.in_sync) == 3 for row in self._partitions(topic))

    def _coordinator(self, group: str) -> int:
        found = -1

        def is_found() -> bool:
            nonlocal found
            with RawClient(self._broker(1).port) as client:
                request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
                (answer,) = client.ask(ApiKey.FIND_COORDINATOR, 4, request).coordinators
            found = answer.node_id
            return answer.error_code == 0

        wait_until(is_found, "a coordinator")
        return found

    def close(self) -> None:
        self._stack.close()


PLACES: Final[tuple[type[Place], ...]] = (OurBroker, OurCluster, ApacheBroker, ApacheBrokers)


def cases(place: type[Place]) -> list[Case]:
    """All of a place's matrix in `make soak`, else its part of `daily_fields`."""
    if is_whole():
        return place.fields(place.events)
    return [case for at, case in daily_fields() if at is place]


def is_whole() -> bool:
    """Whether all of the matrix is wanted."""
    return IS_SOAK


@cache
def daily_fields() -> list[tuple[type[Place], Case]]:
    """Few fields that have between them every pair that any has: always the one with most that were missing."""
    fields = [(place, case) for place in PLACES for case in place.fields(place.daily)]
    missing = set().union(*(pairs(*field) for field in fields))
    found = []
    while missing:
        found.append(max(fields, key=lambda field: len(pairs(*field) & missing)))
        missing -= pairs(*found[-1])
    return found


def pairs(place: type[Place], case: Case) -> set[tuple[object, object]]:
    """What meets in a field; an event meets the protocol, not each of its assignors."""
    mode = (case.protocol, case.assignor)
    return {
        (place, case.event),
        (place.kind, mode),
        (place, case.is_static),
        (case.event, case.protocol),
        (case.event, case.is_static),
        (mode, case.is_static),
    }


def members_go_on(place: Place, case: Case) -> None:
    """Whatever happens: each record is processed, both members read their share, and what they did is committed."""
    group, ledger = place.group(), Ledger()
    names = [f"{group}-{letter}" for letter in ("ab" if case.event == "deleted" else "a")]
    is_orderly = case.event in ORDERLY
    options = {
        **(patient_options if is_orderly else group_options)(place.bootstrap_servers, group, case.protocol),
        "allow_auto_create_topics": False,
        "metadata_max_age_ms": 500,
        "group_remote_assignor" if case.protocol == "consumer" else "partition_assignment_strategy": case.assignor,
    }
    with (
        Admin(bootstrap_servers=place.bootstrap_servers) as admin,
        ExitStack() as stack,
        Producer(bootstrap_servers=place.bootstrap_servers) as producer,
    ):
        for name in names:
            admin.create_topic(name, PARTITIONS)
            wait_until(lambda name=name: is_listed(admin, name), f"{name} is known")  # type: ignore[misc]
        for letter in "ab":
            own = {"group_instance_id": f"{group}-{letter}"} if case.is_static else {}
            topics = f"^{group}" if case.event == "pattern" else names
            member = KohortMember(ledger, letter, topic=topics, may_be_fenced=not is_orderly, **options, **own)
            stack.enter_context(member)
        load = Load(producer, names[0], PARTITIONS)
        load.send(RECORDS)
        ledger.wait_for_shares("a", "b", partitions=PARTITIONS * len(names))
        ledger.wait_for_records(load.ends)

        load.send(RECORDS)
        more = _change_topics(admin, case.event, names, place.bootstrap_servers, stack)
        place.happen(case.event, names[0], group)
        load.send(RECORDS)
        if more is not None:
            more.send(RECORDS)
        ends = {**load.ends, **({} if more is None else more.ends)}
        ledger.wait_for_records(ends)
        ledger.wait_for_shares("a", "b", partitions=len(ends))
        if is_orderly:
            assert ledger.repeated() == {}
    with Consumer(**options) as reader:
        assert reader.committed(ends) == ends


def _change_topics(admin: Admin, event: str, names: list[str], bootstrap: str, stack: ExitStack) -> Load | None:
    """What happens to topics; returns the load for what is new."""
    if event == "deleted":
        admin.delete_topics(names[1:])
    elif event == "grown":
        admin.create_partitions(names[0], PARTITIONS + 2)
        # One that has not seen the topic with fewer partitions: what it knows is refreshed in minutes.
        load = Load(stack.enter_context(Producer(bootstrap_servers=bootstrap)), names[0], PARTITIONS + 2)
        load.ends = {each: 0 for each in load.ends if each.partition >= PARTITIONS}
        return load
    elif event == "pattern":
        new = names[0].removesuffix("-a") + "-b"
        admin.create_topic(new, PARTITIONS)
        wait_until(lambda: is_listed(admin, new), f"{new} is known")
        return Load(stack.enter_context(Producer(bootstrap_servers=bootstrap)), new, PARTITIONS)
    return None


_Place = TypeVar("_Place", bound=Place)


@contextmanager
def opened(make: Callable[[], _Place]) -> Iterator[_Place]:
    """A place for as long as it is needed."""
    place = make()
    try:
        yield place
    finally:
        place.close()
