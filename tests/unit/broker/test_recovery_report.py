"""A broker that opens what another left behind says what it found, and what had to go."""

from __future__ import annotations

from pathlib import Path

import pytest

import kohort
from kohort.broker.embedded import Broker
from kohort.ids import TopicId
from kohort.storage.store import Store
from support.builders.storage_logs import batch


def found(caplog: pytest.LogCaptureFixture, data_dir: Path) -> list[str]:
    caplog.clear()
    with Broker(data_dir=data_dir):
        return [line for line in caplog.messages if line.startswith(("event=recovered", "event=tail_cut"))]


def test_what_was_cut_is_told_at_the_start(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    log = store.create_topic("orders", 1, topic_id=TopicId(b"1" * 16)).partitions[0]
    for records in (1, 4):
        log.append(batch(records), now_ms=5)
    store.close(clean=False)
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])

    recovered, cut = found(caplog, tmp_path)
    left = path.stat().st_size
    assert recovered == f"event=recovered partitions=1 bytes_checked={left} cuts=1"
    assert cut.startswith(f"event=tail_cut {path}: cut {whole - 1 - left} bytes (4 records) from offset 1 on: ")
    assert found(caplog, tmp_path) == [], "that broker stopped cleanly"


def test_damaged_offsets_are_told_to_who_asks(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    log = store.create_topic("orders", 1, topic_id=TopicId(b"1" * 16)).partitions[0]
    for records in (1, 4, 1):
        log.append(batch(records), now_ms=5)
    store.close(clean=False)
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    with Broker(data_dir=tmp_path) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        facts = admin.describe_broker()
    assert (facts["damaged.ranges"], facts["damaged.ranges.first"]) == ("1", "orders-0:1-4")


def test_beginning_that_somebody_removed_is_told(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """The oldest file, by hand, to make room: readers find a log that begins later, and nothing else says why."""
    store = Store.open(str(tmp_path))
    configs = {"segment.bytes": str(len(batch()))}
    log = store.create_topic("orders", 1, topic_id=TopicId(b"1" * 16), configs=configs).partitions[0]
    for _ in range(3):
        log.append(batch(), now_ms=5)
    store.close()
    (tmp_path / "orders-0" / f"{0:020d}.log").unlink()

    for is_told in (True, False):
        caplog.clear()
        with Broker(data_dir=tmp_path):
            told = [line for line in caplog.messages if line.startswith("event=records_missing")]
        words = "bytes that a clean stop had left are gone from its beginning, which is offset 1 now"
        assert told == [f"event=records_missing partition=orders-0 {len(batch())} {words}"] * is_told


@pytest.mark.parametrize(("is_clean", "event"), [(True, "event=catalog_damaged"), (False, "event=catalog_cut")])
def test_what_is_cut_off_the_catalog_is_told(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, is_clean: bool, event: str
) -> None:
    store = Store.open(str(tmp_path))
    store.create_topic("orders", 1, topic_id=TopicId(b"1" * 16))
    path = tmp_path / "kohort.catalog"
    before = path.stat().st_size
    store.create_topic("bills", 1, topic_id=TopicId(b"2" * 16))
    store.close(clean=is_clean)
    content = bytearray(path.read_bytes())
    added = len(content) - before
    for at in (before + added // 4, before + 3 * added // 4):
        content[at] ^= 1
    path.write_bytes(content)

    with Broker(data_dir=tmp_path):
        told = [line for line in caplog.messages if line.startswith("event=catalog")]
    (line,) = told
    assert line.startswith(f"{event} {path}: cut {added} bytes from byte {before} on, behind change ")


def test_new_directory_has_nothing_to_tell(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    assert found(caplog, tmp_path) == []
