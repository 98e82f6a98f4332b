"""One real broker in virtual time: what an application on a loop does beside it takes as long as it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any

from kohort.broker.options.settings import BrokerSettings
from kohort.broker.server import Server
from kohort.simulation.clients.network import VirtualLoop, run_virtually
from kohort.simulation.clients.program_world import CONFIG
from kohort.storage.files.fs import FileSystem
from kohort.testing.clusternodes import Brokers


def beside_a_broker(
    application: Callable[[str], Awaitable[Any]],
    *,
    topics: dict[str, int],
    config: Mapping[str, object] | None = None,
    disk: FileSystem | None = None,
    late_s: float = 0.0,
) -> Any:
    """Run `application`, given an address, to its end.

    Args:
        topics: name -> number of partitions, of the topics that there are.
        config: of the broker, beside what the clients' worlds have.
        disk: where its directory is; a volatile one, since nothing waits in virtual time. `None`: in its memory.
        late_s: how long the application has begun when the broker starts.
    """

    async def play(loop: VirtualLoop) -> Any:
        assert disk is None or disk.volatile, "a sync has a thread"
        data_dir = None if disk is None else "/data"
        settings = BrokerSettings.of(
            {**CONFIG, **(config or {}), "node.id": 1}, host="127.0.0.1", port=9092, data_dir=data_dir
        )
        server = Server(settings, fs=disk)
        shared = server.open()
        brokers = Brokers(
            shared, server.runtime, [settings], listen=lambda each: [loop.network.bind(each.host, each.port, "broker")]
        )
        for name, count in topics.items():
            shared.cluster.create_topic(name, count, {})

        async def start() -> None:
            await asyncio.sleep(late_s)
            await brokers.start(1, None, None)

        starting = loop.create_task(start())
        try:
            if not late_s:
                await starting
            return await application("127.0.0.1:9092")
        finally:
            await starting
            await brokers.close()
            await server.stop()

    return run_virtually(play, Random("beside a broker"))
