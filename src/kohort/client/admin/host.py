"""Where the admin client's machine runs: on a thread of its own. `client/aio/admin_host.py` is its twin on a loop.

Source: Kafka's Admin.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kohort.client.admin.core.admin_machine import AdminCloseAsked, AdminEvent, AdminMachine
from kohort.client.io.host import OneProcess
from kohort.client.io.thread import IoThread
from kohort.client.options import ADMIN_OPTIONS, ClientSettings, client_settings

if TYPE_CHECKING:
    from kohort.client.typed_options import AdminOptions


class AdminHost(OneProcess):
    """Opens and closes the admin client. May be shared by threads."""

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Unpack[AdminOptions]) -> None:
        """Nothing is connected before the first call.

        Args:
            config: options by Kafka's dotted names; may be mixed with keywords.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, or is given twice.
        """
        settings, self._timeout_s = admin_settings(config, options)
        self._io: IoThread[AdminEvent] = IoThread(
            AdminMachine(settings), settings, deliver=lambda _: None, what="admin client"
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """An admin client from Kafka's dotted names."""
        return cls(config)

    def close(self) -> None:
        """End; harmless if it is closed already."""
        if self._io.is_running:
            self._io.post(AdminCloseAsked())
            self._io.join(5.0)
        self._io.raise_failure()

    def metrics(self) -> dict[str, float]:
        """What this client has counted so far, by Kafka's names; see docs/client.md."""
        return self._io.traffic.metrics()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def admin_settings(config: Mapping[str, Any] | None, options: Mapping[str, Any]) -> tuple[ClientSettings, float]:
    """What the options mean, and how long a call may take, seconds."""
    values = ADMIN_OPTIONS.parse(ADMIN_OPTIONS.gather(config, options))
    settings = client_settings(values, seed=time.monotonic_ns() & 0xFFFF_FFFF)
    return settings, values["default.api.timeout.ms"] / 1000
