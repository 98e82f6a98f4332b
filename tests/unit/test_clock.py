"""A broker's clock follows the wall's, a client's shows what has passed; neither is fooled by the other."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kohort.base.clock import ElapsedClock, SystemClock
from kohort.broker.embedded import Broker
from kohort.records.batch import build_batch
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, produce_request

HOUR_MS = 3_600_000
SECOND_MS = 1_000


class Machine:
    """The clocks of a machine: on its wall, of the time that it is awake, and of all time."""

    def __init__(self) -> None:
        self._real = {name: getattr(time, name) for name in ("time_ns", "monotonic_ns", "clock_gettime_ns")}
        self._wall_ns = self._awake_ns = self._both_ns = 0

    def take_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "time_ns", lambda: self._real["time_ns"]() + self._wall_ns)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self._real["monotonic_ns"]() + self._awake_ns)
        monkeypatch.setattr(
            time, "clock_gettime_ns", lambda clock: self._real["clock_gettime_ns"](clock) + self._both_ns
        )

    def set_wall(self, by_ms: int) -> None:
        self._wall_ns += by_ms * 1_000_000

    def work(self, ms: int) -> None:
        self._awake_ns += ms * 1_000_000
        self.sleep(ms)

    def sleep(self, ms: int) -> None:
        self._wall_ns += ms * 1_000_000
        self._both_ns += ms * 1_000_000


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    machine = Machine()
    machine.take_over(monkeypatch)
    yield machine
    monkeypatch.undo()


def is_about(found_ms: int, wanted_ms: int) -> bool:
    return abs(found_ms - wanted_ms) < 60 * SECOND_MS


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("by_ms", [2 * HOUR_MS, -2 * HOUR_MS])
def test_clock_of_a_broker_follows_a_wall_clock_that_is_set(machine: Machine, by_ms: int) -> None:
    clock = SystemClock()
    assert is_about(clock.now_ms(), now_ms()) and clock.stepped_ms == 0
    machine.set_wall(by_ms)
    assert is_about(clock.now_ms(), now_ms())
    assert is_about(clock.stepped_ms, by_ms)


def test_clock_of_a_broker_tells_a_sleep_as_a_step(machine: Machine) -> None:
    clock = SystemClock()
    machine.work(HOUR_MS)
    assert is_about(clock.now_ms(), now_ms()) and clock.stepped_ms == 0
    machine.sleep(2 * HOUR_MS)
    assert is_about(clock.now_ms(), now_ms())
    assert is_about(clock.stepped_ms, 2 * HOUR_MS)


def test_small_corrections_of_the_wall_clock_move_nothing(machine: Machine) -> None:
    """A clock that NTP moves back by a little never goes back."""
    clock = SystemClock()
    before_ms = clock.now_ms()
    machine.set_wall(-SECOND_MS // 2)
    assert clock.now_ms() >= before_ms
    assert clock.stepped_ms == 0


@pytest.mark.parametrize("counts_sleep", [False, True])
def test_clock_of_a_client_is_moved_by_no_wall_clock_and_counts_sleep_where_it_shall(
    machine: Machine, counts_sleep: bool
) -> None:
    clock = ElapsedClock(counts_sleep=counts_sleep)
    before_ms = clock.now_ms()
    machine.set_wall(5 * HOUR_MS)
    machine.work(HOUR_MS)
    assert is_about(clock.now_ms() - before_ms, HOUR_MS)
    machine.sleep(2 * HOUR_MS)
    assert is_about(clock.now_ms() - before_ms, 3 * HOUR_MS if counts_sleep else HOUR_MS)


@pytest.mark.parametrize("by_ms", [2 * HOUR_MS, -2 * HOUR_MS])
def test_broker_goes_on_by_the_time_that_its_machine_was_set_to(
    machine: Machine, by_ms: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its clock was wrong when it started: records of now were refused until a restart. No member is fenced for it."""
    machine.set_wall(-by_ms)
    with Broker() as broker, RawClient(broker.port) as client:
        limits = dict.fromkeys(("message_timestamp_before_max_ms", "message_timestamp_after_max_ms"), str(HOUR_MS))
        client.create_topic("t", **limits)
        joined = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat("m", 0))
        assert joined.error_code == 0
        machine.set_wall(by_ms)

        answer = client.ask(ApiKey.PRODUCE, 9, produce_request("t", build_batch([(b"k", b"v", now_ms(), ())])))
        row = answer.responses[0].partition_responses[0]
        assert (row.error_code, row.error_message) == (0, None)
        again = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat("m", joined.member_epoch))
        assert (again.error_code, again.member_epoch) == (0, joined.member_epoch)
    assert sum("event=clock_set" in record.getMessage() for record in caplog.records) == 1


def heartbeat(member_id: str, epoch: int) -> Any:
    asked: dict[str, Any] = {"subscribed_topic_names": ["t"], "rebalance_timeout_ms": 60_000, "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member_id, member_epoch=epoch, **({} if epoch else asked)
    )
