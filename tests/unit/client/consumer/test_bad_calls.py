"""Every public method of a consumer, given anything: one typed exception at the call, and the next good call works."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kohort
from kohort import Broker, Consumer, Producer, TopicPartition
from kohort.errors import ConfigError, KohortError, StateError
from support.waiting import PATIENCE_SECONDS

ORDERS = TopicPartition("orders", 0)
#: A call that may do it, by the name of its parameter.
GOOD: dict[str, Any] = {
    "partition": ORDERS,
    "partitions": [ORDERS],
    "offset": 0,
    "offsets": {ORDERS: 0},
    "timestamps": {ORDERS: 0},
    "timestamp_ms": 0,
    "timeout": 0.05,
    "topic": "orders",
    "topics": ["orders"],
    "pattern": "orders",
    "on_assigned": None,
    "on_revoked": None,
    "on_lost": None,
    "callback": None,
    "max_records": 1,
    "max_bytes": 1,
    "num_messages": 1,
    "columns": ["value"],
    "include_headers": False,
    "metadata": False,
    "with_metadata": False,
    "message": None,
    "record": None,
    "asynchronous": False,
    "cached": True,
    "reason": None,
    "config": None,
    "options": {"max_poll_records": 500},
}
#: These end it, or begin with another one.
LEFT_OUT = {"close", "from_config", "wakeup", "unsubscribe"}


def take_anything(*_: object) -> None:
    """A callback that is called with whatever; what one raises of its own is raised by the next poll."""


ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.sampled_from([-1, 2**31, 2**63, 10**30, float("nan"), float("inf"), -0.5, ORDERS, object(), take_anything]),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=5),
        st.sampled_from(["orders", "", "a" * 300, "\udcff", ".", ".."]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.sets(st.one_of(st.integers(), st.text(max_size=2)), max_size=2),
        st.dictionaries(st.one_of(st.just(ORDERS), st.text(max_size=3), st.integers()), inner, max_size=2),
    ),
    max_leaves=4,
)


def methods() -> list[str]:
    public = [name for name, value in inspect.getmembers(Consumer, callable) if not name.startswith("_")]
    return [name for name in public if name not in LEFT_OUT]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number in range(10):
                producer.send("orders", value=b"%d" % number, partition=0)
        yield running


def build(broker: Broker) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        # What an odd name asks for is not made.
        allow_auto_create_topics=False,
    )
    consumer.assign([ORDERS])
    return consumer


@pytest.fixture(scope="module")
def consumer(broker: Broker) -> Iterator[Consumer]:
    """One for all calls: each has to leave it as good as it was."""
    with build(broker) as running:
        yield running


# Hypothesis reads the source of each function that draws: once for a method, and not for each input.
@cache
def arguments(method: Callable[..., object]) -> st.SearchStrategy[tuple[list[object], dict[str, object]]]:
    """Good arguments but for one."""
    parameters = [each for each in inspect.signature(method).parameters.values() if each.name not in ("self", "cls")]
    missing = [each.name for each in parameters if each.name not in GOOD]
    assert not missing, f"say above what is good for {missing}"

    @st.composite
    def draw_all(draw: st.DrawFn) -> tuple[list[object], dict[str, object]]:
        bad = draw(st.sampled_from([each.name for each in parameters])) if parameters else None
        positional: list[object] = []
        named: dict[str, object] = {}
        for each in parameters:
            value = draw(ANYTHING) if each.name == bad else GOOD[each.name]
            if each.kind is each.VAR_POSITIONAL:
                positional += value if isinstance(value, list) else [value]
            elif each.kind is each.VAR_KEYWORD:
                named |= (
                    value if isinstance(value, dict) and all(isinstance(key, str) for key in value) else {"x": value}
                )
            elif each.kind is each.KEYWORD_ONLY:
                named[each.name] = value
            else:
                positional.append(value)
        return positional, named

    return draw_all()


@pytest.mark.large
@pytest.mark.parametrize("name", methods())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_anything_is_refused_at_the_call(consumer: Consumer, name: str, data: st.DataObject) -> None:
    positional, named = data.draw(arguments(getattr(Consumer, name)))
    try:
        getattr(consumer, name)(*positional, **named)
    except (KohortError, TypeError) as why:
        assert str(why)
    # What is good works after it: the machine is alive, and so is the application's side.
    assert consumer.end_offsets([ORDERS]) == {ORDERS: 10}
    consumer.unsubscribe()
    consumer.assign([ORDERS])
    consumer.seek(ORDERS, 3)
    assert consumer.poll(PATIENCE_SECONDS, max_records=1)[0].offset == 3


@pytest.mark.parametrize("name", methods())
def test_nothing_works_once_it_is_closed(broker: Broker, name: str) -> None:
    """A `StateError`, but for what only looks at this side."""
    consumer = build(broker)
    consumer.close()
    consumer.close()
    wanted = inspect.signature(getattr(consumer, name)).parameters.values()
    positional = [GOOD[each.name] for each in wanted if each.kind not in (each.KEYWORD_ONLY, each.VAR_KEYWORD)]
    if name in ("assignment", "subscription", "paused", "metrics", "group_metadata", "published"):
        getattr(consumer, name)(*positional)
        return
    with pytest.raises(StateError, match="closed"):
        getattr(consumer, name)(*positional)


def test_a_close_says_what_can_become_of_a_membership(broker: Broker) -> None:
    """And leaves the consumer open."""
    consumer = build(broker)
    with pytest.raises(ConfigError, match="group_membership cannot be 'leave': one of default, leave_group, remain"):
        consumer.close(group_membership="leave")  # type: ignore[arg-type]
    consumer.close(group_membership="leave_group")


@pytest.mark.process
def test_a_fork_has_no_consumer(broker: Broker) -> None:
    """Each call in the child is refused at once, and the parent's goes on."""
    with build(broker) as consumer:
        assert consumer.poll(PATIENCE_SECONDS)
        child = os.fork()
        if child == 0:
            try:
                for call in (
                    lambda: consumer.poll(0),
                    lambda: consumer.end_offsets([ORDERS]),
                    lambda: consumer.commit({ORDERS: 1}),
                    lambda: consumer.seek(ORDERS, 0),
                ):
                    try:
                        call()
                    except StateError as why:
                        if "another process" in str(why):
                            continue
                    os._exit(1)
                os._exit(0)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        consumer.seek(ORDERS, 0)
        assert consumer.poll(PATIENCE_SECONDS)[0].offset == 0


@pytest.mark.parametrize("first", [(3,), (b"orders",), (["orders"],), ("orders", {}), ({}, {}), ("",), ("a" * 300,)])
def test_what_is_no_option_and_no_topic_is_refused(first: tuple[Any, ...]) -> None:
    with pytest.raises((KohortError, TypeError)):
        kohort.Consumer(*first, group_id="billing")
