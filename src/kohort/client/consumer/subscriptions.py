"""The subscription of a consumer: topics as a member of a group, or partitions assigned by hand.

Source: Kafka's consumer API; users@kafka, "New Consumer Design" (July 2014).
"""

from __future__ import annotations

import logging
import re
import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import cached_property, partial
from typing import Any, Final, TypeAlias

from kohort.client.arguments import to_beginnings, to_callback, to_partitions, to_seconds, to_topics
from kohort.client.consumer import application_events as events
from kohort.client.consumer.context import ConsumerContext, tell
from kohort.client.consumer.rebalancing import Callbacks
from kohort.client.local_assignors import LocalAssignor
from kohort.client.records import GroupMetadata
from kohort.errors import ConfigError, StateError
from kohort.ids import TopicId, TopicPartition

#: Called with the consumer and the partitions in question, sorted. With `kohort.aio` it may be a coroutine function.
Callback: TypeAlias = Callable[[Any, list[TopicPartition]], Awaitable[None] | None]


_LOG: Final = logging.getLogger("kohort.client")


class Subscriptions:
    """The calls that choose the topics and partitions to read, and report the assignment."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context
        self._topics: tuple[str, ...] = ()
        self._pattern: str | None = None
        #: Partitions were chosen by hand.
        self.is_assigned_by_hand = False

    @cached_property
    def assigning(self) -> Assigning:
        """The application's own assignors."""
        return Assigning(self._context.settings.local_assignors, partial(tell, self._context.host))

    def subscribe(
        self,
        topics: Sequence[str] | str = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Read topics as a member of the group; they replace the topics subscribed before.

        Args:
            topics: names; an empty list means `unsubscribe`. A topic that does not exist is read once it is created. A
                name that begins with ^ is a regular expression for the beginning of names, as in librdkafka.
            pattern: instead of names, a regular expression that a whole name has to match; topics created later are
                included. With group.protocol=consumer the coordinator matches, by RE2; with classic this client does.
            on_assigned: called with newly assigned partitions, before they are read.
            on_revoked: called with partitions to give up; the group waits for its return, at most max.poll.interval.ms.
            on_lost: called with partitions that other members may own already; without it `on_revoked` is called.

        Raises:
            ConfigError: the consumer has no group_id, or the pattern is not a regular expression.
            StateError: partitions were assigned by hand.
        """
        names = to_topics(topics)
        chosen = choose_pattern(names, pattern)
        callbacks = Callbacks[Any](
            to_callback(on_assigned, "on_assigned"),
            to_callback(on_revoked, "on_revoked"),
            to_callback(on_lost, "on_lost") or on_revoked,
        )
        if self._context.settings.options["group_id"] is None:
            raise ConfigError("subscribe needs the option group_id; assign reads partitions without a group")
        if not names and chosen is None:
            self._context.finish(self.unsubscribe(), "subscribe names no topic; await unsubscribe() to read none")
            return
        metadata = self.assigning.metadata()
        self._context.begin_long("subscribe")
        try:
            if self.is_assigned_by_hand:
                raise StateError("partitions are assigned by hand; unsubscribe before subscribing to topics")
            self._context.rebalancing.callbacks = callbacks
            # A pattern takes the place of the names.
            self._topics = () if chosen is not None else tuple(sorted(set(names)))
            self._pattern = chosen
            self._context.deliveries.forget_trouble()
            self._context.host.post(events.Subscribed(topics=self._topics, pattern=chosen, metadata=metadata))
        finally:
            self._context.end()

    async def unsubscribe(self, *, timeout: float = 30.0) -> None:
        """Commit (with auto-commit), revoke all partitions and leave the group; `timeout` in seconds."""
        timeout = to_seconds(timeout)
        self._context.begin_long("unsubscribe")
        try:
            if self.is_reading:
                self._context.note_progress()
                ticket: Future[object] = Future()
                self._context.host.post(
                    events.Unsubscribed(ticket=ticket, deadline_ms=self._context.host.deadline_ms(timeout))
                )
                await self._context.serve(ticket, time.monotonic() + timeout, with_progress=True)
            self._context.progress.forget(self._context.handler.assignment)
            self._topics, self._pattern, self.is_assigned_by_hand = (), None, False
            self._context.deliveries.forget_trouble()
            self._context.report_released()
        finally:
            await self._context.give_turn_back(with_progress=True)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without joining a group; partitions read before keep their positions.

        If the topic of a partition does not exist, the next `poll` raises `UnknownTopicError`. A TopicPartition of
        confluent-kafka may carry an offset: reading begins there.

        Raises:
            StateError: the consumer is subscribed to topics, or a callback calls this.
        """
        beginnings = to_beginnings(partitions)
        chosen = set(beginnings)
        if self._context.is_in_callback:
            # Common with confluent-kafka, where a callback assigns to set offsets of its own.
            raise StateError("assign cannot be called inside a callback: seek there to begin elsewhere")
        self._context.begin_long("assign")
        try:
            if self._is_subscribed:
                raise StateError("topics are subscribed to; unsubscribe before assigning partitions by hand")
            self._context.deliveries.drain()
            self._context.note_progress()
            self._context.progress.forget(self._context.handler.assignment - chosen)
            self._context.handler.hold(sorted(chosen))
            for each, (offset, timestamp) in beginnings.items():
                if offset is not None or timestamp is not None:
                    self._context.handler.seek(each, offset, timestamp)
            # An empty assignment frees the consumer for a subscription.
            self.is_assigned_by_hand = bool(chosen)
            self._context.deliveries.forget_trouble()
            self._context.host.post(events.PartitionsAssigned(starts=self._context.handler.starts(sorted(chosen))))
            self._context.report_released()
        finally:
            self._context.end()

    def assign_spans(self, spans: Mapping[TopicPartition, tuple[int, int]], topic_ids: Mapping[str, TopicId]) -> None:
        """Read exactly these partitions, each from one offset to another; for a consumer that has none assigned.

        Args:
            spans: partition -> its first offset, and the offset before which reading ends.
            topic_ids: topic -> the id that it must have; see `FetchHandler.foreign`.
        """
        self._context.begin_long("assign_spans")
        try:
            self._context.deliveries.drain()
            self._context.handler.hold_spans(spans, topic_ids)
            self.is_assigned_by_hand = bool(spans)
            self._context.host.post(events.PartitionsAssigned(starts=self._context.handler.starts(spans)))
        finally:
            self._context.end()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are being read."""
        return self._context.handler.assignment

    def subscription(self) -> set[str]:
        """Return the subscribed topics; with a pattern, those of the assigned partitions."""
        if self._pattern is not None:
            return {partition.topic for partition in self._context.handler.assignment}
        return set(self._topics)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`; they stay assigned."""
        self._pause(partitions, is_paused=True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of paused partitions again."""
        self._pause(partitions, is_paused=False)

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return self._context.handler.paused()

    def enforce_rebalance(self, reason: str | None = None) -> None:
        """Make the group rebalance, e.g. because the application's own assignor would decide differently now.

        Classic protocol: the member rejoins at its next `poll`, and sends `reason`, which the broker keeps in the
        group's history. Consumer protocol: with group.local.assignors the group computes its assignment anew from
        their present metadata; without them the call only logs a warning, as in Kafka.

        Raises:
            StateError: the consumer is not subscribed to topics.
        """
        self._context.check_open()
        if reason is not None and not isinstance(reason, str):
            raise TypeError(f"reason is {reason!r}; expected a text that says why")
        if not self._is_subscribed:
            raise StateError("there is no group to rebalance: subscribe to topics first")
        metadata = self.assigning.metadata()
        self._context.host.post(
            events.RebalanceEnforced(reason=reason or "enforced by the application", metadata=metadata)
        )

    def group_metadata(self) -> GroupMetadata:
        """Return group id, member id and generation; the generation is -1 while this is no member.

        Raises:
            StateError: the consumer has no group_id.
        """
        if self._context.settings.options["group_id"] is None:
            raise StateError("there is no group: create the consumer with group_id")
        identity = self._context.deliveries.identity
        return GroupMetadata(
            self._context.settings.options["group_id"],
            identity.epoch,
            identity.member_id,
            self._context.settings.options["group_instance_id"],
        )

    @property
    def is_reading(self) -> bool:
        """Whether the consumer is subscribed to topics or has partitions assigned by hand."""
        return self._is_subscribed or self.is_assigned_by_hand

    @property
    def _is_subscribed(self) -> bool:
        return bool(self._topics) or self._pattern is not None

    def _pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> None:
        chosen = to_partitions(partitions)
        is_taken = self._context.begin("pause" if is_paused else "resume")
        try:
            self._context.check_held(chosen)
            self._context.handler.pause(chosen, is_paused=is_paused)
            self._context.host.post(events.Paused(partitions=chosen, is_paused=is_paused))
        finally:
            self._context.end(is_taken)


def choose_pattern(names: Sequence[str], pattern: str | re.Pattern[str] | None) -> str | None:
    """Return the regular expression that a whole topic name has to match; `None`: all of `names` are plain.

    Source: KIP-848 (a pattern matches whole names); librdkafka (a name that begins with ^ matches the beginning).

    >>> choose_pattern(["orders"], None)
    >>> choose_pattern(["^or", "refunds"], None)
    '(?:^or).*|refunds'

    Raises:
        ConfigError: both names and a pattern are given, or the pattern is not a regular expression.
    """
    if pattern is not None:
        if names:
            raise ConfigError("subscribe takes topics or a pattern, not both")
        if isinstance(pattern, re.Pattern) and pattern.flags & ~re.UNICODE:
            raise ConfigError("flags of a compiled pattern get lost on the way: write them into it, as in (?i)or.*")
        chosen = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    elif any(name.startswith("^") for name in names):
        chosen = "|".join(f"(?:{name}).*" if name.startswith("^") else re.escape(name) for name in names)
    else:
        return None
    try:
        re.compile(chosen)
    except (re.error, TypeError) as why:
        raise ConfigError(f"{chosen!r} is no pattern of topics: {why}") from None
    return chosen


class Assigning:
    """The application's own assignors, which run in the thread that polls when the coordinator asks for it.

    Source: KIP-848 as drafted; Kafka's assignors run in the polling thread, too.
    """

    def __init__(self, assignors: tuple[LocalAssignor, ...], post: Callable[[events.ConsumerEvent], None]) -> None:
        self._assignors: Final = assignors
        self._post = post

    def metadata(self) -> tuple[bytes, ...]:
        """Return the metadata of each assignor as of now; an error of the application's code is raised here."""
        return tuple(each.metadata() for each in self._assignors)

    def answer(self, wanted: deque[events.ComputationWanted | events.AssignmentSaid]) -> None:
        """Compute the assignments requested in `wanted`, and notify the assignors of finished ones."""
        while wanted:
            asked = wanted.popleft()
            if isinstance(asked, events.ComputationWanted):
                # Posted if the assignor ends the thread, as Ctrl-C does: the coordinator asks another member then.
                done = _failed(asked, "was interrupted")
                try:
                    done = self._compute(asked)
                finally:
                    self._post(done)
                continue
            for each in self._assignors:
                each.on_assignment(asked.error, asked.version, asked.metadata)

    def _compute(self, wanted: events.ComputationWanted) -> events.ComputationDone:
        from kohort.assign.moves import find_fault

        chosen = next((each for each in self._assignors if each.name == wanted.assignor), None)
        if chosen is None:
            return _failed(wanted, "is none of this consumer's")
        try:
            owner, said = chosen.assign(wanted.group)
        except Exception as raised:
            # Reported to the coordinator and never raised by `poll`: the group asks another member then.
            _LOG.exception("the assignor %s failed", chosen.name)
            return _failed(wanted, f"raised {type(raised).__name__}: {raised}")
        # Before the result is sent, so that the message names the culprit.
        fault = find_fault(wanted.group, owner)
        if fault:
            return _failed(wanted, fault)
        return events.ComputationDone(number=wanted.number, assignor=wanted.assignor, owner=owner, said=said, error="")


def _failed(wanted: events.ComputationWanted, why: str) -> events.ComputationDone:
    error = f"the assignor {wanted.assignor} {why}"
    return events.ComputationDone(
        number=wanted.number, assignor=wanted.assignor, owner=array("i"), said={}, error=error
    )
