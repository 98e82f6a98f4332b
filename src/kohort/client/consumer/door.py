"""The base of the blocking and the asyncio consumer: their parts, and the calls that never wait.

Source: users@kafka, "New Consumer Design" (July 2014); the consumer threading refactor (CTR).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, Unpack

from kohort.client.arguments import to_callback, to_topics
from kohort.client.consumer.application_events import MetadataPublished, MetadataWatched
from kohort.client.consumer.context import ConsumerContext
from kohort.client.consumer.deliveries import Signal
from kohort.client.consumer.positions import Offsets, Positions
from kohort.client.consumer.reader import Reader
from kohort.client.consumer.subscriptions import Subscriptions
from kohort.client.core.host import refuse_copies
from kohort.client.options import changed_limits
from kohort.client.records import Rebalance
from kohort.client.steps import held
from kohort.errors import ConfigError

if TYPE_CHECKING:
    from kohort.client.typed_options import ConsumerOptions


#: Called with the consumer and the metadata of the group's members, by name. With `kohort.aio` it may be a coroutine
#: function.
PublishedCallback: TypeAlias = Callable[[Any, dict[str, bytes]], Awaitable[None] | None]
#: Most bytes of metadata that a coordinator accepts from one member.
LONGEST_METADATA: Final = 64 * 1024


class Publications:
    """The calls by which members of a group publish metadata to each other.

    Source: requirement G10; KIP-848's motivation: members inform each other about themselves without a rebalance.
    """

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context

    def publish(self, metadata: bytes) -> None:
        """Publish metadata of this member, e.g. its load or address, to its group and to administrators.

        Publishing moves no partition and interrupts no member. Members that watch get the metadata within 0.2 s; of
        several publications within 50 ms they get the last. The metadata is removed with this member; a static member
        that returns still has it. Metadata published before joining goes with the join. May be called from any thread.

        A refusal is raised by the next `poll`: BrokerError with POLICY_VIOLATION if all members together would publish
        more than 16 MiB, UnsupportedFeatureError if the broker is not kohort's.

        Args:
            metadata: at most 64 KiB; empty bytes withdraw it.

        Raises:
            ConfigError: the consumer has no group_id, group_protocol is classic, or the metadata is too long.
            TypeError: the metadata is not bytes.
        """
        self._check_publishes("publish")
        if not isinstance(metadata, bytes | bytearray | memoryview):
            raise TypeError(f"metadata cannot be {metadata!r}: bytes are expected")
        said = bytes(metadata)
        if len(said) > LONGEST_METADATA:
            raise ConfigError(f"metadata has {len(said)} bytes; at most {LONGEST_METADATA} are possible")
        self._context.host.post(MetadataPublished(metadata=said))

    def watch_published(self, callback: PublishedCallback | None = None) -> None:
        """Start receiving the metadata that the group's members publish, this one's included; see `published`.

        Args:
            callback: called inside `poll` with this consumer and the result of `published`, each time that has changed;
                it replaces an earlier callback.

        Raises:
            ConfigError: the consumer has no group_id, or group_protocol is classic.
        """
        self._check_publishes("watch_published")
        self._context.rebalancing.on_published = to_callback(callback, "callback")
        self._context.host.post(MetadataWatched())

    def published(self) -> dict[str, bytes]:
        """Return the metadata that the group's members publish, as received so far; call `watch_published` first.

        The keys are group_instance_ids; of dynamic members, member ids. May be called from any thread.
        """
        return dict(self._context.deliveries.published)

    def _check_publishes(self, what: str) -> None:
        self._context.check_open()
        if self._context.settings.options["group_id"] is None:
            raise ConfigError(f"{what} needs the option group_id: it is the members of a group that publish")
        if self._context.settings.options["group_protocol"] == "classic":
            raise ConfigError(f"{what} needs group_protocol=consumer: members of classic groups publish nothing")


_HEARTBEATS: Final = ("CONSUMER_GROUP_HEARTBEAT", "HEARTBEAT")
#: Seconds in which the background leaves the group for a consumer that was dropped without `close`.
_FORGOTTEN_S: Final = 5.0


class ConsumerDoor:
    """The calls of a consumer that never wait; the blocking and the asyncio consumer add the others."""

    subscribe = held(Subscriptions.subscribe)
    assign = held(Subscriptions.assign)
    assignment = held(Subscriptions.assignment)
    subscription = held(Subscriptions.subscription)
    pause = held(Subscriptions.pause)
    resume = held(Subscriptions.resume)
    paused = held(Subscriptions.paused)
    enforce_rebalance = held(Subscriptions.enforce_rebalance)
    group_metadata = held(Subscriptions.group_metadata)

    publish = held(Publications.publish)
    watch_published = held(Publications.watch_published)
    published = held(Publications.published)

    seek = held(Positions.seek)
    seek_to_beginning = held(Positions.seek_to_beginning)
    seek_to_end = held(Positions.seek_to_end)
    seek_to_timestamp = held(Positions.seek_to_timestamp)
    highwater = held(Positions.highwater)

    commit_async = held(Offsets.commit_async)
    store_offsets = held(Offsets.store_offsets)
    processed_offsets = held(Offsets.processed_offsets)

    __reduce__ = refuse_copies

    def _set_up(
        self, first: tuple[object, ...], options: Mapping[str, object], host: Any, signal: Signal, *, is_on_loop: bool
    ) -> None:
        """Build the objects that carry the calls out; nothing is connected here.

        Args:
            first: positional arguments: a mapping of Kafka's dotted option names, or topics.
            host, signal, is_on_loop: as for `ConsumerContext`.
        """
        config, self._first_topics = _divide(first)
        self._context = ConsumerContext(self, config, options, host=host, signal=signal, is_on_loop=is_on_loop)
        self._subscriptions = Subscriptions(self._context)
        self._reader = Reader(self._context, self._subscriptions)
        positions = Positions(self._context)
        parts = (
            self._subscriptions,
            self._reader,
            positions,
            Offsets(self._context, positions),
            Publications(self._context),
        )
        self._calls: dict[str, Any] = {type(part).__name__: part for part in parts}
        # Called for each record: a method would be one step more.
        self._take_one = self._reader.take_one

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Create a consumer from a mapping of Kafka's dotted option names.

        >>> import kohort
        >>> kohort.Consumer.from_config({"bootstrap.servers": "127.0.0.1:9092", "group.id": "billing"}).close()
        """
        return cls(config)  # type: ignore[call-arg]  # what doors take

    def __del__(self) -> None:
        # Also called for one whose options were refused.
        context = getattr(self, "_context", None)
        if context is not None and not context.is_closed:
            context.host.retire(_FORGOTTEN_S)
            context.host.warn_unclosed()

    def wakeup(self) -> None:
        """Make the waiting `poll`, or the next one, return at once, with the records that are ready, if any.

        May be called from any thread and from a signal handler.
        """
        self._context.is_woken = True
        self._context.deliveries.wake()

    def configure(self, config: Mapping[str, object] | None = None, /, **options: Unpack[ConsumerOptions]) -> None:
        """Change limits of fetching; they apply from the next fetch and the next `poll` on.

        Data fetched beyond a now smaller fetch.buffer.bytes is not dropped. May be called from any thread.

        Args:
            config: a mapping of Kafka's dotted option names; may be combined with keywords.
            options: fetch_buffer_bytes, fetch_max_bytes, fetch_max_wait_ms, fetch_min_bytes, max_partition_fetch_bytes
                and max_poll_records; options that are left out stay as they are.

        Raises:
            ConfigError: an option is unknown, cannot be changed, or has an impossible value.
        """
        self._context.configure(changed_limits(config, options))

    def metrics(self) -> dict[str, float]:
        """Return this consumer's counters by Kafka's names, from any thread; see docs/how-to/read-metrics.md."""
        traffic, handler = self._context.host.traffic, self._context.handler
        lags = handler.lags()
        return {
            **traffic.metrics(),
            **traffic.of("fetch", ["FETCH"]),
            **traffic.throttling("fetch", ["FETCH"]),
            "bytes-fetched-total": handler.fetched_bytes,
            "records-consumed-total": handler.handed_out,
            "buffer-bytes": handler.held_bytes,
            "records-lag-max": max(lags.values(), default=0),
            **{
                f'records-lag{{topic="{topic}",partition="{part}"}}': lag for (topic, part), lag in sorted(lags.items())
            },
            **traffic.of("commit", ["OFFSET_COMMIT"]),
            "assigned-partitions": len(handler.assignment),
            "rebalance-total": self._context.rebalancing.count,
            "partitions-refused-total": handler.refused_rows,
            "grants-renewed-total": self._context.deliveries.grants,
            "heartbeat-total": traffic.of("heartbeat", _HEARTBEATS)["heartbeat-total"],
            "last-heartbeat-seconds-ago": traffic.seconds_since((*_HEARTBEATS, "JOIN_GROUP", "SYNC_GROUP")),
        }

    @property
    def last_rebalance(self) -> Rebalance | None:
        """The latest change of the assignment and its reason; in a callback, the change that it is called for."""
        return self._context.rebalancing.last

    @property
    def member_id(self) -> str:
        """The id of this member; in a classic group empty until the coordinator has assigned one."""
        return self._context.deliveries.identity.member_id

    @property
    def group_epoch(self) -> int:
        """The member epoch, in a classic group the generation; -1 while this is no member."""
        return self._context.deliveries.identity.epoch

    @property
    def has_assignment(self) -> bool:
        """Whether the consumer has an assignment, by its group (even an empty one) or by hand."""
        return self._context.deliveries.identity.has_assignment or self._subscriptions.is_assigned_by_hand


def _divide(first: tuple[Any, ...]) -> tuple[Mapping[str, object] | None, tuple[str, ...]]:
    """Split the positional arguments into options and topics; a text with a colon is no topic (an address)."""
    if first and all(isinstance(each, str) and ":" not in each for each in first):
        return None, to_topics(first)
    if len(first) > 1:
        raise ConfigError(
            "options are given as keywords or as one mapping, topics as texts: "
            "Consumer({'bootstrap.servers': '127.0.0.1:9092'}), Consumer('orders', group_id='billing')"
        )
    return (first[0] if first else None), ()
