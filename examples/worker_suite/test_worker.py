"""Tests of the worker: it bills and buries, and goes on when the broker refuses, moves its partitions or dies."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import worker

from kohort import Consumer, Producer
from kohort.testing import Broker

pytestmark = pytest.mark.kohort(topics={"orders": 2, "orders.dead": 1})


def order(servers: str, *values: str) -> None:
    """Send orders, and wait until the broker has them."""
    with Producer(bootstrap_servers=servers) as producer:
        for sent in [producer.send("orders", value=value) for value in values]:
            sent.result(10)


@contextmanager
def working(servers: str, group: str, bill: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Have a worker run beside the test."""
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=(servers, group, bill), kwargs={"until": stop.is_set})
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def committed(broker: Broker, group: str) -> int:
    """The number of orders that the group is through with."""
    return sum(broker.group(group).committed().values())


def wait(condition: Callable[[], bool]) -> None:
    """Wait for a condition; pytest's own time limit ends a wait in vain."""
    while not condition():
        threading.Event().wait(0.02)


def test_orders_are_billed_and_what_is_none_is_buried(kohort: Broker, kohort_group: str) -> None:
    billed: list[dict[str, Any]] = []
    order(kohort.bootstrap_servers, '{"amount": 3}', "amount=3", '{"amount": 4}')
    with working(kohort.bootstrap_servers, kohort_group, billed.append):
        wait(lambda: committed(kohort, kohort_group) == 3)
    assert sorted(each["amount"] for each in billed) == [3, 4]
    with Consumer(
        bootstrap_servers=kohort.bootstrap_servers, group_id="undertaker", auto_offset_reset="earliest"
    ) as dead:
        dead.subscribe(["orders.dead"])
        (letter,) = [*(dead.poll(10.0))]
    assert letter.value == b"amount=3"


def test_a_commit_that_the_coordinator_refuses_at_first_is_made_again(kohort: Broker, kohort_group: str) -> None:
    fault = kohort.faults.answer("OffsetCommit", error="COORDINATOR_LOAD_IN_PROGRESS", group=kohort_group).times(2)
    order(kohort.bootstrap_servers, '{"amount": 3}')
    with working(kohort.bootstrap_servers, kohort_group, lambda _: None):
        wait(lambda: committed(kohort, kohort_group) == 1)
    assert fault.struck == 2


def test_nothing_is_billed_twice_over_a_rebalance(kohort: Broker, kohort_group: str) -> None:
    billed: list[dict[str, Any]] = []
    order(kohort.bootstrap_servers, *(f'{{"amount": {number}}}' for number in range(10)))
    with working(kohort.bootstrap_servers, kohort_group, billed.append):
        wait(lambda: committed(kohort, kohort_group) == 10)
        kohort.group(kohort_group).rebalance()
        order(kohort.bootstrap_servers, *(f'{{"amount": {number}}}' for number in range(10, 20)))
        wait(lambda: committed(kohort, kohort_group) == 20)
    assert sorted(each["amount"] for each in billed) == [*range(20)]


@pytest.mark.kohort(config={"group.consumer.session.timeout.ms": 6000})
def test_a_broker_that_dies_in_the_middle_loses_no_order(kohort_process: Broker) -> None:
    billed: list[dict[str, Any]] = []
    order(kohort_process.bootstrap_servers, *(f'{{"amount": {number}}}' for number in range(5)))
    with working(kohort_process.bootstrap_servers, "billing", billed.append):
        wait(lambda: committed(kohort_process, "billing") == 5)
        kohort_process.kill()
        kohort_process.start()
        order(kohort_process.bootstrap_servers, *(f'{{"amount": {number}}}' for number in range(5, 10)))
        wait(lambda: committed(kohort_process, "billing") == 10)
    assert {each["amount"] for each in billed} == {*range(10)}
