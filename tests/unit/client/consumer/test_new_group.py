"""Dialogues with a group that has committed nothing yet: where it starts, and whether that is worth a line."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import CallbackKind, PartitionsAssigned, Start
from support.dialogues.consumer_dialogue import ConsumerDialogue, orders

LINE = "group billing starts at the end of the log; 20 older records are read with auto_offset_reset='earliest'"


def dialogue(**options: object) -> ConsumerDialogue:
    consumer = ConsumerDialogue(**{"auto_offset_reset": "latest", **options})
    zero, one = orders(0, 1)
    consumer.log_starts = {zero: 5, one: 0}
    consumer.log_ends = {zero: 10, one: 15}
    return consumer


def test_records_that_a_new_group_passes_over_are_counted() -> None:
    consumer = dialogue()
    consumer.stable(0, 1)
    assert consumer.fetching() == {orders(0)[0]: 10, orders(1)[0]: 15}
    assert consumer.warnings() == [LINE]

    consumer.advance(5_000)
    consumer.reply(epoch=2, assigned=[1])
    consumer.acknowledge(CallbackKind.REVOKED, 0)
    consumer.reply(epoch=2)
    consumer.advance(5_000)
    consumer.reply(epoch=3, assigned=[0, 1])
    consumer.acknowledge(CallbackKind.ASSIGNED, 0)
    assert set(consumer.fetching()) == set(orders(0, 1))
    assert consumer.warnings() == [LINE], "it starts there again, but that is no news"


def test_group_by_hand_is_a_group() -> None:
    consumer = dialogue()
    consumer.take(PartitionsAssigned(starts={each: Start(fence=consumer.new_fence()) for each in orders(0, 1)}))
    consumer.settle()
    assert consumer.warnings() == [LINE]


@pytest.mark.parametrize("why", ["committed", "empty", "earliest", "no group"])
def test_where_nothing_is_passed_over_nothing_is_said(why: str) -> None:
    consumer = dialogue(
        auto_offset_reset="earliest" if why == "earliest" else "latest",
        group_id=None if why == "no group" else "billing",
    )
    if why == "committed":
        consumer.committed = dict.fromkeys(orders(0, 1), 7)
    if why == "empty":
        consumer.log_starts = consumer.log_ends
    consumer.take(PartitionsAssigned(starts={each: Start(fence=consumer.new_fence()) for each in orders(0, 1)}))
    consumer.settle()
    assert set(consumer.fetching()) == set(orders(0, 1))
    assert consumer.warnings() == []


def test_who_has_chosen_the_end_is_not_surprised() -> None:
    consumer = dialogue(given={"auto.offset.reset"})
    consumer.stable(0, 1)
    assert consumer.warnings() == []
