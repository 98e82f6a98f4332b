"""Old records go while the broker serves; readers are told where the log begins now."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

import kohort
from kohort.broker.embedded import Broker
from support.waiting import until

HOUR_MS = 3_600_000


@pytest.mark.parametrize("on_disk", [True, False])
def test_old_segments_go_and_their_files_with_them(
    on_disk: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {
        "log.retention.check.interval.ms": 10,
        "log.retention.ms": HOUR_MS,
        "log.segment.delete.delay.ms": 20,
    }
    with (
        caplog.at_level(logging.INFO, logger="kohort"),
        Broker(config=config, data_dir=tmp_path if on_disk else None) as broker,
        kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        admin.create_topic("kept", configs={"retention.ms": -1})
        admin.create_topic("orders", configs={"segment.ms": HOUR_MS})
        for topic in ("kept", "orders"):
            producer.send(topic, "old", timestamp_ms=1000).result(10)
            producer.send(topic, "new").result(10)

        def begin(topic: str) -> int:
            return admin.describe_topics([topic])[0].partitions[0].begin_offset

        until(lambda: begin("orders") == 1, what="the old record has gone")
        assert begin("kept") == 0
        reading = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest"}
        with kohort.Consumer("orders", **reading) as reader:
            assert next(reader).value == b"new"
        if on_disk:
            folder = tmp_path / "orders-0"
            left = f"{1:020d}.log"
            until(lambda: [path.name for path in folder.glob("*.log*")] == [left], what="its file has gone")
    assert "event=segments_expired partition=orders-0 segments=1 start_offset=0->1" in caplog.messages
