"""A coordinator in a test: say what members send, read what they are answered, let time pass, restart it.

After every step, or every n-th for a large group, the invariants are checked, and the log is folded again: what it
gives is the living state. A request that is answered twice, or an answer without a request, fails the test at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kohort.coordinator import commands
from kohort.coordinator.commands import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    Done,
    GroupCommand,
    InstallAssignment,
    LogExtent,
    LogsMeasured,
    MemberDisconnected,
    PrepareAssignment,
    Refusal,
    TargetComputed,
    TopicsChanged,
    WatchMember,
)
from kohort.coordinator.commands.admin import (
    AlterGroupConfigs,
    DeleteGroup,
    DeleteOffsets,
    DeleteOffsetsReply,
    DescribeClassicGroup,
    DescribeConsumerGroup,
    DescribeGroupConfigs,
    DescribeGroupConfigsReply,
    ListGroupConfigs,
    ListGroups,
    ListGroupsReply,
)
from kohort.coordinator.decision import (
    ComputeTarget,
    Decision,
    FencePartitions,
    MeasureLogs,
    OpenPartitions,
    Reply,
    ReplyBody,
)
from kohort.coordinator.invariants import (
    check_assignment_is_due,
    check_groups,
    check_kept,
    check_step,
    check_untouched,
    epochs_of,
)
from kohort.coordinator.journal_events.reporter import Reporter
from kohort.coordinator.journal_events.triggers import Stimulus
from kohort.coordinator.model import ConsumerGroup, ConsumerMember
from kohort.coordinator.records import codec
from kohort.coordinator.records.codec import build_log_batch, read_log_batch
from kohort.coordinator.records.types import Record, TransactionalOffsetCommitted, VolatileRecord
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.errors import ErrorCode
from kohort.ids import ZERO_TOPIC_ID, CauseId, RequestToken, TopicId
from kohort.journal.ring import Journal
from kohort.journal.rows import Entry
from kohort.simulation.invariants.ownership import ToldOwners
from kohort.simulation.runtime import check_end_of_hold, check_renewal

#: What a test says a member has: partitions of topic "t", or topic -> partitions.
Owned = Iterable[int] | Mapping[str, Iterable[int]]
#: A command that is answered.
CallbackWanted = GroupCommand | ListGroups | ListGroupConfigs | commands.ExpireOffsets | commands.CompleteTransaction


def topic_id_of(name: str, *, generation: int = 0) -> TopicId:
    """The id of a test's topic; a topic that is made again has the next `generation`."""
    return TopicId(name.encode().ljust(15, b".")[:15] + bytes([generation]))


class Answer:
    """What came back for one request; `body` is `None` while it is parked."""

    def __init__(self, dialogue: GroupDialogue, request: RequestToken) -> None:
        self._dialogue = dialogue
        self.request = request
        self.body: ReplyBody | None = None

    @property
    def is_parked(self) -> bool:
        """Whether no answer has come yet."""
        return self.body is None

    def is_refused(self, code: ErrorCode, *, saying: str = "") -> Refusal:
        """The request was refused as a whole, with a message that has `saying` in it."""
        assert isinstance(self.body, Refusal), self.body
        assert self.body.code == code, self.body
        assert saying in (self.body.message or ""), self.body.message
        return self.body

    def is_done(self) -> None:
        """The request succeeded and there is nothing to say."""
        assert self.body == Done(), self.body

    def body_as(self, kind: type[Any]) -> Any:
        """The body, which has to be of that class."""
        assert isinstance(self.body, kind), self.body
        return self.body

    def replies(self, *, epoch: int, assigned: Owned | None = None, interval: int | None = None) -> None:
        """A heartbeat's answer: the epoch, and the assignment; `None` means that nothing was said about it."""
        reply = self.body_as(ConsumerGroupHeartbeatReply)
        expected = None if assigned is None else self._dialogue.partitions(assigned)
        assert (reply.member_epoch, self._dialogue.named(reply.assignment)) == (epoch, self._dialogue.named(expected))
        if interval is not None:
            assert reply.heartbeat_interval_ms == interval

    def errors(self) -> tuple[ErrorCode, ...]:
        """The codes of a commit or of a deletion of offsets, one per partition."""
        assert isinstance(self.body, commands.CommitOffsetsReply | DeleteOffsetsReply), self.body
        return self.body.errors


class GroupDialogue:
    """One shard, its log and a clock; members heartbeat for topic "t" unless told otherwise.

    Args:
        topics: name -> number of partitions.
        group_id: the group of all requests that do not name one.
        settings: of the coordinator; other keyword arguments replace single ones. Targets are computed with the
            change that asks for them unless a window is named.
        check_every: so many steps lie from one look at the whole state to the next.
    """

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        group_id: str = "g",
        settings: GroupSettings | None = None,
        check_every: int = 1,
        **limits: Any,
    ) -> None:
        assert settings is None or not limits
        #: Whether topics are hidden from some clients.
        self.hides_topics = False
        self._check_every = check_every
        self._steps = 0
        self.settings = settings or GroupSettings(**{"group_consumer_assignment_window_ms": 0, **limits})
        self.group_id = group_id
        self.rebalance_timeout_ms = 60_000
        self.now_ms = 1_000_000
        #: Every durable record, as bytes, in the order of the log.
        self.log: list[tuple[bytes, bytes | None]] = []
        #: The same as batches; once there was a transaction these alone are the log.
        self.batches: list[bytes] = []
        self.has_transactions = False
        self._mirror = Mirror(self)
        self.shard = Shard(self.settings)
        #: What assignors beside the coordinator were asked and did not answer yet.
        self.computations: list[ComputeTarget] = []
        #: What the logs have, and the partitions of each time when that was asked for.
        self.extents: dict[tuple[TopicId, int], LogExtent] = {}
        self.measured: list[tuple[tuple[TopicId, int], ...]] = []
        #: What the journal would say, oldest first.
        self.told: list[Entry] = []
        self.reporter = Reporter(self.settings)
        self.journal = Journal(limit=100_000)
        #: Whether the messages to leaders are compared with the state.
        self.checks_ownership = self.settings.group_ownership_enforce != "off"
        #: Whether members fetch at once what they are given; else a test says when, by `fetch`.
        self.reads_at_once = True
        self._seen: list[Record] = []
        #: What leaders are told of owners and was not asked for yet, and what they know by it.
        self._ownership: list[FencePartitions | OpenPartitions] = []
        self._told_owners = ToldOwners()
        #: A shard that reads its log has no deadlines yet.
        self._is_loaded = True
        self._answers: dict[RequestToken, Answer] = {}
        self._causes = 0
        self._generations: dict[str, int] = {}
        self._topics: dict[str, int] = {}
        self.set_topics({"t": 2} if topics is None else topics)

    # Requests.

    def ask(self, command: CallbackWanted) -> Answer:
        """Send a ready-made command; its `request` has to come from `request()`."""
        answer = Answer(self, command.request)
        assert command.request not in self._answers, "a token is used once"
        self._answers[command.request] = answer
        self._commit(command, self.shard.handle(command, now_ms=self.now_ms))
        return answer

    def request(self) -> RequestToken:
        """A fresh token."""
        self._causes += 1
        return RequestToken(self._causes)

    def cause(self) -> CauseId:
        """A fresh cause."""
        self._causes += 1
        return CauseId(self._causes)

    def heartbeat(
        self,
        member_id: str,
        *,
        epoch: int,
        owned: Owned | None = None,
        topics: Sequence[str] | None = None,
        full: bool = False,
        **fields: Any,
    ) -> Answer:
        """A KIP-848 heartbeat; epoch 0, or `full`, says everything, as clients do when they join and after an error."""
        if epoch == 0 or full:
            topics = ["t"] if topics is None else topics
            owned = [] if owned is None else owned
            fields.setdefault("rebalance_timeout_ms", self.rebalance_timeout_ms)
        if topics is not None:
            fields["subscribed_topic_names"] = tuple(topics)
        if owned is not None:
            fields["topic_partitions"] = self.partitions(owned)
        fields.setdefault("client_id", f"client-{member_id}")
        fields.setdefault("client_host", "/127.0.0.1")
        fields.setdefault("group_id", self.group_id)
        return self.ask(
            ConsumerGroupHeartbeat(
                cause=self.cause(), request=self.request(), member_id=member_id, member_epoch=epoch, **fields
            )
        )

    def watch(self, member_id: str, *, epoch: int, knows: Owned, is_look: bool = False) -> Answer:
        """Whoever tells a member its news beside its heartbeats says what it knows."""
        return self.ask(
            WatchMember(
                cause=self.cause(),
                request=self.request(),
                group_id=self.group_id,
                member_id=member_id,
                member_epoch=epoch,
                assigned=self.partitions(knows),
                is_look=is_look,
            )
        )

    def tell_news(self) -> None:
        """Answer those for whom there is news, as the broker does right after a decision."""
        while (found := self.shard.decide_news(self.now_ms)) is not None:
            self._commit(*found)

    def leave(self, member_id: str) -> Answer:
        """A KIP-848 member leaves for good."""
        return self.heartbeat(member_id, epoch=-1)

    def commit(
        self,
        offsets: Mapping[int | tuple[str, int], int],
        *,
        member_id: str = "",
        epoch: int = -1,
        metadata: str = "",
        **fields: Any,
    ) -> Answer:
        """Commit offset by partition of "t", or by (topic, partition)."""
        named = {(("t", key) if isinstance(key, int) else key): offset for key, offset in offsets.items()}
        fields.setdefault("group_id", self.group_id)
        topic_id = fields.pop("topic_id", ZERO_TOPIC_ID)
        return self.ask(
            commands.CommitOffsets(
                cause=self.cause(),
                request=self.request(),
                member_id=member_id,
                generation_or_member_epoch=epoch,
                offsets=tuple(
                    commands.OffsetToCommit(
                        topic=topic, topic_id=topic_id, partition=partition, offset=offset, metadata=metadata
                    )
                    for (topic, partition), offset in named.items()
                ),
                **fields,
            )
        )

    def commit_in_transaction(
        self,
        offsets: Mapping[int | tuple[str, int], int],
        *,
        producer: int = 7,
        producer_epoch: int = 0,
        member_id: str = "",
        epoch: int = -1,
        **fields: Any,
    ) -> Answer:
        """TxnOffsetCommit; without member id and epoch nobody is checked."""
        named = {(("t", key) if isinstance(key, int) else key): offset for key, offset in offsets.items()}
        fields.setdefault("group_id", self.group_id)
        return self.ask(
            commands.CommitTransactionOffsets(
                cause=self.cause(),
                request=self.request(),
                member_id=member_id,
                generation_or_member_epoch=epoch,
                offsets=tuple(
                    commands.OffsetToCommit(topic=topic, topic_id=ZERO_TOPIC_ID, partition=partition, offset=offset)
                    for (topic, partition), offset in named.items()
                ),
                producer_id=producer,
                producer_epoch=producer_epoch,
                **fields,
            )
        )

    def complete(self, producer: int = 7, *, is_commit: bool = True, producer_epoch: int = 0) -> Answer:
        """The transaction coordinator's word on a producer's transaction."""
        return self.ask(
            commands.CompleteTransaction(
                cause=self.cause(),
                request=self.request(),
                producer_id=producer,
                producer_epoch=producer_epoch,
                is_commit=is_commit,
            )
        )

    def committed(self, partitions: Sequence[int | tuple[str, int]] | None = None, **fields: Any) -> dict[Any, int]:
        """What is committed, by partition of "t", or by (topic, partition) of others."""
        reply = self.fetch_offsets(partitions, **fields).body_as(commands.FetchOffsetsReply)
        return {
            (found.partition if found.topic == "t" else (found.topic, found.partition)): found.offset
            for found in reply.offsets
        }

    def fetch_offsets(self, partitions: Sequence[int | tuple[str, int]] | None = None, **fields: Any) -> Answer:
        """OffsetFetch of some partitions, or of all."""
        named = None if partitions is None else tuple(("t", key) if isinstance(key, int) else key for key in partitions)
        fields.setdefault("group_id", self.group_id)
        return self.ask(commands.FetchOffsets(cause=self.cause(), request=self.request(), partitions=named, **fields))

    def delete_offsets(self, partitions: Sequence[int | tuple[str, int]], **fields: Any) -> Answer:
        """OffsetDelete."""
        named = tuple(("t", key) if isinstance(key, int) else key for key in partitions)
        fields.setdefault("group_id", self.group_id)
        return self.ask(DeleteOffsets(cause=self.cause(), request=self.request(), partitions=named, **fields))

    def expire_offsets(self, *group_ids: str) -> commands.ExpireOffsetsReply:
        """Housekeeping of some groups, of the dialogue's without any."""
        command = commands.ExpireOffsets(
            cause=self.cause(), request=self.request(), group_ids=group_ids or (self.group_id,)
        )
        reply: commands.ExpireOffsetsReply = self.ask(command).body_as(commands.ExpireOffsetsReply)
        return reply

    def delete_group(self, group_id: str | None = None) -> Answer:
        """DeleteGroups of one group."""
        return self.ask(DeleteGroup(cause=self.cause(), request=self.request(), group_id=group_id or self.group_id))

    def list_groups(self, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[tuple[str, str, str, str]]:
        """(group id, protocol type, state, type) of each group."""
        answer = self.ask(
            ListGroups(cause=self.cause(), request=self.request(), states=tuple(states), types=tuple(types))
        )
        groups = answer.body_as(ListGroupsReply).groups
        return [(group.group_id, group.protocol_type, group.state, group.group_type) for group in groups]

    def describe(self, group_id: str | None = None) -> Answer:
        """ConsumerGroupDescribe of one group."""
        return self.ask(
            DescribeConsumerGroup(cause=self.cause(), request=self.request(), group_id=group_id or self.group_id)
        )

    def describe_classic(self, group_id: str | None = None) -> Answer:
        """DescribeGroups of one group."""
        return self.ask(
            DescribeClassicGroup(cause=self.cause(), request=self.request(), group_id=group_id or self.group_id)
        )

    def alter_configs(self, changes: Mapping[str, str | None], **fields: Any) -> Answer:
        """Set configs of a group, or take them back."""
        fields.setdefault("group_id", self.group_id)
        return self.ask(AlterGroupConfigs(cause=self.cause(), request=self.request(), changes=dict(changes), **fields))

    def configs(self, group_id: str | None = None) -> dict[str, str]:
        """What was set for a group."""
        answer = self.ask(
            DescribeGroupConfigs(cause=self.cause(), request=self.request(), group_id=group_id or self.group_id)
        )
        configs: dict[str, str] = answer.body_as(DescribeGroupConfigsReply).configs
        return configs

    def disconnect(self, member_id: str, *, group_id: str | None = None) -> None:
        """The connection of a member is closed; nobody is answered."""
        command = MemberDisconnected(cause=self.cause(), group_id=group_id or self.group_id, member_id=member_id)
        self._commit(command, self.shard.handle(command, now_ms=self.now_ms))

    def computed(self, owner: Sequence[int] | None = None, *, error: str = "") -> None:
        """The assignor answers the oldest question: the owners' numbers by partition, or an error."""
        order = self.computations.pop(0)
        command = TargetComputed(
            cause=self.cause(),
            group_id=order.group_id,
            assignable=order.assignable,
            owner=None if owner is None else array("i", owner),
            error=error,
        )
        self._commit(command, self.shard.handle(command, now_ms=self.now_ms))

    def prepare(self, member_id: str, *, epoch: int, **fields: Any) -> Answer:
        """ConsumerGroupPrepareAssignment."""
        fields.setdefault("group_id", self.group_id)
        return self.ask(
            PrepareAssignment(
                cause=self.cause(), request=self.request(), member_id=member_id, member_epoch=epoch, **fields
            )
        )

    def install(
        self, member_id: str, owners: Sequence[int] = (), *, epoch: int, group_epoch: int, **fields: Any
    ) -> Answer:
        """ConsumerGroupInstallAssignment: the owners' numbers by partition."""
        fields.setdefault("group_id", self.group_id)
        return self.ask(
            InstallAssignment(
                cause=self.cause(),
                request=self.request(),
                member_id=member_id,
                member_epoch=epoch,
                group_epoch=group_epoch,
                owners=tuple(owners),
                **fields,
            )
        )

    # The world around the coordinator.

    def set_topics(self, topics: Mapping[str, int]) -> None:
        """The topics are now these; one that was away and is back has a new id."""
        self._change_topics(topics)
        self._tell_topics()

    def _change_topics(self, topics: Mapping[str, int]) -> None:
        for name in self._topics.keys() - topics.keys():
            self._generations[name] = self._generations.get(name, 0) + 1
        self._topics = dict(topics)

    @property
    def topic_counts(self) -> dict[str, int]:
        """The topics as they are: name -> number of partitions."""
        return dict(self._topics)

    def topic_id(self, name: str) -> TopicId:
        """The id that a topic has now."""
        return topic_id_of(name, generation=self._generations.get(name, 0))

    def advance(self, ms: int) -> None:
        """Let time pass; deadlines fire at their time."""
        until_ms = self.now_ms + ms
        while (deadline_ms := self.shard.next_deadline()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.fire_due()
        self.now_ms = until_ms

    def stand_still(self, ms: int) -> None:
        """The broker does nothing for so long, and gives the time back."""
        self.now_ms += ms
        self.shard.shift(ms)
        self.reporter.shift(ms)

    def fire_due(self) -> None:
        """Act on the deadlines that have passed."""
        while self.fire_one():
            pass

    def fire_one(self) -> bool:
        """Act on the earliest deadline that has passed; whether there was one that means something."""
        check_end_of_hold(self.shard, now_ms=self.now_ms)
        decision = self.shard.expire(self.now_ms)
        if decision is not None:
            assert decision.due is not None, "a deadline led to it"
            self._commit(decision.due, decision)
        return decision is not None

    def restart(self, *, topics_first: bool = False, topics: Mapping[str, int] | None = None) -> None:
        """The process dies and comes back: what was parked is gone, the log is read again.

        `topics`: what has become of them meanwhile.
        """
        if topics is not None:
            self._change_topics(topics)
        self.shard = self.fold()
        self.reporter = Reporter(self.settings)
        self.computations.clear()
        self._is_loaded = False
        if topics_first:
            self._tell_topics()
        self.shard.on_loaded(self.now_ms)
        self._is_loaded = True
        if not topics_first:
            self._tell_topics()
        self.new_ownership()
        self._told_owners.load(self.shard.groups)

    def fold(self, log: Iterable[tuple[bytes, bytes | None]] | None = None) -> Shard:
        """A shard that has read the log, and was told nothing else."""
        shard = Shard(self.settings)
        if log is None and self.has_transactions:
            for batch in self.batches:
                for written in read_log_batch(batch):
                    shard.apply(written)
            return shard
        for key, value in self.log if log is None else log:
            record = codec.decode(key, value)
            assert record is not None
            shard.apply(record)
        return shard

    def compacted(self) -> list[tuple[bytes, bytes | None]]:
        """The log with only the latest record of each key."""
        last = {key: position for position, (key, _) in enumerate(self.log)}
        return [entry for position, entry in enumerate(self.log) if last[entry[0]] == position]

    # What a test looks at.

    def new_records(self) -> list[Record]:
        """Records since this was asked last, volatile ones included."""
        seen, self._seen = self._seen, []
        return seen

    def take_effects(self) -> list[FencePartitions | OpenPartitions]:
        """What leaders were told since this was asked last."""
        taken, self._ownership = self._ownership, []
        return taken

    def new_ownership(self) -> list[tuple[str, str, list[int]]]:
        """`take_effects` in short: "fence" or "open", member, partitions of "t"."""
        return [
            (
                "fence" if isinstance(each, FencePartitions) else "open",
                each.member_id,
                [partition for topic_id, partition in each.places if topic_id == self.topic_id("t")],
            )
            for each in self.take_effects()
        ]

    @property
    def group(self) -> ConsumerGroup:
        """The KIP-848 group of the dialogue."""
        return self.shard.groups.consumer[self.group_id]

    def member(self, member_id: str) -> ConsumerMember:
        """A member of it."""
        return self.group.members[member_id]

    def holders(self) -> dict[str, set[tuple[str, int]]]:
        """member id -> (topic, partition) that it may use."""
        names = {self.topic_id(name): name for name in self._topics}
        return {
            member.member_id: {
                (names.get(topic_id, "?"), partition)
                for topic_id, grants in member.assigned.items()
                for partition in grants
            }
            for member in self.group.members.values()
        }

    def stable(self, **members: Owned) -> None:
        """Bring members into the group and let everybody heartbeat until each has its target, which has to be that."""
        for member_id, owned in members.items():
            if self.group_id not in self.shard.groups.consumer or member_id not in self.group.members:
                self.heartbeat(member_id, epoch=0, topics=self._topics_of(owned))
        self.settle()
        expected = {member_id: self.named(self.partitions(owned)) for member_id, owned in members.items()}
        got = {
            m.member_id: self.named({t: tuple(sorted(g)) for t, g in m.assigned.items()})
            for m in self.group.members.values()
        }
        assert got == expected
        self.new_records()

    def settle(self) -> None:
        """Every member heartbeats as a good client does, until nothing changes."""
        for _ in range(20):
            before = self.shard.state_digest()
            self.fire_due()
            for member in list(self.group.members.values()):
                self.report(member)
            if self.shard.state_digest() == before:
                return
        raise AssertionError("the group does not come to rest")

    def report(self, member: ConsumerMember) -> Answer:
        """A member's heartbeat in which it says that it owns what it has been given, and nothing more."""
        owned = {topic_id: tuple(sorted(grants)) for topic_id, grants in member.assigned.items()}
        return self.ask(
            ConsumerGroupHeartbeat(
                cause=self.cause(),
                request=self.request(),
                group_id=self.group_id,
                member_id=member.member_id,
                member_epoch=member.member_epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                topic_partitions=owned,
            )
        )

    def hear_fetch(self, member_id: str, *, epoch: int = -1, is_over: bool = False) -> None:
        """A fetch that names its member has come, or has waited until now, as the broker's runtime takes it."""
        found = self.shard.renew_by_fetch(self.group_id, member_id, epoch=epoch, now_ms=self.now_ms)
        if found.is_gone and not is_over:
            command = commands.MemberFetched(cause=self.cause(), group_id=self.group_id, member_id=member_id)
            self._commit(command, self.shard.handle(command, now_ms=self.now_ms))

    def fetch(self, member_id: str, owned: Owned) -> None:
        """A fetch of a member's client comes, which says whose it is and names partitions."""
        named = owned if isinstance(owned, Mapping) else {"t": owned}
        self.reporter.reads.note((self.group_id, member_id), self.now_ms)
        self._begin_to_read(member_id, [(topic, number) for topic, numbers in named.items() for number in numbers])

    def _begin_to_read(self, member_id: str, named: Sequence[tuple[str, int]]) -> None:
        self.reporter.on_fetch(
            self.journal, [(self.group_id, member_id)], named, now_ms=self.now_ms, next_cause=self.cause
        )

    def partitions(self, owned: Owned) -> dict[TopicId, tuple[int, ...]]:
        """By topic id; a bare list is of topic "t"."""
        named = owned if isinstance(owned, Mapping) else {"t": owned}
        found = {self.topic_id(name): tuple(sorted(partitions)) for name, partitions in named.items()}
        return {topic_id: partitions for topic_id, partitions in found.items() if partitions}

    def named(self, partitions: Mapping[TopicId, tuple[int, ...]] | None) -> dict[str, tuple[int, ...]] | None:
        """By topic name, to be read in a failed test."""
        if partitions is None:
            return None
        names = {self.topic_id(name): name for name in (*self._topics, *self._generations)}
        return {names.get(topic_id, topic_id.hex()): found for topic_id, found in sorted(partitions.items())}

    def _topics_of(self, owned: Owned) -> list[str]:
        return sorted(owned) if isinstance(owned, Mapping) else ["t"]

    def pattern_sent(self, regex: str, sight: commands.Sight) -> None:
        """The broker says what the sender of an accepted heartbeat may see."""
        command = commands.PatternSent(cause=self.cause(), group_id=self.group_id, regex=regex, sight=sight)
        self._commit(command, self.shard.handle(command, now_ms=self.now_ms))

    def rights_changed(self) -> None:
        """What members may see of the topics may be different now."""
        self._tell_topics()

    def _tell_topics(self) -> None:
        version = self.shard.groups.image.version + 1
        facts = [
            TopicFacts(name=name, topic_id=self.topic_id(name), partition_count=count)
            for name, count in self._topics.items()
        ]
        command = TopicsChanged(
            cause=self.cause(), image=TopicImage.of(facts, version=version), hides_unseen=self.hides_topics
        )
        self._commit(command, self.shard.handle(command, now_ms=self.now_ms))

    def _commit(self, stimulus: Stimulus, decision: Decision) -> None:
        self._steps += 1
        is_looked_at = self._steps % self._check_every == 0
        before = epochs_of(self.shard.groups) if is_looked_at else {}
        check_renewal(self.shard, stimulus, decision, now_ms=self.now_ms)
        check_untouched(self.shard.groups, decision)
        check_kept(self.shard.groups, decision)
        durable = [record for record in decision.records if not isinstance(record, VolatileRecord)]
        batch = build_log_batch(decision.records, now_ms=self.now_ms)
        if batch is not None:
            self.batches.append(batch)
        if any(isinstance(record, TransactionalOffsetCommitted) for record in durable):
            self.has_transactions = True
        if not self.has_transactions:
            self.log.extend(codec.encode(record) for record in durable)
        self._seen.extend(decision.records)
        self.told += self.reporter.report(
            self.journal,
            self.shard.groups,
            stimulus,
            decision,
            timers=self.shard.timers,
            now_ms=self.now_ms,
            next_cause=self.cause,
        )
        replies = self.shard.commit(decision, now_ms=self.now_ms)
        self._tell_leaders()
        if self.checks_ownership and self._is_loaded:
            self._told_owners.after_step(self.shard.groups, decision)
        for reply in replies:
            self._deliver(reply)
        if self.reads_at_once:
            for (_, member_id), awaited in list(self.reporter.reads.awaited.items()):
                self._begin_to_read(member_id, list(awaited))
        errands = self.shard.take_errands()
        self.computations += [errand for errand in errands if isinstance(errand, ComputeTarget)]
        if is_looked_at:
            self._check_state(before)
            if durable or self._check_every > 1:
                self._mirror.check()
        for errand in errands:
            if isinstance(errand, MeasureLogs):
                self._measure(errand)

    def _tell_leaders(self) -> None:
        """What leaders are told; they are told it before anything is answered."""
        self._ownership += self.shard.take_ownership()

    def _check_state(self, before: Mapping[str, tuple[int, Mapping[str, int]]]) -> None:
        check_groups(self.shard.groups)
        if self._is_loaded:
            check_assignment_is_due(self.shard.groups, self.shard.timers, self.shard.groups.consumer)
        check_step(before, self.shard.groups)

    def check_log(self) -> None:
        """What the log gives is the living state."""
        assert self.fold().state_digest() == self.shard.state_digest(), "the log does not give the living state"

    def _measure(self, errand: MeasureLogs) -> None:
        self.measured.append(errand.places)
        extents = {place: self.extents[place] for place in errand.places if place in self.extents}
        command = LogsMeasured(cause=self.cause(), group_id=errand.group_id, extents=extents)
        self._commit(command, self.shard.handle(command, now_ms=self.now_ms))

    def _deliver(self, reply: Reply) -> None:
        answer = self._answers.get(reply.request)
        assert answer is not None, f"nobody asked {reply}"
        assert answer.body is None, f"answered twice: {answer.body} and {reply.body}"
        answer.body = reply.body


class Mirror:
    """A shard that follows the log of a dialogue: what the log gives at each step, and each record is read once."""

    def __init__(self, dialogue: GroupDialogue) -> None:
        self._dialogue = dialogue
        self._begin()

    def _begin(self) -> None:
        self._settings, self._log = self._dialogue.settings, self._dialogue.log
        self._shard = Shard(self._settings)
        #: So much of both forms of the log is in it.
        self._records = self._batches = 0

    def check(self) -> None:
        """What the log gives is the living state."""
        dialogue = self._dialogue
        if self._log is not dialogue.log or self._settings is not dialogue.settings or len(self._log) < self._records:
            self._begin()
        if dialogue.has_transactions:
            for batch in dialogue.batches[self._batches :]:
                for written in read_log_batch(batch):
                    self._shard.apply(written)
        else:
            for key, value in self._log[self._records :]:
                record = codec.decode(key, value)
                assert record is not None
                self._shard.apply(record)
        self._records, self._batches = len(self._log), len(dialogue.batches)
        found, expected = self._shard.state_digest(), dialogue.shard.state_digest()
        assert found == expected, "the log does not give the living state"


#: A test that needs its own settings makes its dialogue itself.
DialogueFactory = Callable[..., GroupDialogue]
