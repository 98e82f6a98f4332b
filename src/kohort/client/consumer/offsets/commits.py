"""The commits of a group's offsets, by call and automatic.

Laws: one request is in flight at a time. An earlier commit of a partition never overwrites a later one. A partition
that cannot be committed now waits without delaying the others. An offset belongs to the topic id under which its
records were read.
Source: Kafka's OffsetCommit API; KIP-848, offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from functools import partial
from itertools import takewhile
from operator import attrgetter
from typing import Final, Protocol

from kohort.base.values import value
from kohort.client.consumer.offsets.queries import UNKNOWN_TOPIC_GRACE_MS
from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.coordinator_lookup import MOVED, CoordinatorLookup
from kohort.client.core.refusals import Absence, refused
from kohort.client.core.requests import Answer, Requests, message_of
from kohort.client.records import Committable, with_metadata
from kohort.errors import ErrorCode, FencedError, KohortError, KohortTimeoutError, PartlyDoneError, UnknownTopicError
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition
from kohort.wire.messages.consumer_group_heartbeat import TopicPartitions
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

#: Last version by topic name; later ones go by topic id.
LAST_BY_NAME: Final = 9
#: The coordinator does not know the member, or not with this epoch.
NO_MEMBER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
#: Errors of the whole group, which a response repeats at each partition.
_OF_THE_WHOLE: Final = NO_MEMBER | {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID}
#: The coordinator knows no such topic: it was deleted, or the coordinator's metadata is older than the client's.
UNKNOWN_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

_DEADLINE_OF: Final = attrgetter("deadline_ms")
_NONE: Final[frozenset[int]] = frozenset()
#: Asynchronous commits whose deadlines are so close may go out as one.
_JOIN_WITHIN_MS: Final = 1_000

Offsets = Mapping[TopicPartition, Committable]
#: The error of each partition that was not committed.
Failed = Mapping[TopicPartition, KohortError]
#: Called with the result of a commit; without failures it has succeeded.
CommitThen = Callable[[Failed, int], None]


class Committer(Protocol):
    """The identity with which offsets are committed: that of a member, or none."""

    def identity(self) -> tuple[str, int] | None:
        """Return member id and epoch (classic: generation); `None`: the member is not in its group at present.

        `("", -1)` commits without a membership.
        """
        ...

    def absence(self) -> Absence:
        """Return why there is no identity."""
        ...

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether the member still owns the partition."""
        ...

    def is_rejoining(self) -> bool:
        """Return whether a join is under way that ends the present generation (classic)."""
        ...

    def on_refused(self, code: ErrorCode, epoch: int, now_ms: int) -> None:
        """Note that a commit with this epoch was refused because the coordinator does not know its member."""
        ...

    def topic_id_of(self, partition: TopicPartition) -> TopicId | None:
        """Return the topic id under which the partition is read; zero: brokers have none, `None`: unknown."""
        ...


@value(frozen=False, eq=False)
class _Entry:
    """An offset to be committed."""

    offset: Committable
    #: The id of the topic that was read, as `Committer.topic_id_of` returns it.
    topic_id: TopicId | None
    #: Number of the commit: later ones have higher numbers.
    number: int
    #: Epoch with which it was tried last; `None` before the first time.
    epoch: int | None = None
    #: The error of the last attempt, if that has to be repeated.
    refusal: ErrorCode | None = None
    #: When its topic was first refused as unknown, and the first generation of metadata that was asked for since then.
    unknown_since_ms: int | None = None
    generation: int = 0
    due_ms: int = 0
    attempts: int = 0


@value
class _Waiting:
    """A call that waits until some partitions of a commit are committed or have failed."""

    partitions: Collection[TopicPartition]
    then: CommitThen


@value(frozen=False, eq=False)
class _Commit:
    #: Partitions that have not ended.
    open: dict[TopicPartition, _Entry]
    #: Calls in the order in which they came.
    waiting: list[_Waiting]
    deadline_ms: int
    #: The commit ends after all earlier commits of these partitions that no call waits for.
    behind: frozenset[TopicPartition] = frozenset()
    #: The partitions `behind`, for a coordinator that lets go of them with the last commit; `None`: it does not.
    released: list[TopicPartitions] | None = None
    #: Whether a request has said so; and whether none of the coordinator's answers shows that it did not arrive.
    is_said: bool = False
    is_in_doubt: bool = False
    is_asynchronous: bool = False
    is_automatic: bool = False
    #: Asked for without a callback: a failure is a line in the log.
    is_logged: bool = False
    #: No call waits for it any more: partitions under way are not tried again.
    is_over: bool = False
    #: The errors of the partitions that have ended without being committed.
    failed: dict[TopicPartition, KohortError] = field(default_factory=dict)

    def goes_before_revocation(self, partitions: Collection[TopicPartition]) -> bool:
        """Return whether a revocation of these partitions has to wait for this commit, for which no call waits.

        It does not wait for an automatic commit that was refused, perhaps for an epoch that ends with the revocation.
        """
        mine = [entry for each, entry in self.open.items() if each in partitions]
        if self.is_asynchronous:
            return bool(mine)
        return self.is_automatic and any(entry.refusal is None for entry in mine)


@value
class _Sent:
    """The OffsetCommit request that is in flight."""

    commit: _Commit
    entries: Mapping[TopicPartition, _Entry]
    endpoint: Endpoint
    epoch: int
    #: topic id -> name, of the topics in it.
    names: Mapping[bytes, str]
    #: `ReceivedUpdates.era` then, and the time.
    era: int
    sent_ms: int


class Commits:
    """The commits of one group."""

    def __init__(
        self,
        requests: Requests,
        lookup: CoordinatorLookup,
        cluster: Cluster,
        committer: Committer,
        *,
        group_id: str,
        instance_id: str | None,
        auto_interval_ms: int | None,
    ) -> None:
        self._requests = requests
        self._lookup = lookup
        self._cluster = cluster
        self._committer = committer
        self._group_id = group_id
        self._instance_id = instance_id
        #: Pause between automatic commits; `None` switches them off.
        self._auto_interval_ms = auto_interval_ms
        #: partition -> offset below which the application has returned, if that is not committed yet; and the topic id.
        self._consumed: dict[TopicPartition, tuple[Committable, TopicId | None]] = {}
        self._auto_due_ms: int | None = None
        #: Partitions of open automatic commits. One at a time: two that fail and are repeated must not change places.
        self._auto_open: set[TopicPartition] = set()
        #: partition -> number, offset and topic id of the last commit that contained it, unless it has failed.
        self._newest: dict[TopicPartition, tuple[int, int, TopicId | None]] = {}
        self._count = 0
        self._queue: deque[_Commit] = deque()
        #: The request under way; `None`: there is none.
        self._sent: _Sent | None = None
        #: No request is sent before this time.
        self._due_ms = 0
        self._attempts = 0
        #: Whether an open partition may be of a topic that the coordinator does not know.
        self._are_unknown = False
        #: Generation of the cluster's metadata with which the offsets were compared last.
        self._looked_at = 0
        #: topic -> id that was last reported as gone.
        self._told_gone: dict[str, TopicId | None] = {}
        #: Wake this part of the machine, and the one that follows the topics of `topics`.
        self.wake_follow: Callable[[], None] = lambda: None
        self.wake: Callable[[], None] = lambda: None

    # -- consumed offsets -------------------------------------------------------------------------------------------

    def on_consumed(self, consumed: Offsets, now_ms: int) -> None:
        """Note the offsets below which the application has processed all records, for the automatic commit."""
        if self._auto_interval_ms is None:
            return
        for each, offset in consumed.items():
            topic_id = self._committer.topic_id_of(each)
            # An automatic commit contains nothing that is committed already, or being committed.
            if self._is_asked(each, offset, topic_id):
                self._consumed.pop(each, None)
            else:
                self._consumed[each] = offset, topic_id
        self._arm(now_ms)

    def _is_asked(self, partition: TopicPartition, offset: Committable, topic_id: TopicId | None) -> bool:
        newest = self._newest.get(partition)
        return newest is not None and newest[1:] == (with_metadata(offset).offset, topic_id)

    def _arm(self, now_ms: int) -> None:
        if self._consumed and self._auto_due_ms is None and self._auto_interval_ms is not None:
            self._auto_due_ms = now_ms + self._auto_interval_ms
            self.wake()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop the automatic commit of these partitions, which other members own."""
        for partition in partitions:
            self._consumed.pop(partition, None)
            self._newest.pop(partition, None)

    # -- committing -------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets, then: CommitThen, *, deadline_ms: int) -> None:
        """Commit these offsets, each partition after its earlier commits."""
        entries: dict[TopicPartition, tuple[Committable, TopicId | None]] = {}
        for each, offset in offsets.items():
            entries[each] = offset, self._committer.topic_id_of(each)
        self._enqueue(entries, then, deadline_ms=deadline_ms)

    def _enqueue(
        self,
        offsets: Mapping[TopicPartition, tuple[Committable, TopicId | None]],
        then: CommitThen,
        *,
        deadline_ms: int,
    ) -> _Commit:
        commit = _Commit(
            open=self._number(offsets),
            waiting=[_Waiting(partitions=offsets.keys(), then=then)],
            deadline_ms=deadline_ms,
        )
        self._queue.append(commit)
        return commit

    def commit_asynchronously(self, offsets: Offsets, then: CommitThen | None, *, deadline_ms: int) -> None:
        """Commit these offsets without a waiting call; asynchronous commits that were not sent yet are combined.

        If `then` is `None`, a failure is logged.
        """
        entries = self._number({each: (offset, self._committer.topic_id_of(each)) for each, offset in offsets.items()})
        # Waiting asynchronous commits go out together, with the latest offset of each partition.
        last = self._queue[-1] if self._queue else None
        if last is None or not self._can_join(last, entries) or deadline_ms > last.deadline_ms + _JOIN_WITHIN_MS:
            last = _Commit(open={}, waiting=[], deadline_ms=deadline_ms, is_asynchronous=True)
            self._queue.append(last)
        last.open.update(entries)
        if then is None:
            last.is_logged = True
        else:
            last.waiting.append(_Waiting(partitions=offsets.keys(), then=then))

    @staticmethod
    def _can_join(last: _Commit, entries: Mapping[TopicPartition, _Entry]) -> bool:
        if not last.is_asynchronous or last.failed or any(entry.epoch is not None for entry in last.open.values()):
            return False
        # An offset of a topic that is gone is reported by itself.
        return all(each not in last.open or last.open[each].topic_id == new.topic_id for each, new in entries.items())

    def _number(
        self, offsets: Mapping[TopicPartition, tuple[Committable, TopicId | None]]
    ) -> dict[TopicPartition, _Entry]:
        self._count += 1
        self.wake()
        entries: dict[TopicPartition, _Entry] = {}
        for each, (offset, topic_id) in offsets.items():
            self._newest[each] = self._count, with_metadata(offset).offset, topic_id
            entries[each] = _Entry(offset=offset, topic_id=topic_id, number=self._count)
        return entries

    def commit_consumed(
        self,
        partitions: Iterable[TopicPartition],
        then: Callable[[int], None],
        *,
        deadline_ms: int,
        now_ms: int,
        released: list[TopicPartitions] | None = None,
    ) -> None:
        """Commit the consumed offsets of partitions, e.g. before they are revoked.

        `released`: these partitions, which the request releases if it is the last one about them.
        """
        given_up = frozenset(partitions)
        offsets = {each: self._consumed.pop(each) for each in sorted(given_up) if each in self._consumed}
        if not offsets and not any(commit.goes_before_revocation(given_up) for commit in self._queue):
            then(now_ms)
            return

        def ended(failed: Failed, now_ms: int) -> None:
            self._warn_of(failed, "what was consumed before a hand-over could not be committed")
            then(now_ms)

        # Without offsets it only holds a place in the queue: earlier commits, by call or automatic, go out before the
        # partitions are given up.
        commit = self._enqueue(offsets, ended, deadline_ms=deadline_ms)
        commit.behind, commit.released = given_up, released

    def _commit_automatically(self, now_ms: int) -> None:
        assert self._auto_interval_ms is not None
        self._auto_due_ms = None
        offsets = {each: self._consumed.pop(each) for each in list(self._consumed) if each not in self._auto_open}
        self._arm(now_ms)
        if not offsets:
            return
        number = self._count + 1
        self._auto_open |= offsets.keys()

        def ended(failed: Failed, now_ms: int) -> None:
            self._auto_open -= offsets.keys()
            self._make_up_for({each: offsets[each] for each, why in failed.items() if why.retriable}, number, now_ms)
            self._warn_of(failed, f"automatic commit of group {self._group_id} failed")

        self._enqueue(offsets, ended, deadline_ms=now_ms + self._requests.request_timeout_ms).is_automatic = True

    def _make_up_for(
        self, offsets: Mapping[TopicPartition, tuple[Committable, TopicId | None]], number: int, now_ms: int
    ) -> None:
        """Repeat a failed automatic commit next time, except for partitions lost or committed again meanwhile."""
        for each, consumed in offsets.items():
            newest = self._newest.get(each)
            # A later commit of the partition has a later offset, which must not be overwritten.
            if (newest is None or newest[0] == number) and self._committer.holds(each):
                self._consumed.setdefault(each, consumed)
        self._arm(now_ms)

    def _warn_of(self, failed: Failed, what: str) -> None:
        # A topic that is gone was reported by a line of its own.
        told = {each: error for each, error in failed.items() if not isinstance(error, UnknownTopicError)}
        error = build_error(self._group_id, dict.fromkeys(told, 0), told)
        if error is not None:
            self._requests.warn(f"{what}: {error}")

    # -- time -------------------------------------------------------------------------------------------------------

    def topics(self) -> set[str]:
        """Return the topics that the coordinator does not know, for which newer metadata is needed."""
        if not self._are_unknown:
            return set()
        found = {
            each.topic
            for commit in self._queue
            for each, entry in commit.open.items()
            if entry.unknown_since_ms is not None
        }
        self._are_unknown = bool(found)
        return found

    def next_deadline(self) -> int | None:
        """Return when the next commit or a deadline is due."""
        found = self._auto_due_ms
        for commit in self._queue:
            if not commit.is_over and (found is None or commit.deadline_ms < found):
                found = commit.deadline_ms
        if self._queue and self._lookup.endpoint is not None and self._sent is None:
            for _, entries in self._sendable():
                for entry in entries.values():
                    due_ms = max(entry.due_ms, self._due_ms)
                    found = due_ms if found is None else min(found, due_ms)
        return found

    def work(self, now_ms: int) -> None:
        """Send the commits that are due, and end those past their deadline."""
        if self._auto_due_ms is not None and now_ms >= self._auto_due_ms:
            self._commit_automatically(now_ms)
        if self._are_unknown:
            self.wake_follow()
        if not self._queue:
            return
        if any(map(now_ms.__ge__, map(_DEADLINE_OF, self._queue))):
            self._drop_late(now_ms)
        if self._queue and (self._sent is None or self._looked_at != self._cluster.generation):
            self._drop_gone(now_ms)
        while self._sent is None and now_ms >= self._due_ms:
            due = self._find_due(now_ms)
            endpoint = None if due is None else self._lookup.endpoint or self._lookup.need(now_ms)
            if due is None or endpoint is None:
                return
            self._send(*due, endpoint, now_ms)

    def fail_all(self, error: KohortError, now_ms: int) -> None:
        """End every commit with that error; the response to a request in flight has no effect."""
        for commit in list(self._queue):
            self._give_up(commit, error, now_ms)

    def _drop_late(self, now_ms: int) -> None:
        for commit in list(self._queue):
            if now_ms < commit.deadline_ms or commit.is_over:
                continue
            refusals = [(each, entry.refusal) for each, entry in commit.open.items() if entry.refusal is not None]
            last = f"; the last attempt: {refusals[0][0]}: {refusals[0][1].name}" if refusals else ""
            is_sent = bool(self._under_way(commit))
            what = "the commit of group {} was not answered" if is_sent else "offsets of group {} were not committed"
            self._give_up(commit, KohortTimeoutError(f"{what.format(self._group_id)} in time{last}"), now_ms)

    def _give_up(self, commit: _Commit, error: KohortError, now_ms: int) -> None:
        """End a commit with that error; later commits of its partitions wait for a response still outstanding."""
        under_way = self._under_way(commit)
        for each, entry in commit.open.items():
            commit.failed[each] = error
            self._unnumber(each, entry)
        kept = {each: entry for each, entry in commit.open.items() if each in under_way}
        # Partitions under way stay, so that later commits of them wait for the answer.
        commit.is_over, commit.open, commit.behind = True, kept, frozenset()
        self._tell(list(commit.waiting), commit, now_ms)
        self._settle(commit, now_ms)

    # -- topics that are gone ---------------------------------------------------------------------------------------

    def _drop_gone(self, now_ms: int) -> None:
        """End the commits of offsets of deleted topics, unless they are in flight."""
        self._looked_at = self._cluster.generation
        for commit, entries in self._sendable():
            has_ended = False
            for each, entry in entries.items():
                # By its id before each attempt: the name may belong to another topic by now.
                topic = self._cluster.topics.get(each.topic)
                if entry.unknown_since_ms is None and (topic is None or topic.topic_id == entry.topic_id):
                    continue
                if entry.topic_id is None:
                    entry.topic_id = self._cluster.known_id(each.topic)
                if (error := self._find_missing(each, entry, now_ms)) is not None:
                    self._tell_gone(each.topic, entry.topic_id, error)
                    self._end(commit, each, error)
                    has_ended = True
            if has_ended:
                self._settle(commit, now_ms)

    def _find_missing(self, partition: TopicPartition, entry: _Entry, now_ms: int) -> UnknownTopicError | None:
        """Return the error of an offset of a missing topic or partition; `None`: it may be sent."""
        topic = self._cluster.topics.get(partition.topic)
        if topic is None:
            return None
        if ZERO_TOPIC_ID not in (topic.topic_id, entry.topic_id or ZERO_TOPIC_ID) and topic.topic_id != entry.topic_id:
            return UnknownTopicError(partition.topic, was_deleted=True)
        if entry.unknown_since_ms is None or self._cluster.generation < entry.generation:
            return None
        # Coordinator and metadata agree that there is no such topic. One without a known id may be about to appear.
        if entry.topic_id is None and now_ms < entry.unknown_since_ms + UNKNOWN_TOPIC_GRACE_MS:
            return None
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return UnknownTopicError(partition.topic, was_deleted=entry.topic_id is not None)
        if topic.error is ErrorCode.NONE and partition.partition not in topic.partitions:
            return UnknownTopicError(partition.topic, partition.partition, len(topic.partitions))
        return None

    def _tell_gone(self, topic: str, topic_id: TopicId | None, error: UnknownTopicError) -> None:
        if topic_id is None or self._told_gone.get(topic) == topic_id:
            return
        self._told_gone[topic] = topic_id
        self._requests.warn(f"offsets of group {self._group_id} are dropped: {error}")

    # -- commits on the wire ----------------------------------------------------------------------------------------

    def _sendable(self) -> list[tuple[_Commit, dict[TopicPartition, _Entry]]]:
        """Return each commit with the partitions that may be sent: not under way, nor behind an earlier commit."""
        found = []
        taken: set[TopicPartition] = set()
        for commit in self._queue:
            is_sent = self._sent is not None and self._sent.commit is commit
            sent = self._under_way(commit) if is_sent else ()
            if commit.open and not (sent or taken):
                found.append((commit, dict(commit.open)))
            elif len(sent) < len(commit.open):
                rest = {each: entry for each, entry in commit.open.items() if each not in taken and each not in sent}
                found.append((commit, rest))
            # No commit is behind the last one, so its partitions need not be remembered.
            if commit is not self._queue[-1]:
                taken |= commit.open.keys()
        return found

    def _under_way(self, commit: _Commit) -> Collection[TopicPartition]:
        return self._sent.entries.keys() if self._sent is not None and self._sent.commit is commit else ()

    def _find_due(self, now_ms: int) -> tuple[_Commit, dict[TopicPartition, _Entry]] | None:
        for commit, entries in self._sendable():
            due, by_id = {}, {}
            for each, entry in entries.items():
                if entry.due_ms <= now_ms:
                    due[each] = entry
                    if entry.topic_id not in (None, ZERO_TOPIC_ID):
                        by_id[each] = entry
            if due:
                # A request goes by ids or by names. Partitions without an id go with the next one.
                return commit, by_id or due
        return None

    def _send(self, commit: _Commit, entries: dict[TopicPartition, _Entry], endpoint: Endpoint, now_ms: int) -> None:
        identity = self._committer.identity()
        if identity is None:
            self._end_all(commit, entries, self._fenced(ErrorCode.UNKNOWN_MEMBER_ID), now_ms)
            return
        member_id, epoch = identity
        # A retry leaves out partitions that were given up meanwhile, since other members may own them.
        given_up: list[TopicPartition] = []
        for each, entry in entries.items():
            # The next owner may have committed behind a commit that released the partition and was not answered.
            if entry.epoch not in (None, epoch) and (commit.is_in_doubt or not self._committer.holds(each)):
                given_up.append(each)
        if given_up:
            self._end_all(commit, given_up, self._fenced(ErrorCode.STALE_MEMBER_EPOCH), now_ms)
            return
        topics: dict[tuple[str, TopicId], OffsetCommitRequestTopic] = {}
        names: dict[bytes, str] = {}
        updates = self._lookup.updates
        # A grant that does not cover all of the commit would have it refused. The last commit of revoked partitions is
        # one of them: the coordinator takes it by the member's epoch.
        grant = updates.grant
        if grant is not None and (grant.epoch != epoch or updates.is_lapsed):
            grant = None
        for each, entry in entries.items():
            entry.epoch = epoch
            offset, metadata, leader_epoch = with_metadata(entry.offset)
            row = OffsetCommitRequestPartition(
                partition_index=each.partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
            topic_id = entry.topic_id or ZERO_TOPIC_ID
            if grant is not None and each.partition not in grant.partitions.get(topic_id, _NONE):
                grant = None
            topic = topics.get((each.topic, topic_id))
            if topic is None:
                names[bytes(topic_id)] = each.topic
                topic = OffsetCommitRequestTopic(name=each.topic, topic_id=topic_id, partitions=[])
                topics[(each.topic, topic_id)] = topic
            topic.partitions.append(row)
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            # A commit without a member id has no name to be fenced by.
            group_instance_id=self._instance_id if member_id else None,
            topics=list(topics.values()),
            member=updates.say(),
            grant=None if grant is None else grant.token,
        )
        if commit.released is not None and self._is_last(commit, entries):
            request.released, commit.is_said = commit.released, True
        era = updates.era
        self._sent = _Sent(
            commit=commit, entries=entries, endpoint=endpoint, epoch=epoch, names=names, era=era, sent_ms=now_ms
        )
        most = LAST_BY_NAME if ZERO_TOPIC_ID in names else None
        then = partial(self._on_end, self._sent)
        self._requests.send(endpoint, Lane.COORDINATOR, request, then, max_version=most, wake=self.wake)

    def _on_end(self, sent: _Sent, answer: Answer, now_ms: int) -> None:
        self._sent = None
        if self._are_unknown:
            # The cluster's metadata may be followed for fewer topics from now on.
            self._requests.wake_all()
        response = message_of(answer, OffsetCommitResponse)
        sent.commit.is_in_doubt |= response is None and sent.commit.is_said
        self._on_answer(sent, response, now_ms)
        news = None if response is None else response.membership_update
        if news is not None:
            updates, era = self._lookup.updates, sent.era
            updates.hear(news, era=era, lane=Lane.COORDINATOR, sent_ms=sent.sent_ms, now_ms=now_ms)

    def _is_last(self, commit: _Commit, entries: Mapping[TopicPartition, _Entry]) -> bool:
        """Return whether a request with these entries is the last one of the partitions that the commit gives up."""
        others = (each for each in self._queue if each is not commit)
        return len(entries) == len(commit.open) and all(commit.behind.isdisjoint(each.open) for each in others)

    def _on_answer(self, sent: _Sent, response: OffsetCommitResponse | None, now_ms: int) -> None:
        commit = sent.commit
        codes: dict[TopicPartition, ErrorCode] = {}
        for topic in () if response is None else response.topics:
            name = topic.name or sent.names.get(bytes(topic.topic_id), "")
            for row in topic.partitions:
                found = ErrorCode.of(row.error_code) if row.error_code else ErrorCode.NONE
                codes[TopicPartition(name, row.partition_index)] = found
        seen = set(codes.values())
        if response is None or not MOVED.isdisjoint(seen):
            self._lookup.lost(sent.endpoint, now_ms)
            self._due_ms = now_ms + max(1, self._requests.retry.delay_ms(self._attempts))
            self._attempts += 1
        else:
            self._attempts = 0
        if response is not None and seen <= {ErrorCode.NONE}:
            self._lookup.works()
        whole: dict[ErrorCode, KohortError] = {}
        for each, entry in sent.entries.items():
            code = codes.get(each)
            if commit.is_over:
                commit.open.pop(each, None)
            elif code is ErrorCode.NONE:
                del commit.open[each]
            elif code is None or code in MOVED:
                entry.refusal = code
            elif code in _OF_THE_WHOLE and not (code is ErrorCode.ILLEGAL_GENERATION and self._is_overtaken(entry)):
                error = self._fenced(code) if code in NO_MEMBER else self._refusal(each, code)
                self._end(commit, each, whole.setdefault(code, error))
            else:
                self._on_refusal(commit, each, entry, code, now_ms)
        self._settle(commit, now_ms)
        # Told last, since the member may act on it at once.
        for code in whole.keys() & NO_MEMBER:
            self._committer.on_refused(code, sent.epoch, now_ms)

    def _on_refusal(
        self, commit: _Commit, partition: TopicPartition, entry: _Entry, code: ErrorCode, now_ms: int
    ) -> None:
        """Let a refused partition wait for its next attempt, or end it."""
        passes = code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
        # The member got a newer epoch by the commit before, which released the partitions.
        is_made_up_for = commit.is_in_doubt and code is ErrorCode.STALE_MEMBER_EPOCH
        if is_made_up_for or not (passes or code.retriable):
            self._end(commit, partition, self._refusal(partition, code))
            return
        entry.refusal = code
        entry.due_ms = now_ms + max(1, self._requests.retry.delay_ms(entry.attempts))
        entry.attempts += 1
        if code in UNKNOWN_TOPIC:
            # Metadata that are newer than this answer tell whether the topic is gone.
            if entry.unknown_since_ms is None:
                entry.unknown_since_ms = now_ms
                entry.generation = self._cluster.next_generation
            self._are_unknown = True
            self._requests.wake_all()
            self._cluster.refresh_now(now_ms)

    def _refusal(self, partition: TopicPartition, code: ErrorCode) -> KohortError:
        is_group = code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        during = f"committing the offset of {partition} for group {self._group_id}"
        return refused(code, during=during, operation="read", name=self._group_id if is_group else partition.topic)

    def _is_overtaken(self, entry: _Entry) -> bool:
        """Return whether the group has a newer generation, or will have: the commit is tried again in that."""
        identity = self._committer.identity()
        return self._committer.is_rejoining() or (identity is not None and identity[1] != entry.epoch)

    def _fenced(self, code: ErrorCode) -> FencedError:
        identity = self._committer.identity()
        member_id, epoch, why = self._committer.absence() if identity is None else (*identity, None)
        during = "committing offsets"
        return FencedError(code, why, group=self._group_id, member=member_id, epoch=epoch, during=during)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _end_all(self, commit: _Commit, partitions: Iterable[TopicPartition], error: KohortError, now_ms: int) -> None:
        for each in list(partitions):
            self._end(commit, each, error)
        self._settle(commit, now_ms)

    def _end(self, commit: _Commit, partition: TopicPartition, error: KohortError) -> None:
        """End one partition of a commit that has failed."""
        entry = commit.open.pop(partition)
        commit.failed[partition] = error
        self._unnumber(partition, entry)

    def _unnumber(self, partition: TopicPartition, entry: _Entry) -> None:
        """Forget the number of a failed commit, so that the same offset is committed again."""
        if self._newest.get(partition, (0,))[0] == entry.number:
            del self._newest[partition]

    def _settle(self, commit: _Commit, now_ms: int) -> None:
        """Tell the calls that wait for no open partition, and remove empty commits."""
        ended: list[_Waiting] = []
        if commit.waiting and not commit.behind:
            is_open = commit.open.__contains__
            ended = [each for each in commit.waiting if not any(map(is_open, each.partitions))]
        if ended or commit.is_logged:
            self._tell(ended, commit, now_ms)
        # The commits behind it may have ended by that.
        for other in list(self._queue):
            if not other.open and other in self._queue and not (other.behind and self._is_behind(other)):
                self._queue.remove(other)
                if other.waiting or other.is_logged:
                    self._tell(list(other.waiting), other, now_ms)

    def _is_behind(self, commit: _Commit) -> bool:
        """Return whether a commit without open partitions waits for earlier ones."""
        earlier = takewhile(lambda each: each is not commit, self._queue)
        return any(each.goes_before_revocation(commit.behind) for each in earlier)

    def _tell(self, waiting: list[_Waiting], commit: _Commit, now_ms: int) -> None:
        if len(waiting) == len(commit.waiting):
            commit.waiting = []
        elif waiting:
            commit.waiting = [each for each in commit.waiting if each not in waiting]
        if commit.is_logged and (commit.is_over or not commit.open):
            commit.is_logged = False
            self._warn_of(commit.failed, f"asynchronous commit of group {self._group_id} failed")
        for each in waiting:
            each.then({mine: commit.failed[mine] for mine in each.partitions if mine in commit.failed}, now_ms)


def build_error(group_id: str, offsets: Offsets, failed: Failed) -> KohortError | None:
    """Build one error for a commit of these offsets; `None`: it succeeded.

    A commit that was refused as a whole gets that refusal. Otherwise the error names each partition with its end.
    """
    if not failed:
        return None
    errors = list(failed.values())
    if len(failed) == len(offsets) and all(error is errors[0] for error in errors):
        return errors[0]
    done = {each: with_metadata(offset) for each, offset in offsets.items() if each not in failed}
    return PartlyDoneError(f"committing offsets of group {group_id}", done, failed)
