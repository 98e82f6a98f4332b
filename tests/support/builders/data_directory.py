"""Makes the data directory that upgrade tests open; run once per format version, the result is kept for all time.

python tests/support/builders/data_directory.py tests/data/data-directory-v1
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[3] / "src")]

from kohort.ids import OFFSETS_TOPIC, TopicId
from kohort.records.batch import build_batch
from kohort.storage.store import Store
from support.builders.storage_logs import batch, sequenced, take_producer_ids

ORDERS_ID = TopicId(bytes(range(16)))
FLIGHTS_ID = TopicId(bytes(range(16, 32)))
OFFSETS_ID = TopicId(bytes(range(32, 48)))


def make(directory: str) -> None:
    """Three topics: several segments, every codec, an idempotent producer, a topic dated by the broker."""
    store = Store.open(directory, cluster_id="MkU3OEVBNTcwNTJENDM2Qg", node_id=1)
    orders = store.create_topic(
        "orders", 2, topic_id=ORDERS_ID, configs={"segment.bytes": "600", "retention.ms": "86400000"}
    )
    for at, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        records = [(b"key %d" % n, b"%s %d" % (codec.encode(), n), 1_000_000 + 10 * at + n, ()) for n in range(5)]
        orders.partitions[0].append(build_batch(records, compression=codec), now_ms=1_000_000)
    for at in range(8):
        orders.partitions[1].append(sequenced(at * 2, 2, producer_id=1000, value=b"order %d" % at), now_ms=1_000_000)
    flights = store.create_topic("flights", 1, topic_id=FLIGHTS_ID, configs={"message.timestamp.type": "LogAppendTime"})
    flights.partitions[0].append(batch(3, value=b"AA 1"), now_ms=2_000_000)
    headers = [("trace", b"1"), ("empty", None)]
    flights.partitions[0].append(build_batch([(None, None, 0, headers)]), now_ms=2_000_001)
    commits = store.create_topic(OFFSETS_TOPIC, 2, topic_id=OFFSETS_ID, configs={"cleanup.policy": "compact"})
    commits.partitions[1].append(build_batch([(b"\0\1", b"\0\3", 3_000_000, ())]), now_ms=3_000_000, validate=False)
    take_producer_ids(store)
    take_producer_ids(store)
    store.close()
    Path(directory, ".lock").unlink()


if __name__ == "__main__":
    make(sys.argv[1])
