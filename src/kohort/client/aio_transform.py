"""Consume, transform, produce for asyncio: the calls of `kohort.transform` as coroutines.

Laws: those of `kohort.client.transform`. A cancelled call aborts its transaction, unless it is being committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kohort.client.consumer.aio_consumer import Consumer
from kohort.client.consumer.reader import DEFAULT_MAX_BYTES
from kohort.client.producer.aio_producer import Producer
from kohort.client.transform import Loop, check_clients, count_rows


async def transform(
    consumer: Consumer,
    producer: Producer,
    function: Callable[..., object],
    *,
    timeout: float = 1.0,
    max_records: int | None = None,
    until: Callable[[], bool] | None = None,
) -> int:
    """Transform records exactly once, on the loop; the function may be a coroutine function.

    Arguments, result and errors are those of `kohort.transform`. To end the call cancel its task, close the consumer,
    or let `until` return true.

    >>> import asyncio, kohort, kohort.aio
    >>> async def enlarge(records, transaction):
    ...     for record in records:
    ...         await transaction.send("large", value=record.value.upper(), key=record.key)
    >>> async def main(address):
    ...     async with (
    ...         kohort.aio.Consumer(
    ...             "small",
    ...             bootstrap_servers=address,
    ...             group_id="enlarging",
    ...             auto_offset_reset="earliest",
    ...             enable_auto_commit=False,
    ...             isolation_level="read_committed",
    ...         ) as consumer,
    ...         kohort.aio.Producer(bootstrap_servers=address, transactional_id="enlarging-1") as producer,
    ...     ):
    ...         return await kohort.aio.transform(
    ...             consumer, producer, enlarge, until=lambda: consumer.metrics()["records-consumed-total"] == 1
    ...         )
    >>> with kohort.Broker() as broker:
    ...     with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as feed:
    ...         _ = feed.send("small", value=b"one").result(10)
    ...     asyncio.run(main(broker.bootstrap_servers))
    1
    """
    check_clients(consumer, producer, (Consumer, Producer))
    poll = partial(consumer.poll, max_records=max_records)
    return await Loop(
        consumer, producer, poll, function, timeout=timeout, until=until, count=len, is_on_loop=True
    ).run()


async def transform_arrow(
    consumer: Consumer,
    producer: Producer,
    function: Callable[..., object],
    *,
    timeout: float = 1.0,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    max_records: int | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    until: Callable[[], bool] | None = None,
) -> int:
    """Transform records as Arrow record batches, on the loop; otherwise like `kohort.transform_arrow`."""
    check_clients(consumer, producer, (Consumer, Producer))
    poll = partial(
        consumer.poll_arrow,
        columns=columns,
        include_headers=include_headers,
        max_records=max_records,
        max_bytes=max_bytes,
    )
    return await Loop(
        consumer, producer, poll, function, timeout=timeout, until=until, count=count_rows, is_on_loop=True
    ).run()
