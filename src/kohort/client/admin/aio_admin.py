"""The asyncio admin client: the calls of `kohort.Admin` as coroutines.

Laws: no thread. A cancelled call is dropped, but the broker may carry out a request that was sent.
Source: `client/admin/admin.py`, the blocking client; aiokafka's names, where it has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from kohort.client.admin.admin import AdminDoor
from kohort.client.admin.admin_machine import AdminCloseAsked
from kohort.client.core.in_loop import InLoop
from kohort.client.foreign_names import ADMINS, answering
from kohort.client.steps import Pause, Wait, awaited, run_on_loop

if TYPE_CHECKING:
    from kohort.client.typed_options import AdminOptions


R = TypeVar("R")


@answering(ADMINS)
class Admin(AdminDoor, by=awaited):
    """Kafka's admin client for asyncio, with the calls and options of `kohort.Admin`.

    May be shared by the tasks of a loop. If a call is cancelled, a request that was sent may still be carried out.

    >>> import asyncio, kohort, kohort.aio
    >>> async def partitions(address):
    ...     async with kohort.aio.Admin(bootstrap_servers=address) as admin:
    ...         await admin.create_topic("orders", 3)
    ...         (topic,) = await admin.describe_topics(["orders"])
    ...         return len(topic.partitions)
    >>> with kohort.Broker() as broker:
    ...     asyncio.run(partitions(broker.bootstrap_servers))
    3
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Unpack[AdminOptions]) -> None:
        """Create an admin client; it connects at the first call, and needs no running loop before.

        Arguments and errors are those of `kohort.Admin`.
        """
        self._set_up(config, options, InLoop)

    async def start(self) -> None:
        """Check that the client is open; aiokafka's name. The client connects at its first call."""
        self._io.check()

    async def close(self) -> None:
        """Close the client; calls that are under way fail. Safe to call twice."""
        if self._io.is_running:
            self._io.post(AdminCloseAsked())
            await self._io.join(5.0)
        self._io.raise_failure()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, call: Coroutine[Any, Any, R]) -> R:
        return await run_on_loop(call, self._wait)

    async def _wait(self, wait: Wait) -> object:
        assert isinstance(wait, Pause), "there are no callbacks"
        if wait.ticket is not None:
            return await self._io.wait(wait.ticket, wait.seconds)
        await asyncio.sleep(wait.seconds)
        return None
