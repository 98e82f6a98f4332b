"""What topics ask of records inside of batches, and the codec in which they store them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import ErrorCode, Refused
from kohort.records.batch import build_batch, iterate_records
from kohort.records.header import CODEC_NAMES, parse_header, seal, split_batches
from kohort.storage.partitions import validation
from kohort.storage.partitions.validation import MOST_NAMED, RecordsRefused, prepare
from kohort.storage.topicconfig import LogConfig

NOW_MS = 10_000_000
CODECS = st.sampled_from(CODEC_NAMES)
KEYED = LogConfig(is_compacted=True)


def batch(*times: int, key: bytes | None = b"k", codec: str = "none", **identity: int) -> bytes:
    rows = [(key, b"value %d" % number, time, [("h", b"x")]) for number, time in enumerate(times)]
    return build_batch(rows, compression=codec, **identity)


def prepared(raw: bytes, config: LogConfig) -> bytes:
    return bytes(prepare(raw, config, name="t-0", now_ms=NOW_MS).batch)


def refusal(raw: bytes, config: LogConfig) -> Refused:
    with pytest.raises(Refused) as refused:
        prepared(raw, config)
    return refused.value


@given(
    keys=st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=30),
    codec=CODECS,
    at_once=st.integers(1, 31),
)
def test_compacted_topic_names_the_records_without_key(keys: list[bytes | None], codec: str, at_once: int) -> None:
    """Compressed ones as well, however many are looked at in one go."""
    raw = build_batch([(key, b"v", NOW_MS, ()) for key in keys], compression=codec)
    missing = [place for place, key in enumerate(keys) if key is None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "RECORDS_AT_ONCE", at_once)
        if not missing:
            assert prepared(raw, KEYED) == raw
            return
        found = refusal(raw, KEYED)
    assert isinstance(found, RecordsRefused) and found.code is ErrorCode.INVALID_RECORD
    assert [place for place, _ in found.rows] == missing
    assert "Compacted topic cannot accept message without key in topic partition t-0." in found.rows[0][1]


@given(
    times=st.lists(st.integers(-1, 60), min_size=1, max_size=30),
    before=st.integers(0, 40),
    after=st.integers(0, 20),
    codec=CODECS,
)
def test_times_are_held_against_both_limits(times: list[int], before: int, after: int, codec: str) -> None:
    """A record without a time may be stored at any."""
    config = LogConfig(message_timestamp_before_max_ms=before, message_timestamp_after_max_ms=after)
    raw = batch(*times, codec=codec)
    wrong = [place for place, time in enumerate(times) if time >= 0 and not 30 - before <= time <= 30 + after]
    try:
        prepare(raw, config, name="t-0", now_ms=30)
        found = []
    except RecordsRefused as refused:
        assert refused.code is ErrorCode.INVALID_TIMESTAMP
        found = [place for place, _ in refused.rows]
    assert found == wrong


def test_broker_that_dates_records_itself_looks_at_no_times() -> None:
    config = LogConfig(is_log_append_time=True, message_timestamp_before_max_ms=1, is_compacted=True)
    raw = batch(5, NOW_MS * 2)
    assert prepared(raw, config) == raw


@given(source=CODECS, target=CODECS, times=st.lists(st.integers(0, 90), min_size=1, max_size=20))
def test_codec_is_all_that_changes(source: str, target: str, times: list[int]) -> None:
    """Identity, sequence, epoch, times and records stay; a batch that has the codec already stays byte for byte."""
    identity = {"producer_id": 9, "producer_epoch": 3, "base_sequence": 70, "partition_leader_epoch": 4}
    raw = batch(*times, codec=source, **identity)
    done = prepare(raw, LogConfig(compression_type=target), name="t-0", now_ms=NOW_MS)
    found = bytes(done.batch)
    ((_, header),) = split_batches(found)
    assert header == done.header and header.compression == target
    assert list(iterate_records(found)) == list(iterate_records(raw))
    same = parse_header(raw)._replace(batch_length=0, crc=0, attributes=0)
    assert header._replace(batch_length=0, crc=0, attributes=0) == same
    if source == target:
        assert found == raw


@pytest.mark.parametrize(("codec", "level"), [("gzip", 1), ("zstd", 19), ("lz4", 12)])
def test_level_is_the_topics(codec: str, level: int) -> None:
    raw = build_batch([(b"k", b"%d" % (number % 77), NOW_MS, ()) for number in range(5000)])
    usual = prepared(raw, LogConfig(compression_type=codec))
    other = prepared(raw, LogConfig(compression_type=codec, compression_level=level))
    assert len(other) != len(usual) and list(iterate_records(other)) == list(iterate_records(raw))


@pytest.mark.parametrize(
    "config", [LogConfig(), KEYED, LogConfig(compression_type="lz4")], ids=["plain", "compacted", "recoded"]
)
def test_batch_that_unfolds_to_nonsense_is_refused(config: LogConfig) -> None:
    """With a code that no client tries again."""
    nonsense = bytearray(batch(1, 2, codec="zstd"))
    nonsense[61:70] = bytes(9)
    short = bytearray(batch(1, codec="none"))
    body = bytearray(batch(1, 2, 3))
    body[61] = 0x7E
    behind = bytearray(batch(1, 2, 3) + b"\x00")
    behind[8:12] = (len(behind) - 12).to_bytes(4, "big")
    for raw in (nonsense, body, behind):
        seal(raw)
        assert refusal(bytes(raw), config).code is ErrorCode.INVALID_RECORD
    assert prepared(bytes(short), config)


@pytest.mark.large
def test_bomb_is_refused_and_never_held() -> None:
    """A batch of 100 KB that would unfold to 100 MB."""
    bomb = build_batch([(b"k", bytes(100 << 20), NOW_MS, ())], compression="gzip")
    assert len(bomb) < 200_000
    assert refusal(bomb, KEYED).code is ErrorCode.INVALID_RECORD


def test_so_many_records_are_named() -> None:
    found = refusal(batch(*[NOW_MS] * 5000, key=None), KEYED)
    assert isinstance(found, RecordsRefused) and len(found.rows) == MOST_NAMED


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_largest_time_of_a_header_is_that_of_its_records(codec: str) -> None:
    """Retention and searches by time believe it; Apache Kafka writes it anew as well."""
    for lie in (5, NOW_MS * 3, -1):
        raw = bytearray(batch(7, 90, 30, codec=codec))
        raw[35:43] = lie.to_bytes(8, "big", signed=True)
        seal(raw)
        done = prepare(bytes(raw), LogConfig(), name="t-0", now_ms=NOW_MS)
        assert done.batch == batch(7, 90, 30, codec=codec)
        assert done.header == parse_header(done.batch)


def test_batch_that_its_topics_codec_makes_too_large_is_refused() -> None:
    """The limit is one of what is stored, too."""
    packed = build_batch([(b"k", bytes(5000), NOW_MS, ())], compression="zstd")
    config = LogConfig(compression_type="none", max_message_bytes=1000)
    assert refusal(packed, config).code is ErrorCode.MESSAGE_TOO_LARGE
