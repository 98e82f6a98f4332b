"""What the buffer of fetched data counts for which broker."""

from __future__ import annotations

from kohort.client.consumer.fetch.fetch_targets import FetchBuffer
from kohort.client.core.actions import Endpoint
from kohort.ids import TopicPartition

BROKER = Endpoint("127.0.0.1", 9092)
ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def test_paused_piece_that_is_dropped_leaves_its_answer_to_the_others() -> None:
    """A broker whose answer the application still reads would be asked for more than its share."""
    buffer = FetchBuffer(limit_bytes=100)
    buffer.reserve(BROKER, 60)
    assert (buffer.used(BROKER), buffer.room) == (60, 40), "what is asked for counts before it is there"
    buffer.settle(BROKER, reserved=60, pinned_bytes=50, held={ONE: 20, OTHER: 30})
    buffer.pause(ONE, is_paused=True)
    assert (buffer.used(BROKER), buffer.room) == (50, 50)

    buffer.release({ONE: 20})
    assert (buffer.used(BROKER), buffer.room) == (50, 50), "the other piece keeps the whole answer"

    buffer.release({OTHER: 30})
    assert (buffer.used(BROKER), buffer.room) == (0, 100)


def test_answer_of_which_only_paused_partitions_hold_something_is_in_no_brokers_share() -> None:
    """It is counted again when the application resumes them."""
    buffer = FetchBuffer(limit_bytes=100)
    buffer.reserve(BROKER, 60)
    buffer.settle(BROKER, reserved=60, pinned_bytes=50, held={ONE: 20, OTHER: 30})
    buffer.pause(ONE, is_paused=True)
    buffer.release({OTHER: 30})
    assert (buffer.used(BROKER), buffer.room) == (0, 50)
    buffer.pause(ONE, is_paused=False)
    assert buffer.used(BROKER) == 50
