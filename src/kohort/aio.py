"""kohort on an event loop: consumer, producer, admin client and `transform` for asyncio.

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
    from kohort.client.admin.aio_admin import Admin
    from kohort.client.aio_transform import transform, transform_arrow
    from kohort.client.consumer.aio_consumer import Consumer
    from kohort.client.producer.aio_producer import Producer

__all__ = ["Admin", "Consumer", "Producer", "transform", "transform_arrow"]

_MODULES = {
    "Admin": "kohort.client.admin.aio_admin",
    "Consumer": "kohort.client.consumer.aio_consumer",
    "Producer": "kohort.client.producer.aio_producer",
    "transform": "kohort.client.aio_transform",
    "transform_arrow": "kohort.client.aio_transform",
}


def __getattr__(name: str) -> Any:
    # A program that only reads does not load the producer, and one that only writes not the consumer.
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'kohort.aio' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
