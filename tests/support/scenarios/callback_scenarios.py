"""What an application may do inside its rebalance callbacks, against any broker; both protocols."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kohort import Consumer, TopicPartition
from kohort.errors import StateError
from support.scenarios.client_scenarios import (
    fresh,
    group_options,
    new_topic,
    partitions_of,
    poll_until,
    send_values,
    wait_until,
)


def callbacks_may_ask_and_commit(bootstrap: str, protocol: str) -> None:
    """In `on_assigned` and `on_revoked` the offsets of what moves are known, and can be committed and sought."""
    group = fresh("asked")
    options = {**group_options(bootstrap, group, protocol), "auto_offset_reset": "earliest"}
    seen: dict[str, Any] = {}

    def begun(consumer: Consumer, gained: list[TopicPartition]) -> None:
        first, second = gained
        seen["assigned"] = {each: consumer.position(each) for each in gained}
        seen["committed"] = consumer.committed(gained)
        seen["ends"] = consumer.end_offsets(gained)
        consumer.seek(first, 2)
        seen["sought"] = consumer.position(first)
        consumer.commit({second: 1})
        consumer.pause([second])
        consumer.resume([second])

    def given_up(consumer: Consumer, revoked: list[TopicPartition]) -> None:
        seen["revoked"] = {each: consumer.position(each) for each in revoked}
        consumer.commit(dict.fromkeys(revoked, 1))

    with new_topic(bootstrap, "asked", 2) as topic:
        first, second = partitions_of(topic, 2)
        for partition in (first, second):
            send_values(bootstrap, topic, [b"0", b"1", b"2"], partition=partition.partition)
        with Consumer(**options, enable_auto_commit=False) as consumer:
            consumer.commit({first: 1})
            consumer.subscribe([topic], on_assigned=begun, on_revoked=given_up)
            records = poll_until(consumer, 4)
        assert sorted((record.partition, record.offset) for record in records) == [(0, 2), (1, 0), (1, 1), (1, 2)]
        assert seen == {
            "assigned": {first: 1, second: 0},
            "committed": {first: 1, second: None},
            "ends": {first: 3, second: 3},
            "sought": 2,
            "revoked": {first: 3, second: 3},
        }
        with Consumer(**options) as reader:
            assert reader.committed([first, second]) == {first: 1, second: 1}


def rebalances_have_a_reason(bootstrap: str, protocol: str, lines: Callable[[], list[str]]) -> None:
    """`last_rebalance`, inside callbacks and after them; what `enforce_rebalance` does; who the member is."""
    group = fresh("reason")
    told: list[tuple[str, str]] = []

    def note(consumer: Consumer, _: list[TopicPartition]) -> None:
        assert consumer.last_rebalance is not None
        told.append((consumer.last_rebalance.kind, consumer.last_rebalance.reason))

    with new_topic(bootstrap, "reason", 2) as topic, Consumer(**group_options(bootstrap, group, protocol)) as consumer:
        assert consumer.last_rebalance is None
        assert consumer.group_metadata().generation_id == -1
        with pytest.raises(StateError, match="subscribe"):
            consumer.enforce_rebalance()
        consumer.subscribe([topic], on_assigned=note, on_revoked=note)
        wait_until(lambda: len(told) == 1, "the assignment", consumer)
        assert told[0][0] == "assigned"
        identity = consumer.group_metadata()
        assert identity == (group, consumer.group_epoch, consumer.member_id, None)
        consumer.enforce_rebalance("because we want to")
        if protocol == "consumer":
            wait_until(lambda: any("has no effect" in line for line in lines()), "a warning", consumer)
            assert "at member epoch" in told[0][1]
        else:
            wait_until(lambda: consumer.group_epoch > identity.generation_id, "a new generation", consumer)
            assert told[0][1] == "topics were subscribed to"
            if protocol == "classic":
                wait_until(lambda: len(told) == 3, "everything is assigned anew", consumer)
                assert told[1:] == [("revoked", "because we want to"), ("assigned", "because we want to")]
    assert told[-1] == ("revoked", "this member leaves")


def revoked_partitions_that_were_never_read_have_a_position(bootstrap: str, protocol: str) -> None:
    """What was fetched and not handed out counts as unread."""
    options = {**group_options(bootstrap, fresh("unread"), protocol), "auto_offset_reset": "earliest"}
    seen: list[dict[TopicPartition, int]] = []

    def given_up(consumer: Consumer, revoked: list[TopicPartition]) -> None:
        seen.append({each: consumer.position(each) for each in revoked})

    with new_topic(bootstrap, "unread") as topic:
        (partition,) = partitions_of(topic, 1)
        send_values(bootstrap, topic, [b"0", b"1", b"2"])
        with Consumer(**options) as consumer:
            consumer.subscribe(
                [topic], on_assigned=lambda consumer, gained: consumer.pause(gained), on_revoked=given_up
            )
            wait_until(lambda: consumer.assignment() == {partition}, "the assignment", consumer)
            consumer.resume([partition])
            consumer.position(partition)
        assert seen == [{partition: 0}]


def callbacks_refuse_what_would_turn_in_a_circle(bootstrap: str, protocol: str) -> None:
    """A poll, a subscription, an assignment or a close inside a callback is one clear error, and nothing is lost."""
    options = {**group_options(bootstrap, fresh("circle"), protocol), "auto_offset_reset": "earliest"}
    refused: list[str] = []

    def begun(consumer: Consumer, gained: list[TopicPartition]) -> None:
        for call in (
            lambda: consumer.poll(0.1),
            lambda: consumer.subscribe(["other"]),
            lambda: consumer.assign(gained),
            consumer.unsubscribe,
            consumer.close,
        ):
            with pytest.raises(StateError, match="inside a callback") as error:
                call()
            refused.append(str(error.value))

    with new_topic(bootstrap, "circle") as topic:
        send_values(bootstrap, topic, [b"0"])
        with Consumer(**options) as consumer:
            consumer.subscribe([topic], on_assigned=begun)
            poll_until(consumer, 1)
    assert [each.split(" ")[0] for each in refused] == ["poll", "subscribe", "assign", "unsubscribe", "close"]
    assert "seek there to begin elsewhere" in refused[2]


def exception_of_a_callback_is_raised_and_forgotten(bootstrap: str, protocol: str) -> None:
    """`poll` raises it once; the callback counts as answered, so the next poll reads on."""
    options = {**group_options(bootstrap, fresh("broken"), protocol), "auto_offset_reset": "earliest"}

    def begun(consumer: Consumer, gained: list[TopicPartition]) -> None:
        raise ZeroDivisionError("the application's own")

    with new_topic(bootstrap, "broken") as topic:
        (partition,) = partitions_of(topic, 1)
        send_values(bootstrap, topic, [b"0"])
        with Consumer(**options) as consumer:
            consumer.subscribe([topic], on_assigned=begun)
            with pytest.raises(ZeroDivisionError):
                wait_until(lambda: False, "the callback", consumer)
            assert consumer.assignment() == {partition}
            assert [record.value for record in poll_until(consumer, 1)] == [b"0"]
