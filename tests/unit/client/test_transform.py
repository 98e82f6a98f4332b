"""`kohort.transform`: one transaction a poll, its offsets in it; an abort goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import kohort
import kohort.aio
from kohort import TopicPartition
from kohort.errors import ConfigError, TransactionAbortableError
from support.scenarios import transform_scenarios
from support.scenarios.client_scenarios import new_topic
from support.scenarios.transaction_scenarios import values
from support.scenarios.transform_scenarios import COUNT, Transform, check, clients, fill


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def topics(address: str) -> Iterator[tuple[str, str]]:
    with new_topic(address, "in", 1) as source, new_topic(address, "out", 1) as target:
        fill(address, source)
        yield source, target


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_each_record_is_transformed_once(address: str, protocol: str) -> None:
    transform_scenarios.whole(address, group_protocol=protocol)


def test_record_that_is_too_large_is_said_and_read_again(address: str, topics: tuple[str, str]) -> None:
    """Trying again would not end."""
    source, target = topics
    with kohort.Admin(bootstrap_servers=address) as admin:
        admin.alter_configs(("topic", target), {"max.message.bytes": 1000})
    sizes = iter([2_000, 1])
    with clients(address, source) as (consumer, producer):

        def pad(records: list[kohort.ConsumerRecord], transaction: Any) -> None:
            transaction.send(target, b"x" * next(sizes))
            ends.append(records[-1].offset)

        ends: list[int] = []
        with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):
            kohort.transform(consumer, producer, pad)
        assert consumer.position(TopicPartition(source, 0)) == 0
        assert kohort.transform(consumer, producer, pad, until=lambda: len(ends) == 2) == COUNT
    assert values(address, target, 1) == [b"x"]


def test_call_ends_when_the_function_closes_the_consumer(address: str, topics: tuple[str, str]) -> None:
    """The transaction under way is aborted: its member has left the group."""
    source, target = topics
    with clients(address, source, max_poll_records=20) as (consumer, producer):
        assert kohort.transform(consumer, producer, Transform(target, 20, consumer.close)) == 20
    assert values(address, target, 1) == sorted(b"out-%d" % n for n in range(20))


def test_partitions_assigned_by_hand(address: str, topics: tuple[str, str]) -> None:
    source, target = topics
    function = Transform(target, -1, None)
    with clients(address, source) as (consumer, producer):
        consumer.unsubscribe()
        consumer.assign([TopicPartition(source, 0)])
        assert kohort.transform(consumer, producer, function, until=function.is_over) == COUNT
    check(address, source, target)


def test_function_may_wait_for_what_it_has_sent(address: str, topics: tuple[str, str]) -> None:
    """A record leaves by itself, before the function has returned."""
    source, target = topics
    offsets: list[int] = []

    def copy(records: list[kohort.ConsumerRecord], transaction: Any) -> None:
        offsets.append(transaction.send(target, records[-1].value).result(20).offset)

    with clients(address, source) as (consumer, producer):
        assert kohort.transform(consumer, producer, copy, until=lambda: bool(offsets)) == COUNT
    assert offsets == [0]


def test_arrow_in_and_out(address: str, topics: tuple[str, str]) -> None:
    source, target = topics
    pyarrow = pytest.importorskip("pyarrow")
    compute = pytest.importorskip("pyarrow.compute")
    seen: list[int] = []

    def mark(batches: list[Any], transaction: Any) -> None:
        table = pyarrow.Table.from_batches(batches)
        marked = compute.binary_join_element_wise(b"out-", table["value"], b"")
        transaction.send_arrow(pyarrow.table({"value": marked}), target)
        seen.append(table.num_rows)

    with clients(address, source) as (consumer, producer):
        done = kohort.transform_arrow(
            consumer, producer, mark, columns=["value"], max_records=40, until=lambda: sum(seen) == COUNT
        )
    assert done == COUNT and len(seen) > 1
    check(address, source, target)


def test_cancelled_task_aborts_and_the_next_one_goes_on(address: str, topics: tuple[str, str]) -> None:
    source, target = topics

    async def main() -> int:
        holding = asyncio.Event()
        done: list[int] = []

        async def function(records: list[kohort.ConsumerRecord], transaction: Any) -> None:
            for record in records:
                await transaction.send(target, b"out-" + (record.value or b""))
            if records[0].offset == 20 and not holding.is_set():
                holding.set()
                await asyncio.Event().wait()
            done.append(records[-1].offset + 1)

        async with (
            kohort.aio.Consumer(
                source,
                bootstrap_servers=address,
                group_id=source,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                max_poll_records=20,
            ) as consumer,
            kohort.aio.Producer(bootstrap_servers=address, transactional_id=source) as producer,
        ):
            task = asyncio.create_task(kohort.aio.transform(consumer, producer, function))
            await holding.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await kohort.aio.transform(consumer, producer, function, until=lambda: COUNT in done)

    assert asyncio.run(main()) == COUNT - 20
    check(address, source, target)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"group_id": None}, "group_id"),
        ({"enable_auto_commit": True}, "enable_auto_commit"),
        ({"isolation_level": "read_uncommitted"}, "isolation_level"),
    ],
)
def test_option_that_contradicts_is_refused(options: dict[str, Any], said: str) -> None:
    fitting: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False, "isolation_level": "read_committed"}
    with (
        kohort.Consumer(bootstrap_servers="127.0.0.1:1", **(fitting | options)) as consumer,
        kohort.Producer(bootstrap_servers="127.0.0.1:1", transactional_id="t") as producer,
        pytest.raises(ConfigError, match=said),
    ):
        kohort.transform(consumer, producer, print)


def test_other_clients_and_functions_are_refused() -> None:
    with (
        kohort.Consumer(
            bootstrap_servers="127.0.0.1:1",
            group_id="g",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        kohort.Producer(bootstrap_servers="127.0.0.1:1") as producer,
    ):
        with pytest.raises(ConfigError, match="transactional_id"):
            kohort.transform(consumer, producer, print)
        with pytest.raises(TypeError, match="Consumer of the same module"):
            kohort.transform(producer, consumer, print)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="function cannot be None"):
            kohort.transform(consumer, producer, None)  # type: ignore[arg-type]
