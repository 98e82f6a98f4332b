"""What goes the short way into the queue is what the encoder makes of it; the machine is woken once for a burst."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from time import time_ns
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.producer.core import submission_kernels
from kohort.client.producer.core.accumulator import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from kohort.client.producer.encoder import RecordEncoder
from kohort.client.producer.record_future import RecordFuture
from kohort.errors import KohortError, StateError
from kohort.records.kernel_form import plain_form

FORMS = pytest.mark.parametrize(
    "kernels", [submission_kernels, plain_form(submission_kernels)], ids=["as built", "plain"]
)
MOST_BYTES = 120


class Name(str):
    """Text of a class of its own."""

    __slots__ = ()


class Payload(bytes):
    """Bytes of a class of its own."""

    __slots__ = ()


PAYLOADS = st.one_of(
    st.none(),
    st.binary(max_size=MOST_BYTES),
    st.text(max_size=40),
    st.sampled_from(["\ud800", bytearray(b"x"), memoryview(b"x"), Payload(b"x"), Name("x"), 5, bytes(MOST_BYTES)]),
)
NAMES = st.sampled_from(["", "trace", "\u00e4" * 40, "\ud800", Name("trace"), b"trace", 5])
PAIRS = st.one_of(st.tuples(NAMES, PAYLOADS), st.tuples(NAMES, PAYLOADS).map(list), st.just(("trace",)), st.just("ab"))
HEADERS = st.one_of(
    st.none(),
    st.lists(PAIRS, max_size=3),
    st.lists(PAIRS, max_size=3).map(tuple),
    st.dictionaries(NAMES, PAYLOADS, max_size=3),
    st.sampled_from([(), {}, "", b"ab", 0, 5, OrderedDict(trace=b"1"), {"trace": b"1"}.items()]),
)
TIMES = st.sampled_from([None, None, 0, 1_700_000_000_000, 2**63 - 1, 2**63, -1, True, 1.5, "5"])
#: In the order of `submit`.
MORE = {
    "partition": st.sampled_from([None, 0, 3, 0x7FFFFFFF, 0x80000000, -1, 2**70, True, 1.0, "1"]),
    "timestamp_ms": TIMES,
    "headers": HEADERS,
    "on_delivery": st.sampled_from([None, None, print, 5]),
}
TOPICS = st.sampled_from(["orders", "bills", Name("orders"), b"orders", None, ["orders"]])


def build_encoder(**serializers: object) -> RecordEncoder:
    encoder = RecordEncoder(
        max_request_bytes=MOST_BYTES + BATCH_OVERHEAD_BYTES,
        piece_bytes=1_000,
        **{"key_serializer": None, "value_serializer": None, **serializers},  # type: ignore[arg-type]
    )
    encoder.record("orders", b"", None, partition=None, timestamp_ms=None, headers=None, on_delivery=None)
    return encoder


class Way:
    """The short way of an encoder's records, with the queue behind it."""

    def __init__(self, kernels: ModuleType, encoder: RecordEncoder, *, buffer_bytes: int = 1_000) -> None:
        self.queue = kernels.Submissions(wake_bytes=10_000)
        self.space = kernels.BufferSpace(buffer_bytes, Lock() if kernels.IS_PLAIN else None)
        self.wakes = 0
        plain = kernels.PlainRecords(
            RecordFuture,
            self.queue,
            self.space,
            topics=encoder.plain_topics,
            overhead_bytes=RECORD_OVERHEAD_BYTES,
            limit_bytes=encoder.limit_bytes,
            clock=time_ns,
            wake=self._wake,
        )
        self._submit = plain.submit

    def submit(self, topic: object, value: object = None, key: object = None, **more: object) -> Any:
        return self._submit(topic, value, key, *(more.get(name) for name in MORE))

    def _wake(self) -> None:
        self.wakes += 1


@FORMS
@given(topic=TOPICS, value=PAYLOADS, key=PAYLOADS, more=st.fixed_dictionaries(MORE))
def test_short_way_makes_the_records_of_the_encoder(
    kernels: ModuleType, topic: Any, value: object, key: object, more: dict[str, Any]
) -> None:
    """What is refused there, or built otherwise, is left to it and changes nothing."""
    encoder = build_encoder()
    way = Way(kernels, encoder)
    made = way.submit(topic, value, key, **more)
    assert way.queue.take() == ([] if made is None else [made])
    assert way.space.held_bytes == (0 if made is None else made.size_bytes)
    assert way.wakes == (made is not None)
    try:
        expected = encoder.record(topic, value, key, **more)
    except (KohortError, TypeError):
        assert made is None
        return
    if made is None:
        return
    for name in ("topic", "key", "value", "partition", "size_bytes", "headers", "on_delivery", "is_noticed"):
        assert getattr(made, name) == getattr(expected, name)
        assert type(getattr(made, name)) is type(getattr(expected, name))
    if more["timestamp_ms"] is not None:
        assert made.timestamp_ms == expected.timestamp_ms and type(made.timestamp_ms) is int
    assert 0 <= expected.timestamp_ms - made.timestamp_ms < 60_000


@FORMS
def test_usual_records_go_the_short_way(kernels: ModuleType) -> None:
    """Bytes and text, with a partition or without; after a serializer nothing is sent as it is."""
    way = Way(kernels, build_encoder())
    assert way.submit("orders", b"v").value == b"v"
    assert way.submit("orders", "\u00e4", "k", partition=2).value == b"\xc3\xa4"
    assert way.submit("orders", None, b"k", partition=0).key == b"k"
    assert way.submit("orders", b"v", headers=[("a", b"1"), ("b", None)]).headers == b"\x04\x02a\x021\x02b\x01"
    assert way.submit("orders", b"v", headers={"a": "1"}).headers == b"\x02\x02a\x021"
    assert way.submit("orders", b"v", timestamp_ms=5).timestamp_ms == 5
    assert way.submit("orders", b"v", on_delivery=print).on_delivery is print
    assert way.submit("bills", b"v") is None

    assert Way(kernels, build_encoder(value_serializer=str)).submit("orders", b"v") is None


@FORMS
def test_buffer_is_never_overdrawn_but_by_a_single_record(kernels: ModuleType) -> None:
    """Kafka's buffer.memory: a record that does not fit waits, on the long way."""
    way = Way(kernels, build_encoder(), buffer_bytes=60)
    assert way.submit("orders", bytes(90)) is not None
    assert way.submit("orders", b"") is None
    way.space.hold(-114)
    assert way.submit("orders", bytes(6)) is not None
    assert way.submit("orders", bytes(6)) is not None
    assert way.submit("orders", b"") is None
    assert way.space.held_bytes == 60

    way.space.hold(-60)
    way.space.is_shut = True
    assert way.submit("orders", b"") is None
    assert way.space.held_bytes == 0 and len(way.queue.queued()) == 3


@FORMS
def test_machine_is_woken_once_until_it_looks(kernels: ModuleType) -> None:
    """A wake-up that an interrupt has taken away is repeated before long."""
    queue = kernels.Submissions(wake_bytes=1_000)
    record = RecordFuture("orders", None, b"x", 5, 400)
    assert [queue.append(record) for _ in range(39)] == [True] + [False] * 38
    assert [queue.append(record) for _ in range(3)] == [False, True, False]
    assert len(queue.take()) == 42
    assert queue.append(record)

    queue.take()
    # As while a batch lingers.
    queue.is_watched = True
    assert [queue.append(record) for _ in range(5)] == [False, False, True, False, False]
    queue.close()
    assert queue.append(record)


@FORMS
def test_failed_wake_up_is_the_callers(kernels: ModuleType) -> None:
    """The I/O thread has ended."""

    def wake() -> None:
        raise StateError("this producer is closed")

    encoder = build_encoder()
    queue, space = kernels.Submissions(wake_bytes=1_000), kernels.BufferSpace(1_000, None)
    plain = kernels.PlainRecords(
        RecordFuture,
        queue,
        space,
        topics=encoder.plain_topics,
        overhead_bytes=24,
        limit_bytes=100,
        clock=time_ns,
        wake=wake,
    )
    with pytest.raises(StateError):
        plain.submit("orders", b"v", None, None, None, None, None)
