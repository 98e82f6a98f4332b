"""How much a broker in memory may take, and what its clients are told beyond that."""

from __future__ import annotations

from pathlib import Path

import pytest

import kohort
from kohort.broker.limits import memory
from kohort.broker.limits.memory import machine_bytes, memory_limit_bytes
from kohort.errors import KohortTimeoutError


def test_the_default_is_a_quarter_of_what_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_LIMIT_FILES", (str(tmp_path / "none"), str(limit)))
    whole = machine_bytes()
    assert whole > 1 << 28
    limit.write_text("max\n")
    assert machine_bytes() == whole
    limit.write_text("400000000\n")
    assert (machine_bytes(), memory_limit_bytes(None)) == (400_000_000, 100_000_000)
    assert memory_limit_bytes(7) == 7


def test_producer_is_told_what_to_do_about_a_full_memory() -> None:
    config = {"memory.limit.bytes": 1 << 20}
    with (
        kohort.Broker(config=config) as broker,
        kohort.Producer(bootstrap_servers=broker.bootstrap_servers, delivery_timeout_ms=1_000, linger_ms=0) as producer,
    ):
        first = producer.send("orders", bytes(500_000)).result(10)
        producer.send("orders", bytes(500_000)).result(10)
        with pytest.raises(
            KohortTimeoutError, match=r"memory.limit.bytes=1048576\); let retention keep less, raise the"
        ):
            producer.send("orders", bytes(500_000)).result(10)
        with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            consumer.assign([kohort.TopicPartition("orders", first.partition)])
            consumer.seek_to_beginning()
            assert consumer.poll(10)[0].offset == 0
