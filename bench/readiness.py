"""Waiting until a broker that has just started serves groups."""

from __future__ import annotations

import time
from collections.abc import Callable

from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.registry import ApiKey
from load import RawConnection


def until(
    condition: Callable[[], bool],
    what: str = "the broker is ready for groups",
    seconds: float = 60,
    pause: float = 0.01,
) -> None:
    """Ask again and again, with a pause in between (s); AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(pause)


def wait_for_coordinators(connection: RawConnection, groups: list[str]) -> None:
    """Apache Kafka makes the topic of the offsets when it is asked for the first coordinator."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=groups)

    def are_known() -> bool:
        answer = connection.ask(ApiKey.FIND_COORDINATOR, 4, request)
        return all(row.error_code == 0 for row in answer.coordinators)

    until(are_known, "coordinators are known")
