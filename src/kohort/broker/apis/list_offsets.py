"""ListOffsets (key 2): offsets by time, and the ends of a partition.

Special times: -1 the end that consumers see, -2 the beginning, -3 the record with the latest time (version 7), -4 the
beginning of what is on this disk (8), -5 the end of tiered storage (9), -6 the first offset that tiered storage lacks
(11). There is no tiered storage, so -5 and -6 find nothing.

Laws: the loop looks at headers of batches, a few rows at a time, and unfolds only what is short; the disk and long
batches are for a thread, one batch at a time. A batch that unfolds to more than `timesearch.LIMIT_BYTES` is told by its
header: reading from its first record on misses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, TypeVar

from kohort.broker.apis.fetch import READ_COMMITTED
from kohort.broker.context import BrokerContext, Request
from kohort.broker.scheduling import warm
from kohort.errors import ErrorCode, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.files.descriptors import NotResidentError
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.segments.segment import TimePlace, place_of_latest, place_of_time
from kohort.wire.messages import list_offsets as wire

T = TypeVar("T")

#: Kafka's special timestamps (KIP-734, KIP-405, KIP-1005).
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

#: The answer where no offset matches.
_NOTHING: Final = (-1, -1)
#: Special time -> first version that may ask for it.
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
#: Rows that are looked up by time in one turn of the loop.
ROWS_AT_ONCE: Final = 100
#: A batch that is no longer, and unfolds to no more, is unfolded on the loop.
SHORT_BYTES: Final = 64 * 1024
#: How often cold data is fetched for a row; should it be gone again by then, the loop waits for the disk.
MOST_TRIES: Final = 5


def handle(
    context: BrokerContext, request: Request, message: wire.ListOffsetsRequest
) -> wire.ListOffsetsResponse | None:
    """Look up each partition independently; one named twice is refused once, as by Apache Kafka."""
    named = Counter((asked.name, row.partition_index) for asked in message.topics for row in asked.partitions)
    # Topic -> partition -> the row of the request.
    wanted: dict[str, dict[int, wire.ListOffsetsPartition]] = {}
    for asked in message.topics:
        wanted.setdefault(asked.name, {}).update((row.partition_index, row) for row in asked.partitions)
    topics: list[wire.ListOffsetsTopicResponse] = []
    by_time: list[_Lookup] = []
    rights, denied = request.rights, []
    for name, rows in wanted.items():
        if rights.is_restricted and not rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            # They come last in Apache Kafka's answer, too.
            denied.append(_deny(name, rows))
            continue
        topic, _ = context.cluster.find(name, ZERO_TOPIC_ID)
        answers = []
        for number, row in rows.items():
            log = context.cluster.partition(topic, number)
            # A partition that is named twice is refused, as by Apache Kafka.
            code = ErrorCode.INVALID_REQUEST
            if named[name, number] == 1:
                code = _refusal(context, log, row, request.version)
            if rights.is_partial and topic is not None and not rights.allows_partition(name, topic.topic_id, number):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            answer = wire.ListOffsetsPartitionResponse(partition_index=number, error_code=code)
            answers.append(answer)
            # Ends of the log are answered at once; timestamps need a search.
            if code is ErrorCode.NONE and log is not None:
                lookup = _Lookup(log, answer, row.timestamp, is_committed=message.isolation_level == READ_COMMITTED)
                if not lookup.is_done_at_once():
                    by_time.append(lookup)
        topics.append(wire.ListOffsetsTopicResponse(name=name, partitions=answers))
    response = wire.ListOffsetsResponse(topics=[*topics, *denied])
    if not by_time:
        return response
    _Search(context, request, response, by_time).start()
    return None


def _deny(name: str, numbers: Iterable[int]) -> wire.ListOffsetsTopicResponse:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    rows = [wire.ListOffsetsPartitionResponse(partition_index=number, error_code=code) for number in numbers]
    return wire.ListOffsetsTopicResponse(name=name, partitions=rows)


def _refusal(
    context: BrokerContext, log: PartitionLog | None, asked: wire.ListOffsetsPartition, version: int
) -> ErrorCode:
    if log is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refusal = context.leadership.refusal(log, asked.current_leader_epoch)
    if refusal is not ErrorCode.NONE:
        return refusal
    if asked.timestamp < EARLIEST_PENDING_UPLOAD or version < _SINCE.get(asked.timestamp, 0):
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


class _Lookup:
    """The lookup of one partition, and the row of the response for its answer."""

    __slots__ = ("answer", "is_committed", "log", "place", "timestamp", "tries")

    def __init__(
        self, log: PartitionLog, answer: wire.ListOffsetsPartitionResponse, timestamp: int, *, is_committed: bool
    ) -> None:
        #: Whether the client reads committed records only, and so up to the last stable offset.
        self.is_committed: Final = is_committed
        self.log: Final = log
        self.answer: Final = answer
        self.timestamp: Final = timestamp
        #: The batch that has to be unfolded, once it is known.
        self.place: TimePlace | None = None
        self.tries = 0

    @property
    def _end(self) -> int:
        """The offset at which reading of the log ends for the client."""
        return self.log.last_stable_offset if self.is_committed else self.log.high_watermark

    def is_done_at_once(self) -> bool:
        """Answer if that needs no access to the log's files; return whether it was answered."""
        match self.timestamp:
            case -1:
                self.tell((-1, self._end))
            case -2 | -4:
                self.tell((-1, self.log.log_start_offset))
            case -5 | -6:
                self.tell(_NOTHING)
            case _:
                return False
        return True

    def look(self) -> bool:
        """Answer if that needs no waiting; return `False` if a thread has to decompress `place`.

        Raises:
            NotResidentError: the data is not in memory, and a thread has to read it first.
        """
        self.tries += 1
        wait = self.tries > MOST_TRIES
        segments = self.log.segments
        if self.timestamp == MAX_TIMESTAMP:
            place = place_of_latest(segments, wait=wait)
        else:
            place = place_of_time(segments, self.timestamp, wait=wait)
        if place is None:
            self.tell(_NOTHING)
            return True
        found = place.find_record(limit_bytes=SHORT_BYTES, wait=wait)
        if found is None:
            self.place = place
            return False
        self.tell_visible(found)
        return True

    def tell(self, found: tuple[int, int]) -> None:
        """Fill in the answer with `found`, a timestamp and an offset."""
        self.answer.timestamp, self.answer.offset = found
        self.answer.leader_epoch = _epoch_of(self.log, self.timestamp, found[1])

    def tell_visible(self, found: tuple[int, int]) -> None:
        """Fill in the answer as far as consumers may see the record."""
        timestamp, offset = found
        # Consumers see no record at or above the end, and none that was deleted before the log start.
        visible = timestamp, max(offset, self.log.log_start_offset)
        self.tell(visible if visible[1] < self._end else _NOTHING)

    def fail(self) -> None:
        """Answer with KAFKA_STORAGE_ERROR."""
        self.answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR


class _Search:
    """The lookups by time of one request, until all are answered."""

    __slots__ = ("_context", "_is_over", "_lookups", "_open", "_request", "_response")

    def __init__(
        self, context: BrokerContext, request: Request, response: wire.ListOffsetsResponse, lookups: list[_Lookup]
    ) -> None:
        self._context: Final = context
        self._request: Final = request
        self._response: Final = response
        self._lookups: Final = lookups
        self._open = len(lookups)
        self._is_over = False

    def start(self) -> None:
        """Start the lookups, a few rows in each turn of the loop."""
        # The search ends when the client disconnects.
        self._request.on_abandon = self._abandon
        self._context.cooperative_work.run(self._steps())

    def _steps(self) -> Iterator[None]:
        for at, lookup in enumerate(self._lookups):
            if at and not at % ROWS_AT_ONCE:
                yield
            if self._is_over:
                return
            self._look(lookup)

    def _look(self, lookup: _Lookup) -> None:
        try:
            is_done = lookup.look()
        except NotResidentError as cold:
            self._context.cold_reads.submit(partial(warm, cold), lambda result: self._look_again(lookup, result))
            return
        except StorageError:
            lookup.fail()
            is_done = True
        if is_done:
            self._close(lookup)
            return
        place = lookup.place
        assert place is not None, "what is not done is to be unfolded"
        # For a client that has disconnected nothing is decompressed.
        unfold = partial(_unless, lambda: self._is_over, place.find_record)
        self._context.unfolding.submit(unfold, lambda result: self._found(lookup, result))

    def _look_again(self, lookup: _Lookup, result: Exception | None) -> None:
        """Look again after the read of cold data; `result` is the error of a read that failed."""
        if self._is_over:
            return
        if result is None:
            self._look(lookup)
        else:
            lookup.fail()
            self._close(lookup)

    def _found(self, lookup: _Lookup, result: tuple[int, int] | Exception | None) -> None:
        if self._is_over:
            return
        if isinstance(result, StorageError):
            lookup.fail()
        elif isinstance(result, Exception):
            raise result
        else:
            assert lookup.place is not None, "it was unfolded"
            lookup.tell_visible(result or lookup.place.header_says)
        self._close(lookup)

    def _close(self, lookup: _Lookup) -> None:
        lookup.place = None
        self._open -= 1
        if not self._open:
            self._is_over = True
            self._request.answer(self._response)

    def _abandon(self) -> None:
        self._is_over = True


def _epoch_of(log: PartitionLog, timestamp: int, offset: int) -> int:
    """Return the leader epoch of the found record; for LATEST, the current epoch."""
    if offset < 0:
        return -1
    epoch = -1 if timestamp == LATEST else log.epochs.of(offset)
    return log.leader_epoch if epoch < 0 else epoch


def _unless(is_over: Callable[[], bool], work: Callable[[], T]) -> T | None:
    return None if is_over() else work()
