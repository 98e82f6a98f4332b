"""Connections of group members that close: of processes that are killed, and of clients that come back.

Stock clients and ours; `group.disconnect.grace.ms` gives up the former soon and never the latter, and the guard against
late requests lets a client that has changed its connection go on as before.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kohort
from kohort.wire.registry import ApiKey
from support.peers.apache import java_command
from support.peers.cli import environment, forks_of
from support.peers.forked_commands import ForkedProcess
from support.peers.lossy_proxy import LossyProxy
from support.peers.restarts import wait_until

pytestmark = pytest.mark.interop

PARTITIONS = 4
GRACE_MS = 1_500
#: For whoever comes back: clients take their time before they try again, the more often the longer.
LONG_GRACE_MS = 20_000
#: The session timeout of all members: nobody is given up by it while a test lasts.
SESSION_MS = 240_000
#: What a virtual machine may take to start on a machine that is busy with others.
START_S = 80.0

#: librdkafka 2.16 tries a lost commit again 100 ms later, whether it has found its coordinator again or not; finding it
#: takes longer where the question waits behind a fetch (500 ms). Then setting the address fails the commit that waits
#: for it, which makes the coordinator unknown, and so on for ever: it has to be found before the commit is due.
CONFLUENT = """
import sys, confluent_kafka
consumer = confluent_kafka.Consumer({
    "bootstrap.servers": sys.argv[1], "group.id": "g", "group.protocol": sys.argv[2], "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": 200, "reconnect.backoff.max.ms": 500, "fetch.wait.max.ms": 50, "retry.backoff.ms": 1_000,
    **({"heartbeat.interval.ms": 200, "session.timeout.ms": 240_000} if sys.argv[2] == "classic" else {})})
consumer.subscribe(["t"])
while True:
    consumer.poll(0.2)
"""
KOHORT = """
import sys, kohort
consumer = kohort.Consumer(
    bootstrap_servers=sys.argv[1], group_id="g", group_protocol=sys.argv[2], auto_offset_reset="earliest",
    heartbeat_interval_ms=200, session_timeout_ms=240_000, auto_commit_interval_ms=200)
consumer.subscribe(["t"])
while True:
    consumer.poll(0.2)
"""
KAFKA_PYTHON = """
import sys, kafka
consumer = kafka.KafkaConsumer(
    "t", bootstrap_servers=sys.argv[1], group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=200,
    session_timeout_ms=45_000, auto_commit_interval_ms=200, reconnect_backoff_max_ms=500)
assert consumer.partitions_for_topic("t"), "else it may plan without them, and lose what it joins with next"
while True:
    consumer.poll(timeout_ms=200)
"""
AIOKAFKA = """
import asyncio, sys, aiokafka
async def main():
    consumer = aiokafka.AIOKafkaConsumer(
        "t", bootstrap_servers=sys.argv[1], group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=200,
        session_timeout_ms=45_000, auto_commit_interval_ms=200)
    await consumer.start()
    while True:
        await consumer.getmany(timeout_ms=200)
asyncio.run(main())
"""
JAVA = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def console_consumer(bootstrap: str, protocol: str) -> list[str]:
    settings = {"group.protocol": protocol, "auto.commit.interval.ms": "200", "reconnect.backoff.max.ms": "500"}
    if protocol == "classic":
        settings |= {"heartbeat.interval.ms": "200", "session.timeout.ms": f"{SESSION_MS}"}
    properties = [word for pair in settings.items() for word in ("--command-property", "=".join(pair))]
    where = ("--bootstrap-server", bootstrap, "--topic", "t", "--group", "g")
    return java_command(JAVA, *where, "--from-beginning", *properties, heap="128m")


PROGRAMS = {"confluent": CONFLUENT, "kohort": KOHORT, "kafka-python": KAFKA_PYTHON, "aiokafka": AIOKAFKA}
CLIENTS = [
    *((client, protocol) for client in ("confluent", "kohort") for protocol in ("consumer", "classic")),
    *(pytest.param("java", protocol, marks=pytest.mark.apache) for protocol in ("consumer", "classic")),
]
CLASSIC_ONLY = [("kafka-python", "classic"), ("aiokafka", "classic")]


@contextmanager
def running(client: str, bootstrap: str, protocol: str, log: Path) -> Iterator[subprocess.Popen[bytes] | ForkedProcess]:
    """A member in a process of its own, killed at the end."""
    process: subprocess.Popen[bytes] | ForkedProcess
    with log.open("ab") as output:
        if client == "java":
            process = subprocess.Popen(console_consumer(bootstrap, protocol), stdout=output, stderr=output)
        else:
            whole = environment()
            process = forks_of(whole, "confluent_kafka", "kafka", "aiokafka").start(
                [bootstrap, protocol],
                environment=whole,
                descriptors=[os.open(os.devnull, os.O_RDONLY), os.dup(output.fileno()), os.dup(output.fileno())],
                script=PROGRAMS[client],
            )
    try:
        yield process
    finally:
        process.kill()
        process.wait(20)


@pytest.fixture
def proxy() -> Iterator[LossyProxy]:
    with LossyProxy() as made:
        yield made


@pytest.fixture
def broker(proxy: LossyProxy) -> Iterator[kohort.Broker]:
    """Clients that start from the proxy's address stay behind it."""
    config = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
        "group.disconnect.grace.ms": GRACE_MS,
        "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.session.timeout.ms": SESSION_MS,
    }
    with kohort.Broker(config=config) as broker:
        proxy.target_port = broker.port
        yield broker


@pytest.fixture
def admin(broker: kohort.Broker) -> Iterator[kohort.Admin]:
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", PARTITIONS)
        yield admin


def holders(admin: kohort.Admin) -> dict[str, int]:
    """member -> how many partitions it has; empty while there is no group."""
    if not any(row.group_id == "g" for row in admin.list_groups()):
        return {}
    return {row.member_id: len(row.assignment) for row in admin.describe_group("g").members}


def send(broker: kohort.Broker, count: int) -> None:
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for future in [producer.send("t", b"x", partition=number % PARTITIONS) for number in range(count)]:
            future.result(10)


def lag(admin: kohort.Admin) -> int:
    """Records that are not committed; all of them where nothing is."""
    offsets = admin.group_offsets("g")
    return sum(row.end_offset - (row.committed or 0) for row in offsets) if len(offsets) == PARTITIONS else 1


@pytest.mark.parametrize(("client", "protocol"), CLIENTS)
@pytest.mark.timeout(400)
def test_a_killed_process_is_given_up_soon(
    broker: kohort.Broker, admin: kohort.Admin, tmp_path: Path, client: str, protocol: str
) -> None:
    """G3: long before its session has ended; with Apache Kafka the partitions wait for that."""
    log = tmp_path / "log"
    with running(client, broker.bootstrap_servers, protocol, log) as doomed:
        wait_until(
            lambda: list(holders(admin).values()) == [PARTITIONS],
            "the first member to have everything",
            seconds=START_S,
        )
        with running(client, broker.bootstrap_servers, protocol, log):
            wait_until(lambda: sorted(holders(admin).values()) == [2, 2], "both to share", seconds=START_S)
            doomed.kill()
            wait_until(lambda: list(holders(admin).values()) == [PARTITIONS], "the survivor to have everything")
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(("client", "protocol"), [*CLIENTS, *CLASSIC_ONLY])
@pytest.mark.timeout(400)
def test_a_client_whose_connection_breaks_is_neither_given_up_nor_taken_for_late(  # noqa: PLR0917
    broker: kohort.Broker, admin: kohort.Admin, proxy: LossyProxy, tmp_path: Path, client: str, protocol: str
) -> None:
    """It comes back by another connection, heartbeats and commits, and its records are committed to the end."""
    heartbeat = ApiKey.HEARTBEAT if protocol == "classic" else ApiKey.CONSUMER_GROUP_HEARTBEAT
    admin.alter_group_configs("g", {"group.disconnect.grace.ms": str(LONG_GRACE_MS)})
    with running(client, f"127.0.0.1:{proxy.port}", protocol, tmp_path / "log"):
        wait_until(
            lambda: list(holders(admin).values()) == [PARTITIONS], "the member to have everything", seconds=START_S
        )
        before = holders(admin)
        for round_ in (1, 2):
            for api in (heartbeat, ApiKey.OFFSET_COMMIT):
                lost = proxy.lost
                proxy.lose_answers(api, 1)
                send(broker, 40)
                wait_until(lambda lost=lost: proxy.lost > lost, f"a connection to break in round {round_}")  # type: ignore[misc]
            wait_until(lambda: lag(admin) == 0, f"everything to be committed in round {round_}")
        assert holders(admin) == before
