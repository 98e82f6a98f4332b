"""A member of ours and one of another client share a group, in each way of being a member that both know.

librdkafka's members: see the scenarios that each broker has to pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from kohort import Consumer, Producer
from support.peers.group_members import KohortMember, Ledger, ThreadMember
from support.peers.java_member import JavaMember
from support.peers.python_members import AiokafkaMember, KafkaPythonMember
from support.scenarios.client_scenarios import LONG_SESSION_MS, Load, fresh, new_topic, patient_options, wait_until
from support.scenarios.matrix import is_whole

PARTITIONS = 6
PATIENT: Final = {"session_timeout_ms": LONG_SESSION_MS}


def kafka_python(ledger: Ledger, name: str, bootstrap: str, topic: str, group: str) -> ThreadMember:
    """kafka-python's consumer, with the assignor that aiokafka's has by default."""
    options = {**PATIENT, "partition_assignment_strategy": [RoundRobinPartitionAssignor]}
    return KafkaPythonMember(ledger, name, bootstrap, topic=topic, group_id=group, **options)


def aiokafka(ledger: Ledger, name: str, bootstrap: str, topic: str, group: str) -> ThreadMember:
    """aiokafka's consumer."""
    return AiokafkaMember(ledger, name, bootstrap, topic=topic, group_id=group, **PATIENT)


#: Names of clients that know the classic protocol only -> a member.
PYTHON_MEMBERS: Final[dict[str, Callable[[Ledger, str, str, str, str], ThreadMember]]] = {
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


#: Assignors of a group that Java's consumer and ours share -> their class there; the coordinator's has none.
JAVA_ASSIGNORS: Final = {
    "uniform": None,
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
#: Who shares a group with ours, in each run of the tests half of it at each kind of broker; with MATRIX=whole all.
NEIGHBOURS: Final = {
    ("python", "ours"): ("kafka-python",),
    ("python", "Apache"): ("aiokafka",),
    ("java", "ours"): ("uniform", "cooperative-sticky"),
    ("java", "Apache"): ("range",),
}


def neighbours(language: str, kind: str) -> Sequence[str]:
    """Clients in Python, or assignors of a group with Java's, at our brokers ("ours") or at "Apache"."""
    every = {"python": PYTHON_MEMBERS, "java": JAVA_ASSIGNORS}
    return list(every[language]) if is_whole() else NEIGHBOURS[language, kind]


def python_member_shares(bootstrap: str, client: str) -> None:
    """kafka-python's or aiokafka's, classic: it comes, it stays while ours goes and comes back, it goes."""
    group, ledger = fresh("mixed"), Ledger()
    options = patient_options(bootstrap, group, "classic") | {"partition_assignment_strategy": "roundrobin"}
    with (
        new_topic(bootstrap, "mixed", PARTITIONS) as topic,
        ExitStack() as stack,
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        load = Load(producer, topic, PARTITIONS)
        load.send(10)
        theirs = PYTHON_MEMBERS[client](ledger, "theirs", bootstrap, topic, group)
        stack.enter_context(theirs)
        ledger.wait_for_shares("theirs", partitions=PARTITIONS)
        ours = stack.enter_context(KohortMember(ledger, "ours", topic=topic, **options))
        ledger.wait_for_shares("ours", "theirs", partitions=PARTITIONS)
        load.send(10)
        ledger.wait_for_records(load.ends)
        ours.leave()
        ledger.wait_for_shares("theirs", partitions=PARTITIONS)
        load.send(10)
        stack.enter_context(KohortMember(ledger, "again", topic=topic, **options))
        ledger.wait_for_shares("again", "theirs", partitions=PARTITIONS)
        theirs.leave()
        ledger.wait_for_shares("again", partitions=PARTITIONS)
        load.send(10)
        ledger.wait_for_records(load.ends)
        with Consumer(**options) as reader:
            wait_until(lambda: reader.committed(load.ends) == load.ends, "everything is committed")


def java_member_shares(bootstrap: str, assignor: str) -> None:
    """Kafka's own consumer: what it holds and what ours holds is the topic, whoever comes and goes."""
    group, ledger = fresh("mixed"), Ledger()
    name = JAVA_ASSIGNORS[assignor]
    protocol = "consumer" if name is None else "classic"
    options, theirs = patient_options(bootstrap, group, protocol), {"group_protocol": protocol}
    if name is not None:
        options |= {"partition_assignment_strategy": assignor}
        theirs |= {
            "partition_assignment_strategy": name,
            "session_timeout_ms": str(LONG_SESSION_MS),
            "heartbeat_interval_ms": "200",
        }
    with (
        new_topic(bootstrap, "mixed", PARTITIONS) as topic,
        ExitStack() as stack,
        Producer(bootstrap_servers=bootstrap) as producer,
    ):
        load = Load(producer, topic, PARTITIONS)
        load.send(10)
        ours = stack.enter_context(KohortMember(ledger, "ours", topic=topic, **options))
        ledger.wait_for_shares("ours", partitions=PARTITIONS)
        java = stack.enter_context(JavaMember(bootstrap, topic=topic, group_id=group, **theirs))
        held: set[str] = set()

        def is_shared() -> bool:
            nonlocal held
            for line in java.said():
                assert line.startswith("held"), line
                held = set(line.split()[1:])
            mine = {str(each) for each in ledger.held("ours")}
            return len(held) == len(mine) == PARTITIONS // 2 and not held & mine

        wait_until(is_shared, "each has three partitions")
        load.send(10)
        java.close()
        ledger.wait_for_shares("ours", partitions=PARTITIONS)
        load.send(10)
        with Consumer(**options) as reader:
            wait_until(lambda: reader.committed(load.ends) == load.ends, "everything is committed")
        ours.leave()
