"""kohort on an event loop: the consumer, the producer and the admin client for asyncio.

>>> import asyncio, kohort, kohort.aio
>>> async def main(address):
...     async with kohort.aio.Consumer(bootstrap_servers=address) as consumer:
...         return await consumer.partitions_for("orders")
>>> with kohort.Broker() as broker:
...     asyncio.run(main(broker.bootstrap_servers))
[]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.client.aio.admin import Admin
    from kohort.client.aio.consumer import Consumer
    from kohort.client.aio.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]

_HOMES = {
    "Admin": "kohort.client.aio.admin",
    "Consumer": "kohort.client.aio.consumer",
    "Producer": "kohort.client.aio.producer",
}


def __getattr__(name: str) -> Any:
    # Whoever reads need not wait for the producer, nor the other way round.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kohort.aio' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
