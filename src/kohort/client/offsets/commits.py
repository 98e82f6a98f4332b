"""Committing the group's offsets, when asked and automatically.

Laws: one request is under way at a time, and of one partition a later commit is never overtaken by an earlier one; a
partition that cannot be committed now waits by itself, and holds up no other. An offset belongs to the topic id under
which its records were read: it is committed by that id, compared with the cluster's picture before each attempt, and
dropped when that topic is gone. Asynchronous commits that wait go out together, with the latest offset of each
partition, and partitions are given up behind them; automatic ones contain only what the application has returned from,
and nothing that is committed already; what is tried again leaves out partitions that were given up meanwhile, since
they may belong to others.
Source: Kafka's OffsetCommit API; KIP-848, offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, Protocol

from kohort.client.actions import Endpoint, Lane
from kohort.client.cluster import Cluster
from kohort.client.coordinator_lookup import MOVED, CoordinatorLookup
from kohort.client.offsets.queries import UNKNOWN_TOPIC_GRACE_MS
from kohort.client.records import Committable, with_metadata
from kohort.client.refusals import Absence, refused
from kohort.client.requests import Answer, Requests, message_of
from kohort.client.retry import Backoff
from kohort.errors import (
    ErrorCode,
    FencedError,
    KohortError,
    KohortTimeoutError,
    PartlyDoneError,
    UnknownTopicError,
)
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

#: The request goes by topic name up to this version, by id from the next one on.
LAST_BY_NAME: Final = 9
#: The member is not one, or not the one it takes itself for.
NO_MEMBER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
#: Said of the group as a whole, at each partition.
_OF_THE_WHOLE: Final = NO_MEMBER | {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.INVALID_GROUP_ID}
#: The coordinator knows no such topic: it is gone, or the coordinator's picture is older than ours.
UNKNOWN_TOPIC: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})

#: Asynchronous commits that were asked for within this time may go out as one.
_JOIN_WITHIN_MS: Final = 1_000

Offsets = Mapping[TopicPartition, Committable]
#: Why offsets were not committed, those that were not.
Failed = Mapping[TopicPartition, KohortError]
#: The end of a commit; without failures it is a good one.
CommitThen = Callable[[Failed, int], None]


class Committer(Protocol):
    """In whose name offsets are committed."""

    def identity(self) -> tuple[str, int] | None:
        """Member id and epoch (classic: generation); `("", -1)` for who wants to be no member, `None` for who is none
        at present but should be."""
        ...

    def absence(self) -> Absence:
        """Why there is no identity."""
        ...

    def holds(self, partition: TopicPartition) -> bool:
        """Whether offsets of that partition are still its to commit."""
        ...

    def is_rejoining(self) -> bool:
        """Whether a join is under way that ends the present generation (classic)."""
        ...

    def on_refused(self, code: ErrorCode, epoch: int, now_ms: int) -> None:
        """A commit with that epoch was refused, since the coordinator does not know its member (any more)."""
        ...

    def topic_id_of(self, partition: TopicPartition) -> TopicId | None:
        """The topic id under which the partition is read; zero where brokers have none, `None`: not known (yet)."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class _Entry:
    """An offset that is to be committed."""

    offset: Committable
    #: Of the topic whose records were read, as `Committer.topic_id_of`.
    topic_id: TopicId | None
    #: Of the commit: later ones have higher numbers.
    number: int
    #: Epoch with which it was tried last; `None` before the first time.
    epoch: int | None = None
    #: Why the last attempt has to be repeated.
    refusal: ErrorCode | None = None
    #: When its topic was first refused as unknown, and the first picture of the cluster that was asked for since then.
    unknown_since_ms: int | None = None
    generation: int = 0
    due_ms: int = 0
    attempts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A call that waits for some of the partitions."""

    partitions: Collection[TopicPartition]
    then: CommitThen


@dataclass(slots=True, kw_only=True, eq=False)
class _Commit:
    #: What has not ended.
    open: dict[TopicPartition, _Entry]
    #: In the order in which they asked.
    waiting: list[_Waiting]
    deadline_ms: int
    #: It ends behind the commits of these partitions that nothing else waits for.
    behind: frozenset[TopicPartition] = frozenset()
    is_asynchronous: bool = False
    is_automatic: bool = False
    #: It was asked for without a callback: a failure is a line in the log.
    is_logged: bool = False
    #: Nothing waits for it any more: what is under way is not tried again.
    is_over: bool = False
    #: Why what has ended was not committed.
    failed: dict[TopicPartition, KohortError] = field(default_factory=dict)

    def goes_before_revocation(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether these are given up behind it: nothing waits for it that would see that it has not ended.

        An automatic one that was refused may be of an epoch that ends with the revocation.
        """
        mine = [entry for each, entry in self.open.items() if each in partitions]
        if self.is_asynchronous:
            return bool(mine)
        return self.is_automatic and any(entry.refusal is None for entry in mine)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """The request that is under way."""

    commit: _Commit
    entries: Mapping[TopicPartition, _Entry]
    endpoint: Endpoint
    epoch: int
    #: topic id -> name, of the topics in it.
    names: Mapping[bytes, str]


class Commits:
    """Everything that is committed for one group.

    Args:
        cluster: shows which topics there are.
        instance_id: the name of a static member; `None` for a dynamic one.
        auto_interval_ms: pause between automatic commits; `None` switches them off.
    """

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
        retry: Backoff,
    ) -> None:
        self._requests = requests
        self._lookup = lookup
        self._cluster = cluster
        self._committer = committer
        self._group_id = group_id
        self._instance_id = instance_id
        self._auto_interval_ms = auto_interval_ms
        self._retry = retry
        #: partition -> offset below which the application has returned, where that is not committed yet; with its id.
        self._consumed: dict[TopicPartition, tuple[Committable, TopicId | None]] = {}
        self._auto_due_ms: int | None = None
        #: Partitions of automatic commits that have not ended: one at a time, since two that fail and are made up for
        #: must not change places.
        self._auto_open: set[TopicPartition] = set()
        #: partition -> number, offset and topic id of the last commit that contained it, unless it has failed.
        self._newest: dict[TopicPartition, tuple[int, int, TopicId | None]] = {}
        self._count = 0
        self._queue: deque[_Commit] = deque()
        #: What is under way.
        self._sent: _Sent | None = None
        #: The coordinator is left alone until then.
        self._due_ms = 0
        self._attempts = 0
        #: Some of what is open may be of topics that the coordinator does not know.
        self._are_unknown = False
        #: The picture of the cluster with which the offsets were compared last.
        self._looked_at = 0
        #: topic -> id of the last one that was told to be gone.
        self._told_gone: dict[str, TopicId | None] = {}

    # -- what the application has done ------------------------------------------------------------------------------

    def on_consumed(self, consumed: Offsets, now_ms: int) -> None:
        """The application has returned from everything below these offsets."""
        if self._auto_interval_ms is None:
            return
        for each, offset in consumed.items():
            topic_id = self._committer.topic_id_of(each)
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

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These belong to others: nothing more of them is committed automatically."""
        for partition in partitions:
            self._consumed.pop(partition, None)
            self._newest.pop(partition, None)

    # -- committing -------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets, then: CommitThen, *, deadline_ms: int) -> None:
        """Commit these offsets, each partition's after those that were asked for before."""
        entries = {each: (offset, self._committer.topic_id_of(each)) for each, offset in offsets.items()}
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
        """The same for an application that goes on meanwhile: what has not gone out yet may go out together.

        `then` `None` leaves a failure to the log.
        """
        entries = self._number({each: (offset, self._committer.topic_id_of(each)) for each, offset in offsets.items()})
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
        # The offset of a topic that is gone is told as such.
        return all(each not in last.open or last.open[each].topic_id == new.topic_id for each, new in entries.items())

    def _number(
        self, offsets: Mapping[TopicPartition, tuple[Committable, TopicId | None]]
    ) -> dict[TopicPartition, _Entry]:
        self._count += 1
        for each, (offset, topic_id) in offsets.items():
            self._newest[each] = self._count, with_metadata(offset).offset, topic_id
        number = self._count
        return {
            each: _Entry(offset=offset, topic_id=topic_id, number=number)
            for each, (offset, topic_id) in offsets.items()
        }

    def commit_consumed(
        self, partitions: Iterable[TopicPartition], then: Callable[[int], None], *, deadline_ms: int, now_ms: int
    ) -> None:
        """Commit automatically what was consumed of these partitions, e.g. before they are given up."""
        given_up = frozenset(partitions)
        offsets = {each: self._consumed.pop(each) for each in sorted(given_up) if each in self._consumed}
        if not offsets and not any(commit.goes_before_revocation(given_up) for commit in self._queue):
            then(now_ms)
            return

        def ended(failed: Failed, now_ms: int) -> None:
            self._warn_of(failed, "what was consumed before a hand-over could not be committed")
            then(now_ms)

        # Without offsets it is a place in the queue: what was asked for, by the application or by the time, goes before
        # what is given up.
        self._enqueue(offsets, ended, deadline_ms=deadline_ms).behind = given_up

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
        """Commit these again next time, but for what is not ours any more or was committed anew meanwhile."""
        for each, consumed in offsets.items():
            newest = self._newest.get(each)
            if (newest is None or newest[0] == number) and self._committer.holds(each):
                self._consumed.setdefault(each, consumed)
        self._arm(now_ms)

    def _warn_of(self, failed: Failed, what: str) -> None:
        # Of topics that are gone one line was written already.
        told = {each: error for each, error in failed.items() if not isinstance(error, UnknownTopicError)}
        error = build_error(self._group_id, dict.fromkeys(told, 0), told)
        if error is not None:
            self._requests.warn(f"{what}: {error}")

    # -- time -------------------------------------------------------------------------------------------------------

    def topics(self) -> set[str]:
        """The topics that the coordinator does not know, of which the cluster's picture is needed."""
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
        """When `on_tick` has something to do."""
        deadlines = [commit.deadline_ms for commit in self._queue if not commit.is_over]
        if self._auto_due_ms is not None:
            deadlines.append(self._auto_due_ms)
        if self._lookup.endpoint is not None and self._sent is None:
            due_ms = min((entry.due_ms for _, each in self._sendable() for entry in each.values()), default=None)
            if due_ms is not None:
                deadlines.append(max(due_ms, self._due_ms))
        return min(deadlines, default=None)

    def on_tick(self, now_ms: int) -> None:
        """Send what is due, give up what is late."""
        if self._auto_due_ms is not None and now_ms >= self._auto_due_ms:
            self._commit_automatically(now_ms)
        self._drop_late(now_ms)
        if self._queue and (self._sent is None or self._looked_at != self._cluster.generation):
            self._drop_gone(now_ms)
        while self._sent is None and now_ms >= self._due_ms:
            due = self._find_due(now_ms)
            endpoint = None if due is None else self._lookup.need(now_ms)
            if due is None or endpoint is None:
                return
            self._send(*due, endpoint, now_ms)

    def fail_all(self, error: KohortError, now_ms: int) -> None:
        """End everything with that error; the answer to what is under way matters no more."""
        for commit in list(self._queue):
            self._give_up(commit, error, now_ms)

    def _drop_late(self, now_ms: int) -> None:
        for commit in [each for each in self._queue if now_ms >= each.deadline_ms and not each.is_over]:
            refusals = [(each, entry.refusal) for each, entry in commit.open.items() if entry.refusal is not None]
            last = f"; the last attempt: {refusals[0][0]}: {refusals[0][1].name}" if refusals else ""
            is_sent = bool(self._under_way(commit))
            what = "the commit of group {} was not answered" if is_sent else "offsets of group {} were not committed"
            self._give_up(commit, KohortTimeoutError(f"{what.format(self._group_id)} in time{last}"), now_ms)

    def _give_up(self, commit: _Commit, error: KohortError, now_ms: int) -> None:
        """End it; what is under way may still be answered, and later commits of those partitions wait for that."""
        under_way = self._under_way(commit)
        for each, entry in commit.open.items():
            commit.failed[each] = error
            self._unnumber(each, entry)
        kept = {each: entry for each, entry in commit.open.items() if each in under_way}
        commit.is_over, commit.open, commit.behind = True, kept, frozenset()
        self._tell(list(commit.waiting), commit, now_ms)
        self._settle(commit, now_ms)

    # -- topics that are gone ---------------------------------------------------------------------------------------

    def _drop_gone(self, now_ms: int) -> None:
        """End what is of topics that there are no more, as far as it is not under way."""
        self._looked_at = self._cluster.generation
        for commit, entries in list(self._sendable()):
            for each, entry in entries.items():
                if entry.topic_id is None:
                    entry.topic_id = self._cluster.known_id(each.topic)
                if (error := self._find_missing(each, entry, now_ms)) is not None:
                    self._tell_gone(each.topic, entry.topic_id, error)
                    self._end(commit, each, error)
            self._settle(commit, now_ms)

    def _find_missing(self, partition: TopicPartition, entry: _Entry, now_ms: int) -> UnknownTopicError | None:
        """The error if the offset is one of a topic that is gone, or of a partition that there is not."""
        topic = self._cluster.topics.get(partition.topic)
        if topic is None:
            return None
        if ZERO_TOPIC_ID not in (topic.topic_id, entry.topic_id or ZERO_TOPIC_ID) and topic.topic_id != entry.topic_id:
            return UnknownTopicError(partition.topic, was_deleted=True)
        if entry.unknown_since_ms is None or self._cluster.generation < entry.generation:
            return None
        # Two brokers agree. One that was never seen may be about to appear.
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

    def _sendable(self) -> Iterator[tuple[_Commit, dict[TopicPartition, _Entry]]]:
        """What of each commit is not under way, nor behind an earlier one of the same partition."""
        taken: set[TopicPartition] = set()
        for commit in self._queue:
            sent = self._under_way(commit)
            if len(sent) < len(commit.open):
                yield (
                    commit,
                    {each: entry for each, entry in commit.open.items() if each not in taken and each not in sent},
                )
            if commit is not self._queue[-1]:
                taken |= commit.open.keys()

    def _under_way(self, commit: _Commit) -> Collection[TopicPartition]:
        return self._sent.entries.keys() if self._sent is not None and self._sent.commit is commit else ()

    def _find_due(self, now_ms: int) -> tuple[_Commit, dict[TopicPartition, _Entry]] | None:
        for commit, entries in self._sendable():
            due = {each: entry for each, entry in entries.items() if entry.due_ms <= now_ms}
            by_id = {each: entry for each, entry in due.items() if entry.topic_id not in (None, ZERO_TOPIC_ID)}
            if due:
                # A request goes by ids or by names; what has no id goes with the next one.
                return commit, by_id or due
        return None

    def _send(self, commit: _Commit, entries: dict[TopicPartition, _Entry], endpoint: Endpoint, now_ms: int) -> None:
        identity = self._committer.identity()
        if identity is None:
            self._end_all(commit, entries, self._fenced(ErrorCode.UNKNOWN_MEMBER_ID), now_ms)
            return
        member_id, epoch = identity
        given_up = [
            each
            for each, entry in entries.items()
            if entry.epoch not in (None, epoch) and not self._committer.holds(each)
        ]
        if given_up:
            self._end_all(commit, given_up, self._fenced(ErrorCode.STALE_MEMBER_EPOCH), now_ms)
            return
        topics: dict[tuple[str, TopicId], list[OffsetCommitRequestPartition]] = {}
        for each, entry in entries.items():
            entry.epoch = epoch
            offset, metadata, leader_epoch = with_metadata(entry.offset)
            row = OffsetCommitRequestPartition(
                partition_index=each.partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
            topics.setdefault((each.topic, entry.topic_id or ZERO_TOPIC_ID), []).append(row)
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            # Of a member only: who commits without being one has no name to be fenced by.
            group_instance_id=self._instance_id if member_id else None,
            topics=[
                OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=rows)
                for (name, topic_id), rows in topics.items()
            ],
            member=self._lookup.hearing.say(),
        )
        names = {bytes(topic_id): name for name, topic_id in topics}
        sent = self._sent = _Sent(commit=commit, entries=entries, endpoint=endpoint, epoch=epoch, names=names)
        era = self._lookup.hearing.era

        def then(answer: Answer, now_ms: int) -> None:
            self._sent = None
            self._on_answer(sent, answer, now_ms)
            response = message_of(answer, OffsetCommitResponse)
            news = None if response is None else response.member_news
            self._lookup.hearing.hear(news, era=era, lane=Lane.COORDINATOR, now_ms=now_ms)

        most = LAST_BY_NAME if ZERO_TOPIC_ID in names else None
        self._requests.send(endpoint, Lane.COORDINATOR, request, then, max_version=most)

    def _on_answer(self, sent: _Sent, answer: Answer, now_ms: int) -> None:
        response, commit = message_of(answer, OffsetCommitResponse), sent.commit
        codes: dict[TopicPartition, ErrorCode] = {}
        for topic in () if response is None else response.topics:
            name = topic.name or sent.names.get(bytes(topic.topic_id), "")
            for row in topic.partitions:
                codes[TopicPartition(name, row.partition_index)] = ErrorCode.of(row.error_code)
        if response is None or any(code in MOVED for code in codes.values()):
            self._lookup.lost(sent.endpoint, now_ms)
            self._due_ms = now_ms + max(1, self._retry.delay_ms(self._attempts))
            self._attempts += 1
        else:
            self._attempts = 0
        if response is not None and all(code is ErrorCode.NONE for code in codes.values()):
            self._lookup.works()
        whole: dict[ErrorCode, KohortError] = {}
        for each, entry in sent.entries.items():
            code = codes.get(each)
            if commit.is_over:
                commit.open.pop(each, None)
            elif code is ErrorCode.NONE:
                self._end(commit, each, None)
            elif code is None or code in MOVED:
                entry.refusal = code
            elif code in _OF_THE_WHOLE and not (code is ErrorCode.ILLEGAL_GENERATION and self._is_overtaken(entry)):
                error = self._fenced(code) if code in NO_MEMBER else self._refusal(each, code)
                self._end(commit, each, whole.setdefault(code, error))
            else:
                self._on_refusal(commit, each, entry, code, now_ms)
        self._settle(commit, now_ms)
        for code in whole.keys() & NO_MEMBER:
            self._committer.on_refused(code, sent.epoch, now_ms)

    def _on_refusal(
        self, commit: _Commit, partition: TopicPartition, entry: _Entry, code: ErrorCode, now_ms: int
    ) -> None:
        """One partition was refused: it waits by itself, or has ended."""
        passes = code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
        if not (passes or code.retriable):
            self._end(commit, partition, self._refusal(partition, code))
            return
        entry.refusal = code
        entry.due_ms = now_ms + max(1, self._retry.delay_ms(entry.attempts))
        entry.attempts += 1
        if code in UNKNOWN_TOPIC:
            # Whether it is gone the cluster's picture says, one that is newer than this answer.
            if entry.unknown_since_ms is None:
                entry.unknown_since_ms = now_ms
                entry.generation = self._cluster.next_generation
            self._are_unknown = True
            self._cluster.refresh_now(now_ms)

    def _refusal(self, partition: TopicPartition, code: ErrorCode) -> KohortError:
        is_group = code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        during = f"committing the offset of {partition} for group {self._group_id}"
        return refused(code, during=during, operation="read", name=self._group_id if is_group else partition.topic)

    def _is_overtaken(self, entry: _Entry) -> bool:
        """Whether the group has moved on with its member: a commit behind a join is looked at when that has ended."""
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

    def _end(self, commit: _Commit, partition: TopicPartition, error: KohortError | None) -> None:
        """That partition of the commit has ended."""
        entry = commit.open.pop(partition)
        if error is not None:
            commit.failed[partition] = error
            self._unnumber(partition, entry)

    def _unnumber(self, partition: TopicPartition, entry: _Entry) -> None:
        """It has failed: what is consumed is committed, though it be the same."""
        if self._newest.get(partition, (0,))[0] == entry.number:
            del self._newest[partition]

    def _settle(self, commit: _Commit, now_ms: int) -> None:
        """Some of it has ended: tell all that wait for nothing else."""
        self._tell([each for each in commit.waiting if not self._is_open(commit, each)], commit, now_ms)
        # What was given up behind it may be next.
        for other in list(self._queue):
            if not other.open and other in self._queue and not self._is_behind(other):
                self._queue.remove(other)
                self._tell(list(other.waiting), other, now_ms)

    def _is_open(self, commit: _Commit, waiting: _Waiting) -> bool:
        return bool(commit.behind) or any(each in commit.open for each in waiting.partitions)

    def _is_behind(self, commit: _Commit) -> bool:
        """Whether it waits for earlier ones, though nothing of its own is open."""
        earlier = takewhile(lambda each: each is not commit, self._queue)
        return bool(commit.behind) and any(each.goes_before_revocation(commit.behind) for each in earlier)

    def _tell(self, waiting: list[_Waiting], commit: _Commit, now_ms: int) -> None:
        commit.waiting = [each for each in commit.waiting if each not in waiting]
        if commit.is_logged and (commit.is_over or not commit.open):
            commit.is_logged = False
            self._warn_of(commit.failed, f"asynchronous commit of group {self._group_id} failed")
        for each in waiting:
            each.then({mine: commit.failed[mine] for mine in each.partitions if mine in commit.failed}, now_ms)


def build_error(group_id: str, offsets: Offsets, failed: Failed) -> KohortError | None:
    """One error for a commit of these offsets, `None` for a good end.

    What was refused as a whole has the error of the whole; otherwise it says of each partition what became of it.
    """
    if not failed:
        return None
    errors = list(failed.values())
    if len(failed) == len(offsets) and all(error is errors[0] for error in errors):
        return errors[0]
    done = {each: with_metadata(offset) for each, offset in offsets.items() if each not in failed}
    return PartlyDoneError(f"committing offsets of group {group_id}", done, failed)
