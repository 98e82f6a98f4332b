"""The group of a consumer, whether it is a member or not: the coordinator, and commits.

Source: Kafka's consumer API, in which group management is optional and offset management is too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from kohort.client.consumer.application_events import AsynchronousCommitAsked, CommitAsked, CommitEnded
from kohort.client.consumer.offsets.commits import Commits, Committer, Failed, build_error
from kohort.client.consumer.offsets.committed import CommittedOffsets
from kohort.client.core.cluster import Cluster
from kohort.client.core.coordinator_lookup import CoordinatorLookup
from kohort.client.core.requests import Requests
from kohort.client.core.retry import Backoff
from kohort.client.options import ConsumerSettings
from kohort.errors import KohortError


class Group:
    """The lookup of the coordinator, the commits, and the queries of committed offsets.

    Args:
        requests: the outbox of the machine.
        cluster: the brokers and topics.
        committer: in whose name offsets are committed and asked for.
        settings: the consumer's options.
        retry: pauses between two attempts.
        on_refused: called with the error and the time when the group may not be used at all.
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        committer: Committer,
        settings: ConsumerSettings,
        *,
        retry: Backoff,
        on_refused: Callable[[KohortError, int], None],
    ) -> None:
        options = settings.options
        assert options["group_id"] is not None
        group_id = self._group_id = options["group_id"]
        self._requests = requests
        #: Asynchronous commits whose end the application was not told yet, in order.
        self._asynchronous: deque[AsynchronousCommitAsked] = deque()
        #: Identity of those of them that have ended -> error.
        self._ended: dict[int, KohortError | None] = {}
        self.lookup = CoordinatorLookup(
            requests,
            cluster,
            group_id=group_id,
            retry=retry,
            on_refused=on_refused,
            hears=options["fetch_carries_membership"],
        )
        self.commits = Commits(
            requests,
            self.lookup,
            cluster,
            committer,
            group_id=group_id,
            instance_id=options["group_instance_id"],
            auto_interval_ms=options["auto_commit_interval_ms"] if options["enable_auto_commit"] else None,
            retry=retry,
        )
        self.committed = CommittedOffsets(requests, self.lookup, committer, group_id=group_id, retry=retry)

    def on_commit_asked(self, asked: CommitAsked | AsynchronousCommitAsked) -> None:
        """Commit for the application."""
        if isinstance(asked, CommitAsked):
            self.commits.commit(asked.offsets, partial(self._end_commit, asked), deadline_ms=asked.deadline_ms)
            return
        told = None
        if asked.callback is not None:
            self._asynchronous.append(asked)
            told = partial(self._end_asynchronous_commit, asked)
        self.commits.commit_asynchronously(asked.offsets, told, deadline_ms=asked.deadline_ms)

    def _end_commit(self, asked: CommitAsked, failed: Failed, _: int) -> None:
        error = build_error(self._group_id, asked.offsets, failed) if failed else None
        if error is None:
            self._requests.complete(asked.ticket)
        else:
            self._requests.fail(asked.ticket, error)

    def _end_asynchronous_commit(self, asked: AsynchronousCommitAsked, failed: Failed, _: int) -> None:
        self._ended[id(asked)] = build_error(self._group_id, asked.offsets, failed)
        # Callbacks are called in the order of the calls, whichever commit has ended first.
        while self._asynchronous and id(self._asynchronous[0]) in self._ended:
            first = self._asynchronous.popleft()
            error = self._ended.pop(id(first))
            self._requests.deliver(CommitEnded(callback=first.callback, offsets=first.offsets, error=error))

    def fail_all(self, error: KohortError, now_ms: int) -> None:
        """End every commit and query with that error."""
        self.commits.fail_all(error, now_ms)
        self.committed.fail_all(error, now_ms)
