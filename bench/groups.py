"""What 1,000 groups have committed of 10 partitions each, asked for in one go.

Peers: confluent-kafka, which takes one group a call, so its 1,000 calls are under way together; kafka-python, which
takes all of them. Each side has its connections open before it is timed, and every offset is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from report import Row, Table, compare, take_turns, warmed
from servers import start_both

GROUPS = 1_000
PARTITIONS = 10
TOPIC = "described"
NAMES = [f"group-{number:04}" for number in range(GROUPS)]
#: The sum of what all groups have committed.
SUM = sum(range(PARTITIONS)) * GROUPS


def commit(server: Any) -> None:
    """Every group commits, of each partition its number."""
    import kohort

    with kohort.Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, PARTITIONS)
        offsets = {kohort.TopicPartition(TOPIC, number): number for number in range(PARTITIONS)}
        for name in NAMES:
            admin.alter_group_offsets(name, offsets)


def kohort_admin(stack: ExitStack, server: Any) -> Callable[[], int]:
    """Ours."""
    import kohort

    admin = stack.enter_context(kohort.Admin(bootstrap_servers=server.bootstrap_servers))

    def ask() -> int:
        found = admin.list_group_offsets(NAMES)
        return sum(kept.offset for offsets in found.values() for kept in offsets.values())

    return ask


def confluent_admin(_: ExitStack, server: Any) -> Callable[[], int]:
    """confluent-kafka's."""
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})

    def ask() -> int:
        asked = [admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]) for name in NAMES]
        found = [future.result(60) for each in asked for future in each.values()]
        return sum(row.offset for each in found for row in each.topic_partitions)

    return ask


def kafka_python_admin(stack: ExitStack, server: Any) -> Callable[[], int]:
    """kafka-python's."""
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    stack.callback(admin.close)

    def ask() -> int:
        found = admin.list_group_offsets(NAMES)
        return sum(kept.offset for offsets in found.values() for kept in offsets.values())

    return ask


def seconds(ask: Callable[[], int]) -> float:
    began = time.perf_counter()
    found = ask()
    took = time.perf_counter() - began
    assert found == SUM, found
    return took


def measure(runs: int) -> list[Table]:
    rows: list[Row] = []
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            commit(server)
            rows += of_server(server, runs)
    return [Table("groups", f"Offsets of {GROUPS:,} groups x {PARTITIONS} partitions", rows, left_out)]


def of_server(server: Any, runs: int) -> list[Row]:
    with ExitStack() as stack:
        asks = [make(stack, server) for make in (kohort_admin, confluent_admin, kafka_python_admin)]
        ours, *peers = take_turns(runs, *(lambda ask=ask: seconds(ask) for ask in asks))
    return [
        compare(
            f"at {server.name}, beside {peer_name}",
            [took * 1000 for took in ours],
            [took * 1000 for took in theirs],
            unit="ms",
            reach=reach,
            peer_name=peer_name,
            how=warmed(runs),
            less_is_better=True,
        )
        for theirs, peer_name, reach in zip(peers, ("confluent-kafka", "kafka-python"), (">= 1x", ">= 3x"), strict=True)
    ]
