"""The timer table against the plain idea of one."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from kohort.base.timers import Schedule, TimerTable
from support.work import steps_of

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arm"), st.integers(0, 5), st.integers(0, 30)),
        st.tuples(st.just("disarm"), st.integers(0, 5), st.just(0)),
        st.tuples(st.just("pop"), st.just(0), st.integers(0, 30)),
        st.tuples(st.just("shift"), st.just(0), st.integers(0, 5)),
    ),
    max_size=60,
)


@given(steps=STEPS)
def test_fires_in_order_of_time_and_then_of_arming(steps: list[tuple[str, int, int]]) -> None:
    timers: TimerTable[int] = TimerTable()
    plain: dict[int, tuple[int, int]] = {}
    for number, (what, key, value) in enumerate(steps):
        if what == "arm":
            timers.arm(key, value)
            plain[key] = (value, number)
        elif what == "disarm":
            timers.disarm(key)
            plain.pop(key, None)
        elif what == "shift":
            timers.shift(value)
            plain = {one: (deadline + value, order) for one, (deadline, order) in plain.items()}
        else:
            due = min(plain, key=plain.__getitem__, default=None)
            if due is not None and plain[due][0] > value:
                due = None
            assert timers.pop_due(value) == due
            plain.pop(due if due is not None else -1, None)
        assert timers.next_deadline() == min((deadline for deadline, _ in plain.values()), default=None)
        assert len(timers) == len(plain)
        assert timers.deadline(key) == (plain[key][0] if key in plain else None)


def test_moving_deadlines_on_does_not_grow_the_queue() -> None:
    """A heartbeat moves a session's deadline: a thousand members for an hour leave a thousand entries."""
    timers: TimerTable[int] = TimerTable()
    for round_ms in range(0, 3_600_000, 100_000):
        for member in range(1_000):
            timers.arm(member, round_ms + 45_000)
        timers.next_deadline()
    assert len(timers._heap) <= 1_000 + 64


def test_disarmed_and_earlier_deadlines_do_not_pile_up() -> None:
    timers: TimerTable[int] = TimerTable()
    for deadline_ms in range(10_000, 0, -1):
        timers.arm(1, deadline_ms)
        timers.arm(2, deadline_ms)
        timers.disarm(2)
    assert len(timers._heap) < 200
    assert timers.next_deadline() == 1


def test_a_session_is_moved_on_in_as_many_steps_among_ten_thousand_as_among_ten() -> None:
    assert _steps_of_moving_on(10_000) == _steps_of_moving_on(10)


def _steps_of_moving_on(members: int) -> int:
    timers: TimerTable[int] = TimerTable()
    for member in range(members):
        timers.arm(member, member)
    return steps_of(lambda: timers.arm(5, 100_000))


class Parts:
    """Two parts of a machine that note when they work."""

    def __init__(self) -> None:
        self.schedule = Schedule()
        self.deadlines: dict[str, int | None] = {"first": None, "second": None}
        self.worked: list[str] = []
        self.wake = {name: self.schedule.add(self._work_of(name), self._deadline_of(name)) for name in self.deadlines}

    def _work_of(self, name: str) -> Callable[[int], None]:
        def work(_: int) -> None:
            self.worked.append(name)
            if name == "second" and self.deadlines["first"] == 7:
                self.wake["first"]()

        return work

    def _deadline_of(self, name: str) -> Callable[[], int | None]:
        return lambda: self.deadlines[name]

    def run(self, now_ms: int) -> list[str]:
        """Return the parts that work in one run."""
        self.worked = []
        self.schedule.run(now_ms)
        return self.worked


def test_parts_work_when_they_are_woken_or_due_in_their_order() -> None:
    parts = Parts()
    parts.deadlines["first"] = 5
    assert parts.run(0) == ["first", "second"]
    assert parts.schedule.earliest_ms == 5
    assert parts.run(4) == []
    parts.wake["second"]()
    assert parts.run(4) == ["second"]
    parts.deadlines["first"] = None
    assert parts.run(5) == ["first"]
    assert parts.schedule.earliest_ms is None
    parts.schedule.wake_all()
    assert parts.run(5) == ["first", "second"]


def test_part_that_is_woken_behind_its_turn_arms_its_deadline_and_works_in_the_next_run() -> None:
    parts = Parts()
    parts.run(0)
    parts.deadlines["first"] = 7
    parts.wake["second"]()
    assert parts.run(1) == ["second"]
    assert parts.schedule.earliest_ms == 7
    assert parts.run(2) == ["first"]
    assert parts.run(3) == []
