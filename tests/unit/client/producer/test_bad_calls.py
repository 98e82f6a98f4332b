"""Every public call of the producer with arguments of any kind, after `close`, and from several threads at once."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kohort
from kohort import Broker, Producer
from kohort.errors import ConfigError, KohortError, StateError

WAIT_S = 20.0
#: Good values of all that has to be given.
GOOD: dict[str, dict[str, Any]] = {
    "send": {"topic": "orders"},
    "produce": {"topic": "orders"},
    "partitions_for": {"topic": "orders"},
}
CALLS = ("send", "produce", "poll", "flush", "partitions_for", "close")


def parameters_of(call: str) -> list[str]:
    return [name for name in inspect.signature(getattr(Producer, call)).parameters if name != "self"]


PARAMETERS = [(call, name) for call in CALLS for name in parameters_of(call)]
#: Nothing that waits: a long time is a good timeout.
ANYTHING = st.one_of(
    st.booleans(),
    st.integers(max_value=0),
    st.integers(min_value=2**31),
    st.sampled_from([float("nan"), float("inf"), -1.0, 0.0, 10**400]),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.lists(st.one_of(st.text(max_size=2), st.integers(), st.tuples(st.text(max_size=2), st.integers())), max_size=3),
    st.dictionaries(
        st.one_of(st.text(max_size=2), st.integers()), st.one_of(st.text(max_size=2), st.floats()), max_size=2
    ),
    st.builds(object),
)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    # Records of one batch are refused together: a good one must not share the fate of one from the far future.
    with Broker(config={"log.message.timestamp.after.max.ms": 2**63 - 1}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def producer(address: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=address, linger_ms=0, max_block_ms=5_000) as made:
        made.send("orders", b"first").result(WAIT_S)
        yield made


@pytest.mark.large
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.sampled_from([pair for pair in PARAMETERS if pair[0] != "close" and pair[1] != "timeout"]), value=ANYTHING
)
def test_any_argument_is_taken_or_refused_at_the_call(
    producer: Producer, which: tuple[str, str], value: object
) -> None:
    """One of two exceptions that the caller can name, and then the next good call works."""
    call, name = which
    try:
        getattr(producer, call)(**{**GOOD.get(call, {}), name: value})
    except (KohortError, TypeError) as why:
        assert str(why)
    assert producer.send("orders", b"good").result(WAIT_S).topic == "orders"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    call=st.sampled_from([call for call, name in PARAMETERS if name == "timeout"]),
    value=st.one_of(
        st.booleans(),
        st.floats(max_value=0.0, exclude_max=True),
        st.sampled_from([float("nan"), float("inf")]),
        st.text(),
        st.binary(),
        st.lists(st.integers()),
        st.builds(object),
    ),
)
def test_any_timeout_that_is_none_is_refused_at_the_call(producer: Producer, call: str, value: object) -> None:
    """`close`, too, which then has not closed."""
    with pytest.raises(ConfigError, match=r"timeout cannot be .*: seconds, 0 or more, are expected"):
        getattr(producer, call)(**{**GOOD.get(call, {}), "timeout": value})
    assert producer.send("orders", b"good").result(WAIT_S).topic == "orders"


def test_calls_after_close(address: str) -> None:
    """What sends or asks is refused; what waits has nothing to wait for."""
    producer = Producer(bootstrap_servers=address)
    stored = producer.send("orders", b"x")
    producer.close()
    for call in ("send", "produce", "partitions_for"):
        with pytest.raises(StateError, match="this producer is closed"):
            getattr(producer, call)("orders")
    assert (producer.flush(), producer.poll(0)) == (0, 0)
    producer.close()
    assert stored.result(0).topic == "orders"


def test_calls_of_one_that_has_never_sent(address: str) -> None:
    """Nothing is started for them."""
    producer = Producer(bootstrap_servers=address)
    assert (producer.flush(), producer.poll(0)) == (0, 0)
    producer.close()
    with pytest.raises(StateError, match="this producer is closed"):
        producer.send("orders", b"x")


def test_calls_of_many_threads_at_once(producer: Producer) -> None:
    """Each record is stored once, each callback called once, whoever polls, flushes or asks meanwhile."""
    told: list[tuple[int, int]] = []

    def note(error: object, metadata: Any) -> None:
        assert error is None
        told.append((metadata.partition, metadata.offset))

    def send() -> None:
        for number in range(300):
            producer.send("orders", b"%d" % number, on_delivery=note)

    works: list[Callable[[], object]] = [
        send,
        send,
        send,
        *(
            lambda call=call: [call() for _ in range(30)]  # type: ignore[misc]
            for call in (producer.poll, producer.flush, lambda: producer.partitions_for("orders"))
        ),
    ]
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    producer.flush(WAIT_S)
    assert len(told) == len(set(told)) == 900


def test_metadata_of_the_records_of_several_threads(producer: Producer) -> None:
    """Offsets of one partition are given out in the order in which a thread has sent."""
    found: list[list[kohort.RecordMetadata]] = []

    def send() -> None:
        sent = [producer.send("orders", b"%d" % number, partition=0) for number in range(300)]
        found.append([each.result(WAIT_S) for each in sent])

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    offsets = [[each.offset for each in stored] for stored in found]
    assert all(each == sorted(each) for each in offsets)
    assert len({offset for each in offsets for offset in each}) == 1_200
