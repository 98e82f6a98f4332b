"""A poll that waits says so, as often as max.poll.interval.ms wants it: a member that polls is not stuck."""

from __future__ import annotations

import logging

import pytest

from kohort import Broker, Consumer, TopicPartition, aio
from kohort.client.steps import Pause
from support.dialogues.virtual_broker import beside_a_broker

INTERVALS_MS = [20, 150, 900, 3_000]


@pytest.mark.parametrize("interval_ms", INTERVALS_MS)
def test_member_on_a_loop_is_none_that_does_not_poll(interval_ms: int, caplog: pytest.LogCaptureFixture) -> None:
    """KIP-62: time in `poll` is time in which the application is there."""
    lost: list[list[TopicPartition]] = []

    async def read(address: str) -> set[TopicPartition]:
        async with aio.Consumer(
            bootstrap_servers=address, group_id="billing", max_poll_interval_ms=interval_ms
        ) as consumer:
            consumer.subscribe(["orders"], on_lost=lambda _, partitions: lost.append(partitions))
            assert await consumer.poll(10.0) == []
            return consumer.assignment()

    with caplog.at_level(logging.WARNING, "kohort"):
        assert beside_a_broker(read, topics={"orders": 1}) == {TopicPartition("orders", 0)}
    assert lost == []
    assert [line.getMessage() for line in caplog.records if "max.poll.interval.ms" in line.getMessage()] == []


@pytest.mark.parametrize("interval_ms", INTERVALS_MS)
def test_thread_waits_for_a_part_of_the_interval(interval_ms: int) -> None:
    """Both doors take the same steps."""
    with (
        Broker() as broker,
        Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="billing", max_poll_interval_ms=interval_ms
        ) as consumer,
    ):
        consumer.subscribe(["orders"])
        call = consumer._reader.poll(3_600.0)
        wait = call.send(None)
        call.close()
    assert isinstance(wait, Pause) and 0 < wait.seconds * 1_000 <= interval_ms / 2
