"""kohort on an event loop: the consumer and the producer for asyncio.

>>> import asyncio, kohort, kohort.aio
>>> async def main(address):
...     async with kohort.aio.Consumer(bootstrap_servers=address) as consumer:
...         return await consumer.partitions_for("orders")
>>> with kohort.Broker() as broker:
...     asyncio.run(main(broker.bootstrap_servers))
[]
"""

from __future__ import annotations

from kohort.client.aio.consumer import Consumer
from kohort.client.aio.producer import Producer

__all__ = ["Consumer", "Producer"]
