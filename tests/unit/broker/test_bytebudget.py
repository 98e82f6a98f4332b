"""What clients may take of a broker's memory for requests that have not come whole."""

from __future__ import annotations

import pytest

from kohort.broker.connections.buffers import BASE_BYTES, KEPT_BYTES, ReceiveBuffer
from kohort.broker.limits.memory import KEPT_PART, SHORT_BYTES, ByteBudget

MEBI = 1024 * 1024
LONG = 100 * MEBI


class Filled:
    """A receive buffer that a socket fills."""

    def __init__(self, budget: ByteBudget) -> None:
        self.buffer = ReceiveBuffer(budget)

    def receive(self, data: bytes) -> int:
        """As many bytes as fit."""
        free = self.buffer.free()
        size = min(len(free), len(data))
        free[:size] = data[:size]
        self.buffer.have += size
        return size

    def fill(self, size: int, *, needed: int = LONG) -> bool:
        """Receive `size` bytes of a long request; `False` if there was no room for more."""
        while self.buffer.have < size:
            if not self.buffer.make_room(needed):
                return False
            self.receive(bytes(size - self.buffer.have))
        return True


def test_a_buffer_grows_by_what_has_come_not_by_what_is_promised() -> None:
    budget = ByteBudget(LONG)
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


def test_who_is_refused_is_called_when_bytes_come_free_and_once() -> None:
    budget = ByteBudget(8 * MEBI)
    greedy, other = Filled(budget), Filled(budget)
    assert greedy.fill(10 * MEBI), "beyond the limit"
    assert Filled(budget).fill(2 * MEBI)
    assert not other.fill(2 * MEBI)

    called: list[str] = []
    budget.wait(lambda: called.append("first"))
    budget.wait(lambda: called.append("second"))
    assert budget.is_short
    greedy.buffer.close()
    assert called == ["first", "second"]
    assert not budget.is_short
    assert other.fill(2 * MEBI)
    other.buffer.close()
    assert called == ["first", "second"]


def test_long_requests_leave_room_for_short_ones() -> None:
    budget = ByteBudget(16 * MEBI)
    greedy = [Filled(budget) for _ in range(3)]
    for size in range(64 * 1024, 50 * MEBI, 64 * 1024):
        assert sum(each.fill(size) for each in greedy) >= 1, "one goes on"
    assert 16 * MEBI - budget.used >= 16 * MEBI // KEPT_PART
    assert Filled(budget).fill(SHORT_BYTES - BASE_BYTES)


def test_one_that_has_begun_goes_on_without_room_and_one_only() -> None:
    """They would wait for each other for ever."""
    budget = ByteBudget(8 * MEBI)
    first, second = Filled(budget), Filled(budget)
    assert first.fill(2 * MEBI)
    assert second.fill(2 * MEBI)
    assert first.fill(50 * MEBI)
    assert not second.fill(50 * MEBI)
    first.buffer.close()
    assert second.fill(50 * MEBI)


def test_what_is_only_kept_goes_to_who_needs_it() -> None:
    budget = ByteBudget(4 * MEBI)
    idle = Filled(budget)
    assert idle.fill(2 * MEBI)
    idle.buffer.discard(idle.buffer.have)
    idle.buffer.settle()
    assert budget.used > 0, "kept for the next request"

    assert Filled(budget).fill(3 * MEBI)
    assert len(idle.buffer.view) == BASE_BYTES
    assert idle.fill(1000)


def test_a_buffer_that_is_used_again_is_not_taken_away() -> None:
    budget = ByteBudget(8 * MEBI)
    busy = Filled(budget)
    assert busy.fill(2 * MEBI)
    busy.buffer.discard(busy.buffer.have)
    busy.buffer.settle()
    busy.receive(b"abc")
    Filled(budget).fill(50 * MEBI)
    assert busy.buffer.view[:3] == b"abc"


def test_a_very_long_buffer_is_not_kept() -> None:
    budget = ByteBudget(LONG)
    filled = Filled(budget)
    assert filled.fill(2 * KEPT_BYTES)
    filled.buffer.discard(filled.buffer.have)
    filled.buffer.settle()
    assert budget.used == 0


@pytest.mark.parametrize("how", ["shrink", "close"])
def test_everything_is_given_back_once(how: str) -> None:
    budget = ByteBudget(LONG)
    filled = Filled(budget)
    filled.fill(MEBI)
    assert budget.used > 0
    filled.buffer.discard(filled.buffer.have)

    for _ in range(2):
        if how == "shrink":
            filled.buffer.shrink()
        else:
            filled.buffer.close()
    assert budget.used == 0
