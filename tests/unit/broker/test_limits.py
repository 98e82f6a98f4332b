"""What clients may take of a broker's memory."""

from __future__ import annotations

import pytest

from kohort.broker.limits import ByteBudget, ConnectionLimit
from kohort.broker.receivebuffer import BASE_BYTES, KEPT_BYTES, ReceiveBuffer

MEBI = 1024 * 1024


def test_a_connection_beyond_the_limit_is_not_counted() -> None:
    limit = ConnectionLimit(2)
    assert [limit.enter() for _ in range(4)] == [True, True, False, False]
    limit.leave()
    assert limit.enter()
    assert not limit.enter()


def test_bytes_beyond_the_limit_are_refused_until_some_come_back() -> None:
    budget = ByteBudget(100)
    called: list[str] = []
    assert budget.grow(80)
    assert not budget.grow(21)
    budget.wait(lambda: called.append("first"))
    budget.wait(lambda: called.append("second"))
    assert budget.used == 80

    budget.shrink(1)
    assert called == ["first", "second"]
    assert budget.grow(21)
    budget.shrink(1)
    assert called == ["first", "second"], "each is called once"


def test_one_request_longer_than_the_budget_is_served_alone() -> None:
    budget = ByteBudget(100)
    assert budget.grow(1000)
    assert not budget.grow(1)


class Filled:
    """A receive buffer that a socket fills."""

    def __init__(self, budget: ByteBudget) -> None:
        self.reclaimed = 0
        self.buffer = ReceiveBuffer(budget, self._reclaim)

    def _reclaim(self) -> None:
        self.reclaimed += 1

    def receive(self, data: bytes) -> int:
        """As many bytes as fit."""
        free = self.buffer.free()
        size = min(len(free), len(data))
        free[:size] = data[:size]
        self.buffer.have += size
        return size


def test_a_buffer_grows_by_what_has_come_not_by_what_is_promised() -> None:
    budget = ByteBudget(100 * MEBI)
    filled = Filled(budget)
    assert filled.buffer.make_room(90 * MEBI)
    assert budget.used == 0, "there is still room, so nothing is allocated"

    filled.receive(bytes(BASE_BYTES))
    assert filled.buffer.make_room(90 * MEBI)
    assert budget.used <= 2 * BASE_BYTES


def test_what_has_come_survives_growth_and_discarding() -> None:
    data = bytes(range(256)) * 1024
    filled = Filled(ByteBudget(MEBI))
    sent = 0
    while sent < len(data):
        assert filled.buffer.make_room(len(data))
        sent += filled.receive(data[sent:])
    assert filled.buffer.view[: len(data)] == data

    filled.buffer.discard(1000)
    assert filled.buffer.view[: filled.buffer.have] == data[1000:]
    filled.buffer.discard(0)
    assert filled.buffer.have == len(data) - 1000


def test_growth_that_is_refused_first_asks_the_idle_for_theirs() -> None:
    budget = ByteBudget(MEBI)
    assert budget.grow(MEBI)
    filled = Filled(budget)
    filled.receive(bytes(BASE_BYTES))

    assert not filled.buffer.make_room(2 * BASE_BYTES)
    assert filled.reclaimed == 1
    assert len(filled.buffer.free()) == 0


@pytest.mark.parametrize("how", ["shrink", "close"])
def test_everything_is_given_back_once(how: str) -> None:
    budget = ByteBudget(100 * MEBI)
    filled = Filled(budget)
    filled.receive(bytes(BASE_BYTES))
    filled.buffer.make_room(MEBI)
    assert budget.used > 0
    filled.buffer.discard(BASE_BYTES)

    for _ in range(2):
        if how == "shrink":
            filled.buffer.shrink()
        else:
            filled.buffer.close()
    assert budget.used == 0


def test_a_buffer_with_bytes_in_it_is_not_reclaimed() -> None:
    budget = ByteBudget(100 * MEBI)
    filled = Filled(budget)
    filled.receive(bytes(BASE_BYTES))
    filled.buffer.make_room(MEBI)
    used = budget.used

    filled.buffer.shrink()
    assert budget.used == used
    filled.buffer.discard(BASE_BYTES)
    filled.buffer.shrink(keep_bytes=KEPT_BYTES)
    assert budget.used == used, "a buffer of that size is worth keeping for the next request"
