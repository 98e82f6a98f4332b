"""The application's half of fetching: positions, pauses, seeks, and what becomes of damaged data."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kohort.client.consumer.application_events import Chunk, Fence, Watermarks, empty_chunk
from kohort.client.consumer.context import Deserializing
from kohort.client.consumer.fetch.fetch_handler import FetchHandler
from kohort.client.consumer.fetch.fetch_sender import end_of
from kohort.errors import CorruptRecordError, DeserializationError
from kohort.ids import TopicId, TopicPartition
from kohort.records.batch import build_batch
from support.dialogues.consumer_dialogue import batch, orders


def chunk(handler: FetchHandler, index: int, records: bytes, *, offset: int, fence: Fence | None = None) -> Chunk:
    partition = orders(index)[0]
    view = memoryview(records)
    end = end_of(view, 0)
    assert end is not None
    return Chunk(
        partition=partition,
        fence=handler.starts([partition])[partition].fence if fence is None else fence,
        offset=offset,
        next_offset=end.next_offset,
        records=view,
        size_bytes=len(view),
        aborted=(),
    )


@pytest.fixture
def handler() -> FetchHandler:
    handler = FetchHandler()
    handler.hold(orders(0, 1))
    return handler


def offsets(handler: FetchHandler, limit: int = 1_000) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in handler.take(limit)]


def one(handler: FetchHandler) -> tuple[int, int] | None:
    record = handler.take_one()
    return None if record is None else (record.partition, record.offset)


def slices(
    handler: FetchHandler, *, max_records: int = 1_000, max_bytes: int = 1 << 20, at_least_one: bool = True
) -> list[tuple[TopicPartition, list[int]]]:
    """The offsets of each slice that is handed out."""
    found = handler.take_slices(max_records=max_records, max_bytes=max_bytes, at_least_one=at_least_one)
    return [(taken.partition, taken.scanned.offsets[taken.start : taken.stop].tolist()) for taken in found]


def test_records_come_with_everything(handler: FetchHandler) -> None:
    """Keys, values, headers, times, leader epoch."""
    records = build_batch([(b"k", None, 77, (("h", b"1"), ("h", None))), (None, b"v", 78, ())], base_offset=4)
    handler.add(chunk(handler, 0, records, offset=4))

    first, second = handler.take(10)

    assert (first.topic, first.partition, first.offset, first.timestamp, first.timestamp_type) == (
        "orders",
        0,
        4,
        77,
        0,
    )
    assert (first.key, first.value, first.headers) == (b"k", None, (("h", b"1"), ("h", None)))
    assert (second.key, second.value, second.headers) == (None, b"v", ())


def test_limit_of_a_poll_cuts_within_a_batch(handler: FetchHandler) -> None:
    """max.poll.records; the position follows what was handed out."""
    handler.add(chunk(handler, 0, batch(0, 5), offset=0))

    assert offsets(handler, 3) == [(0, 0), (0, 1), (0, 2)]
    assert handler.position(orders(0)[0]) == 3
    assert offsets(handler, 3) == [(0, 3), (0, 4)]
    assert handler.position(orders(0)[0]) == 5


def test_one_record_at_a_time_is_handed_out_in_order(handler: FetchHandler) -> None:
    """`poll_one`; a record counts as returned when it is handed out, not when it is made."""
    handler.add(chunk(handler, 0, batch(0, 2), offset=0))
    handler.add(chunk(handler, 1, batch(7, 1), offset=7))

    assert one(handler) == (0, 0)
    assert handler.has_moved
    assert handler.consumed() == {orders(0)[0]: 1}
    assert one(handler) == (0, 1)
    assert one(handler) == (1, 7)
    assert handler.positions() == {orders(0)[0]: 2, orders(1)[0]: 8}
    assert one(handler) is None
    assert not handler.has_data


def test_what_is_popped_from_what_is_ready_counts_as_handed_out(handler: FetchHandler) -> None:
    """The quickest way of `poll_one`, past the handler; used up, it gives its memory back."""
    partition = orders(0)[0]
    handler.add(chunk(handler, 0, records := batch(0, 4), offset=0))
    assert one(handler) == (0, 0)

    assert handler.ready.pop().offset == 1
    assert handler.position(partition) == 2
    assert one(handler) == (0, 2)
    assert handler.ready.pop().offset == 3
    assert not handler.ready
    assert handler.positions() == {partition: 4}
    assert handler.released_bytes() == {partition: len(records)}


@pytest.mark.parametrize("what", ["pause", "seek", "forget", "poll"])
def test_what_was_made_for_one_at_a_time_does_not_outlive_a_change(handler: FetchHandler, what: str) -> None:
    """Records are made many at once; none of them may come after its partition went, or come twice."""
    partition = orders(0)[0]
    handler.add(chunk(handler, 0, batch(0, 4), offset=0))
    handler.add(chunk(handler, 1, batch(0, 1), offset=0))
    assert one(handler) == (0, 0)

    if what == "pause":
        handler.pause([partition], is_paused=True)
        assert handler.position(partition) == 1
    elif what == "seek":
        handler.seek(partition, 3)
    elif what == "forget":
        handler.forget([partition])
    else:
        assert offsets(handler, 2) == [(0, 1), (0, 2)]
        assert one(handler) == (0, 3)

    assert one(handler) == (1, 0)
    assert one(handler) is None


def test_batch_that_begins_before_the_position_is_cut(handler: FetchHandler) -> None:
    """A broker answers with whole batches."""
    partition = orders(0)[0]
    handler.seek(partition, 7)
    handler.add(chunk(handler, 0, batch(5, 5), offset=7))

    assert offsets(handler) == [(0, 7), (0, 8), (0, 9)]


def test_reading_that_was_sent_back_is_handed_out_from_there(handler: FetchHandler) -> None:
    """auto.offset.reset after an offset that did not exist: what lies before the old position is new to nobody else."""
    partition = orders(0)[0]
    fence = handler.seek(partition, 100)
    handler.add(empty_chunk(partition, fence, 0))

    assert offsets(handler) == []
    assert handler.position(partition) == 0
    handler.add(chunk(handler, 0, batch(0, 2), offset=0))
    assert offsets(handler) == [(0, 0), (0, 1)]
    assert handler.position(partition) == 2


def test_memory_is_reported_when_a_piece_is_used_up(handler: FetchHandler) -> None:
    """C5: the buffer's room comes back."""
    records = batch(0, 5)
    handler.add(chunk(handler, 0, records, offset=0))
    assert len(handler.take(4)) == 4
    assert handler.released_bytes() == {}
    assert len(handler.take(5)) == 1

    assert handler.released_bytes() == {orders(0)[0]: len(records)}
    assert handler.released_bytes() == {}


def test_data_of_a_partition_that_was_given_up_is_dropped(handler: FetchHandler) -> None:
    """Nothing of it reaches the application any more, and its memory is free."""
    records = batch(0, 5)
    handler.add(chunk(handler, 0, records, offset=0))

    handler.forget(orders(0))

    assert offsets(handler) == []
    assert handler.released_bytes() == {orders(0)[0]: len(records)}


def test_late_data_of_an_earlier_assignment_is_dropped(handler: FetchHandler) -> None:
    """The partition went and came back; the background had more on its way."""
    late = chunk(handler, 0, batch(0, 5), offset=0)
    handler.forget(orders(0))
    handler.hold(orders(0))

    handler.add(late)

    assert offsets(handler) == []
    assert handler.released_bytes() == {orders(0)[0]: late.size_bytes}


def test_paused_data_waits(handler: FetchHandler) -> None:
    """It is neither lost nor in the way of others."""
    handler.add(chunk(handler, 0, batch(0, 2), offset=0))
    handler.add(chunk(handler, 1, batch(0, 2), offset=0))
    handler.pause(orders(0), is_paused=True)
    assert handler.has_data
    assert offsets(handler) == [(1, 0), (1, 1)]
    assert not handler.has_data

    handler.pause(orders(0), is_paused=False)

    assert offsets(handler) == [(0, 0), (0, 1)]


@pytest.mark.parametrize("is_one_by_one", [True, False])
def test_a_span_ends_at_its_stop(is_one_by_one: bool) -> None:
    """Inside a batch, also where a chunk has more of them; its position is behind all of the chunk then."""
    handler = FetchHandler()
    handler.hold_spans({orders(0)[0]: (2, 7), orders(1)[0]: (0, 3)}, {})
    handler.add(chunk(handler, 0, batch(0, 5) + batch(5, 5) + batch(10, 5), offset=2))
    handler.add(chunk(handler, 1, batch(0, 3), offset=0))

    if is_one_by_one:
        found = [record for _ in range(8) if (record := one(handler)) is not None]
    else:
        found = [(partition.partition, each) for partition, offsets in slices(handler) for each in offsets]

    assert found == [*((0, offset) for offset in range(2, 7)), *((1, offset) for offset in range(3))]
    assert one(handler) is None
    assert handler.positions() == {orders(0)[0]: 15, orders(1)[0]: 3}


def test_records_of_another_topic_are_not_those_of_a_span() -> None:
    """KIP-516: data under another id than the span's is dropped; without an id it is handed out; both are said."""
    handler, planned = FetchHandler(), TopicId(b"p" * 16)
    handler.hold_spans(dict.fromkeys(orders(0, 1, 2), (0, 5)), {"orders": planned})
    for index, topic_id in enumerate((planned, TopicId(b"q" * 16), TopicId(bytes(16)))):
        handler.add(replace(chunk(handler, index, batch(0, 5), offset=0), topic_id=topic_id))

    assert slices(handler) == [(orders(index)[0], list(range(5))) for index in (0, 2)]
    assert (handler.foreign, handler.nameless) == (set(orders(1)), set(orders(2)))
    assert handler.released_bytes().keys() == set(orders(0, 1, 2))


@pytest.mark.parametrize(("is_read_committed", "end"), [(False, 9), (True, 7)])
def test_end_of_a_log_is_known_from_what_was_fetched(is_read_committed: bool, end: int) -> None:
    """No request is needed for a lag; readers of committed records stop at the last stable offset."""
    handler = FetchHandler(is_read_committed=is_read_committed)
    handler.hold(orders(0))
    assert (handler.end_offset(orders(0)[0]), handler.watermarks(orders(0)[0])) == (None, None)

    handler.note_watermarks({orders(0)[0]: Watermarks(3, 7, 9), orders(1)[0]: Watermarks(0, 1, 1)})

    assert handler.end_offset(orders(0)[0]) == end
    assert handler.watermarks(orders(0)[0]) == Watermarks(log_start_offset=3, last_stable_offset=7, high_watermark=9)


def test_end_of_a_log_is_forgotten_with_the_partition(handler: FetchHandler) -> None:
    """Who gets it back begins with nothing; and an end that was not said is none."""
    handler.note_watermarks({orders(0)[0]: Watermarks(3, 7, 9)})
    handler.forget(orders(0))
    handler.hold(orders(0))
    assert handler.end_offset(orders(0)[0]) is None

    handler.note_watermarks({orders(0)[0]: Watermarks(-1, -1, -1)})

    assert handler.end_offset(orders(0)[0]) is None


def test_position_before_the_first_record_is_taken(handler: FetchHandler) -> None:
    """Known from the data that waits; else only the background knows."""
    assert handler.position(orders(0)[0]) is None

    handler.add(chunk(handler, 0, batch(3, 2), offset=3))

    assert handler.position(orders(0)[0]) == 3
    assert handler.positions() == {}, "nothing was handed out: nothing to commit"


def test_consumed_tells_what_has_moved_since(handler: FetchHandler) -> None:
    """Auto-commit: at the start of the next poll."""
    handler.add(chunk(handler, 0, batch(0, 4), offset=0))
    handler.take(3)

    assert handler.consumed() == {orders(0)[0]: 3}
    assert handler.consumed() == {}


def test_offsets_that_show_no_record_move_the_position(handler: FetchHandler) -> None:
    """Compacted tails and control batches: a commit must not stay in front of them."""
    partition = orders(0)[0]
    records = bytearray(batch(0, 3))
    control = bytearray(batch(3, 1))
    control[22] |= 0x20
    from crc32c import crc32c

    control[17:21] = crc32c(bytes(control[21:])).to_bytes(4, "big")
    handler.add(chunk(handler, 0, bytes(records + control), offset=0))

    assert offsets(handler) == [(0, 0), (0, 1), (0, 2)]
    assert handler.position(partition) == 4


def test_damaged_data_is_an_error_that_says_where(handler: FetchHandler) -> None:
    """check.crcs; the error stays until the application seeks, and what lay before it was handed out."""
    good, bad = batch(0, 3), bytearray(batch(3, 3))
    bad[-1] ^= 1
    handler.add(chunk(handler, 0, good, offset=0))
    handler.add(chunk(handler, 0, bytes(bad), offset=3))
    assert offsets(handler) == [(0, 0), (0, 1), (0, 2)]

    for _ in range(2):
        with pytest.raises(
            CorruptRecordError,
            match=r"orders-0 cannot be read at offset 3: .*; seek to offset 6 to go on",
        ):
            handler.take(10)

    handler.seek(orders(0)[0], 6)
    assert offsets(handler) == []


def test_damaged_data_is_in_nobodys_way(handler: FetchHandler) -> None:
    """Who goes on after the error gets what the other partitions have, then the error again."""
    bad = bytearray(batch(0, 3))
    bad[-1] ^= 1
    handler.add(chunk(handler, 0, bytes(bad), offset=0))
    handler.add(chunk(handler, 0, batch(3, 3), offset=3))
    handler.add(chunk(handler, 1, batch(0, 2), offset=0))

    with pytest.raises(CorruptRecordError, match="orders-0"):
        handler.take(10)
    assert offsets(handler) == [(1, 0), (1, 1)]
    for take in (lambda: handler.take(10), handler.take_one, lambda: slices(handler)):
        with pytest.raises(CorruptRecordError, match="orders-0 cannot be read at offset 0"):
            take()
    assert handler.position(orders(0)[0]) == 0


def test_paused_data_that_gives_way_is_read_again_from_where_the_application_was(handler: FetchHandler) -> None:
    """C5: it made room for others; nothing is skipped, nothing repeated."""
    partition = orders(0)[0]
    first = chunk(handler, 0, batch(0, 6), offset=0)
    handler.add(first)
    handler.take(2)
    handler.pause([partition], is_paused=True)

    handler.give_way(partition, first.fence)

    assert handler.released_bytes() == {partition: first.size_bytes}
    start = handler.given_way()[partition]
    assert (start.offset, start.is_paused) == (2, True)
    assert start.fence != first.fence
    assert handler.given_way() == {}
    handler.pause([partition], is_paused=False)
    handler.add(chunk(handler, 0, batch(0, 6), offset=2))
    assert offsets(handler) == [(0, 2), (0, 3), (0, 4), (0, 5)]


def test_data_of_a_partition_that_goes_on_gives_no_way(handler: FetchHandler) -> None:
    """The application was quicker than the order to drop it, or has read on elsewhere since."""
    partition = orders(0)[0]
    first = chunk(handler, 0, batch(0, 2), offset=0)
    handler.add(first)

    handler.give_way(partition, first.fence)
    assert handler.given_way() == {}
    assert offsets(handler) == [(0, 0), (0, 1)]

    handler.pause([partition], is_paused=True)
    handler.give_way(partition, first.fence)
    handler.seek(partition, 40)
    assert handler.given_way() == {}, "the seek has told the background already"


def test_checksums_can_be_left_unchecked() -> None:
    """check.crcs=false."""
    handler = FetchHandler(check_crcs=False)
    handler.hold(orders(0))
    bad = bytearray(batch(0, 1))
    bad[17] ^= 1

    handler.add(chunk(handler, 0, bytes(bad), offset=0))

    assert offsets(handler) == [(0, 0)]


def test_columns_and_records_can_be_mixed(handler: FetchHandler) -> None:
    """`poll_arrow` goes on where `poll` stopped, within the batch."""
    handler.add(chunk(handler, 0, batch(0, 6), offset=0))
    handler.take(2)

    assert slices(handler) == [(orders(0)[0], [2, 3, 4, 5])]
    assert handler.position(orders(0)[0]) == 6


def test_columns_are_cut_at_a_row(handler: FetchHandler) -> None:
    """`max_records`: what is beyond stays for the next call, also in the middle of a batch."""
    handler.add(chunk(handler, 0, batch(0, 4) + batch(4, 4), offset=0))
    handler.add(chunk(handler, 1, batch(0, 3), offset=0))

    assert slices(handler, max_records=3) == [(orders(0)[0], [0, 1, 2])]
    assert handler.position(orders(0)[0]) == 3
    assert slices(handler, max_records=6) == [(orders(0)[0], [3, 4, 5, 6, 7]), (orders(1)[0], [0])]
    assert slices(handler) == [(orders(1)[0], [1, 2])]
    assert slices(handler) == []


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_columns_are_cut_at_their_bytes(handler: FetchHandler, codec: str) -> None:
    """`max_bytes`: never more, but for a first record that is larger itself."""
    values = [(None, bytes(size), 0, ()) for size in (100, 100, 100, 5_000, 100)]
    handler.add(chunk(handler, 0, build_batch(values, compression=codec), offset=0))

    assert slices(handler, max_bytes=250) == [(orders(0)[0], [0, 1])]
    assert slices(handler, max_bytes=250) == [(orders(0)[0], [2])]
    assert slices(handler, max_bytes=250, at_least_one=False) == []
    assert slices(handler, max_bytes=250) == [(orders(0)[0], [3])]
    (rest,) = handler.take_slices(max_records=10, max_bytes=250, at_least_one=True)
    assert 100 <= rest.size_bytes <= 110


def test_what_is_compressed_is_unfolded_step_by_step(handler: FetchHandler) -> None:
    """64 MiB of fetched data may be a gigabyte of records: only what is wanted soon is unfolded."""
    large = [(None, bytes(700_000), 0, ())]
    data = b"".join(build_batch(large, base_offset=offset, compression="zstd") for offset in range(5))
    handler.add(chunk(handler, 0, data, offset=0))

    found = handler.take_slices(max_records=10, max_bytes=1 << 30, at_least_one=True)

    assert [len(taken.scanned) for taken in found] == [1] * 5, "a second one is more than a step"


def refuse_offsets(*refused: int) -> FetchHandler:
    """Values are numbers here; those of some records are not."""

    def number(value: bytes) -> int:
        if int(value) in refused:
            raise ValueError(f"no {value.decode()}")
        return int(value)

    handler = FetchHandler(deserialize=Deserializing(None, number).read)
    handler.hold(orders(0, 1))
    return handler


def test_records_are_deserialized_when_they_are_handed_out() -> None:
    """However they are asked for; columns stay bytes."""
    handler = refuse_offsets()
    handler.add(chunk(handler, 0, batch(0, 5), offset=0))

    first, second = handler.take(2)
    third = handler.take_one()

    assert [first.value, second.value] == [0, 1]
    assert third is not None
    assert (third.offset, third.value) == (2, 2)
    assert slices(handler) == [(orders(0)[0], [3, 4])]


@pytest.mark.parametrize("is_one_by_one", [False, True])
def test_record_that_a_deserializer_refuses_stays_where_it_is(is_one_by_one: bool) -> None:
    """Those in front of it come first; then the error says where it is, again and again; a seek goes on behind it."""
    handler = refuse_offsets(2)
    partition = orders(0)[0]
    handler.add(chunk(handler, 0, batch(0, 5), offset=0))
    if is_one_by_one:
        assert [one(handler), one(handler)] == [(0, 0), (0, 1)]
    else:
        assert offsets(handler) == [(0, 0), (0, 1)]

    handler.add(chunk(handler, 1, batch(3, 1), offset=3))
    for _ in range(2):
        with pytest.raises(DeserializationError, match=r"orders-0, offset 2, cannot be read: .*no 2") as why:
            while True:
                assert handler.take_one() if is_one_by_one else handler.take(10), "the other partition goes on"
    assert (why.value.partition, why.value.offset, why.value.next_offset) == (partition, 2, 3)
    assert handler.positions() == {partition: 2, orders(1)[0]: 4}

    handler.seek(why.value.partition, why.value.next_offset)
    handler.add(chunk(handler, 0, batch(0, 5), offset=3))
    assert offsets(handler) == [(0, 3), (0, 4)]


class Log:
    """Five batches of three records; one of them has a damaged byte, wherever it may be."""

    def __init__(self, damaged: int, byte: int, bits: int) -> None:
        self.batches = [bytearray(batch(3 * number, 3)) for number in range(5)]
        covered = range(21, len(self.batches[damaged]))
        self.batches[damaged][covered[byte % len(covered)]] ^= bits

    def fetch(self, handler: FetchHandler, offset: int) -> bool:
        """As a broker answers: from the batch on that holds the offset; whether there was a whole batch."""
        records = b"".join(self.batches[offset // 3 :])
        end = end_of(memoryview(records), offset)
        if end is None or end.next_offset <= offset:
            return False
        handler.add(chunk(handler, 0, records[: end.size_bytes], offset=offset))
        return True


@pytest.mark.large
@given(
    damaged=st.integers(0, 4),
    byte=st.integers(0, 60),
    bits=st.integers(1, 255),
    skips=st.booleans(),
    limit=st.integers(1, 9),
)
@example(damaged=4, byte=2, bits=128, skips=False, limit=1)
@example(damaged=0, byte=2, bits=128, skips=True, limit=2)
@example(damaged=4, byte=5, bits=2, skips=False, limit=1)
@settings(max_examples=300)
def test_damage_costs_no_more_than_its_batch(damaged: int, byte: int, bits: int, skips: bool, limit: int) -> None:
    """Every byte that the checksum covers; who seeks to where the error says gets what who skips gets."""
    log, partition = Log(damaged, byte, bits), orders(0)[0]
    handler = FetchHandler(skips_corrupt=skips)
    handler.hold([partition])
    handler.seek(partition, 0)
    seen, places = [], []
    while (position := handler.position(partition)) is not None and position < 15:
        try:
            if not handler.has_data:
                assert log.fetch(handler, position)
            seen += [record.offset for record in handler.take(limit)]
        except CorruptRecordError as error:
            assert not skips
            assert error.next_offset is not None
            handler.seek(partition, error.next_offset)
            places.append((error.partition, error.offset, error.next_offset))
        handler.given_way()
        places += [(error.partition, error.offset, error.next_offset) for error in handler.skipped()]

    lost = range(3 * damaged, 3 * damaged + 3)
    assert seen == [offset for offset in range(15) if offset not in lost]
    assert places[0][:2] == (partition, lost.start)
    assert places[-1][2] == lost.stop


def test_what_is_skipped_is_read_anew_from_behind_it() -> None:
    """on.corrupt.records=skip: what was fetched behind the damage may not be what it seems."""
    handler, partition = FetchHandler(skips_corrupt=True), orders(0)[0]
    handler.hold([partition])
    log = Log(1, 70, 255)
    log.fetch(handler, 0)
    old = handler.starts([partition])[partition].fence

    assert offsets(handler) == [(0, 0), (0, 1), (0, 2)]
    start = handler.given_way()[partition]
    (skipped,) = handler.skipped()

    assert (start.offset, handler.position(partition)) == (6, 6)
    assert start.fence != old
    assert str(skipped).startswith("orders-0 cannot be read at offset 3: ")
    assert handler.skipped() == []
    assert handler.consumed().keys() == {partition}


class Reading(RuleBasedStateMachine):
    """Random chunks, polls, pauses, seeks and hand-overs of two partitions.

    The model: after each (re)start of a reading at offset s the application sees s, s+1, s+2, ... and nothing else.
    """

    @initialize()
    def start(self) -> None:
        self.handler = FetchHandler()
        self.handler.hold(orders(0, 1))
        #: What the background will fetch next.
        self.fetched = dict.fromkeys(orders(0, 1), 0)
        #: What the application must see next.
        self.expected = dict.fromkeys(orders(0, 1), 0)
        self.held_bytes = 0
        self.late: list[Chunk] = []

    def _chunk(self, partition: TopicPartition, sizes: list[int], overlap: int) -> Chunk:
        start = self.fetched[partition]
        first = max(0, start - overlap)
        records, position = b"", first
        for size in [max(sizes[0], start - first + 1), *sizes[1:]]:
            records += batch(position, size)
            position += size
        made = chunk(self.handler, partition.partition, records, offset=start)
        self.fetched[partition] = position
        return made

    @rule(
        index=st.integers(0, 1),
        sizes=st.lists(st.integers(1, 7), min_size=1, max_size=3),
        overlap=st.integers(0, 3),
        is_late=st.booleans(),
    )
    def fetch(self, index: int, sizes: list[int], overlap: int, is_late: bool) -> None:
        partition = orders(index)[0]
        if partition in self.handler.assignment and not any(each.partition == partition for each in self.late):
            made = self._chunk(partition, sizes, overlap)
            self.held_bytes += made.size_bytes
            if is_late:
                self.late.append(made)
            else:
                self.handler.add(made)

    @rule()
    def arrive(self) -> None:
        while self.late:
            self.handler.add(self.late.pop(0))

    @rule(limit=st.integers(1, 9))
    def poll(self, limit: int) -> None:
        records = self.handler.take(limit)
        assert len(records) <= limit
        for record in records:
            self._see(record.topic_partition, [record.offset])
            assert record.value == b"%d" % record.offset

    @rule(count=st.integers(1, 4))
    def poll_one(self, count: int) -> None:
        for _ in range(count):
            record = self.handler.take_one()
            if record is not None:
                self._see(record.topic_partition, [record.offset])

    @rule(max_records=st.integers(1, 9), max_bytes=st.sampled_from([1, 20, 1 << 20]))
    def poll_columns(self, max_records: int, max_bytes: int) -> None:
        found = slices(self.handler, max_records=max_records, max_bytes=max_bytes)
        for partition, seen in found:
            self._see(partition, seen)
        assert sum(len(seen) for _, seen in found) <= max_records

    def poll_all(self) -> None:
        while found := slices(self.handler):
            for partition, seen in found:
                self._see(partition, seen)

    def _see(self, partition: TopicPartition, seen: list[int]) -> None:
        assert partition in self.handler.assignment
        assert partition not in self.handler.paused()
        expected = self.expected[partition]
        assert seen == list(range(expected, expected + len(seen)))
        self.expected[partition] = expected + len(seen)

    @rule(index=st.integers(0, 1), offset=st.integers(0, 50))
    def seek(self, index: int, offset: int) -> None:
        partition = orders(index)[0]
        if partition in self.handler.assignment:
            self.handler.seek(partition, offset)
            self.expected[partition] = self.fetched[partition] = offset

    @rule(index=st.integers(0, 1), is_paused=st.booleans())
    def pause(self, index: int, is_paused: bool) -> None:
        if orders(index)[0] in self.handler.assignment:
            self.handler.pause(orders(index), is_paused=is_paused)

    @rule(index=st.integers(0, 1))
    def give_way(self, index: int) -> None:
        partition = orders(index)[0]
        if partition not in self.handler.assignment:
            return
        before = self.handler.starts([partition])[partition].fence
        self.handler.give_way(partition, before)
        for each, start in self.handler.given_way().items():
            assert each in self.handler.paused()
            assert start.fence != before
            assert start.offset == self.expected[each]
            self.fetched[each] = start.offset

    @rule(index=st.integers(0, 1))
    def hand_over_and_back(self, index: int) -> None:
        partition = orders(index)[0]
        self.handler.forget([partition])
        self.handler.hold([partition])
        # The group's committed offset is where the application was.
        self.handler.seek(partition, self.expected[partition])
        self.fetched[partition] = self.expected[partition]

    @invariant()
    def memory_is_accounted_for(self) -> None:
        if hasattr(self, "handler"):
            self.held_bytes -= sum(self.handler.released_bytes().values())
            assert self.held_bytes >= 0

    @invariant()
    def positions_are_what_the_application_saw(self) -> None:
        if hasattr(self, "handler"):
            for partition, position in self.handler.positions().items():
                assert position == self.expected[partition]

    def teardown(self) -> None:
        if hasattr(self, "handler"):
            self.handler.pause(self.handler.assignment, is_paused=False)
            self.arrive()
            self.poll_all()
            self.memory_is_accounted_for()
            assert self.held_bytes == 0
            assert self.expected == self.fetched


TestReading = Reading.TestCase
TestReading.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.parametrize("has_begun", [False, True])
def test_nothing_is_handed_out_of_a_partition_that_its_leader_refuses(has_begun: bool, handler: FetchHandler) -> None:
    """Not what had come, what had been decoded, nor what comes after it; until it is assigned anew."""
    handler.add(chunk(handler, 0, batch(0, 3), offset=0))
    handler.add(chunk(handler, 1, batch(0, 1), offset=0))
    if has_begun:
        assert one(handler) == (0, 0)
    handler.withhold(orders(0))
    handler.add(chunk(handler, 0, batch(3, 1), offset=3))
    handler.pause(orders(0), is_paused=False)
    assert offsets(handler) == [(1, 0)]
    assert handler.position(orders(0)[0]) == int(has_begun)
    assert (handler.paused(), handler.refused_rows) == (set(), 1)
    handler.forget(orders(0))
    handler.hold(orders(0))
    handler.add(chunk(handler, 0, batch(0, 1), offset=0))
    assert offsets(handler) == [(0, 0)]
