"""The metadata that a consumer publishes to its group, and those of the other members.

Source: requirement G10; KIP-848's motivation: members tell each other of themselves without a rebalance.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from kohort.client.application_events import MetadataPublished, MetadataWatched
from kohort.client.arguments import to_callback
from kohort.client.consumer.context import ConsumerContext
from kohort.errors import ConfigError

#: Called with the consumer and the metadata of the group's members, by name. With `kohort.aio` it may be a coroutine
#: function.
PublishedCallback: TypeAlias = Callable[[Any, dict[str, bytes]], Awaitable[None] | None]
#: Bytes of metadata that a coordinator takes of one member.
LONGEST_METADATA: Final = 64 * 1024


class Publications:
    """What the members of a group publish."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context

    def publish(self, metadata: bytes) -> None:
        """Publish metadata of this member to its group and to administrators, e.g. its load or address.

        It moves no partition and interrupts no member. Members that watch get it within 0.2 s; of several publications
        within 50 ms they get the last. It ends with this member; a static member that comes back goes on with it.
        Metadata published before the group is joined go out with the join. May be called from any thread.

        The next `poll` raises what the group refuses: BrokerError with POLICY_VIOLATION if all members together would
        publish more than 16 MiB, UnsupportedFeatureError if the broker is not kohort's.

        Args:
            metadata: at most 64 KiB; empty for nothing any more.

        Raises:
            ConfigError: there is no group_id, or group_protocol is classic; or it is too long.
            TypeError: it is not bytes.
        """
        self._check_publishes("publish")
        if not isinstance(metadata, bytes | bytearray | memoryview):
            raise TypeError(f"metadata cannot be {metadata!r}: bytes are expected")
        said = bytes(metadata)
        if len(said) > LONGEST_METADATA:
            raise ConfigError(f"metadata has {len(said)} bytes; at most {LONGEST_METADATA} are possible")
        self._context.host.post(MetadataPublished(metadata=said))

    def watch_published(self, callback: PublishedCallback | None = None) -> None:
        """Watch the metadata of the group's members, this one's included; `published` returns them.

        Args:
            callback: called inside `poll` with this consumer and the result of `published`, when that has changed; in
                place of the one before.

        Raises:
            ConfigError: there is no group_id, or group_protocol is classic.
        """
        self._check_publishes("watch_published")
        self._context.rebalancing.on_published = to_callback(callback, "callback")
        self._context.host.post(MetadataWatched())

    def published(self) -> dict[str, bytes]:
        """Return the metadata that the group's members publish, as far as known; call `watch_published` first.

        By group_instance_id, or by member id of a member without one. May be called from any thread.
        """
        return dict(self._context.deliveries.published)

    def _check_publishes(self, what: str) -> None:
        self._context.check_open()
        if self._context.settings.options["group_id"] is None:
            raise ConfigError(f"{what} needs the option group_id: it is the members of a group that publish")
        if self._context.settings.options["group_protocol"] == "classic":
            raise ConfigError(f"{what} needs group_protocol=consumer: members of classic groups publish nothing")
