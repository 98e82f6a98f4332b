"""Callbacks of futures run on the producer's own thread: what would wait there for that very thread is refused."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import kohort
from kohort.client.core import own_threads
from kohort.errors import StateError

WAIT_S = 20.0


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker() as broker:
        yield broker.bootstrap_servers


def in_callback(producer: kohort.Producer, call: Callable[[], object]) -> object:
    """What a call ends in that is made in a callback, as its value or its error."""
    ended: Future[object] = Future()
    may_run = threading.Event()
    here = threading.get_ident()
    came_late: list[object] = []

    def run(stored: Future[Any]) -> None:
        if threading.get_ident() == here:
            # It was stored before it was asked to call: then whoever asks is called, and no callback runs.
            came_late.append(stored)
            return
        may_run.wait(WAIT_S)
        try:
            ended.set_result(call())
        except Exception as error:
            ended.set_exception(error)

    sent = 0
    while sent == len(came_late):
        producer.send("called", value=b"first").add_done_callback(run)
        sent += 1
    may_run.set()
    return ended.result(WAIT_S)


CALLS: dict[str, Callable[[kohort.Producer], object]] = {
    "flush": lambda producer: producer.flush(),
    "flush with a timeout": lambda producer: producer.flush(3_600),
    "close": lambda producer: producer.close(),
    "result": lambda producer: producer.send("called", value=b"again").result(),
    "result with a timeout": lambda producer: producer.send("called", value=b"again").result(3_600),
    "exception": lambda producer: producer.send("called", value=b"again").exception(),
    "end of a with statement": lambda producer: producer.__exit__(None, None, None),
}


@pytest.mark.parametrize("name", CALLS)
def test_call_that_would_wait_for_itself_is_refused_at_once(address: str, name: str) -> None:
    """And the next good call works."""
    with kohort.Producer(bootstrap_servers=address, linger_ms=0) as producer:
        with pytest.raises(StateError, match="callbacks of futures run on") as refusal:
            in_callback(producer, lambda: CALLS[name](producer))
        assert "a thread of yours" in str(refusal.value)

        assert producer.send("called", value=b"after").result(WAIT_S).topic == "called"
        producer.flush(WAIT_S)


def test_full_buffer_is_refused_at_once_in_a_callback(address: str) -> None:
    """`max.block.ms` would hold up the thread that makes room."""

    def fill() -> None:
        for _ in range(3):
            producer.send("called", value=bytes(400))

    with kohort.Producer(
        bootstrap_servers=address, buffer_memory=900, linger_ms=3_600_000, max_block_ms=3_600_000
    ) as producer:
        threading.Timer(0.05, producer.flush).start()
        with pytest.raises(StateError, match="a thread of yours"):
            in_callback(producer, fill)


def test_what_does_not_wait_is_allowed_in_a_callback(address: str) -> None:
    """To send on, and to look at what has its end."""
    with kohort.Producer(bootstrap_servers=address, linger_ms=0) as producer:
        stored = producer.send("called", value=b"before")
        stored.result(WAIT_S)
        sent = in_callback(
            producer, lambda: (producer.send("called", value=b"next"), stored.result(), stored.exception())
        )
        assert isinstance(sent, tuple)
        assert (sent[1], sent[2]) == (stored.result(), None)
        assert sent[0].result(WAIT_S).offset > stored.result().offset


def test_another_client_may_be_waited_for_in_a_callback(address: str) -> None:
    """It has a thread of its own: what is committed once a record is stored, say."""
    with (
        kohort.Producer(bootstrap_servers=address, linger_ms=0) as producer,
        kohort.Producer(bootstrap_servers=address, linger_ms=0) as other,
        kohort.Consumer(bootstrap_servers=address) as consumer,
    ):
        stored = in_callback(producer, lambda: other.send("other", value=b"one").result(WAIT_S))
        partitions = in_callback(producer, lambda: consumer.partitions_for("called"))

    assert isinstance(stored, kohort.RecordMetadata)
    assert (stored.topic, partitions) == ("other", [0])


def test_threads_that_have_ended_are_forgotten(address: str) -> None:
    """Numbers of threads are used again."""
    with kohort.Producer(bootstrap_servers=address) as producer:
        producer.send("called", value=b"one").result(WAIT_S)
        known = dict(own_threads._holders)
    assert known
    assert len(own_threads._holders) < len(known)
