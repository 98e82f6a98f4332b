"""Transactions: of one and of 1,000 records, of 20 producers; and consume, transform, produce.

A transaction is begun, written and committed before the next begins; its latency is from begin to the return of the
commit. Peer: Apache Kafka 4.3 with a confluent-kafka client at both. "As they come": ours syncs each append, theirs
leaves that to the system; "not synced": neither syncs. Then kohort's client beside confluent-kafka, at each broker; and
committed records read beside uncommitted ones, where every tenth transaction was aborted, and where a million were; and
kill -9 and start, until 10,000 transactional ids are served of which 100 have open transactions.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import quantiles
from typing import Any
from uuid import uuid4

from kohort.records.batch import build_batch, build_marker
from kohort.storage.store import Store
from kohort.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kohort.wire.messages.describe_transactions import DescribeTransactionsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from kohort.wire.registry import ApiKey
from load import RawConnection
from readiness import until
from report import APACHE_KAFKA, Row, Table, compare, take_turns, warmed
from restart import answers, kill_and_time
from servers import KohortServer, resident_mb, start_both
from topics import create_writable_topic

TRANSACTIONS = 60
PRODUCERS = 20
VALUE = b"x" * 100
TIMEOUT_S = 60
#: Records of a transaction of the clients' comparison, and of one that transforms; records that are transformed.
LARGE, SMALL = 1_000, 100
TRANSFORMED = 4_000
#: (what, records of a transaction, producers at once, reach)
LOADS = (
    ("one record a transaction", 1, 1, ">= 2x"),
    ("1,000 records a transaction", 1_000, 1, ">= 2x"),
    ("one record a transaction, 20 producers", 1, PRODUCERS, ">= 1x"),
)
FLUSH = "log.flush.interval.messages"
NEVER = 2**63 - 1
#: Transactions of `LARGE` records in the log that is read.
READ_TRANSACTIONS = 500
#: Aborted transactions of one record each in the other one, and committed ones; producers that write them by turns.
ABORTED, COMMITTED, WRITERS = 1_000_000, 100_000, 100
#: Transactional ids of the broker that is killed, and those with an open transaction; ids described by one request.
IDS, OPEN_IDS, DESCRIBED_AT_ONCE = 10_000, 100, 100


def producer_of(server: Any) -> Any:
    from confluent_kafka import Producer

    producer = Producer({
        "bootstrap.servers": server.bootstrap_servers,
        "transactional.id": f"bench-{uuid4().hex[:8]}",
        "linger.ms": 0,
    })  # fmt: skip
    producer.init_transactions(TIMEOUT_S)
    return producer


def run_transactions(producer: Any, topic: str, records: int, taken: list[float]) -> None:
    for _ in range(TRANSACTIONS):
        began = time.perf_counter()
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, VALUE, partition=0)
        producer.commit_transaction(TIMEOUT_S)
        taken.append((time.perf_counter() - began) * 1_000)


def one_load(server: Any, records: int, producers: int) -> tuple[float, float, float]:
    """Transactions per second of all producers, and the p50 and p99 of one, ms."""
    topic = new_topic(server)
    clients = [producer_of(server) for _ in range(producers)]
    taken: list[float] = []
    threads = [threading.Thread(target=run_transactions, args=(each, topic, records, taken)) for each in clients]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - began
    cuts = quantiles(taken, n=100)
    return len(taken) / elapsed, cuts[49], cuts[98]


def rows_of(servers: Sequence[Any], runs: int, how: str, settings: str) -> list[Row]:
    rows = []
    for what, records, producers, reach in LOADS:
        sides: list[Callable[[], tuple[float, float, float]]] = [
            partial(one_load, server, records, producers) for server in servers
        ]
        ours, *peers = take_turns(runs, *sides)
        theirs = peers[0] if peers else []
        compared: Any = {"peer_name": APACHE_KAFKA, "how": warmed(runs), "settings": settings}
        rows.append(
            compare(
                f"{what}, {how}", [row[0] for row in ours], [row[0] for row in theirs], unit="transactions/s",
                reach=reach, **compared,
            )
        )  # fmt: skip
        if producers == 1:
            for place, name in ((1, "p50"), (2, "p99")):
                rows.append(
                    compare(
                        f"{what}, {how}, begin to committed {name}", [row[place] for row in ours],
                        [row[place] for row in theirs], unit="ms", reach="<= 0.5x", less_is_better=True, **compared,
                    )
                )  # fmt: skip
    return rows


def read_rate(server: Any, topic: str, isolation: str) -> float:
    """Offsets per second that a confluent-kafka consumer passes in a topic's only partition, to its end.

    What was aborted is fetched as well, and counts.
    """
    from confluent_kafka import Consumer, TopicPartition

    reader = Consumer({
        "bootstrap.servers": server.bootstrap_servers, "group.id": topic, "isolation.level": isolation,
        "enable.partition.eof": True, "enable.auto.commit": False,
    })  # fmt: skip
    reader.assign([TopicPartition(topic, 0, 0)])
    _, end = reader.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT_S)
    began, is_over = time.perf_counter(), False
    while not is_over:
        # The last call waits for more than there is.
        is_over = any(message.error() is not None for message in reader.consume(10_000, 0.02))
    took = time.perf_counter() - began
    reader.close()
    return end / took


def write_aborted(directory: str, topic: str) -> None:
    """Write a topic's only partition as its broker would: every eleventh transaction commits, the others abort."""
    chance = random.Random(0)
    store = Store.open(directory)
    (log,) = store.create_topic(topic, 1, topic_id=uuid4().bytes, configs={"flush.messages": str(NEVER)}).partitions
    sequences, is_open = [0] * WRITERS, [False] * WRITERS

    def step(writer: int) -> None:
        if is_open[writer]:
            is_commit = chance.randrange(1 + ABORTED // COMMITTED) == 0
            batch = build_marker(
                producer_id=writer, producer_epoch=0, is_commit=is_commit, timestamp_ms=1, coordinator_epoch=0
            )
        else:
            batch = build_batch(
                [(None, VALUE, 1, ())], producer_id=writer, producer_epoch=0, base_sequence=sequences[writer],
                is_transactional=True,
            )  # fmt: skip
            sequences[writer] += 1
        log.append(bytearray(batch), now_ms=1, validate=False, begins_transaction=not is_open[writer])
        is_open[writer] = not is_open[writer]

    # By producers that have open transactions at the same time.
    for _ in range(2 * (ABORTED + COMMITTED)):
        step(chance.randrange(WRITERS))
    for writer in range(WRITERS):
        if is_open[writer]:
            step(writer)
    store.close()


def rows_of_reading(server: Any, runs: int) -> list[Row]:
    topic, producer = new_topic(server), producer_of(server)
    for number in range(READ_TRANSACTIONS):
        producer.begin_transaction()
        for _ in range(LARGE):
            producer.produce(topic, VALUE, partition=0)
        if number % 10:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
    rows = [row_of_reading(server, topic, runs, what="10 % aborted", reach=">= 0.95x")]
    loaded = KohortServer()
    assert loaded.directory is not None
    write_aborted(loaded.directory, topic)
    with loaded:
        assert loaded.process is not None
        before_mb = resident_mb(loaded.process.pid)
        what = "1,000,000 aborted transactions, 100,000 committed"
        rows.append(row_of_reading(loaded, topic, runs, what=what, reach=">= 0.9x"))
        after_mb = resident_mb(loaded.process.pid)
    memory = compare(
        "resident memory of that broker: after both, before", [after_mb], [before_mb], unit="MB", reach="<= 1.1x",
        peer_name="itself", how="1", less_is_better=True,
    )  # fmt: skip
    return [*rows, memory]


def row_of_reading(server: Any, topic: str, runs: int, *, what: str, reach: str) -> Row:
    sides = [partial(read_rate, server, topic, isolation) for isolation in ("read_committed", "read_uncommitted")]
    ours, theirs = take_turns(runs, *sides)
    return compare(
        f"read_committed, {what}", ours, theirs, unit="offsets/s", reach=reach, peer_name="read_uncommitted",
        how=warmed(runs),
    )  # fmt: skip


def rate_of_kohort(server: Any) -> float:
    """Records per second of kohort's producer, in transactions of 1,000."""
    import kohort

    topic = new_topic(server)
    with kohort.Producer(bootstrap_servers=server.bootstrap_servers, transactional_id=topic, linger_ms=0) as producer:
        producer.init_transactions(TIMEOUT_S)
        began = time.perf_counter()
        for _ in range(TRANSACTIONS):
            with producer.transaction(TIMEOUT_S) as transaction:
                for _ in range(LARGE):
                    transaction.send(topic, VALUE, partition=0)
        return TRANSACTIONS * LARGE / (time.perf_counter() - began)


def rate_of_confluent(server: Any) -> float:
    """The same of confluent-kafka's."""
    return one_load(server, LARGE, 1)[0] * LARGE


def new_topic(server: Any) -> str:
    topic = f"transactions-{uuid4().hex[:8]}"
    connection = RawConnection(server.port)
    create_writable_topic(connection, topic, 1)
    connection.close()
    return topic


def fill(server: Any) -> str:
    """Return a topic with the records that are transformed."""
    import kohort

    topic = new_topic(server)
    with kohort.Producer(bootstrap_servers=server.bootstrap_servers) as producer:
        producer.send_many(topic, [VALUE] * TRANSFORMED, partition=0).result(TIMEOUT_S)
    return topic


def transform_by_kohort(server: Any, source: str) -> float:
    """Records per second that `kohort.transform` copies, from the first ones on."""
    import kohort

    target = new_topic(server)
    times: list[float] = []

    def copy(records: list[kohort.ConsumerRecord], transaction: Any) -> None:
        times.append(time.perf_counter())
        for record in records:
            transaction.send(target, record.value, record.key)

    with (
        kohort.Consumer(
            source,
            bootstrap_servers=server.bootstrap_servers,
            group_id=target,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        kohort.Producer(bootstrap_servers=server.bootstrap_servers, transactional_id=target, linger_ms=0) as producer,
    ):
        done = kohort.transform(
            consumer, producer, copy, max_records=SMALL, until=lambda: len(times) == TRANSFORMED // SMALL
        )
    assert done == TRANSFORMED, done
    return done / (time.perf_counter() - times[0])


def transform_by_confluent(server: Any, source: str) -> float:
    """The same by the loop that confluent-kafka documents."""
    from confluent_kafka import Consumer

    target = new_topic(server)
    producer = producer_of(server)
    consumer = Consumer({
        "bootstrap.servers": server.bootstrap_servers, "group.id": target, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "isolation.level": "read_committed", "group.protocol": "consumer",
    })  # fmt: skip
    consumer.subscribe([source])
    began, done = 0.0, 0
    while done < TRANSFORMED:
        messages = consumer.consume(SMALL, 0.5)
        if not messages:
            continue
        began = began or time.perf_counter()
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), message.key())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), TIMEOUT_S
        )
        producer.commit_transaction(TIMEOUT_S)
        done += len(messages)
    took = time.perf_counter() - began
    consumer.close()
    return done / took


def rows_of_clients(servers: Sequence[Any], runs: int) -> list[Row]:
    how, settings = warmed(runs), f"linger.ms=0; ours: {FLUSH}=2^63-1"
    rows, transformed = [], []
    for server in servers:
        at = f"at {server.name}"
        compared: Any = {"unit": "records/s", "peer_name": "confluent-kafka", "how": how, "settings": settings}
        ours, theirs = take_turns(runs, partial(rate_of_kohort, server), partial(rate_of_confluent, server))
        rows.append(
            compare(f"1,000 records a transaction, kohort's client {at}", ours, theirs, reach=">= 1x", **compared)
        )
        source = fill(server)
        sides = (partial(transform_by_kohort, server, source), partial(transform_by_confluent, server, source))
        ours, theirs = take_turns(runs, *sides)
        what = f"consume, transform, produce, {SMALL} records a transaction"
        rows.append(compare(f"{what}, kohort's client {at}", ours, theirs, reach=">= 1.5x", **compared))
        transformed.append(theirs)
    mine, *peers = transformed
    rows.append(
        compare(
            "consume, transform, produce by confluent-kafka, both brokers", mine, peers[0] if peers else [],
            unit="records/s", reach=">= 3x", peer_name=APACHE_KAFKA, how=how, settings=settings,
        )
    )  # fmt: skip
    return rows


def id_name(number: int) -> str:
    return f"id-{number:05}"


def register_ids(server: Any) -> None:
    """Let every transactional id get its producer id, and some begin a transaction."""
    topic, connection = new_topic(server), RawConnection(server.port)
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=[id_name(number) for number in range(IDS)])

    def are_coordinated() -> bool:
        found = connection.ask(ApiKey.FIND_COORDINATOR, 4, find).coordinators
        return all(row.error_code == 0 for row in found)

    until(are_coordinated, "transactional ids have coordinators")
    for number in range(IDS):
        request = InitProducerIdRequest(transactional_id=id_name(number), transaction_timeout_ms=900_000)
        while (given := connection.ask(ApiKey.INIT_PRODUCER_ID, 4, request)).error_code:
            # Not loaded yet, at Apache Kafka.
            time.sleep(0.01)
        if number < OPEN_IDS:
            added = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=id_name(number),
                v3_and_below_producer_id=given.producer_id,
                v3_and_below_producer_epoch=given.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )
            answer = connection.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added)
            assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0, answer
    connection.close()


def are_ids_served(port: int) -> bool:
    """Whether every transactional id is described, the open transactions as such."""
    try:
        connection = RawConnection(port)
    except OSError:
        return False
    requests = [
        DescribeTransactionsRequest(transactional_ids=[id_name(at + more) for more in range(DESCRIBED_AT_ONCE)])
        for at in range(0, IDS, DESCRIBED_AT_ONCE)
    ]
    count = 0
    try:
        for answer in answers(connection, ApiKey.DESCRIBE_TRANSACTIONS, 0, requests):
            if any(row.error_code for row in answer.transaction_states):
                return False
            count += sum(row.transaction_state == "Ongoing" for row in answer.transaction_states)
    except OSError:
        return False
    finally:
        connection.close()
    assert count == OPEN_IDS, count
    return True


def rows_of_restart(runs: int) -> list[Row]:
    with ExitStack() as stack:
        servers, _ = start_both(stack, ours={FLUSH: NEVER})
        for server in servers:
            register_ids(server)
        what = "every transactional id"
        sides = [partial(kill_and_time, server, are_ids_served, what) for server in servers]
        ours, *peers = take_turns(runs, *sides)
    return [
        compare(
            "kill -9, start, until 10,000 ids with 100 open transactions are served", ours, peers[0] if peers else [],
            unit="s", reach="<= 0.3x", peer_name=APACHE_KAFKA, how=f"{runs}, cold", less_is_better=True,
        )
    ]  # fmt: skip


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        rows = rows_of(servers, runs, "as they come", f"ours: {FLUSH}=1, theirs: never")
    with ExitStack() as stack:
        servers, left_out = start_both(stack, ours={FLUSH: NEVER})
        rows += rows_of(servers, runs, "not synced", f"ours: {FLUSH}=2^63-1")
        rows += [*rows_of_clients(servers, runs), *rows_of_reading(servers[0], runs)]
    rows += rows_of_restart(runs)
    return [Table("transactions", "Transactions", rows, left_out)]
