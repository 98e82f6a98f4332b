"""The background half of fetching: it sends fetches on its own, as far as the buffer has room.

Laws: a readable partition is asked for within one round trip of its broker, whatever other partitions, brokers and the
application do. So each broker has one long fetch under way, and beside it a short one that does not wait, for
partitions that were not ready when the long one was sent. Each broker has its share of the buffer, and keeps some of it
for the short fetch. Paused data gives way.
Source: the consumer threading refactor (CTR): FetchSender; Kafka's Fetch API: KIP-227 (sessions, for the long fetches),
KIP-219 (throttling), KIP-320 (leader epochs), KIP-392 (preferred replica), KIP-516 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from kohort.client.consumer.application_events import Chunk, GiveWay, Watermarks, WatermarksSeen
from kohort.client.consumer.fetch.fetch_session import NO_SESSION, Asked, Contents, topics_of
from kohort.client.consumer.fetch.fetch_targets import Fetch, FetchBuffer, FetchTarget, FetchTargets
from kohort.client.consumer.fetch.partition_state import Reading, Readings
from kohort.client.core.actions import Disconnect, Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.coordinator_lookup import CoordinatorLookup, ReceivedUpdates
from kohort.client.core.refusals import refused
from kohort.client.core.requests import Answer, RequestFailed, Requests, message_of
from kohort.client.options import ConsumerSettings
from kohort.errors import CorruptRecordError, ErrorCode
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition
from kohort.records.header import check_batch, parse_header
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionData
from kohort.wire.messages.membership import KnownMembership, MembershipUpdate

#: The start of a batch of format 2: base offset, length, leader epoch; further behind its last offset's delta.
_BATCH_START: Final = Struct(">qii")
_LAST_DELTA: Final = Struct(">i")
_LAST_DELTA_AT: Final = 23
#: Responses in a row without a complete batch that prove damage: a broker sends the first batch completely.
_TORN_ANSWERS: Final = 5
_LENGTH_END: Final = 12
_FENCED: Final = int(ErrorCode.FENCED_MEMBER_EPOCH)


class HeldBytes(NamedTuple):
    """The data of a response that stays in memory."""

    #: Bytes that stay in use until the application has got the last record of the response.
    pinned_bytes: int
    #: partition -> bytes of its piece; no zeros.
    pieces: dict[TopicPartition, int]


class FetchAnswers:
    """Handles fetch responses: records, log start and end offsets, errors, preferred replicas, truncated logs.

    Laws: a response has no effect on a partition that was sought, reassigned or fetched further since the request.
    Source: KIP-320 (a truncated log is found by the epoch of the last record, which each fetch names).
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        readings: Readings,
        *,
        on_fenced: Callable[[Sequence[TopicPartition], int], bool],
        updates: ReceivedUpdates | None,
        preference_ms: int,
    ) -> None:
        self._requests = requests
        #: Called with partitions of which the leader refuses the member; returns whether it has a member.
        self._on_fenced = on_fenced
        #: The grants of the member.
        self._updates = updates
        self._cluster = cluster
        self._readings = readings
        #: How long a replica that the leader has named is preferred.
        self._preference_ms = preference_ms

    def take(self, fetch: Fetch, response: FetchResponse, now_ms: int) -> HeldBytes:
        """Handle a response without an error of its own; return the data that is held from now on."""
        seen: dict[TopicPartition, Watermarks] = {}
        chunks: list[Chunk] = []
        fenced: list[TopicPartition] = []
        for topic in response.responses:
            name = topic.topic or fetch.names.get(bytes(topic.topic_id), "")
            for data in topic.partitions:
                asked = fetch.asked.get(TopicPartition(name, data.partition_index))
                # A seek, a reset or another fetch may have moved the reading since.
                if asked is None or asked.reading.is_over or asked.reading.offset != asked.entry.fetch_offset:
                    continue
                if data.error_code == _FENCED:
                    fenced.append(asked.reading.partition)
                elif data.error_code:
                    self._on_error(fetch, asked.reading, ErrorCode.of(data.error_code), now_ms)
                if data.error_code:
                    continue
                # A good answer ends an earlier refusal.
                self._readings.accept(asked.reading)
                ends = Watermarks(data.log_start_offset, data.last_stable_offset, data.high_watermark)
                if ends != asked.reading.watermarks and data.high_watermark >= 0:
                    asked.reading.watermarks = seen[asked.reading.partition] = ends
                chunk = self._on_data(fetch, asked.reading, data, TopicId(topic.topic_id), now_ms)
                if chunk is not None:
                    chunks.append(chunk)
        if fenced:
            self._on_refused_member(fetch, fenced, now_ms)
        if seen:
            self._requests.deliver(WatermarksSeen(seen=seen))
        for chunk in chunks:
            self._requests.deliver(chunk)
        # Mostly one object, the frame that all slices of the answer refer to.
        pinned = {id(chunk.records.obj): memoryview(chunk.records.obj).nbytes for chunk in chunks}
        return HeldBytes(sum(pinned.values()), {chunk.partition: chunk.size_bytes for chunk in chunks})

    def _on_data(
        self, fetch: Fetch, reading: Reading, data: PartitionData, topic_id: TopicId, now_ms: int
    ) -> Chunk | None:
        """Handle one partition's part of a response; return its records for the application, if any."""
        assert reading.offset is not None
        if data.preferred_read_replica >= 0:
            reading.preferred_node = data.preferred_read_replica
            reading.preferred_until_ms = now_ms + self._preference_ms
            self._readings.touch(reading)
        if data.diverging_epoch.end_offset >= 0:
            self._on_divergence(reading, data)
            return None
        if data.records is None or len(data.records) == 0:
            # A partition that was asked for by the short fetch waits in the next long fetch.
            reading.is_waiting, reading.attempts = not fetch.is_long, 0
            return None
        assert isinstance(data.records, memoryview), "records that were decoded are a slice of their response"
        end = end_of(data.records, reading.offset)
        self._readings.touch(reading)
        if end is None or end.next_offset <= reading.offset:
            self._on_nothing_whole(reading, now_ms)
            return None
        reading.attempts = 0
        chunk = Chunk(
            partition=reading.partition,
            fence=reading.fence,
            offset=reading.offset,
            next_offset=end.next_offset,
            # A slice of the answer, without a copy.
            records=data.records[: end.size_bytes],
            size_bytes=end.size_bytes,
            aborted=[(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()],
            leader_epoch=end.leader_epoch,
            topic_id=topic_id,
        )
        reading.offset, reading.offset_epoch = end.next_offset, end.leader_epoch
        return chunk

    def _on_nothing_whole(self, reading: Reading, now_ms: int) -> None:
        """Pause a partition after a response without a complete batch; report damage after several in a row."""
        reading.not_before_ms = now_ms + max(1, self._requests.retry.delay_ms(reading.attempts))
        reading.attempts += 1
        if reading.attempts >= _TORN_ANSWERS:
            text = (
                f"{reading.partition} cannot be read at offset {reading.offset}: {_TORN_ANSWERS} answers in a row had "
                "no whole batch there, so its length is damaged in the broker's log; seek behind it to go on"
            )
            error = CorruptRecordError(text, partition=reading.partition, offset=reading.offset)
            self._readings.stick(reading, error)

    def _on_divergence(self, reading: Reading, data: PartitionData) -> None:
        was, now = reading.offset, data.diverging_epoch
        if was is not None and now.end_offset < was:
            if self._readings.truncate(reading, now.end_offset, now.epoch):
                self._requests.warn(
                    f"the log of {reading.partition} was cut at offset {now.end_offset}, before the position {was}: "
                    "reading goes on there"
                )
        else:
            # Only the epoch is gone: no record was written under it before this position.
            reading.offset_epoch = now.epoch
            self._readings.touch(reading)

    def _on_refused_member(self, fetch: Fetch, partitions: list[TopicPartition], now_ms: int) -> None:
        """Make the member give up partitions whose leader refuses it, since others own them (H5)."""
        if self._updates is not None and fetch.grants != self._updates.grants:
            # The leader has not seen the grant that the member has by now: it is asked again with that one.
            for partition in partitions:
                self._readings.rest(fetch.asked[partition].reading, now_ms)
            return
        is_taken = self._on_fenced(partitions, now_ms)
        for partition in partitions:
            reading = fetch.asked[partition].reading
            if is_taken:
                self._readings.note_fenced(partition, now_ms)
                self._readings.rest(reading, now_ms)
            else:
                self._on_error(fetch, reading, ErrorCode.FENCED_MEMBER_EPOCH, now_ms)

    def _on_error(self, fetch: Fetch, reading: Reading, code: ErrorCode, now_ms: int) -> None:
        # KIP-392: after an error the leader is asked next.
        reading.preferred_node = -1
        self._readings.rest(reading, now_ms)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and fetch.target.endpoint != self._cluster.leader_of(
            reading.partition
        ):
            # A replica that lags behind may lack an offset. The leader is asked next.
            return
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._readings.reset(reading, f"offset {reading.offset} of {reading.partition} does not exist (any more)")
        elif code is ErrorCode.CORRUPT_MESSAGE:
            # Java's consumer stops, too: damage stays, whichever client asks again.
            text = (
                f"{reading.partition} cannot be read at offset {reading.offset}: the records there are damaged in the "
                "broker's log, which says where they end; seek behind them to go on"
            )
            error = CorruptRecordError(text, partition=reading.partition, offset=reading.offset)
            self._readings.stick(reading, error)
        elif code.invalidates_metadata:
            self._cluster.refresh(now_ms)
        elif not code.retriable:
            during = f"reading {reading.partition}"
            self._readings.refuse(reading, refused(code, during=during, operation="read", name=reading.partition.topic))


class End(NamedTuple):
    """The end of the complete batches in a response; a broker truncates the last batch at the limit of bytes."""

    next_offset: int
    size_bytes: int
    #: Leader epoch of the last batch (KIP-320).
    leader_epoch: int


def end_of(records: memoryview, offset: int) -> End | None:
    """Find the end of the last complete batch, `None` without one; `offset` is that of the request."""
    position, size = 0, len(records)
    last: int | None = None
    while size - position > _LAST_DELTA_AT + _LAST_DELTA.size:
        _, length, _ = _BATCH_START.unpack_from(records, position)
        if length < _LAST_DELTA_AT or position + _LENGTH_END + length > size:
            break
        last, position = position, position + _LENGTH_END + length
    if last is None:
        return None
    base_offset, _, leader_epoch = _BATCH_START.unpack_from(records, last)
    (last_delta,) = _LAST_DELTA.unpack_from(records, last + _LAST_DELTA_AT)
    next_offset = base_offset + last_delta + 1
    if next_offset <= offset and _is_damaged(records, last):
        # The length may be all that is right. The decoder reports the damage, and where to go on.
        next_offset = offset + 1
    return End(next_offset, position, leader_epoch)


def _is_damaged(records: memoryview, position: int) -> bool:
    try:
        check_batch(records, position, parse_header(records, position))
    except CorruptRecordError:
        return True
    return False


#: Last version by topic name; later ones go by topic id only.
_LAST_BY_NAME: Final = 12
_FIRST_WITH_SESSIONS: Final = 7
#: The longest wait of a fetch that has nothing to say, behind one that brought nothing, in milliseconds; and what it is
#: at most of a heartbeat interval, in tenths, and of a login, which is renewed between two answers.
_IDLE_WAIT_MS: Final = 4_000
#: The shortest `fetch.max.wait.ms` that is made longer, its default: who asks for less has a reason.
_SHORTEST_STRETCHED_MS: Final = 500
_INTERVAL_TENTHS: Final = 7
_WAITS_PER_LOGIN: Final = 25
#: Errors after which the next long fetch has to be a full one, without a pause.
_SESSION_LOST: Final = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
_NOTHING: Final = HeldBytes(0, {})


class FetchSender:
    """Decides which partitions to fetch from which broker, and when.

    Args:
        on_fenced: called with partitions whose leader refuses the member; returns whether there is a member.
        preference_ms: for how long a replica that the leader has named is preferred (KIP-392).
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        readings: Readings,
        lookup: CoordinatorLookup | None,
        settings: ConsumerSettings,
        *,
        on_fenced: Callable[[Sequence[TopicPartition], int], bool],
        preference_ms: int,
    ) -> None:
        self._requests = requests
        #: Finds the coordinator, whose answers to fetches may carry news for the member; `None` without a group.
        self._lookup = lookup
        self._cluster = cluster
        self._readings = readings
        self._settings = settings
        self.buffer = FetchBuffer(limit_bytes=settings.options["fetch_buffer_bytes"])
        #: Bytes of records that have arrived since the start.
        self.fetched_bytes = 0
        self._targets = FetchTargets(cluster, readings, self.buffer)
        #: Wakes this part of the machine.
        self.wake: Callable[[], None] = lambda: None
        updates = None if lookup is None else lookup.updates
        self._answers = FetchAnswers(
            requests, cluster, readings, on_fenced=on_fenced, updates=updates, preference_ms=preference_ms
        )

    def next_deadline(self) -> int | None:
        """Return when a partition or broker may be asked again; 0 means at once."""
        if self._readings.has_touched:
            return 0
        brokers = len(self._targets)
        waiting = [self._targets.next_deadline()]
        waiting += [
            self._not_before_ms(target)
            for target in self._targets.all()
            if target.askable() and self._room_for(target, brokers) > 0 and not self._is_lapsed
        ]
        return min((instant for instant in waiting if instant is not None), default=None)

    @property
    def is_full(self) -> bool:
        """Whether the buffer has no room to ask any broker for more."""
        return self.buffer.room < self._least(max(1, len(self._targets)))

    def on_cluster_change(self) -> None:
        """Find each partition's leader anew in new metadata."""
        self._targets.look_at_all()

    def configure(self, settings: ConsumerSettings) -> None:
        """Take other limits, from the next fetch on; data beyond them is held until it is taken."""
        self._settings = settings
        self.buffer.limit_bytes = settings.options["fetch_buffer_bytes"]
        self._targets.look_at_all()

    def end_sessions(self) -> None:
        """End the brokers' fetch sessions, without waiting for an answer."""
        for endpoint, session in self._targets.sessions():
            session_id = session.end()
            if session_id:
                request = FetchRequest(max_wait_ms=0, session_id=session_id, session_epoch=NO_SESSION)
                self._requests.send(endpoint, Lane.CONTROL, request, lambda *_: None, min_version=_FIRST_WITH_SESSIONS)

    def work(self, now_ms: int) -> None:
        """Send the fetches that are due, and break off those that serve no reading any more."""
        self._targets.place_due(now_ms)
        for fetch in self._targets.under_way():
            # Every reading that it was sent for has ended.
            if 0 < len(fetch.asked) <= fetch.over:
                self._break_off(fetch)
        if self._targets.leaderless:
            self._cluster.refresh_soon(now_ms)
        if self._is_lapsed:
            return
        brokers = len(self._targets)
        missing = 0
        for target in self._targets.all():
            if target.is_patient and target.long is not None and target.beside is None and self._has_news(target):
                self._send(target, target.fresh, self._room_for(target, brokers) if target.fresh else 0, now_ms)
            # Through the first lane that is free, then through the other one.
            while self._not_before_ms(target) <= now_ms and (due := target.askable()):
                size = self._room_for(target, brokers)
                if not size:
                    missing += self._least(brokers) if self._share_left(target, brokers) else 0
                    break
                self._send(target, due, size, now_ms)
        if missing:
            self._make_room(missing)

    @property
    def _is_lapsed(self) -> bool:
        """Whether the lease of the member's grant is over, until it is renewed."""
        return self._lookup is not None and self._lookup.updates.is_lapsed

    def _not_before_ms(self, target: FetchTarget) -> int:
        """Return when the broker may be asked again, after a failure or throttling."""
        return max(target.not_before_ms, self._requests.not_before_ms(target.endpoint))

    # -- room -------------------------------------------------------------------------------------------------------

    def _least(self, brokers: int) -> int:
        """Return the bytes below which a fetch is not worth sending: it would cost more than it brings."""
        settings = self._settings
        quarter = max(1, self.buffer.share(brokers) // 4)
        return min(settings.options["fetch_max_bytes"], settings.options["max_partition_fetch_bytes"], quarter)

    def _share_left(self, target: FetchTarget, brokers: int) -> int:
        """Return the bytes left of the broker's share; 0: too little for a fetch."""
        left = self.buffer.share(brokers) - self.buffer.used(target.endpoint)
        return left if left >= self._least(brokers) else 0

    def _room_for(self, target: FetchTarget, brokers: int) -> int:
        """Return the most bytes that the broker can be asked for now; 0: too little for a fetch."""
        size = min(self._share_left(target, brokers), self.buffer.room)
        return size if size >= self._least(brokers) > 0 else 0

    def _make_room(self, missing: int) -> None:
        """Have paused partitions drop their data, those with the most first."""
        paused = [(reading, self.buffer.held(reading.partition)) for reading in self._paused()]
        # Those that were asked already come first: their bytes are on the way back.
        paused.sort(key=lambda each: (not each[0].is_giving_way, -each[1]))
        for reading, held in paused:
            if missing <= 0:
                break
            missing -= held
            # It is asked once. Its bytes come back when the application's side has dropped the data.
            if not reading.is_giving_way:
                reading.is_giving_way = True
                self._requests.deliver(GiveWay(partition=reading.partition, fence=reading.fence))

    def _paused(self) -> list[Reading]:
        readings = [self._readings.get(partition) for partition in self.buffer.paused()]
        return [reading for reading in readings if reading is not None and reading.is_paused]

    # -- the request ------------------------------------------------------------------------------------------------

    def _send(self, target: FetchTarget, due: dict[TopicPartition, Reading], room: int, now_ms: int) -> None:
        settings = self._settings
        is_long = target.long is None
        # A short fetch ends the wait of a long one that waits for longer than it has to, since it is behind it.
        lane = Lane.FETCH if is_long or target.is_patient else Lane.FETCH_AT_ONCE
        size = min(settings.options["fetch_max_bytes"], len(due) * settings.options["max_partition_fetch_bytes"], room)
        if is_long:
            # The rest is for a short fetch of partitions that become ready while this one is under way.
            size = min(size, max(1, room * 3 // 4))
            contents = self._renew(target)
            target.is_patient = self._may_be_patient(target, contents)
            asked, names = target.session.asked, target.session.names
        else:
            asked = {partition: self._ask(reading) for partition, reading in due.items()}
            names = {bytes(each.topic_id): partition.topic for partition, each in asked.items()}
            has_ids = all(each.topic_id != ZERO_TOPIC_ID for each in asked.values())
            contents = Contents(0, NO_SESSION, topics_of(asked.items()), [], has_ids)
        request = FetchRequest(
            # A short fetch does not wait, so that the next one can ask for partitions that become ready meanwhile.
            max_wait_ms=self._wait_ms(target) if is_long else 0,
            min_bytes=settings.options["fetch_min_bytes"],
            max_bytes=size,
            isolation_level=1 if settings.is_read_committed else 0,
            session_id=contents.session_id,
            session_epoch=contents.session_epoch,
            topics=contents.topics,
            forgotten_topics_data=contents.forgotten,
            rack_id=settings.options["client_rack"],
            member=self._say(target) if is_long else None,
            grant=self._show(target, is_long=is_long),
        )
        token = self._requests.send(
            target.endpoint,
            lane,
            request,
            lambda answer, now_ms: self._on_answer(fetch, answer, now_ms),
            # Later versions go by topic id, which every topic in the request has to have.
            max_version=None if contents.has_ids else _LAST_BY_NAME,
            # The broker may hold the request for max_wait_ms before it answers.
            timeout_ms=request.max_wait_ms + self._requests.request_timeout_ms,
            wake=self.wake,
        )
        fetch = Fetch(target=target, lane=lane, is_long=is_long, token=token, asked=asked, names=names, sent_ms=now_ms)
        fetch.reserved_bytes = size
        if self._lookup is not None:
            fetch.grants = self._lookup.updates.grants
        if self._lookup is not None and self._lookup.endpoint == target.endpoint:
            fetch.era = self._lookup.updates.era
            fetch.is_counted = is_long and target.session.said is not None
            if fetch.is_counted:
                self._lookup.updates.fetched_ms = now_ms
        self._targets.begin(fetch)
        self.buffer.reserve(target.endpoint, size)

    def _has_news(self, target: FetchTarget) -> bool:
        """Whether the member has a word or a token that was not sent to that broker."""
        return self._new_word(target) is not None or self._token(target) != target.session.token

    def _new_word(self, target: FetchTarget) -> KnownMembership | None:
        """Return the member's word for that broker if it was not sent in this session; otherwise `None`."""
        lookup, session = self._lookup, target.session
        if lookup is None:
            return None
        # A leader that does not coordinate the group enforces what grants say, and needs to know the member for that.
        # One that was told goes by that until it is told again.
        is_told = lookup.endpoint == target.endpoint or session.said is not None
        if not is_told and (lookup.updates.grant is None or target.is_foreign):
            return None
        word = lookup.updates.say()
        return None if word is session.said else word

    def _token(self, target: FetchTarget) -> str | None:
        """Return the token of the member's grant, for a broker of kohort's; `None`: there is none."""
        grant = None if self._lookup is None or target.is_foreign else self._lookup.updates.grant
        return None if grant is None else grant.token

    def _say(self, target: FetchTarget) -> KnownMembership | None:
        """Return the member's word that is new to that broker, and note that it is sent."""
        word = self._new_word(target)
        if word is not None:
            target.session.said = word
        return word

    def _show(self, target: FetchTarget, *, is_long: bool) -> str | None:
        """Return the member's token if that broker was not sent it by that connection; otherwise `None`."""
        token = self._token(target)
        if not is_long:
            # Without a session each fetch says whose it is.
            return token
        # A connection that was opened anew without a failed request gets it with the next renewal.
        former, target.session.token = target.session.token, token
        if former == token:
            return None
        # An empty one says that there is none any more.
        return token or ""

    def _may_be_patient(self, target: FetchTarget, contents: Contents) -> bool:
        """Return whether the next long fetch may wait longer than `fetch.max.wait.ms`."""
        options = self._settings.options
        is_idle = target.is_idle and not target.is_foreign and target.beside is None and contents.session_epoch > 0
        asks_little = options["fetch_min_bytes"] <= 1 and options["fetch_max_wait_ms"] >= _SHORTEST_STRETCHED_MS
        return is_idle and asks_little and not (contents.topics or contents.forgotten or self._has_news(target))

    def _wait_ms(self, target: FetchTarget) -> int:
        """Return how long the next long fetch may wait.

        With one byte enough an answer does not depend on the wait. So a fetch of which nothing is expected waits longer
        at a broker that ends its wait for a short one behind it.
        """
        wait_ms = self._settings.options["fetch_max_wait_ms"]
        if not target.is_patient:
            return wait_ms
        longest_ms = _IDLE_WAIT_MS
        member = None if self._lookup is None else self._lookup.updates.member
        if member is not None:
            longest_ms = min(longest_ms, member.interval_ms * _INTERVAL_TENTHS // 10)
        if target.login_ms:
            longest_ms = min(longest_ms, target.login_ms // _WAITS_PER_LOGIN)
        return max(wait_ms, longest_ms)

    def _renew(self, target: FetchTarget) -> Contents:
        """Build the contents of the next long fetch from the partitions that have changed."""
        session = target.session
        before = [asked for partition in target.changed if (asked := session.asked.get(partition)) is not None]
        changes = {
            partition: None if (reading := target.ready.get(partition)) is None else self._ask(reading)
            for partition in target.changed
        }
        self._hand_down(before, changes)
        contents = session.renew(changes)
        self._targets.note_asked(target, changes, before)
        return contents

    def _hand_down(self, before: list[Asked], changes: Mapping[TopicPartition, Asked | None]) -> None:
        """Tell new readings the log ends of earlier ones: within a session a broker sends them once."""
        seen: dict[TopicPartition, Watermarks] = {}
        for old in before:
            new = changes[old.reading.partition]
            if new is not None and new.reading.watermarks is None and old.reading.watermarks is not None:
                new.reading.watermarks = seen[new.reading.partition] = old.reading.watermarks
        if seen:
            self._requests.deliver(WatermarksSeen(seen=seen))

    def _ask(self, reading: Reading) -> Asked:
        info = self._cluster.partition(reading.partition)
        assert reading.offset is not None
        entry = FetchPartition(
            partition=reading.partition.partition,
            current_leader_epoch=-1 if info is None else info.leader_epoch,
            fetch_offset=reading.offset,
            last_fetched_epoch=reading.offset_epoch,
            partition_max_bytes=self._settings.options["max_partition_fetch_bytes"],
        )
        return Asked(reading, self._cluster.topic_id(reading.partition.topic), entry)

    # -- the answer -------------------------------------------------------------------------------------------------

    def _on_answer(self, fetch: Fetch, answer: Answer, now_ms: int) -> None:
        target = fetch.target
        response = message_of(answer, FetchResponse)
        if response is None:
            self._on_failure(fetch, now_ms)
            return
        assert not isinstance(answer, RequestFailed), "it has a message"
        target.is_foreign, target.login_ms = not answer.is_kohort, answer.login_ms
        if fetch.is_long:
            target.session.on_answer(response)
        if self._lookup is not None:
            self._hear(self._lookup.updates, fetch, response.membership_update, now_ms)
        code = ErrorCode.of(response.error_code)
        if code in _SESSION_LOST and fetch.is_long:
            self._end(fetch, _NOTHING)
        elif code is not ErrorCode.NONE:
            self._on_failure(fetch, now_ms)
        else:
            target.attempts = 0
            if fetch.is_long:
                target.is_idle = not response.responses
            self._end(fetch, self._answers.take(fetch, response, now_ms))

    def _hear(self, updates: ReceivedUpdates, fetch: Fetch, news: MembershipUpdate | None, now_ms: int) -> None:
        """Hand on what an answer says of the member."""
        if fetch.is_counted and fetch.era == updates.era and (news is None or not news.error_code):
            updates.on_fetched(fetch.sent_ms, now_ms)
        if news is not None:
            # Whether or not it is taken: the next fetch says what the member knows then.
            fetch.target.session.said = None
            updates.hear(news, era=fetch.era, lane=fetch.lane, sent_ms=fetch.sent_ms, now_ms=now_ms)

    def _on_failure(self, fetch: Fetch, now_ms: int) -> None:
        target = fetch.target
        target.not_before_ms = now_ms + max(1, self._requests.retry.delay_ms(target.attempts))
        target.attempts += 1
        target.is_idle = False
        for asked in fetch.asked.values():
            if asked.reading.preferred_node >= 0:
                asked.reading.preferred_node = -1
                self._readings.touch(asked.reading)
        if fetch.is_long:
            target.session.on_failure()
        self._end(fetch, _NOTHING)
        self._cluster.refresh(now_ms)

    def _break_off(self, fetch: Fetch) -> None:
        # The broker may hold it for fetch.max.wait.ms. Meanwhile it would serve nothing else on that connection.
        self._requests.forget(fetch.token)
        self._requests.add(Disconnect(to=fetch.target.endpoint, lane=fetch.lane))
        if fetch.is_long:
            fetch.target.session.on_failure()
        self._end(fetch, _NOTHING)

    def _end(self, fetch: Fetch, held: HeldBytes) -> None:
        self._targets.end(fetch)
        self.fetched_bytes += sum(held.pieces.values())
        self.buffer.settle(
            fetch.target.endpoint, reserved=fetch.reserved_bytes, pinned_bytes=held.pinned_bytes, held=held.pieces
        )
