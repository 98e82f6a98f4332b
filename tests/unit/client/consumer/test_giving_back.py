"""Memory that was taken is given back to the background: together while there is more to take, at once at the end."""

from __future__ import annotations

import pytest

from kohort import Admin, Broker, Consumer, Producer, TopicPartition
from kohort.client.consumer.application_events import ChunkTaken, ConsumerEvent
from support.waiting import PATIENCE_SECONDS

PARTITIONS = [TopicPartition("orders", number) for number in range(40)]


def test_small_pieces_that_are_taken_in_a_row_are_given_back_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time woke the background, which took a third of the speed with a thousand partitions."""
    monkeypatch.setattr("kohort.client.consumer.context._RELEASE_S", 3_600.0)
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", len(PARTITIONS))
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _, number in PARTITIONS:
                producer.send("orders", b"x", partition=number)
        with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            events: list[ConsumerEvent] = []
            post = consumer._context.host.post

            def note(event: ConsumerEvent) -> None:
                events.append(event)
                post(event)

            monkeypatch.setattr(consumer._context.host, "post", note)
            consumer.assign(PARTITIONS)
            seen = 0
            while seen < len(PARTITIONS):
                found = consumer.poll(PATIENCE_SECONDS, max_records=1)
                assert found, "records are missing"
                seen += len(found)
    given_back = [event for event in events if isinstance(event, ChunkTaken)]
    assert len(given_back) <= len(PARTITIONS) // 4
    assert {each for event in given_back for each in event.sizes} == set(PARTITIONS)
