"""Every data directory that some version of kohort wrote is opened by this one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kohort.ids import OFFSETS_TOPIC
from kohort.records.batch import Record, iterate_records
from kohort.storage.store import Store
from support.builders.data_directory import FLIGHTS_ID, OFFSETS_ID, ORDERS_ID
from support.builders.storage_logs import find_latest, find_time, offsets, sequenced, take_producer_ids, values

DIRECTORIES = Path(__file__).parents[2] / "data"


@pytest.mark.parametrize("clean", [True, False])
def test_a_directory_of_format_1_opens_and_reads(tmp_path: Path, clean: bool) -> None:
    """Written by the first version; `tests/support/builders/data_directory.py` says what is in it."""
    directory = tmp_path / "data"
    shutil.copytree(DIRECTORIES / "data-directory-v1", directory)
    if not clean:
        (directory / ".kohort_cleanshutdown").unlink()

    store = Store.open(str(directory))
    assert (store.recovery.is_clean, store.recovery.cuts, store.recovery.partitions) == (clean, (), 5)
    assert (store.cluster_id, store.node_id) == ("MkU3OEVBNTcwNTJENDM2Qg", 1)
    assert {name: topic.topic_id for name, topic in store.topics.items()} == {
        "orders": ORDERS_ID,
        "flights": FLIGHTS_ID,
        OFFSETS_TOPIC: OFFSETS_ID,
    }
    orders = store.topics["orders"]
    assert orders.configs == {"segment.bytes": "600", "retention.ms": "86400000"}
    codecs = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert values(orders.partitions[0]) == [f"{codec} {n}".encode() for codec in codecs for n in range(5)]
    assert find_time(orders.partitions[0], 1_000_023) == (1_000_023, 13)
    assert len(orders.partitions[1].segments) == 2
    assert offsets(orders.partitions[1].read(0, 1 << 20)) == list(range(16))
    assert orders.partitions[1].append(sequenced(10, 2, producer_id=1000), now_ms=5).duplicate
    assert orders.partitions[1].append(sequenced(16, 2, producer_id=1000), now_ms=5).base_offset == 16
    (flights,) = store.topics["flights"].partitions
    assert find_latest(flights) == (2_000_001, 3)
    (view,) = flights.read(3, 1000)
    assert list(iterate_records(view)) == [Record(3, 2_000_001, None, None, (("trace", b"1"), ("empty", None)))]
    assert store.topics[OFFSETS_TOPIC].is_internal
    assert values(store.topics[OFFSETS_TOPIC].partitions[1]) == [b"\0\3"]
    assert take_producer_ids(store) == range(2000, 3000)
    store.close()
