"""A partition beside others: three brokers of which one has records, a seek beside idle partitions, a thousand of them,
memory behind a slow application, and what an import costs.

Peer: confluent-kafka, from the same brokers. What is looked at from outside, memory, idle processor time and imports,
is measured in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median, quantiles
from typing import Any

from report import Row, Table, alternate, compare, warmed
from servers import KohortServer, apache_left_out, cpu_s, resident_mb, start_both
from topics import fill

VALUE, KEY = b"x" * 100, b"k" * 8
RECORDS = 400_000
MANY = 1_000
SEEKS = 60
IDLE_S, SLOW_S = 8.0, 8.0
#: Where imports find byte code.
BYTE_CODE = tempfile.TemporaryDirectory(prefix="kohort-bench-")
#: Bytes of the budget of fetched data: the default of both.
BACKLOG_BYTES = 400_000_000


def ours(bootstrap: str, topic: str, partitions: int) -> Any:
    import kohort

    consumer = kohort.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([kohort.TopicPartition(topic, number) for number in range(partitions)])
    return consumer


def theirs(bootstrap: str, topic: str, partitions: int) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    config = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "fetch.queue.backoff.ms": 5})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return consumer


CLIENTS: dict[str, Callable[[str, str, int], Any]] = {"kohort": ours, "confluent-kafka": theirs}


def read(client: str, take: Callable[[Any], int], bootstrap: str, topic: str, partitions: int) -> float:
    """Records per second, from the first call to the last record."""
    consumer = CLIENTS[client](bootstrap, topic, partitions)
    began = time.perf_counter()
    seen = 0
    while seen < RECORDS:
        seen += take(consumer)
    rate = seen / (time.perf_counter() - began)
    consumer.close()
    return rate


def rows(consumer: Any) -> int:
    return sum(batch.num_rows for batch in consumer.poll_arrow(5.0))


def polled(consumer: Any) -> int:
    return len(consumer.poll(5.0))


def consumed(consumer: Any) -> int:
    return len(consumer.consume(10_000, 5.0))


def seeks(client: str, bootstrap: str) -> list[float]:
    """p50 and p90 in milliseconds, from each seek to its first record.

    Three partitions beside it have none, and it has been read to its end: the broker is waiting for any of them.
    """
    consumer = CLIENTS[client](bootstrap, "sought", 4)
    if client == "kohort":
        import kohort

        place = kohort.TopicPartition("sought", 0)
        go: Callable[[int], None] = partial(consumer.seek, place)
        one: Callable[[], Any] = partial(consumer.poll_one, 0.2)
    else:
        from confluent_kafka import TopicPartition

        def go(offset: int) -> None:
            consumer.seek(TopicPartition("sought", 0, offset))

        one = partial(consumer.poll, 0.2)
    took = []
    for number in range(SEEKS):
        wanted = RECORDS - 1 - number % 5
        began = time.perf_counter()
        go(wanted)
        found = one()
        while found is None or (found.offset if client == "kohort" else found.offset()) != wanted:
            found = one()
        took.append((time.perf_counter() - began) * 1e3)
        while found is not None:
            found = one()
    consumer.close()
    return [median(took), quantiles(took, n=10)[8]]


@contextmanager
def three_brokers() -> Iterator[list[tuple[str, str]]]:
    """(name, address) of clusters of three, each in processes of its own."""
    with ExitStack() as stack:
        process = subprocess.Popen(
            [sys.executable, __file__, "cluster"], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )
        stack.callback(process.wait)
        assert process.stdin is not None
        stack.callback(process.stdin.close)
        assert process.stdout is not None
        clusters = [("three of kohort", process.stdout.readline().strip())]
        if not apache_left_out():
            from support.peers.apache_cluster import ApacheCluster

            theirs = stack.enter_context(ApacheCluster(3, {"offsets.topic.num.partitions": 50}))
            clusters.append(("three of Apache Kafka 4.3", theirs.bootstrap_servers))
        yield clusters


def serve_cluster() -> None:
    """The other process: until its input ends."""
    from kohort.testing import Cluster

    with Cluster(3) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        sys.stdin.read()


def fill_one_of_three(bootstrap: str) -> None:
    """Three partitions, one on each broker; the records are in one of them."""
    import kohort

    with kohort.Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topic("lonely", 3)
    with kohort.Producer(bootstrap_servers=bootstrap, batch_size=900_000) as producer:
        for _ in range(RECORDS):
            producer.send("lonely", VALUE, KEY, partition=1)


def measure(runs: int) -> list[Table]:
    beside: list[Row] = []
    many: list[Row] = []
    with three_brokers() as clusters:
        for name, bootstrap in clusters:
            fill_one_of_three(bootstrap)
            peers = partial(read, "confluent-kafka", consumed, bootstrap, "lonely", 3)
            for call, take in (("poll_arrow", rows), ("consume(10000)", consumed)):
                found = alternate(runs, partial(read, "kohort", take, bootstrap, "lonely", 3), peers)
                beside.append(
                    compare(
                        f"{call}, one of three brokers has records, {name}",
                        *found,
                        unit="rec/s",
                        reach=">= 2x",
                        peer_name="confluent-kafka consume(10000)",
                        how=warmed(runs),
                        settings="theirs: fetch.queue.backoff.ms=5",
                    )
                )
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            fill_sought(server)
            beside += seek_rows(server, runs)
        many += many_rows(servers[0], runs)
    return [
        Table("neighbours", "Beside partitions and brokers that have nothing", beside, left_out),
        Table("footprint", "A thousand partitions, a slow application, an import", many, left_out),
    ]


def fill_sought(server: Any) -> None:
    """All records are in the first of four partitions."""
    import kohort

    with kohort.Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        admin.create_topic("sought", 4)
    with kohort.Producer(bootstrap_servers=server.bootstrap_servers, batch_size=900_000) as producer:
        for _ in range(RECORDS):
            producer.send("sought", VALUE, KEY, partition=0)


def seek_rows(server: Any, runs: int) -> list[Row]:
    mine, peers = [], []
    for run in range(1 + runs):
        pair = seeks("kohort", server.bootstrap_servers), seeks("confluent-kafka", server.bootstrap_servers)
        if run:
            mine.append(pair[0])
            peers.append(pair[1])
    return [
        compare(
            f"seek to its first record, {what}, three idle partitions beside, from {server.name}",
            [each[at] for each in mine],
            [each[at] for each in peers],
            unit="ms",
            reach=reach,
            peer_name="confluent-kafka seek(), poll()",
            how=warmed(runs),
            settings="theirs: fetch.queue.backoff.ms=5",
            less_is_better=True,
        )
        for at, (what, reach) in enumerate((("p50", "<= 10 ms"), ("p90", "<= 50 ms")))
    ]


def many_rows(server: KohortServer, runs: int) -> list[Row]:
    """What many partitions cost, each side compared with itself or with the other."""
    address = server.bootstrap_servers
    for partitions in (100, MANY):
        fill(server, f"of{partitions}", partitions=partitions, records=RECORDS, value=VALUE, key=KEY)
    fill(server, "backlog", partitions=4, records=BACKLOG_BYTES // 120, value=VALUE, key=KEY)
    found = []
    for client, call, take in (("kohort", "poll()", polled), ("confluent-kafka", "consume(10000)", consumed)):
        thousand, hundred = alternate(
            runs,
            partial(read, client, take, address, f"of{MANY}", MANY),
            partial(read, client, take, address, "of100", 100),
        )
        what = f"{call}, 1,000 partitions, {client}"
        itself = "itself with 100 partitions"
        found.append(
            compare(
                what,
                thousand,
                hundred,
                unit="rec/s",
                reach=">= 0.8x" if client == "kohort" else "report",
                peer_name=itself,
                how=warmed(runs),
            )
        )
    for what, task, unit, reach in (
        ("processor while 1,000 partitions are idle", "idle", "%", "<= 0.5 %"),
        ("memory beyond idle, a slow application, budget 64 MiB", "slow", "MB", "<= 98 MB"),
        ("memory beyond idle, as fast as it goes", "fast", "MB", "<= 98 MB"),
        ("import of Consumer, interpreter included", "import", "ms", "<= 75 ms"),
    ):
        mine, peers = alternate(
            runs, partial(outside, task, "kohort", address), partial(outside, task, "confluent-kafka", address)
        )
        found.append(
            compare(
                what,
                mine,
                peers,
                unit=unit,
                reach=reach,
                peer_name="confluent-kafka",
                how=warmed(runs),
                less_is_better=True,
            )
        )
    return found


def outside(task: str, client: str, address: str) -> float:
    """One figure of a process of its own."""
    if task == "import":
        module = "from kohort import Consumer" if client == "kohort" else "from confluent_kafka import Consumer"
        # With byte code, as installed packages have it: what Python would compile anew in each process is kept.
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = BYTE_CODE.name
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", module], check=True, env=environment)
        return (time.perf_counter() - began) * 1e3
    done = subprocess.run([sys.executable, __file__, task, client, address], check=True, capture_output=True, text=True)
    return float(done.stdout)


def idle(client: str, address: str, pid: int) -> float:
    """Percent of one processor: everything has been read, nothing comes."""
    consumer = CLIENTS[client](address, f"of{MANY}", MANY)
    take = polled if client == "kohort" else consumed
    seen = 0
    while seen < RECORDS:
        seen += take(consumer)
    consumer.poll(1.0)
    began, used = time.monotonic(), cpu_s(pid)
    while time.monotonic() < began + IDLE_S:
        consumer.poll(1.0)
    return (cpu_s(pid) - used) / (time.monotonic() - began) * 100


def memory(client: str, address: str, pid: int, *, is_slow: bool) -> float:
    """Most megabytes beyond what an idle consumer has."""
    consumer = CLIENTS[client](address, "lonely-end", 0)
    if client == "kohort":
        import pyarrow  # noqa: F401  # what is measured is data, not modules
    consumer.close()
    base = resident_mb(pid)
    most, over = [base], threading.Event()

    def watch() -> None:
        while not over.wait(0.01):
            most[0] = max(most[0], resident_mb(pid))

    watching = threading.Thread(target=watch)
    watching.start()
    consumer = CLIENTS[client](address, "backlog", 4)
    began = time.monotonic()
    while time.monotonic() < began + SLOW_S:
        if is_slow:
            consumer.poll_one(1.0) if client == "kohort" else consumer.poll(1.0)
            time.sleep(0.01)
        else:
            (rows if client == "kohort" else consumed)(consumer)
    over.set()
    watching.join()
    consumer.close()
    return most[0] - base


def main() -> None:
    task, *rest = sys.argv[1:]
    if task == "cluster":
        serve_cluster()
        return
    client, address = rest
    pid = os.getpid()
    print(idle(client, address, pid) if task == "idle" else memory(client, address, pid, is_slow=task == "slow"))


if __name__ == "__main__":
    main()
