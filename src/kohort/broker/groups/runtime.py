"""The runtime of the group coordinator: decide, append, apply, and answer once the disk has it.

One shard per partition of `__consumer_offsets`, all on the loop's thread. A command is decided on at once; the
records of a decision are one batch; its replies wait until that batch is durable, and a reply that only reads waits
for everything that was appended to its shard's log so far, so that no answer tells what a crash would take back.

Laws: log first: nothing is applied that was not appended; what the disk does not take is refused or comes again. Any
other exception in a shard or in its log stops the broker.
Source: architecture rules 1 to 5 and 17, journey of an OffsetCommit.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kohort.base import without_collections
from kohort.base.clock import WallClock
from kohort.broker.connections.request import Asker, Request
from kohort.broker.durability import Durability, is_durable
from kohort.broker.groups.deadlines import Deadlines
from kohort.broker.groups.ownership_messages import Leaders, OwnershipMessages, syncing_members
from kohort.broker.groups.shard_log import GroupLimit, GroupLogLoader, ShardLog, UnservedShard
from kohort.coordinator import commands, delayed_heartbeats
from kohort.coordinator.commands import ConsumerGroupHeartbeat, LeaveGroup
from kohort.coordinator.decision import ComputeTarget, Decision, MeasureLogs, Reply, ReplyBody, TimerKey
from kohort.coordinator.journal_events.open_rebalances import MemberKey, Reads
from kohort.coordinator.journal_events.reporter import MemberSigns, Reporter
from kohort.coordinator.journal_events.triggers import Stimulus
from kohort.coordinator.model import GroupOffsets
from kohort.coordinator.records.codec import build_log_batch
from kohort.coordinator.records.types import Grants
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode, StorageError
from kohort.ids import CauseId, RequestToken, TopicId, coordinator_partition
from kohort.journal.ring import Journal
from kohort.journal.words import Partition
from kohort.storage.partitions.partition import PartitionLog
from kohort.wire.schema import Message

if TYPE_CHECKING:
    from kohort.broker.processes.assignorprocess import OwnAssignors


log = logging.getLogger("kohort.broker.groups")

#: Groups whose shard is remembered; 10,000 took 2 MB, and to look for it again takes 2 microseconds.
KNOWN_GROUPS: Final = 1_000

#: Held heartbeats that are answered before the loop looks at its sockets again.
RELEASES_PER_TURN: Final = 200

#: Groups with aborted transactions that one log line names.
_GROUPS_TOLD: Final = 10

_NO_ONE: Final[Mapping[RequestToken, str]] = MappingProxyType({})

#: Translates the coordinator's reply into the response message of the request's version, or into its bytes.
Translate = Callable[[Any, Any], Message | bytes]


class Runtime:
    """The coordinator of every group of this broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: WallClock,
        durability: Durability,
        *,
        on_failure: Callable[[Exception], None],
        journal: Journal | None = None,
    ) -> None:
        self._clock: Final = clock
        self._durability: Final = durability
        self._on_failure: Final = on_failure
        #: The journal of all groups; one that keeps no rows if none is given.
        self.journal: Final = journal or Journal(limit=0)
        self._shard_logs: Final[list[ShardLog]] = []
        self.group_limit: Final = GroupLimit(self._shard_logs)
        #: The user's own assignors; `None` if all are built in.
        self._assignors: OwnAssignors | None = None
        self._loop: Final = loop
        #: What leaders are told of owners.
        self.ownership: Final = OwnershipMessages(loop)
        self._deadlines: Final = Deadlines(
            loop, clock, on_due=self._fire, on_gap=self._shift, on_step=self._follow_clock
        )
        self._refused: Final = AppendFailures(
            loop, carry_out=self._carry_out, tell_topics=self._tell_topics, reply=self._reply
        )
        #: Token -> receiver of the reply (a request and its translation, or a function) and the log that was asked.
        self._waiting: Final[dict[int, tuple[Asker | None, Callable[..., Any], ShardLog]]] = {}
        self._last_number = 0
        self._is_stopped = False
        #: The shard of a group; set by `start`.
        self.index_of: Callable[[str], int] = lambda _: 0
        #: Measures the logs of the partitions that exist.
        self.measure: Callable[[Iterable[tuple[TopicId, int]]], dict[tuple[TopicId, int], commands.LogExtent]] = (
            lambda _: {}
        )
        #: Set by `start`.
        self._settings = GroupSettings()
        self._reporter = Reporter(self._settings)
        #: Whether topics are hidden from some clients.
        self.hides_topics = False
        #: The image of topics that the shards were told last.
        self._image = TopicImage.of((), version=0)

    def start(
        self,
        settings: GroupSettings,
        partitions: list[PartitionLog],
        image: TopicImage,
        *,
        look_since_ms: int | None = None,
        told_ms: Mapping[str, int] | None = None,
    ) -> None:
        """Rebuild the state of every shard from its log, before the first command.

        Args:
            settings: of groups that have no configs of their own.
            partitions: the logs.
            image: the topics as they are.
            look_since_ms: since when a crash may have kept rows from the journal; `None`: there was none.
            told_ms: group -> until when it was told since then.
        """
        self._settings, self._image = settings, image
        self._reporter = Reporter(settings)
        own = [name for name in settings.group_consumer_assignors if name in settings.own_assignors]
        if own:
            # A start without such assignors does not pay for their threads and processes.
            from kohort.broker.processes.assignorprocess import OwnAssignors

            self._assignors = OwnAssignors(self._loop, own)
            self._assignors.start()
        self.index_of = lru_cache(maxsize=KNOWN_GROUPS)(partial(coordinator_partition, partition_count=len(partitions)))
        loader = GroupLogLoader(since_ms=look_since_ms)
        with without_collections():
            self._shard_logs[:] = [loader.load_shard_log(settings, part, self._clock) for part in partitions]
            # The journal's rows of these groups may differ from their logs.
            self._tell_found(sorted({group for group, _ in loader.changed.items() ^ (told_ms or {}).items()}), image)
            # Deadlines count from the end of all loading, so that loading fences no member.
            for shard_log in self._shard_logs:
                self._tell_topics(shard_log)
                now_ms = self._deadlines.now_ms()
                shard_log.shard.on_loaded(now_ms)
                self._deadlines.watch(shard_log.shard.next_deadline(), now_ms)

    def abort_transactions(self, known: Container[int]) -> None:
        """Abort the open transactions in the group logs, but for those of the producers in `known`.

        Source: Apache Kafka's `kafka-transactions.sh abort`, for transactions that no coordinator knows.
        """
        for shard_log in self._shard_logs:
            # Readers of stable offsets would wait for these transactions for ever.
            found = shard_log.shard.groups.transactions
            opened = {producer_id: each for producer_id, each in found.items() if producer_id not in known}
            if not opened:
                continue
            names = list(dict.fromkeys(name for each in opened.values() for name in each.group_ids))
            shown = ",".join(names[:_GROUPS_TOLD]) + (",..." if len(names) > _GROUPS_TOLD else "")
            why = "nothing can end them: the transaction coordinator does not know their producers"
            told = shard_log.log.name, len(opened), shown, why
            log.warning("event=transactions_aborted partition=%s transactions=%d groups=%s why=%r", *told)
            for producer_id, transaction in opened.items():
                token, epoch = self.next_token(), transaction.producer_epoch
                command = commands.CompleteTransaction(
                    cause=token, request=token, producer_id=producer_id, producer_epoch=epoch, is_commit=False
                )
                self._waiting[token] = (None, lambda _: None, shard_log)
                self._carry_out(shard_log, command)

    def _tell_found(self, group_ids: Iterable[str], image: TopicImage) -> None:
        """Tell the journal the state of groups of which a crash may have kept rows from it."""
        now_ms = self._deadlines.now_ms()
        for group_id in group_ids:
            groups = self._shard_logs[self.index_of(group_id)].shard.groups
            entries = self._reporter.tell_found(groups, group_id, image)
            if entries:
                self.journal.record(entries, cause=self.next_token(), now_ms=now_ms)

    def count_from(self, number: int) -> None:
        """Number requests above `number`, which an earlier run has used; call before the first request."""
        self._last_number = max(self._last_number, number)

    def time_passed(self, by_ms: int) -> None:
        """Fire the deadlines that are due now that a test has set its clock forward by so much."""
        self._deadlines.time_passed(by_ms)

    def stop(self) -> None:
        """Stop deciding, firing deadlines and computing assignments."""
        self._is_stopped = True
        self.ownership.stop()
        self._deadlines.stop()
        if self._assignors is not None:
            self._assignors.stop()

    @property
    def shard_count(self) -> int:
        """The number of shards."""
        return len(self._shard_logs)

    def serves(self, group_id: str) -> bool:
        """Whether the log of a group could be read whole."""
        return not isinstance(self._shard_logs[self.index_of(group_id)].shard, UnservedShard)

    def coordinates(self, group_id: str) -> bool:
        """Whether this broker coordinates a group; it does: it is alone."""
        return True

    def session_timeout_ms(self, group_id: str) -> int:
        """Return the session timeout of a group's KIP-848 members, ms."""
        return self._shard_logs[self.index_of(group_id)].shard.settings_for(group_id).group_consumer_session_timeout_ms

    def next_token(self) -> RequestToken:
        """Return a number that no earlier request has; it also serves as its cause."""
        self._last_number += 1
        return RequestToken(CauseId(self._last_number))

    def answer(self, request: Asker, command: commands.GroupCommand, translate: Translate) -> None:
        """Carry out a command; answer `request` with the translated reply once it is durable."""
        shard_log = self._shard_logs[self.index_of(command.group_id)]
        for former in shard_log.shard.find_former(command):
            held = self._waiting[former.request][0]
            assert isinstance(held, Request) and held.heartbeat is not None, "a client asked"
            # A leave by another client is news once it is done; a heartbeat brings the next interval itself.
            if held.connection is request.connection or not isinstance(command, LeaveGroup):
                held.heartbeat.release(not isinstance(command, ConsumerGroupHeartbeat))
        self._waiting[command.request] = (request, translate, shard_log)
        self._carry_out(shard_log, command)

    def release(self, command: commands.AnyHeartbeat, is_cut: bool) -> None:
        """Answer a heartbeat that is still held; `is_cut`: another request of its client waits behind it."""
        shard_log = self._shard_logs[self.index_of(command.group_id)]
        if delayed_heartbeats.is_held(shard_log.shard.groups, command) and not self._is_stopped:
            self._answer_held(shard_log, command, is_cut=is_cut)

    def release_all(self) -> None:
        """Answer every held heartbeat; the broker is about to stop."""
        for shard_log in self._shard_logs:
            for held in shard_log.shard.all_held():
                self._answer_held(shard_log, held, is_cut=False)

    def abandon(self, command: commands.AnyHeartbeat | commands.WatchMember) -> None:
        """Drop a held heartbeat, or the watch of a member, after its connection has closed."""
        if self._waiting.pop(command.request, None) is not None and not self._is_stopped:
            shard_log = self._shard_logs[self.index_of(command.group_id)]
            shard_log.shard.abandon(command, now_ms=self._deadlines.now_ms())

    def hold(self, request: Request, command: ConsumerGroupHeartbeat, translate: Translate) -> bool:
        """Hold a heartbeat that repeats a held one; `False` if nothing was done and it has to be parsed."""
        shard_log, now_ms = self._shard_logs[self.index_of(command.group_id)], self._deadlines.now_ms()
        if self._is_stopped or self._renew(shard_log, command, now_ms) is None:
            return False
        self._waiting[command.request] = (request, translate, shard_log)
        self._deadlines.watch(now_ms + command.hold_ms, now_ms)
        return True

    def renew(self, command: ConsumerGroupHeartbeat) -> int | None:
        """Carry out at once a heartbeat that is not held, if its member has no news.

        Returns:
            The interval that its member is told, ms; `None` if nothing was done and the heartbeat has to be parsed.
        """
        shard_log = self._shard_logs[self.index_of(command.group_id)]
        if self._is_stopped or not is_durable(shard_log.log) or shard_log.shard.find_former(command):
            return None
        return self._renew(shard_log, command, self._deadlines.now_ms())

    def _renew(self, shard_log: ShardLog, command: ConsumerGroupHeartbeat, now_ms: int) -> int | None:
        try:
            interval_ms = shard_log.shard.renew(command, now_ms=now_ms)
        except Exception as error:
            self._fail(error)
            raise
        # No session ends earlier, but for one that was made shorter meanwhile: the next tick will see to it.
        if interval_ms is not None and self.journal.is_on:
            self._reporter.count(self.journal, command, "heartbeats", (), now_ms=now_ms)
        return interval_ms

    def ask(self, command: commands.GroupCommand, on_reply: Callable[[Any], None]) -> None:
        """Carry out a command; call `on_reply` with its reply once it is durable."""
        shard_log = self._shard_logs[self.index_of(command.group_id)]
        self._waiting[command.request] = (None, on_reply, shard_log)
        self._carry_out(shard_log, command)

    def ask_shard(
        self, index: int, token: RequestToken, command: commands.Command, on_reply: Callable[[Any], None]
    ) -> None:
        """Carry out a command that concerns a whole shard."""
        shard_log = self._shard_logs[index]
        self._waiting[token] = (None, on_reply, shard_log)
        self._carry_out(shard_log, command)

    @property
    def reads(self) -> Reads:
        """The record of the members' latest reads of partitions."""
        return self._reporter.reads

    def begin_to_read(self, keys: Iterable[MemberKey], asked_for: Sequence[Partition]) -> None:
        """Note that a fetch asks for partitions, which may be new for one of these members."""
        now_ms = self._deadlines.now_ms()
        self._reporter.on_fetch(self.journal, keys, asked_for, now_ms=now_ms, next_cause=self.next_token)

    def member_signs(self, group_id: str, member_id: str) -> MemberSigns | None:
        """Return the latest signs of a member; `None`: the group has no such member."""
        shard, now_ms = self._shard_logs[self.index_of(group_id)].shard, self._deadlines.now_ms()
        return self._reporter.signs_of(shard.groups, shard.timers, group_id, member_id, now_ms=now_ms)

    @property
    def shards(self) -> list[Shard]:
        """The shards, to be read."""
        return [each.shard for each in self._shard_logs]

    def counts_fetches(self, group_id: str) -> bool:
        """Whether fetches count as heartbeats in a group, if they say whose they are."""
        return self._shard_logs[self.index_of(group_id)].shard.settings_for(group_id).counts_fetches

    def lease_ms(self, group_id: str) -> int:
        """Return how long a grant lasts in a group, ms; 0: it enforces no ownership."""
        settings = self._shard_logs[self.index_of(group_id)].shard.settings_for(group_id)
        return settings.lease_ms if settings.is_enforcing else 0

    def assignment_of(self, group_id: str, member_id: str) -> tuple[int, Grants] | None:
        """Return the epoch and the partitions of a KIP-848 member that speaks that protocol; `None`: it is none."""
        member = self._shard_logs[self.index_of(group_id)].shard.groups.find_member(group_id, member_id)
        is_one = member is not None and member.classic is None and member.member_epoch > 0
        return (member.member_epoch, member.assigned) if member is not None and is_one else None

    def is_member(self, group_id: str, member_id: str) -> bool:
        """Whether a group has a member of that id, in either protocol."""
        groups = self._shard_logs[self.index_of(group_id)].shard.groups
        classic = groups.classic.get(group_id)
        is_classic = classic is not None and member_id in classic.members
        return is_classic or groups.find_member(group_id, member_id) is not None

    def offsets_of(self, group_id: str) -> GroupOffsets:
        """Return the committed offsets of a group, and those of open transactions, to be read."""
        groups = self._shard_logs[self.index_of(group_id)].shard.groups
        return GroupOffsets(groups.offsets.get(group_id, {}), groups.pending_offsets.get(group_id, {}))

    def member_fetched(self, group_id: str, member_id: str, *, epoch: int = -1, is_over: bool = False) -> int:
        """Note a fetch of a member, which counts as a heartbeat where its group says so.

        Args:
            group_id: of the member.
            member_id: of the member.
            epoch: the one that the fetch names, -1: none.
            is_over: whether the fetch has waited until now.

        Returns:
            How long later fetches of the member need not be told, milliseconds.
        """
        shard_log = self._shard_logs[self.index_of(group_id)]
        if self._is_stopped or not shard_log.shard.settings_for(group_id).counts_fetches:
            return 0
        now_ms = self._deadlines.now_ms()
        found = shard_log.shard.renew_by_fetch(group_id, member_id, epoch=epoch, now_ms=now_ms)
        # A fetch that ends with its connection does not bring a member back that is gone with it.
        if found.is_gone and not is_over:
            self._carry_out(
                shard_log, commands.MemberFetched(cause=self.next_token(), group_id=group_id, member_id=member_id)
            )
        return found.left_ms

    def member_disconnected(self, group_id: str, member_id: str) -> None:
        """Tell the coordinator that a member's last connection is closed."""
        command = commands.MemberDisconnected(cause=self.next_token(), group_id=group_id, member_id=member_id)
        self._carry_out(self._shard_logs[self.index_of(group_id)], command)

    def hand_over(self, index: int) -> None:
        """Reload a shard from its log, as another node that takes over its groups would.

        Waiting requests are answered NOT_COORDINATOR.
        Source: Apache Kafka's unloading and loading of a group partition.
        """
        shard_log = self._shard_logs[index]
        moved = [token for token, (_, _, asked) in self._waiting.items() if asked is shard_log]
        refusal = commands.Refusal(code=ErrorCode.NOT_COORDINATOR, message="the groups have moved to another broker")
        for request, then, _ in map(self._waiting.pop, moved):
            if request is None:
                then(refusal)
            elif request.is_open:
                request.answer(then(request, refusal))
        loader = GroupLogLoader()
        shard_log = self._shard_logs[index] = loader.load_shard_log(self._settings, shard_log.log, self._clock)
        self.ownership.loaded(index, shard_log.shard)
        self._tell_topics(shard_log)
        now_ms = self._deadlines.now_ms()
        shard_log.shard.on_loaded(now_ms)
        self._deadlines.watch(shard_log.shard.next_deadline(), now_ms)

    def tell_leaders(self, leaders: Leaders) -> None:
        """Tell the leaders of partitions their owners, from now on and as the logs have it."""
        self.ownership.begin(leaders, [shard_log.shard for shard_log in self._shard_logs])

    def group_ids(self, index: int) -> list[str]:
        """Return every group of a shard, those with offsets alone included."""
        groups = self._shard_logs[index].shard.groups
        return list(dict.fromkeys((*groups.consumer, *groups.classic, *groups.offsets)))

    def topics_changed(self, image: TopicImage) -> None:
        """Give every shard the new image of topics."""
        self._image = image
        for shard_log in self._shard_logs:
            self._tell_topics(shard_log)

    def _tell_topics(self, shard_log: ShardLog) -> None:
        command = commands.TopicsChanged(cause=self.next_token(), image=self._image, hides_unseen=self.hides_topics)
        self._carry_out(shard_log, command)

    def pattern_sent(self, command: ConsumerGroupHeartbeat) -> None:
        """Tell the coordinator what the sender of an accepted heartbeat with a pattern may see, later in this turn."""
        shard_log = self._shard_logs[self.index_of(command.group_id)]
        regex, sight = command.subscribed_topic_regex, command.sight
        assert regex and sight is not None, "the heartbeat has both"
        # Not within the heartbeat's own decision: others of its pattern may get other topics by it.
        sent = commands.PatternSent(cause=command.cause, group_id=command.group_id, regex=regex, sight=sight)
        self._loop.call_soon(self._carry_out, shard_log, sent)

    def sights_changed(self) -> None:
        """Have patterns resolved again whose members may see other topics now."""
        for shard_log in self._shard_logs:
            # Few groups subscribe by pattern: the others are not looked at.
            if any(group.sights for group in shard_log.shard.groups.consumer.values()):
                self._tell_topics(shard_log)

    def _carry_out(self, shard_log: ShardLog, command: commands.Command) -> None:
        if self._is_stopped or shard_log not in self._shard_logs:
            return
        now_ms = self._deadlines.now_ms()
        try:
            decision = self.group_limit.let_in(shard_log, command, shard_log.shard.handle(command, now_ms=now_ms))
            if not self._commit(shard_log, command, decision, now_ms):
                self._refused.of_command(shard_log, command, now_ms)
        except Exception as error:
            self._fail(error)
            raise

    def _answer_held(self, shard_log: ShardLog, command: commands.AnyHeartbeat, *, is_cut: bool) -> None:
        now_ms = self._deadlines.now_ms()
        try:
            decision = shard_log.shard.decide_answer(command, now_ms=now_ms, is_cut=is_cut)
            if not self._commit(shard_log, command, decision, now_ms, is_new=False):
                self._refused.of_held(shard_log, command, now_ms)
        except Exception as error:
            self._fail(error)
            raise

    def _tell_news(self, shard_log: ShardLog) -> None:
        """Answer the held heartbeats of members with updates; many of them in several turns of the loop."""
        if self._is_stopped or shard_log not in self._shard_logs:
            return
        now_ms = self._deadlines.now_ms()
        for _ in range(RELEASES_PER_TURN):
            try:
                found = shard_log.shard.decide_news(now_ms)
                if found is None:
                    shard_log.tells_news = False
                    return
                if not self._commit(shard_log, *found, now_ms, is_new=False):
                    self._refused.of_held(shard_log, found[0], now_ms)
            except Exception as error:
                self._fail(error)
                raise
        self._loop.call_soon(self._tell_news, shard_log)

    def _commit(
        self, shard_log: ShardLog, stimulus: Stimulus, decision: Decision, now_ms: int, *, is_new: bool = True
    ) -> bool:
        """Append a decision, journal and apply it, and send replies; `False` if the disk refused it."""
        if decision.records and not self._append(shard_log.log, decision, now_ms):
            return False
        shard = shard_log.shard
        self._reporter.report(
            self.journal, shard.groups, stimulus, decision, timers=shard.timers, now_ms=now_ms, is_new=is_new,
            next_cause=self.next_token,
        )  # fmt: skip
        # Most decisions have nothing to do with owners.
        syncing = syncing_members(shard, stimulus, decision) if isinstance(stimulus, commands.SyncGroup) else _NO_ONE
        replies = shard.commit(decision, now_ms=now_ms)
        # The leaders know before the members do.
        if shard.has_ownership:
            self.ownership.tell(self._shard_logs.index(shard_log), shard)
        for reply in replies:
            self._send(shard_log.log, stimulus, reply, syncing.get(reply.request, ""))
        for errand in shard.take_errands():
            if isinstance(errand, MeasureLogs):
                self._loop.call_soon(self._measured, shard_log, errand)
            else:
                assert self._assignors is not None, "nothing else is computed beside the loop"
                self._assignors.compute(errand, partial(self._computed, shard_log, errand))
        self._deadlines.watch(shard.next_deadline(), now_ms)
        if shard.has_concerned and not shard_log.tells_news:
            shard_log.tells_news = True
            # Later in this turn: several changes that are decided together are often one piece of news.
            self._loop.call_soon(self._tell_news, shard_log)
        return True

    def _append(self, partition: PartitionLog, decision: Decision, now_ms: int) -> bool:
        """Append the records of a decision as one batch; return whether the disk took it.

        The runtime of a simulated broker has logs of its own.
        """
        # A disk that fails for good is raised.
        batch = build_log_batch(decision.records, now_ms=now_ms)
        if batch is not None:
            try:
                self._durability.append(partition, batch, now_ms=now_ms, validate=False)
            except StorageError as why:
                if why.fatal:
                    raise
                return False
        return True

    def _measured(self, shard_log: ShardLog, errand: MeasureLogs) -> None:
        if shard_log in self._shard_logs:
            cause, extents = self.next_token(), self.measure(errand.places)
            self._carry_out(shard_log, commands.LogsMeasured(cause=cause, group_id=errand.group_id, extents=extents))

    def _computed(self, shard_log: ShardLog, order: ComputeTarget, owner: array[int] | None, error: str) -> None:
        """Hand the coordinator the result of an assignor of the user's own."""
        if shard_log not in self._shard_logs:
            return
        cause, asked = self.next_token(), order.assignable
        command = commands.TargetComputed(
            cause=cause, group_id=order.group_id, assignable=asked, owner=owner, error=error
        )
        before = shard_log.failure_of(order.group_id)
        self._carry_out(shard_log, command)
        shard_log.log_failure(order, before)

    def _send(self, partition: PartitionLog, stimulus: Stimulus, reply: Reply, syncing_id: str) -> None:
        """Send a reply, once the leaders know of its assignment; `syncing_id`: the member that has sent SyncGroup."""
        owner = None
        if self.ownership.unknown:
            owner = self.ownership.owner_of(getattr(stimulus, "group_id", ""), reply.body, syncing_id)
        if owner is None:
            self._reply(partition, reply.request, reply.body)
            return
        request, then, _ = self._waiting.pop(reply.request)
        assert request is not None, "a client asked for its partitions"
        # The answer to a commit does not wait for leaders: without news in it the member is told otherwise.
        is_beside_commit = isinstance(stimulus, commands.WatchMember) and stimulus.is_look
        if request.is_open and not is_beside_commit:
            request.answer_unsynced(then(request, reply.body))
            release = partial(self._durability.when_durable, partition, request.release)
            self.ownership.hold_back(owner, release)

    def _reply(self, partition: PartitionLog, token: RequestToken, body: ReplyBody) -> None:
        request, then, _ = self._waiting.pop(token)
        if request is None:
            self._durability.when_durable(partition, partial(then, body))
        elif request.is_open:
            if is_durable(partition):
                request.answer(then(request, body))
            else:
                request.answer_unsynced(then(request, body))
                self._durability.when_durable(partition, request.release)

    def _fire(self, now_ms: int) -> int | None:
        """Carry out every due deadline; return the next one."""
        next_ms: int | None = None
        try:
            for shard_log in self._shard_logs:
                shard = shard_log.shard
                while (ended := self._end_hold(shard_log, now_ms)) or (decision := shard.expire(now_ms)) is not None:
                    if not ended:
                        assert decision is not None and decision.due is not None, "a deadline led to it"
                        if not self._commit(shard_log, decision.due, decision, now_ms):
                            self._refused.of_deadline(shard_log, decision.due, now_ms)
                deadline_ms = shard.next_deadline()
                if deadline_ms is not None and (next_ms is None or deadline_ms < next_ms):
                    next_ms = deadline_ms
        except Exception as error:
            self._fail(error)
            raise
        return next_ms

    def _end_hold(self, shard_log: ShardLog, now_ms: int) -> bool:
        """Answer the heartbeat with the next end of its hold, now or soon, if its member has no news."""
        ended = shard_log.shard.find_ended(now_ms)
        if ended is not None:
            shard_log.shard.end_hold(ended)
            self._reply(shard_log.log, ended.reply.request, ended.reply.body)
        return ended is not None

    def _shift(self, gap_ms: int) -> None:
        log.warning("event=clock_gap gap_ms=%d action=deadlines_shifted", gap_ms)
        for shard_log in self._shard_logs:
            shard_log.shard.shift(gap_ms)
        self._reporter.shift(gap_ms)

    def _follow_clock(self, by_ms: int) -> None:
        log.warning("event=clock_set by_ms=%d action=deadlines_follow", by_ms)
        for shard_log in self._shard_logs:
            shard_log.shard.follow_clock(by_ms)
        self._reporter.follow_clock(by_ms)

    def _fail(self, error: Exception) -> None:
        if not self._is_stopped:
            self.stop()
            self._on_failure(error)


# The handling of decisions with records that the group log did not take.
#
# Laws: nothing of it is applied. The requesting client is told NOT_COORDINATOR, upon which every client looks
# up the coordinator and then asks again; the broker's own commands, and deadlines, are repeated. No member is fenced
# meanwhile: a refused request counts as heard all the same.
# Source: Apache Kafka's `CoordinatorOperationExceptionHelper`, which makes NOT_COORDINATOR of KAFKA_STORAGE_ERROR.

#: After so long the broker repeats decisions for which no client waits.
RETRY_MS: Final = 1000
#: The answer to the client; the broker's own log has the reason.
NOT_TAKEN: Final = commands.Refusal(
    code=ErrorCode.NOT_COORDINATOR, message="the disk of the groups' log takes nothing at present; ask again"
)


class AppendFailures:
    """Answers, postpones and repeats refused decisions; belongs to the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        carry_out: Callable[[ShardLog, commands.Command], None],
        tell_topics: Callable[[ShardLog], None],
        reply: Callable[[PartitionLog, RequestToken, ReplyBody], None],
    ) -> None:
        """Create the handler.

        `carry_out` and `tell_topics` repeat a command; its shard_log may be gone by then.
        """
        self._loop: Final = loop
        self._carry_out: Final = carry_out
        self._tell_topics: Final = tell_topics
        self._reply: Final = reply

    def of_command(self, shard_log: ShardLog, command: commands.Command, now_ms: int) -> None:
        """Refuse or postpone a command after its decision was not written."""
        if isinstance(command, commands.GroupCommand | commands.ExpireOffsets):
            if isinstance(command, commands.GroupCommand):
                # The refused request still proves that its member is alive.
                shard_log.shard.spare(command, now_ms=now_ms)
            self._reply(shard_log.log, command.request, NOT_TAKEN)
        elif isinstance(command, commands.TopicsChanged):
            # The topics may have changed again by then.
            self._loop.call_later(RETRY_MS / 1000, self._tell_topics, shard_log)
        else:
            self._loop.call_later(RETRY_MS / 1000, self._carry_out, shard_log, command)

    def of_held(self, shard_log: ShardLog, held: commands.AnyHeartbeat | commands.WatchMember, now_ms: int) -> None:
        """Refuse a held heartbeat after its answer was not written; the client asks again for news."""
        shard_log.shard.abandon(held, now_ms=now_ms)
        self.of_command(shard_log, held, now_ms)

    def of_deadline(self, shard_log: ShardLog, key: TimerKey, now_ms: int) -> None:
        """Postpone a deadline after its decision was not written."""
        held = shard_log.shard.held(key.group_id, key.member_id) if delayed_heartbeats.is_hold(key) else None
        if held is not None:
            # The held heartbeat has to be answered by now.
            self.of_held(shard_log, held, now_ms)
        else:
            shard_log.shard.timers.arm(key, now_ms + RETRY_MS)
