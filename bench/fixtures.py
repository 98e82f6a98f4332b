"""Brokers for tests: the first one, a reset, one for each test, a suite. Peer: Apache Kafka 4.3, started once."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from typing import Any

import kohort
from kohort.testing import Broker
from report import APACHE_KAFKA, NO_PEER, Row, Table, alternate, compare, warmed
from servers import start_both

#: What the cluster has that is reset.
TOPICS, GROUPS = 100, 20
#: Tests of a suite.
TESTS = 200

FIRST = """
import time
began = time.process_time()
from kohort.testing import Broker
with Broker():
    print(time.process_time() - began)
"""


def first_broker() -> float:
    """Processor time from the import to a broker that takes connections, in a new process, milliseconds."""
    done = subprocess.run([sys.executable, "-c", FIRST], check=True, capture_output=True, text=True)
    return float(done.stdout) * 1000


def reset(broker: Broker) -> float:
    """Processor time of a reset, milliseconds: nothing in it waits, and all of it is in this process."""
    for number in range(TOPICS):
        broker.admin.create_topic(f"topic-{number}", 1)
    for number in range(GROUPS):
        broker.admin.alter_group_offsets(f"group-{number}", {kohort.TopicPartition("topic-0", 0): 0})
    began = time.process_time()
    broker.reset()
    return (time.process_time() - began) * 1000


def broker_of_a_test() -> float:
    """Milliseconds of a start and a stop, the mean of 20."""
    began = time.perf_counter()
    for _ in range(20):
        with Broker():
            pass
    return (time.perf_counter() - began) * 1000 / 20


def one_test(servers: str, name: str) -> None:
    """Send three records, and read them as a group that commits."""
    with kohort.Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(name, 1)
    with kohort.Producer(bootstrap_servers=servers) as producer:
        for sent in [producer.send(name, value=str(number)) for number in range(3)]:
            sent.result(10)
    with kohort.Consumer(bootstrap_servers=servers, group_id=name, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([name])
        seen = 0
        while seen < 3:
            seen += len(consumer.poll(5.0))
        consumer.commit()


def suite(server: Any, run: int) -> float:
    """Seconds of a suite whose tests share a broker; kohort's is reset for each."""
    began = time.perf_counter()
    for number in range(TESTS):
        if isinstance(server, Broker):
            server.reset()
        one_test(server.bootstrap_servers, f"test-{run}-{number}")
    return time.perf_counter() - began


def suite_of_own() -> float:
    """Seconds of a suite whose tests have a broker each."""
    began = time.perf_counter()
    for number in range(TESTS):
        with Broker() as broker:
            one_test(broker.bootstrap_servers, f"test-{number}")
    return time.perf_counter() - began


def measure(runs: int) -> list[Table]:
    def alone(what: str, found: list[float], unit: str, reach: str) -> Row:
        how = warmed(runs)
        return compare(what, found, [], unit=unit, reach=reach, peer_name=NO_PEER, how=how, less_is_better=True)

    rows = [
        alone(
            "first broker, with the import: processor time", alternate(runs, first_broker, None)[0], "ms", "<= 150 ms"
        ),
        alone("a broker for a test", alternate(runs, broker_of_a_test, None)[0], "ms", "<= 10 ms"),
    ]
    numbers = iter(range(1000))
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        found, _ = alternate(runs, lambda: reset(broker), None)
        rows.append(alone(f"reset, {TOPICS} topics, {GROUPS} groups: processor time", found, "ms", "<= 5 ms"))
        peers, left_out = start_both(stack, peer={"group.initial.rebalance.delay.ms": 0})
        peer = peers[1] if len(peers) > 1 else None
        theirs = None if peer is None else lambda: suite(peer, next(numbers))
        for what, ours in (("one broker", lambda: suite(broker, next(numbers))), ("a broker each", suite_of_own)):
            rows.append(
                compare(
                    f"{TESTS} tests, {what}",
                    *alternate(runs, ours, theirs),
                    unit="s",
                    reach=">= 5x",
                    peer_name=f"{APACHE_KAFKA}, started once",
                    how=warmed(runs),
                    settings="peer: group.initial.rebalance.delay.ms=0",
                    less_is_better=True,
                )
            )
    return [Table("fixtures", "Brokers for tests", rows, left_out)]
