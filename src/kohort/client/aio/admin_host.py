"""Where the admin client's machine runs: on the loop of the application.

Laws: no thread; a call that is cancelled is given up, what it has sent may be carried out.
Source: `client/admin/host.py`, its twin on a thread; aiokafka's names, where it has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kohort.client.admin.core.admin_machine import AdminCloseAsked, AdminEvent, AdminMachine
from kohort.client.admin.host import admin_settings
from kohort.client.io.host import OneProcess
from kohort.client.io.in_loop import InLoop

if TYPE_CHECKING:
    from kohort.client.typed_options import AdminOptions


class AdminHost(OneProcess):
    """Opens and closes the admin client. May be shared by the tasks of a loop."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Unpack[AdminOptions]) -> None:
        """Nothing is connected before the first call, and no loop is needed yet.

        Args:
            config: options by Kafka's dotted names; may be mixed with keywords.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, or is given twice.
        """
        settings, self._timeout_s = admin_settings(config, options)
        self._io: InLoop[AdminEvent] = InLoop(
            AdminMachine(settings), settings, deliver=lambda _: None, what="admin client"
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """An admin client from Kafka's dotted names."""
        return cls(config)

    async def start(self) -> None:
        """There is nothing to start (aiokafka has it): it connects with its first call."""
        self._io.check()

    async def close(self) -> None:
        """End; harmless if it is closed already."""
        if self._io.is_running:
            self._io.post(AdminCloseAsked())
            await self._io.join(5.0)
        self._io.raise_failure()

    def metrics(self) -> dict[str, float]:
        """What this client has counted so far, by Kafka's names; see docs/client.md."""
        return self._io.traffic.metrics()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
