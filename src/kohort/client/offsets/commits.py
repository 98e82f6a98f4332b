"""Committing the group's offsets, when asked and automatically.

Laws: one commit is under way at a time, so a later one is never overtaken by an earlier one; asynchronous ones that
wait go out together, with the latest offset of each partition, and partitions are given up behind them; automatic
commits contain only what the application has returned from; a commit that is tried again leaves out partitions that
were given up meanwhile, since they may belong to others, and never takes an offset back behind a later commit.
Source: Kafka's OffsetCommit API; KIP-848, offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from kohort.client.actions import Endpoint, Lane
from kohort.client.coordinator_lookup import MOVED, CoordinatorLookup
from kohort.client.records import Committable, with_metadata
from kohort.client.refusals import refused
from kohort.client.requests import Answer, Requests, message_of
from kohort.client.retry import Backoff
from kohort.errors import BrokerError, ErrorCode, FencedError, KohortError, KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

#: The request goes by topic name up to this version.
_BY_NAME: Final = 9
#: The member is not one, or not the one it takes itself for.
NO_MEMBER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)

#: Asynchronous commits that were asked for within this time may go out as one.
_JOIN_WITHIN_MS: Final = 1_000

Offsets = Mapping[TopicPartition, Committable]
Refusals = Mapping[TopicPartition, KohortError]
#: The end of a commit; `None` is a good one.
CommitThen = Callable[[KohortError | None, int], None]


class Committer(Protocol):
    """In whose name offsets are committed."""

    def identity(self) -> tuple[str, int] | None:
        """Member id and epoch (classic: generation); `("", -1)` for who wants to be no member, `None` for who is none
        at present but should be."""
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


@dataclass(slots=True, kw_only=True, eq=False)
class _Commit:
    #: What is still to be committed.
    offsets: dict[TopicPartition, Committable]
    #: Who waits for it, each for some of the partitions, in the order in which they asked.
    waiting: list[tuple[Collection[TopicPartition], CommitThen]]
    deadline_ms: int
    is_asynchronous: bool = False
    is_automatic: bool = False
    #: Somebody asked for it who is not told: a failure is a line in the log.
    is_logged: bool = False
    #: Epoch with which it was tried; `None` before the first time.
    epoch: int | None = None
    #: Why the last attempt has to be repeated, and of which partition that is said.
    refusal: tuple[TopicPartition, ErrorCode] | None = None

    @property
    def goes_before_revocation(self) -> bool:
        """Whether partitions are given up behind it: nobody waits for it, who would see that it has not ended.

        An automatic one that was refused may be of an epoch that ends with the revocation.
        """
        return self.is_asynchronous or (self.is_automatic and self.refusal is None)

    @property
    def last_refusal(self) -> str:
        """What an error in the end says of it."""
        return "" if self.refusal is None else f"; the last attempt: {self.refusal[0]}: {self.refusal[1].name}"


class Commits:
    """Everything that is committed for one group.

    Args:
        instance_id: the name of a static member; `None` for a dynamic one.
        auto_interval_ms: pause between automatic commits; `None` switches them off.
    """

    def __init__(
        self,
        requests: Requests,
        lookup: CoordinatorLookup,
        committer: Committer,
        *,
        group_id: str,
        instance_id: str | None,
        auto_interval_ms: int | None,
        retry: Backoff,
    ) -> None:
        self._requests = requests
        self._lookup = lookup
        self._committer = committer
        self._group_id = group_id
        self._instance_id = instance_id
        self._auto_interval_ms = auto_interval_ms
        self._retry = retry
        #: partition -> offset below which the application has returned, where that is not committed yet.
        self._consumed: dict[TopicPartition, Committable] = {}
        self._auto_due_ms: int | None = None
        self._is_auto_open = False
        #: partition -> number of the last commit that contained it.
        self._newest: dict[TopicPartition, int] = {}
        self._count = 0
        self._queue: deque[_Commit] = deque()
        #: The commit that is under way or waits for its next attempt; the head of the queue.
        self._is_sent = False
        self._due_ms = 0
        self._attempts = 0

    # -- what the application has done ------------------------------------------------------------------------------

    def on_consumed(self, consumed: Offsets, now_ms: int) -> None:
        """The application has returned from everything below these offsets."""
        if self._auto_interval_ms is None or not consumed:
            return
        self._consumed.update(consumed)
        if self._auto_due_ms is None:
            self._auto_due_ms = now_ms + self._auto_interval_ms

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These belong to others: nothing more of them is committed automatically."""
        for partition in partitions:
            self._consumed.pop(partition, None)

    # -- committing -------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets, then: CommitThen, *, deadline_ms: int) -> None:
        """Commit these offsets after those that were asked for before."""
        self._number(offsets)
        self._queue.append(_Commit(offsets=dict(offsets), waiting=[(offsets.keys(), then)], deadline_ms=deadline_ms))

    def commit_asynchronously(self, offsets: Offsets, then: CommitThen | None, *, deadline_ms: int) -> None:
        """The same for somebody who goes on meanwhile: what has not gone out yet may go out together.

        `then` `None` leaves a failure to the log.
        """
        self._number(offsets)
        last = self._queue[-1] if self._queue else None
        can_join = last is not None and last.is_asynchronous and last.epoch is None
        if last is None or not can_join or deadline_ms > last.deadline_ms + _JOIN_WITHIN_MS:
            last = _Commit(offsets={}, waiting=[], deadline_ms=deadline_ms, is_asynchronous=True)
            self._queue.append(last)
        last.offsets.update(offsets)
        if then is None:
            last.is_logged = True
        else:
            last.waiting.append((offsets.keys(), then))

    def _number(self, offsets: Offsets) -> None:
        self._count += 1
        self._newest.update(dict.fromkeys(offsets, self._count))

    def commit_consumed(
        self, partitions: Iterable[TopicPartition], then: Callable[[int], None], *, deadline_ms: int, now_ms: int
    ) -> None:
        """Commit automatically what was consumed of these partitions, e.g. before they are given up."""
        offsets = {each: self._consumed.pop(each) for each in sorted(partitions) if each in self._consumed}
        if not offsets and not any(commit.goes_before_revocation for commit in self._queue):
            then(now_ms)
            return

        def ended(error: KohortError | None, now_ms: int) -> None:
            if error is not None and offsets:
                self._requests.warn(f"what was consumed before a hand-over could not be committed: {error}")
            then(now_ms)

        # Without offsets it is a place in the queue: what was asked for, by the application or by the time, goes before
        # what is given up.
        self.commit(offsets, ended, deadline_ms=deadline_ms)

    def _commit_automatically(self, now_ms: int) -> None:
        assert self._auto_interval_ms is not None
        self._auto_due_ms = None
        if self._is_auto_open:
            # One at a time: two that fail and are made up for must not change places.
            self._auto_due_ms = now_ms + self._auto_interval_ms
            return
        offsets, self._consumed = self._consumed, {}
        if not offsets:
            return
        number = self._count + 1
        self._is_auto_open = True

        def ended(error: KohortError | None, now_ms: int) -> None:
            self._is_auto_open = False
            if error is None:
                return
            if error.retriable:
                self._make_up_for(offsets, number, now_ms)
            self._requests.warn(f"automatic commit of group {self._group_id} failed: {error}")

        self.commit(offsets, ended, deadline_ms=now_ms + self._requests.request_timeout_ms)
        self._queue[-1].is_automatic = True

    def _make_up_for(self, offsets: Offsets, number: int, now_ms: int) -> None:
        """Commit these again next time, but for what is not ours any more or was committed anew meanwhile."""
        ours = {
            each: offset
            for each, offset in offsets.items()
            if self._newest[each] == number and self._committer.holds(each)
        }
        self.on_consumed({**ours, **self._consumed}, now_ms)

    # -- time -------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> int | None:
        """When `on_tick` has something to do."""
        deadlines = [commit.deadline_ms for commit in self._queue]
        if self._auto_due_ms is not None:
            deadlines.append(self._auto_due_ms)
        if self._lookup.endpoint is not None and self._queue and not self._is_sent:
            deadlines.append(self._due_ms)
        return min(deadlines, default=None)

    def on_tick(self, now_ms: int) -> None:
        """Send what is due, give up what is late."""
        if self._auto_due_ms is not None and now_ms >= self._auto_due_ms:
            self._commit_automatically(now_ms)
        self._drop_late(now_ms)
        if self._queue and not self._is_sent and now_ms >= self._due_ms:
            endpoint = self._lookup.need(now_ms)
            if endpoint is not None:
                self._send_commit(endpoint, now_ms)

    def fail_all(self, error: KohortError, now_ms: int) -> None:
        """End everything with that error; the answer to what is under way interests nobody any more."""
        failed = list(self._queue)
        head = self._queue[0] if self._is_sent else None
        self._queue = deque() if head is None else deque([head])
        for commit in failed:
            self._tell(commit, error, now_ms)

    def _drop_late(self, now_ms: int) -> None:
        head = self._queue[0] if self._is_sent and self._queue else None
        if head is not None and now_ms >= head.deadline_ms:
            # Its answer may still come, and the next commit waits for that; whoever waits for this one need not.
            head.deadline_ms = now_ms + self._requests.request_timeout_ms
            silence = KohortTimeoutError(
                f"the commit of group {self._group_id} was not answered in time{head.last_refusal}"
            )
            self._tell(head, silence, now_ms)
        for commit in [each for each in self._queue if now_ms >= each.deadline_ms and each is not head]:
            self._queue.remove(commit)
            too_late = KohortTimeoutError(
                f"offsets of group {self._group_id} were not committed in time{commit.last_refusal}"
            )
            self._tell(commit, too_late, now_ms)

    # -- commits on the wire ----------------------------------------------------------------------------------------

    def _send_commit(self, endpoint: Endpoint, now_ms: int) -> None:
        commit = self._queue[0]
        identity = self._committer.identity()
        if identity is None:
            self._end_commit(self._fenced(ErrorCode.UNKNOWN_MEMBER_ID), now_ms)
            return
        member_id, epoch = identity
        if commit.epoch is not None and commit.epoch != epoch:
            commit.offsets = {each: offset for each, offset in commit.offsets.items() if self._committer.holds(each)}
        if not commit.offsets:
            is_moved = commit.epoch is not None
            self._end_commit(self._fenced(ErrorCode.STALE_MEMBER_EPOCH) if is_moved else None, now_ms)
            return
        commit.epoch = epoch
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), chosen in commit.offsets.items():
            offset, metadata, leader_epoch = with_metadata(chosen)
            entry = OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
            topics.setdefault(topic, []).append(entry)
        request = OffsetCommitRequest(
            group_id=self._group_id,
            generation_id_or_member_epoch=epoch,
            member_id=member_id,
            # Of a member only: who commits without being one has no name to be fenced by.
            group_instance_id=self._instance_id if member_id else None,
            topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
            member=self._lookup.hearing.say(),
        )
        self._is_sent = True
        era = self._lookup.hearing.era

        def then(answer: Answer, now_ms: int) -> None:
            self._is_sent = False
            self._on_commit_answer(commit, answer, endpoint, now_ms)
            response = message_of(answer, OffsetCommitResponse)
            news = None if response is None else response.member_news
            self._lookup.hearing.hear(news, era=era, lane=Lane.COORDINATOR, now_ms=now_ms)

        self._requests.send(endpoint, Lane.COORDINATOR, request, then, max_version=_BY_NAME)

    def _on_commit_answer(self, commit: _Commit, answer: Answer, endpoint: Endpoint, now_ms: int) -> None:
        response = message_of(answer, OffsetCommitResponse)
        if response is None:
            self._lookup.lost(endpoint, now_ms)
            self._pause(now_ms)
            return
        codes = {
            TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }
        bad = {each: code for each, code in codes.items() if code is not ErrorCode.NONE}
        if not bad:
            self._lookup.works()
            self._end_commit(None, now_ms)
            return
        partition, code = commit.refusal = next(iter(bad.items()))
        if code is ErrorCode.ILLEGAL_GENERATION and self._is_overtaken(commit):
            self._pause(now_ms)
        elif code in NO_MEMBER:
            self._end_commit(self._fenced(code), now_ms)
            if commit.epoch is not None:
                self._committer.on_refused(code, commit.epoch, now_ms)
        elif code in MOVED:
            self._lookup.lost(endpoint, now_ms)
            self._pause(now_ms)
        elif code in (ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.REBALANCE_IN_PROGRESS) or code.retriable:
            commit.offsets = {each: commit.offsets[each] for each in bad if each in commit.offsets}
            self._pause(now_ms)
        else:
            refused = {each: self._refusal(each, why) for each, why in bad.items()}
            self._end_commit(refused[partition], now_ms, refused=refused)

    def _refusal(self, partition: TopicPartition, code: ErrorCode) -> BrokerError:
        name = self._group_id if code is ErrorCode.GROUP_AUTHORIZATION_FAILED else partition.topic
        during = f"committing the offset of {partition} for group {self._group_id}"
        return refused(code, during=during, operation="read", name=name)

    def _is_overtaken(self, commit: _Commit) -> bool:
        """Whether the group has moved on with its member: a commit behind a join is looked at when that has ended."""
        identity = self._committer.identity()
        return self._committer.is_rejoining() or (identity is not None and identity[1] != commit.epoch)

    def _fenced(self, code: ErrorCode) -> FencedError:
        member_id, epoch = self._committer.identity() or ("", -1)
        return FencedError(code, group=self._group_id, member=member_id, epoch=epoch, during="committing offsets")

    def _pause(self, now_ms: int) -> None:
        self._due_ms = now_ms + max(1, self._retry.delay_ms(self._attempts))
        self._attempts += 1

    def _end_commit(self, error: KohortError | None, now_ms: int, *, refused: Refusals | None = None) -> None:
        """The head of the queue has ended; `refused` says of which partitions, where it was not all of them."""
        self._attempts, self._due_ms = 0, now_ms
        self._tell(self._queue.popleft(), error, now_ms, refused=refused)

    def _tell(
        self, commit: _Commit, error: KohortError | None, now_ms: int, *, refused: Refusals | None = None
    ) -> None:
        """Tell everybody who waits for it, each of his own partitions; nobody waits from then on."""
        waiting, commit.waiting = commit.waiting, []
        is_logged, commit.is_logged = commit.is_logged, False
        if error is not None and is_logged:
            self._requests.warn(f"asynchronous commit of group {self._group_id} failed: {error}")
        for partitions, then in waiting:
            if refused is None:
                then(error, now_ms)
            else:
                then(next((refused[each] for each in partitions if each in refused), None), now_ms)
