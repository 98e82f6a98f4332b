"""Fetch (key 1): read record batches, now or once there are enough of them.

From version 7 on clients may ask for fetch sessions (KIP-227), see `fetchsessions`. From version 13 on topics are named
by id.
Isolation level 1 reads up to the last stable offset, and is told which transactions in it were aborted (KIP-98).
Every row is read once. If that is not enough the fetch is parked, and the logs that grow are measured, without reading
it, until there is enough; then all rows are read once more for the answer.

Laws: one slice of rows or bytes in a turn of the loop. Bytes that are not in memory are fetched by a thread, and the
row is read again when they are. A fetch is answered at most once, and not at all if its connection has gone. What all
answers together hold in memory is bounded (`AnswerMemory`). A fetch that does not wait is not held up by a parked one
in front of it on its connection.
Source: Apache Kafka's DelayedFetch and ReplicaManager.readFromLog; KIP-74 (one batch however large); KIP-227.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from kohort.broker.connections.measured_request import ROW_BYTES, MeasuredRequest
from kohort.broker.connections.memberconnections import MemberKey
from kohort.broker.context import BrokerContext, Request
from kohort.broker.fetch.claims import NOTHING_WITHHELD, find_withheld, is_for_members, is_over, void, withhold_all
from kohort.broker.fetch.fetchsessions import MOST_REPEATED, CachedFetch, FetchPlan, FetchSession, all_asked
from kohort.broker.fetch.ownership import OURS, Claim, Sender
from kohort.broker.fetch.purgatory import DelayedFetch
from kohort.broker.limits.requests import MOST_EMPTY, MOST_PARTITIONS, check_rows
from kohort.broker.log_levels import asked_loggers, tell_read
from kohort.broker.scheduling import warm
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.ids import TopicId
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.files.descriptors import NotResidentError
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.segments.segment import next_offset_of
from kohort.storage.segments.transaction_index import EndedTransaction
from kohort.wire.messages import fetch as wire
from kohort.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData


def handle(context: BrokerContext, request: Request, message: wire.FetchRequest) -> FetchResponse | None:
    """Find the fetch session, then read or wait for data."""
    check_rows(sum(not topic.partitions for topic in message.topics), MOST_EMPTY, "topics without partitions")
    now_ms = context.clock.now_ms()
    try:
        session = context.fetch_sessions.find(
            request.connection, message, request.version, now_ms=context.monotonic_ms()
        )
    except Refused as refused:
        return FetchResponse(error_code=refused.code)
    begins_anew = message.session_epoch <= 0
    if session is None and (beside := context.fetch_sessions.of(request.connection)) is not None:
        # It comes by the connection of a session: of the same member, and answered behind the session's fetch.
        begins_anew = False
        if message.max_wait_ms <= 0:
            beside.overtake()
    known = message.member
    rights = request.connection.rights
    if known is not None and not rights.allows(AclOperation.READ, ResourceType.GROUP, known.group_id):
        # News of a group are for those alone that may be its members; the records are another matter.
        known = None
    if known is not None:
        check_rows(sum(len(topic.partitions) for topic in known.topic_partitions), MOST_PARTITIONS, "partitions")
        context.membership_updates.watch(request.connection, known)
    elif begins_anew or message.member is not None:
        context.membership_updates.forget(request.connection)
    asked = all_asked(message) if session is None else session.asked()
    is_replica = rights.is_restricted and _is_of_replica(request, message)
    plan = FetchPlan(context.cluster, asked, request.connection, session, is_replica=is_replica)
    # A fetch that is denied shows nothing of its member's progress.
    if not plan.denied:
        context.membership_updates.fetched(request, message, asked, partial(_name, context), now_ms)
    claim = context.claims.take(request.connection, message, known, begins_anew=begins_anew)
    Fetching(context, request, message, plan, session, claim=claim).start()
    return None


def _is_of_replica(request: Request, message: wire.FetchRequest) -> bool:
    # From version 15 on replicas name themselves in a tagged field (KIP-903).
    return (message.replica_id if request.version < 15 else message.replica_state.replica_id) >= 0


def _name(context: BrokerContext, topic_id: bytes) -> str:
    found = context.cluster.topic_by_id(TopicId(topic_id))
    return "" if found is None else found.name


#: Kafka's isolation level of consumers that skip aborted transactions (KIP-98).
READ_COMMITTED: Final = 1
#: Refusals of withheld rows that end the wait of a fetch. With others a stock client waits on for its other rows, and
#: is told the error then: a client that is told at once asks again at once, thousands of times a second.
AT_ONCE: Final = frozenset({OURS, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
#: Rows and bytes that are read in one turn of the loop.
ROWS_AT_ONCE: Final = 250
BYTES_AT_ONCE: Final = 1 << 20
#: Aborted transactions that one answer tells, each in 4 microseconds; its records end before there are more.
ABORTED_AT_ONCE: Final = 2_000
#: Bytes that a thread reads ahead from the disk: a consumer of one batch will want those behind it.
READ_AHEAD_BYTES: Final = 1 << 20
#: Reads by threads for one row; if the data has left memory again by then, the loop itself waits for the disk.
MOST_TRIES: Final = 5


class Fetching:
    """One fetch until its answer."""

    __slots__ = (
        "_aborted",
        "_changes",
        "_claim",
        "_cold",
        "_context",
        "_edition",
        "_epoch",
        "_found",
        "_has_lapsed",
        "_is_committed",
        "_is_idle",
        "_is_over",
        "_is_quiet",
        "_left",
        "_max_bytes",
        "_max_wait_ms",
        "_min_bytes",
        "_parked",
        "_plan",
        "_request",
        "_rows",
        "_seen",
        "_session",
        "_size",
        "_starts",
        "_tries",
        "_wants_answer",
        "_was_served",
        "_withheld",
    )

    def __init__(
        self,
        context: BrokerContext,
        request: Request,
        message: wire.FetchRequest,
        plan: FetchPlan,
        session: FetchSession | None,
        *,
        claim: Claim | None,
    ) -> None:
        self._context: Final = context
        self._request = request
        self._session: Final = session
        self._plan: Final = plan
        #: The member that it says it is of.
        self._claim = claim
        #: The rows that it does not get, and the edition of the fences by which they were found; -1: not yet.
        self._withheld, self._edition = NOTHING_WITHHELD, -1
        #: Whether the lease of the claim is over, and whether it was not when the rows were looked at before.
        self._has_lapsed = self._was_served = False
        #: The changes of the session's partitions as of this fetch.
        self._changes: Final = 0 if session is None else session.changes
        self._max_bytes = min(message.max_bytes, context.settings.values["fetch.max.bytes"])
        self._min_bytes = message.min_bytes
        self._max_wait_ms: Final = message.max_wait_ms
        self._is_committed: Final = message.isolation_level == READ_COMMITTED
        #: The answer so far, by row; `None` for a row that is not read yet or has no news.
        self._rows: list[PartitionData | None] = []
        #: The ends of what the client may read when the rows were read.
        self._seen = array("q")
        #: Bytes in the answer, bytes that may still be added, and the aborted transactions that it tells.
        self._size = self._left = self._aborted = 0
        #: Rows that wait for the disk.
        self._cold: list[tuple[int, NotResidentError]] = []
        self._tries = 0
        #: Row -> available bytes, of the rows that have any.
        self._found: Final[dict[int, int]] = {}
        self._parked: DelayedFetch | None = None
        #: Whether to answer now: there is an error, a truncated log, or its time is over.
        self._wants_answer = message.max_wait_ms <= 0
        self._is_over = False
        #: Whether it waits, and had nothing to tell when it began to; and whether it was answered so.
        self._is_quiet = self._is_idle = False
        #: The epoch with which it may come again; -1: it names something that a repeated one would not.
        is_plain = session is not None and not (
            message.topics or message.forgotten_topics_data or message.member is not None or message.grant is not None
        )
        self._epoch = session.epoch if session is not None and is_plain else -1
        #: Sum of the beginnings of the logs when it began to wait.
        self._starts = 0
        if request.is_measured:
            self._limit_by_quota()

    @property
    def logs(self) -> Sequence[PartitionLog | None]:
        """The logs by row."""
        return self._plan.logs

    @property
    def size_bytes(self) -> int:
        """Bytes that were read for the answer so far."""
        return self._size

    def start(self) -> None:
        """Answer at once if there is enough data, an error, or no time to wait; else park the fetch."""
        self._request.on_abandon = self._abandon
        if self._request.connection.rights.is_restricted:
            self._request.on_rights = self._examine
        self._read()

    def look(self, rows: Iterable[int]) -> bool:
        """Whether there is enough data, now that these rows have more."""
        if not self._plan.resolve():
            return True
        if not self._is_current():
            self._find_withheld()
            for at in self._withheld:
                # What it had when it was read before is not to be had any more.
                self._found.pop(at, None)
            if self._has_lapsed:
                return True
        for at in rows:
            size = self._measure(at)
            if size is None:
                return True
            self._found[at] = size
        return sum(self._found.values()) >= self._min_bytes

    def answer(self) -> None:
        """Answer with the available data."""
        self._leave()
        if self._is_over:
            return
        if self._is_quiet and self._has_nothing_new():
            self._answer_nothing()
            return
        self._wants_answer = True
        self._plan.resolve()
        self._read()

    def _abandon(self) -> None:
        self._is_over = True
        # Request and fetch reference each other: the data would stay until the garbage collector runs.
        self._rows, self._request.on_rights, self._request.repeatable = [], None, None
        # The waiting fetch shows that its member was reading until now.
        self._context.membership_updates.fetched_until(self._request.connection, self._context.clock.now_ms())
        if self._parked is not None:
            self._parked.cancel()
            self._leave()

    def _examine(self, request: Request) -> None:
        """Answer a fetch whose topics may not all be read any more; nothing of those is in the answer."""
        rights = request.rights
        found = [rows for rows in self._plan.topics if rows.topic is not None]
        if all(rights.allows(AclOperation.READ, ResourceType.TOPIC, rows.topic.name) for rows in found if rows.topic):
            return
        if self._parked is not None:
            # It leaves the logs that it waits for before they are looked up again.
            self._parked.expire()
            return
        self._plan.resolve()
        self._wants_answer = True
        for rows in found:
            if rows.topic is None:
                # What was read is taken back; rows that are not read yet will find that there is no log.
                for at in range(rows.first, min(rows.stop, len(self._rows))):
                    self._rows[at] = self._refuse(at, rows.missing)
        self._cold = [(at, cold) for at, cold in self._cold if self.logs[at] is not None]

    def _read(self) -> None:
        """Read all rows, beginning as soon as a pass of the loop has a share left."""
        count = len(self._plan)
        self._rows = [None] * count
        self._seen = array("q", bytes(8 * count))
        self._found.clear()
        self._size = self._tries = self._aborted = 0
        self._left = self._max_bytes
        self._context.fair_queue.read(self._begin)

    def _begin(self) -> None:
        if self._is_over:
            return
        context, count = self._context, len(self._rows)
        # Topics, and the time, may be others than before.
        self._find_withheld()
        done = self._read_slice(range(min(count, ROWS_AT_ONCE)))
        # All fetches of one pass of the loop share a budget of bytes.
        context.fair_queue.note_read(self._size)
        if done == count and self._size < BYTES_AT_ONCE:
            if self._cold:
                self._fetch_cold()
            else:
                # Within one turn fences and logs stay as they are.
                self._answer_or_park(is_at_once=True)
        else:
            context.cooperative_work.add(self._steps(range(done, count)))

    def _steps(self, rows: Sequence[int]) -> Iterator[None]:
        done = size = 0
        while done < len(rows):
            if self._is_over:
                return
            if not self._is_current():
                self._find_withheld()
            done += self._read_slice(rows[done : done + ROWS_AT_ONCE])
            if done < len(rows) or self._size - size >= BYTES_AT_ONCE:
                size = self._size
                yield
        if not self._is_over:
            self._after_reading()

    def _read_slice(self, rows: Sequence[int]) -> int:
        """Read rows until one turn of the loop has enough bytes; return the number of rows read."""
        before = self._size
        # Others read between two slices.
        self._left = min(self._left, self._context.answer_memory.share())
        for count, at in enumerate(rows, 1):
            self._rows[at] = self._read_row(at)
            if self._size - before >= BYTES_AT_ONCE:
                return count
        return len(rows)

    def _after_reading(self) -> None:
        if self._cold:
            self._fetch_cold()
            return
        if not self._is_current():
            self._find_withheld()
        if self._withheld:
            self._take_back()
        self._answer_or_park()

    def _answer_or_park(self, *, is_at_once: bool = False) -> None:
        listening, connection = self._context.membership_updates, self._request.connection
        member = listening.member_of(connection)
        wants_answer = self._wants_answer or (self._session is not None and self._session.is_overtaken)
        if wants_answer or self._size >= self._min_bytes or (member is not None and listening.has_news(member)):
            self._is_over = True
            request = self._request
            request.on_abandon = request.on_rights = request.repeatable = None
            response = self._withheld_by_quota() if self._request.is_measured else None
            response = response or self._response()
            if member is not None:
                now_ms = self._context.clock.now_ms()
                listening.waited(connection, now_ms)
                response.membership_update = listening.tell(member, now_ms)
            if asked_loggers or self._request.connection.rights.tells_requests:
                self._tell_reads(response)
            self._request.answer(response)
            return
        rows, self._rows, seen, self._seen = self._rows, [], self._seen, array("q")
        # Data that came while rows were read, slice by slice, has woken no fetch.
        if not is_at_once and self.look(
            [at for at, log in enumerate(self.logs) if log is not None and self._end_of(log) != seen[at]]
        ):
            self.answer()
            return
        if self._may_come_again() and not any(rows):
            self._is_quiet = self._is_at_end(is_first=True)
            self._request.repeatable = self if self._is_quiet else None
        self._park(member)

    def _park(self, member: MemberKey | None) -> None:
        self._parked = self._context.purgatory.park(self, max_wait_ms=self._max_wait_ms, member=member)
        if self._session is not None:
            self._session.waiting = self._parked

    def _leave(self) -> None:
        # The session's next fetch may wait by now.
        if self._session is not None and self._session.waiting is self._parked:
            self._session.waiting = None
        self._parked = None

    # ---- nothing new

    def cache(self, frame: memoryview, request: Request) -> CachedFetch | None:
        """Implement `Repeatable.cache`."""
        return CachedFetch.of(frame, request, self) if self._is_quiet else None

    def wait_again(self, request: Request, epoch: int) -> bool:
        """Implement `RepeatableFetch.wait_again`."""
        context, session, connection = self._context, self._session, request.connection
        # Whatever else has continued the session has changed its epoch.
        if session is None or not self._is_idle or not epoch == session.epoch == self._epoch:
            return False
        if not self._may_come_again():
            return False
        listening = context.membership_updates
        if context.claims.of(connection) is not self._claim or not self._has_nothing_new():
            return False
        now_ms, member = context.clock.now_ms(), listening.member_of(connection)
        if not listening.fetched_again(connection, now_ms) or (member is not None and listening.has_news(member)):
            return False
        session.step()
        self._epoch = session.epoch
        session.used_ms = context.monotonic_ms()
        self._found.clear()
        self._request, self._is_over, self._is_idle = request, False, False
        request.on_abandon = self._abandon
        self._park(member)
        return True

    def _may_come_again(self) -> bool:
        """Whether it is of a session, and of a client without limits, to whom nothing is refused."""
        session, connection = self._session, self._request.connection
        if session is None or self._epoch < 0 or session.is_over or not session.is_by_id:
            return False
        is_free = not (connection.rights.is_restricted or self._context.client_quotas.is_on or self._withheld)
        return is_free and len(self._plan) <= MOST_REPEATED

    def _has_nothing_new(self) -> bool:
        """Whether all is as it was when it began to wait."""
        if not self._plan.resolve() or not self._is_current() or self._has_lapsed or self._withheld:
            return False
        # Fences say nothing of a topic that only members may read.
        is_open = self._claim is not None or not any(map(is_for_members, self._plan.found_topics()))
        return is_open and self._session is not None and self._session.changes == self._changes and self._is_at_end()

    def _is_at_end(self, *, is_first: bool = False) -> bool:
        """Whether every row is at the end of its log, whose beginning is where it was."""
        plan, refusal, starts = self._plan, self._context.leadership.refusal, 0
        for log, offset, epoch in zip(plan.logs, plan.offsets, plan.leader_epochs, strict=True):
            if log is None or offset != self._end_of(log) or refusal(log, epoch) is not ErrorCode.NONE:
                return False
            starts += log.log_start_offset
        if is_first:
            self._starts = starts
        # Beginnings only rise.
        return starts == self._starts

    def _answer_nothing(self) -> None:
        """Respond without rows: the client knows them all."""
        request, session, update = self._request, self._session, None
        assert session is not None, "there is something to be known in"
        self._is_over = self._is_idle = True
        request.on_abandon = request.repeatable = None
        listening, connection = self._context.membership_updates, request.connection
        member = listening.member_of(connection)
        if member is not None:
            now_ms = self._context.clock.now_ms()
            listening.waited(connection, now_ms)
            update = listening.tell(member, now_ms)
        if update is None:
            request.answer(session.nothing_new(request.version))
        else:
            request.answer(FetchResponse(session_id=session.id, membership_update=update))

    def _tell_reads(self, response: FetchResponse) -> None:
        for topic in response.responses:
            found = None if topic.topic else self._context.cluster.topic_by_id(topic.topic_id)
            for row in topic.partitions:
                tell_read(self._request, found.name if found is not None else topic.topic, row)

    def _read_row(self, at: int, *, wait: bool = False) -> PartitionData | None:
        """Read one row; `None` if it has to wait for the disk, or has no news."""
        plan = self._plan
        log = plan.logs[at]
        if log is None:
            return self._refuse(at, plan.missing_code(at))
        leadership = self._context.leadership
        refusal = leadership.refusal(log, plan.leader_epochs[at])
        if refusal is not ErrorCode.NONE:
            return self._refuse(at, refusal)
        withheld = self._withheld
        if withheld and at in withheld:
            return self._withhold(at, log, withheld[at])
        offset = plan.offsets[at]
        self._seen[at] = end = self._end_of(log)
        views: list[memoryview] = []
        aborted: list[EndedTransaction] = []
        try:
            diverging = leadership.divergence(log, plan.last_epochs[at], offset)
            if diverging is not None:
                return self._tell_divergence(at, log, diverging)
            if offset != end:
                limit = max(min(plan.limits[at], self._left), 0)
                # KIP-74: the first batch of an answer is read even if it is larger than the limit.
                up_to = log.end_before_hole(offset, end) if log.holes and self._is_committed else end
                is_first = self._size == 0
                views = log.read(offset, limit, at_least_one=is_first, up_to=up_to, wait=wait)
                if self._is_committed and views and log.has_aborted:
                    read_to = next_offset_of(views[-1])
                    most = max(ABORTED_AT_ONCE - self._aborted, 0)
                    aborted, cut = log.aborted_transactions(offset, read_to, most=most, wait=wait)
                    if cut < read_to:
                        # The client is not to wait for bytes that this answer has no room for.
                        self._wants_answer = True
                        views = log.read(offset, limit, at_least_one=is_first, up_to=cut, wait=wait)
        except Refused as refused:
            return self._refuse(at, refused.code, log)
        except StorageError:
            return self._refuse(at, ErrorCode.KAFKA_STORAGE_ERROR, log)
        except NotResidentError as cold:
            self._cold.append((at, cold))
            return None
        if views:
            size = sum(map(len, views))
            self._found[at] = size
            self._size += size
            self._left -= size
            self._aborted += len(aborted)
        elif self._is_known(at, log):
            return None
        return self._tell(at, log, views, aborted)

    def _is_known(self, at: int, log: PartitionLog) -> bool:
        """Whether a row without records would be no news to the client."""
        # KIP-227: within a session, a partition without news has no row.
        if self._session is None:
            return False
        plan, ends = self._plan, (log.log_start_offset, log.high_watermark, log.last_stable_offset)
        return self._session.knows(plan.topic_of(at).key, plan.numbers[at], ends)

    def _is_current(self) -> bool:
        """Whether the rows are withheld as the fences and the lease of the claim say now."""
        is_same = self._edition == self._context.ownership.edition
        return is_same and (self._has_lapsed or not is_over(self._claim, self._context.clock))

    def _find_withheld(self) -> None:
        """Find the rows that the member may not read; an unchanged session is examined once."""
        context, claim, session = self._context, self._claim, self._session
        edition = self._edition = context.ownership.edition
        served_to = None if session is None else session.served_to
        is_served = served_to is not None and served_to[0] is claim and served_to[1:] == (edition, self._changes)
        # The end of a token is another edition: most fetches ask nothing.
        capability = None if is_served or claim is None else claim.capability
        if claim is not None and capability is not None and context.capabilities.is_revoked(capability):
            # It was good when the fetch came.
            claim = self._claim = void(claim)
        self._has_lapsed = claim is not None and is_over(claim, context.clock)
        if claim is not None and self._has_lapsed:
            # One whose lease ends while its fetch waits may have a later grant, which its next fetch shows.
            note = None if self._was_served else context.refused_reads.note
            self._withheld = withhold_all(self._plan, claim, note)
            return
        self._was_served = True
        if is_served:
            self._withheld = NOTHING_WITHHELD
            return
        now_ms, note = context.monotonic_ms(), context.refused_reads.note
        self._withheld = find_withheld(
            self._plan, claim, context.ownership, sender=self._sender, now_ms=now_ms, on_refused=note
        )
        if session is not None and session.is_by_id and claim is not None and not self._withheld:
            session.served_to = claim, edition, self._changes

    def _sender(self) -> Sender:
        """Return the connections of a member that this fetch may be of."""
        request = self._request
        own, *others = self._context.member_connections.holders(request.connection) or ("",)
        return Sender(own, request.client_id, request.client_host, parents=tuple(others))

    def _withhold(self, at: int, log: PartitionLog, code: ErrorCode) -> PartitionData | None:
        """Answer a row that the member may not read: with an error, or as if there were no more records."""
        self._context.refused_reads.rows += 1
        if code in AT_ONCE:
            return self._refuse(at, code)
        self._seen[at] = self._end_of(log)
        if code is not ErrorCode.NONE:
            return self._error(at, code)
        return None if self._is_known(at, log) else self._tell(at, log, [])

    def _take_back(self) -> None:
        """Drop the records that were read before the member lost the right to read them."""
        for at, code in self._withheld.items():
            row, log = self._rows[at], self.logs[at]
            has_more = row is not None and row.records
            is_refused = row is not None and row.error_code == code
            if log is not None and (has_more if code is ErrorCode.NONE else not is_refused):
                size = self._found.pop(at, 0)
                self._size -= size
                self._left += size
                self._rows[at] = self._withhold(at, log, code)

    def _measure(self, at: int) -> int | None:
        """Return the available bytes of a row; `None` if the client has to be answered in any case."""
        plan = self._plan
        log = plan.logs[at]
        if log is None:
            return None
        leadership, offset = self._context.leadership, plan.offsets[at]
        if leadership.refusal(log, plan.leader_epochs[at]) is not ErrorCode.NONE:
            return None
        withheld = self._withheld
        if withheld and at in withheld:
            return None if withheld[at] in AT_ONCE else 0
        if offset == self._end_of(log):
            return 0
        try:
            if leadership.divergence(log, plan.last_epochs[at], offset) is not None:
                return None
            # One batch is read even above the limit.
            return log.measure(offset, max(plan.limits[at], 1), up_to=self._end_of(log), wait=False)
        except (Refused, StorageError):
            return None
        except NotResidentError:
            return self._min_bytes

    def _end_of(self, log: PartitionLog) -> int:
        """Return the offset at which reading of a log ends for this client."""
        return log.last_stable_offset if self._is_committed else log.high_watermark

    def _tell(
        self, at: int, log: PartitionLog, views: list[memoryview], aborted: Sequence[EndedTransaction] = ()
    ) -> PartitionData:
        told: list[wire.AbortedTransaction] | None = None
        if self._is_committed:
            told = [
                wire.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in aborted
            ]
        return PartitionData(
            partition_index=self._plan.numbers[at],
            error_code=0,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=told,
            records=views or b"",
        )

    def _tell_divergence(self, at: int, log: PartitionLog, diverging: tuple[int, int]) -> PartitionData:
        """Answer a client that has read records which were truncated."""
        self._wants_answer = True
        row = self._tell(at, log, [])
        row.diverging_epoch = wire.EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
        row.aborted_transactions = None
        return row

    def _refuse(self, at: int, code: ErrorCode, log: PartitionLog | None = None) -> PartitionData:
        self._wants_answer = True
        return self._error(at, code, log)

    def _error(self, at: int, code: ErrorCode, log: PartitionLog | None = None) -> PartitionData:
        return PartitionData(
            partition_index=self._plan.numbers[at],
            error_code=code,
            high_watermark=-1 if log is None else log.high_watermark,
            log_start_offset=-1 if log is None else log.log_start_offset,
            aborted_transactions=None,
            records=b"",
        )

    def _fetch_cold(self) -> None:
        """Have threads read the cold data that the answer has room for, then read those rows."""
        self._tries += 1
        cold, self._cold = self._cold, []
        left = self._left
        chosen: list[tuple[int, NotResidentError]] = []
        for at, each in cold:
            if left <= 0 and (chosen or self._size):
                # The row has its turn in the client's next fetch.
                log = self._plan.logs[at]
                assert log is not None, "what is cold is there"
                self._rows[at] = self._tell(at, log, [])
                continue
            each.size = max(each.size, min(self._plan.limits[at], left, READ_AHEAD_BYTES))
            left -= each.size
            chosen.append((at, each))
        if not chosen:
            self._after_reading()
            return
        waiting = [len(chosen)]

        def is_warm(at: int, result: Exception | None) -> None:
            if result is not None and not self._is_over:
                # The disk cannot read it: another try would make the loop wait for the same error.
                self._rows[at] = self._refuse(at, ErrorCode.KAFKA_STORAGE_ERROR, self._plan.logs[at])
            waiting[0] -= 1
            if not waiting[0] and not self._is_over:
                self._context.cooperative_work.run(self._warm_steps([at for at, _ in chosen]))

        for at, each in chosen:
            self._context.cold_reads.submit(partial(self._warm, each), partial(is_warm, at))

    def _warm(self, cold: NotResidentError) -> None:
        if not self._is_over:
            warm(cold)

    def _warm_steps(self, rows: Sequence[int]) -> Iterator[None]:
        # The disk may have taken long.
        if not self._plan.resolve():
            self._edition = -1
        if not self._is_current():
            self._find_withheld()
        for count, at in enumerate(rows, 1):
            if self._is_over:
                return
            if self._rows[at] is None:
                self._rows[at] = self._read_row(at, wait=self._tries >= MOST_TRIES)
            if not count % ROWS_AT_ONCE:
                yield
        if not self._is_over:
            self._after_reading()

    def _limit_by_quota(self) -> None:
        """Ask for no more bytes than the client's quota allows at once: more would be withheld for certain."""
        request = self._request
        assert isinstance(request, MeasuredRequest)
        most = request.most_fetched()
        if most is not None:
            self._max_bytes = min(self._max_bytes, most)
            self._min_bytes = min(self._min_bytes, self._max_bytes)

    def _withheld_by_quota(self) -> FetchResponse | None:
        """Return an empty answer if the client is beyond a quota: it asks for the same records again."""
        request, session = self._request, self._session
        if not isinstance(request, MeasuredRequest):
            return None
        if not request.withholds(self._size + ROW_BYTES * sum(row is not None for row in self._rows)):
            return None
        self._rows = []
        # A session that would begin with this answer does not: its client names all partitions again, as in Kafka.
        return FetchResponse(session_id=0 if session is None or session.is_new else session.id)

    def _response(self) -> FetchResponse:
        topics = []
        for rows in self._plan.topics:
            found = [row for row in self._rows[rows.first : rows.stop] if row is not None]
            if found or self._session is None:
                name, topic_id = rows.key
                topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=found))
        response = FetchResponse(responses=topics)
        return response if self._session is None else self._session.reduce(response)
