"""The parts of a consumer's machine sleep unless an event concerns them: none of them sleeps through its work.

After each event every part is looked at, as the machine did before parts were woken one by one.
"""

from __future__ import annotations

from typing import Any

import pytest

from kohort.client.consumer.core.consumer_machine import ConsumerMachine
from kohort.simulation.clients.client_world import ClientWorld

handle = ConsumerMachine.handle
SEEDS = 6


class Scan:
    """Looks at every part after each event, and at its deadline."""

    def __init__(self) -> None:
        self.slept = 0

    def __call__(self, machine: Any, event: object, now_ms: int) -> Any:
        actions = handle(machine, event, now_ms)  # type: ignore[arg-type]  # the machine says which events it takes
        if machine.next_deadline() is not None:
            self._look(machine, event, now_ms)
        return actions

    def _look(self, machine: Any, event: object, now_ms: int) -> None:
        schedule = machine._schedule
        woken = set(schedule._woken)
        for place, (work, next_deadline) in enumerate(schedule._parts):
            deadline_ms, armed_ms = next_deadline and next_deadline(), schedule._deadlines[place]
            is_missed = deadline_ms is not None and armed_ms > deadline_ms
            assert not is_missed, f"{next_deadline} at {deadline_ms}, armed {armed_ms}, after {event!r}"
            if place not in woken:
                work(now_ms)
                done = machine._requests.drain()
                assert not done, f"{work} slept through {event!r}: {done}"
                self.slept += 1
        schedule._woken.clear()
        schedule._woken.update(woken)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_part_sleeps_through_its_work(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = Scan()

    def scanned(machine: ConsumerMachine, event: object, now_ms: int) -> Any:
        return scan(machine, event, now_ms)

    monkeypatch.setattr(ConsumerMachine, "handle", scanned)
    assert ClientWorld(seed).run().handed_out > 0
    assert scan.slept > 0
