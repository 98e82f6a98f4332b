"""Apache Kafka's own tool reads our segment files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kohort.coordinator.transactions.records import TransactionStored, build_log_batch
from kohort.coordinator.transactions.states import TransactionState
from kohort.ids import TRANSACTIONS_TOPIC, TopicId
from kohort.records.batch import build_batch
from kohort.storage.store import Store
from support.builders.storage_logs import TOPIC_ID, batch, sequenced
from support.builders.transactional_logs import STEPS
from support.peers.kafka_tools import run_kafka_tool

pytestmark = pytest.mark.process
OTHER_ID, THIRD_ID = TopicId(bytes(range(1, 17))), TopicId(bytes(range(2, 18)))
DECISION = TransactionStored(
    transactional_id="ledger",
    producer_id=8,
    previous_producer_id=-1,
    producer_epoch=0,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    last_update_ms=5,
    partitions=(("payments", 0),),
    start_ms=5,
    client_version=2,
)


@pytest.mark.apache
def test_dump_log_segments_reads_our_files(tmp_path: Path) -> None:
    """DumpLogSegments checks the CRC of each batch and prints every record."""
    store = Store.open(f"{tmp_path}/data")
    configs = {"segment.bytes": "500", "message.timestamp.type": "LogAppendTime"}
    first = store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0]
    second = store.create_topic("flights", 1, topic_id=TOPIC_ID, configs=configs).partitions[0]
    first.append(batch(2, value=b"plain"), now_ms=5)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        first.append(build_batch([(b"key", codec.encode(), 1000, [("h", b"1")])] * 2, compression=codec), now_ms=5)
    first.append(sequenced(3, producer_id=77, epoch=2), now_ms=5)
    for _ in range(8):
        second.append(batch(value=b"dated"), now_ms=1_700_000_000_000)
    store.close()
    paths = [segment.path for segment in (*first.segments, *second.segments)]
    assert len(paths) > 2

    text = run_kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--print-data-log", "--deep-iteration", "--files", ",".join(paths)
    )
    assert "invalid" not in text.lower().replace("isvalid", ""), text
    batches = [line for line in text.splitlines() if line.startswith("baseOffset:")]
    assert len(batches) == 14
    assert all("isvalid: true" in line and "magic: 2" in line for line in batches)
    assert "producerId: 77 producerEpoch: 2" in text
    assert re.findall(r"payload: (\w+)", text) == [
        *["plain"] * 2,
        *["gzip"] * 2,
        *["snappy"] * 2,
        *["lz4"] * 2,
        *["zstd"] * 2,
        "v",
        *["dated"] * 8,
    ]
    assert text.count("LogAppendTime: 1700000000000") == 16, "once per batch and once per record"
    assert [line.split()[1] for line in batches[6:]] == [str(n) for n in range(8)]


@pytest.mark.apache
def test_dump_log_segments_finds_our_indexes_and_producers_right(tmp_path: Path) -> None:
    """It holds each entry against the batches, and tells those that are wrong."""
    store = Store.open(f"{tmp_path}/data")
    configs = {"segment.bytes": "9000", "index.interval.bytes": "500"}
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=configs).partitions[0]
    for number in range(400):
        log.append(batch(2, timestamp=1000 + number * 7 % 90 + number), now_ms=5)
    log.append(sequenced(3, 2, producer_id=77, epoch=2), now_ms=5)
    payments = store.create_topic("payments", 1, topic_id=OTHER_ID).partitions[0]
    for step in STEPS:
        step(payments)
    decisions = store.create_topic(TRANSACTIONS_TOPIC, 1, topic_id=THIRD_ID).partitions[0]
    decisions.append(bytearray(build_log_batch([DECISION], now_ms=5) or b""), now_ms=5, validate=False)
    store.close()
    folder = tmp_path / "data" / "orders-0"
    indexes = sorted(folder.glob("*.index")) + sorted(folder.glob("*.timeindex"))
    assert len(indexes) > 4 and all(path.stat().st_size for path in indexes[:2])

    text = run_kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--verify-index-only", "--files", ",".join(map(str, indexes))
    )
    assert text.count("Dumping") == len(indexes)
    assert not re.search("mismatch|not found|out of order|exception", text, re.IGNORECASE), text
    snapshots = [path for each in (folder, folder.parent / "payments-0") for path in each.glob("*.snapshot")]
    (aborted,) = (folder.parent / "payments-0").glob("*.txnindex")
    files = [*snapshots, aborted, decisions.segments[0].path]
    text = run_kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        "--transaction-log-decoder",
        "--files",
        ",".join(map(str, files)),
    )
    assert "producerId: 77 producerEpoch: 2 coordinatorEpoch: -1" in text, text
    assert "firstSequence: 3 lastSequence: 4 lastOffset: 801 offsetDelta: 1 timestamp: 1000" in text, text
    # An open transaction, and one that has ended.
    assert "producerId: 8 producerEpoch: 0 coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong[19]" in text, text
    assert "producerId: 7 producerEpoch: 0 coordinatorEpoch: 3 currentTxnFirstOffset: OptionalLong.empty" in text, text
    entries = re.findall(r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)", text)
    assert [tuple(map(int, each)) for each in entries] == [(8, 5, 7, 4), (7, 4, 8, 9), (8, 13, 14, 12)]
    assert '{"transactionalId":"ledger"}' in text, text
    assert '"transactionStatus":1,"transactionPartitions":[{"topic":"payments","partitionIds":[0]}]' in text, text
