"""Assignors that consumers run for their group, with brokers of a process of their own (G9)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort.assign.assignors import built_in
from kohort.assign.interface import Assignable
from kohort.errors import StateError
from support.ports import quiet_port
from support.waiting import until

PARTITIONS = 6


class Counting:
    """The broker's own assignor, in a member; remembers what it was asked and told, and does what a test wants."""

    name = "counting"

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        #: Called once before it computes.
        self.before: Callable[[], object] | None = None
        self.word = b"-"
        self.asked: list[Assignable] = []
        self.told: list[tuple[int, bytes]] = []

    def metadata(self) -> bytes:
        return self.word

    def assign(self, group: Assignable) -> array[int]:
        self.asked.append(group)
        before, self.before = self.before, None
        if before is not None:
            before()
        if self.error is not None:
            raise self.error
        uniform = built_in("uniform")
        assert uniform is not None
        return uniform.assign(group)

    def tell(self, group: Assignable, owner: array[int]) -> dict[str, bytes]:
        return {member.member_id: b"%d" % owner.count(number) for number, member in enumerate(group.members)}

    def on_assignment(self, error: int, version: int, metadata: bytes) -> None:
        assert version == 0
        self.told.append((error, metadata))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[kohort.Broker]:
    # Where it is found again after it was killed.
    with kohort.Broker(data_dir=tmp_path, port=quiet_port(), process=True) as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", PARTITIONS)
        yield broker


class Fleet:
    """Consumers of one group that are polled in turns."""

    def __init__(self, stack: ExitStack, broker: kohort.Broker) -> None:
        self._stack = stack
        self._to: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing"}
        self.consumers: list[kohort.Consumer] = []

    def join(self, *assignors: object, **options: Any) -> kohort.Consumer:
        consumer = kohort.Consumer("orders", **self._to, group_local_assignors=list(assignors), **options)
        self.consumers.append(self._stack.enter_context(consumer))
        return consumer

    def poll(self) -> None:
        for consumer in self.consumers:
            consumer.poll(0.02)

    def sizes(self) -> list[int]:
        return [len(consumer.assignment()) for consumer in self.consumers]

    def settle(self, sizes: Sequence[int]) -> None:
        until(lambda: self.sizes() == list(sizes), step=self.poll, what=lambda: f"{sizes}; they have {self.sizes()}")


@pytest.fixture
def fleet(broker: kohort.Broker) -> Iterator[Fleet]:
    with ExitStack() as stack:
        yield Fleet(stack, broker)


def test_members_compute_and_tell_each_other(fleet: Fleet) -> None:
    one, other = Counting(), Counting()
    fleet.join(one)
    fleet.settle([6])
    other.word = b"here"
    fleet.join(other)
    fleet.settle([3, 3])
    until(lambda: one.told[-1:] == [(0, b"3")] == other.told[-1:], step=fleet.poll, what="both are told what they have")
    seen = [*one.asked, *other.asked][-1]
    assert sorted(each.metadata for each in seen.members) == [b"-", b"here"]


@pytest.mark.logs_bugs
def test_another_member_is_asked_where_one_fails_and_all_hear_of_it(fleet: Fleet) -> None:
    good, bad = Counting(), Counting(ValueError("no"))
    fleet.join(good)
    fleet.settle([6])
    consumer = fleet.join(bad)
    fleet.settle([3, 3])
    # Whoever is asked first: the one that fails is asked at the latest when it asks for a computation itself.
    bad.word = b"once more"
    consumer.enforce_rebalance("to be asked")
    until(
        lambda: any(b"once more" in [each.metadata for each in group.members] for group in good.asked),
        step=fleet.poll,
        what="the good one computes with what the other tells",
    )
    assert fleet.sizes() == [3, 3]


@pytest.mark.logs_bugs
def test_the_servers_assignor_computes_where_all_fail(fleet: Fleet) -> None:
    one, other = Counting(ValueError("no")), Counting(ValueError("neither"))
    fleet.join(one)
    fleet.settle([6])
    fleet.join(other)
    fleet.settle([3, 3])
    assert one.asked
    until(
        lambda: (1, b"") in [*one.told, *other.told],
        step=fleet.poll,
        what=lambda: f"the error is told; they were told {one.told} and {other.told}",
    )


def test_members_that_have_none_in_common_go_by_the_server(fleet: Fleet) -> None:
    mine = Counting()
    fleet.join(mine)
    fleet.settle([6])
    asked = len(mine.asked)
    fleet.join()
    fleet.settle([3, 3])
    assert len(mine.asked) == asked


def test_an_assignor_that_calls_its_own_consumer_is_refused_and_goes_on(fleet: Fleet) -> None:
    """It runs inside `poll`: a second call would take what the first is about to hand out."""
    mine, refused = Counting(), list[str]()
    consumer = fleet.join(mine)

    def call_it() -> None:
        for call in (consumer.poll, consumer.commit):
            with pytest.raises(StateError, match="an assignor computes from what it is handed"):
                call()
            refused.append(call.__name__)

    mine.before = call_it
    fleet.settle([6])
    assert refused == ["poll", "commit"]


def test_a_broker_that_comes_back_asks_anew(fleet: Fleet, broker: kohort.Broker) -> None:
    """It was killed while a member computed: what was computed for the broker before is nobody's."""
    one, other = Counting(), Counting()

    def restart() -> None:
        one.before = other.before = None
        broker.kill()
        broker.start()

    fleet.join(one)
    fleet.settle([6])
    asked = len(one.asked)
    one.before = other.before = restart
    fleet.join(other)
    fleet.settle([3, 3])
    assert len(one.asked) + len(other.asked) >= asked + 2


def test_a_version_range_that_leaves_none_in_common_goes_by_the_server(fleet: Fleet) -> None:
    old, new = Counting(), Counting()
    new.minimum_version, new.maximum_version, new.metadata_version = 2, 3, 2  # type: ignore[attr-defined]
    fleet.join(old)
    fleet.settle([6])
    asked = len(old.asked)
    fleet.join(new)
    fleet.settle([3, 3])
    assert (len(old.asked), new.asked) == (asked, [])
