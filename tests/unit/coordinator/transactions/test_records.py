"""Records of `__transaction_state`: Kafka's bytes, in both directions, and refusals of damaged ones."""

from __future__ import annotations

import pytest

from kohort.coordinator.transactions.records import (
    TransactionForgotten,
    TransactionStored,
    as_stored,
    build_log_batch,
    decode,
    encode,
    read_log_batch,
)
from kohort.coordinator.transactions.settings import TransactionSettings
from kohort.coordinator.transactions.shard import TransactionShard
from kohort.coordinator.transactions.states import TransactionState
from kohort.errors import StorageError
from support.dialogues.transaction_dialogue import TransactionDialogue

ONGOING = TransactionStored(
    transactional_id="tx",
    producer_id=5,
    previous_producer_id=5,
    producer_epoch=3,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=(("a", 0), ("a", 2), ("b", 1)),
    start_ms=1_000,
    last_update_ms=2_000,
    client_version=2,
)
KEY = bytes.fromhex("0000 0002 7478")
#: Version; producer id, epoch, timeout, state; partitions; times; tags: previous id, client's version.
ONGOING_VALUE = bytes.fromhex(
    "0001 0000000000000005 0003 0000ea60 01"
    "03 02 61 03 00000000 00000002 00  02 62 02 00000001 00"
    "00000000000007d0 00000000000003e8"
    "02 00 08 0000000000000005  02 02 0002"
)


def test_bytes_are_kafkas() -> None:
    assert encode(ONGOING) == (KEY, ONGOING_VALUE)
    assert decode(KEY, ONGOING_VALUE) == ONGOING
    assert encode(TransactionForgotten(transactional_id="tx")) == (KEY, None)
    assert decode(KEY, None) == TransactionForgotten(transactional_id="tx")


#: What Apache Kafka 4.3 has written: state, client's version, key and value.
KAFKAS = [
    ("EMPTY", 0, "000100000000000000000000000007d00000000001a223271fa7ffffffffffffffff0100080000000000000000"),
    ("EMPTY", 2, "000100000000000000050002000007d00000000001a223272294ffffffffffffffff020008000000000000000502020002"),
    (
        "ONGOING",
        0,
        "000100000000000000030000000007d001020274020000000000000001a223272173000001a2232721730100080000000000000003",
    ),
    (
        "ONGOING",
        2,
        "000100000000000000000000000007d001020274020000000000000001a223271ff8000001a223271ff80200080000000000000000"
        "02020002",
    ),
    (
        "PREPARE_COMMIT",
        2,
        "000100000000000000000002000007d002020274020000000000000001a2232720db000001a2232720d60200080000000000000000"
        "02020002",
    ),
    (
        "PREPARE_ABORT",
        0,
        "000100000000000000030000000007d003020274020000000000000001a2232721d7000001a2232721c60100080000000000000003",
    ),
    (
        "COMPLETE_COMMIT",
        2,
        "000100000000000000000002000007d00401000001a2232720dc000001a2232720d6020008000000000000000002020002",
    ),
    ("COMPLETE_ABORT", 0, "000100000000000000030000000007d00501000001a2232721d8000001a2232721c60100080000000000000003"),
]


@pytest.mark.parametrize(("state", "version", "written"), KAFKAS)
def test_records_of_apache_kafka_are_read_and_written_alike(state: str, version: int, written: str) -> None:
    found = decode(KEY, bytes.fromhex(written))
    assert isinstance(found, TransactionStored)
    assert (found.state.name, found.client_version) == (state, version)
    assert encode(found) == (KEY, bytes.fromhex(written))


def test_version_0_is_read_and_written() -> None:
    """What Kafka wrote before KIP-890: no tags, so neither former ids nor the client's version."""
    key, value = encode(ONGOING, 0)
    assert value is not None
    assert value[:2] == b"\0\0"
    found = decode(key, value)
    assert isinstance(found, TransactionStored)
    assert (found.partitions, found.previous_producer_id, found.client_version) == (ONGOING.partitions, -1, 0)


def test_what_is_written_is_read(tx: TransactionDialogue) -> None:
    """Of each state; `restart` compares the whole."""
    producer = tx.begun(("b", 1), ("a", 0))
    tx.restart()
    tx.end(producer)
    tx.restart()
    tx.write_markers()
    tx.restart()
    stored = tx.stored()
    assert read_log_batch(build_log_batch([stored], now_ms=1) or b"") == [as_stored(stored)]


def test_a_state_that_kafka_left_without_partitions_is_completed(tx: TransactionDialogue) -> None:
    """Apache Kafka writes the two records of an abort without partitions one after the other."""
    tx.end(tx.init().producer(), commit=False)
    (prepared, _) = read_log_batch(tx.log[-1])
    batch = build_log_batch([prepared], now_ms=tx.now_ms)
    assert batch is not None
    tx.log[-1] = batch
    tx.shard.apply(prepared)
    tx.restart()
    assert tx.state() is TransactionState.COMPLETE_ABORT


def test_an_unknown_type_is_skipped() -> None:
    assert decode(b"\0\7anything", b"anything") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", ONGOING_VALUE),
        (KEY[:-1], ONGOING_VALUE),
        (KEY, b"\0"),
        (KEY, b"\0\2" + ONGOING_VALUE[2:]),
        (KEY, ONGOING_VALUE[:-1]),
        (KEY, ONGOING_VALUE[:16] + b"\6" + ONGOING_VALUE[17:]),
        (KEY, ONGOING_VALUE[:16] + b"\7" + ONGOING_VALUE[17:]),
        (KEY, ONGOING_VALUE[:2] + b"\x80" + ONGOING_VALUE[3:]),
        (KEY, ONGOING_VALUE[:10] + b"\x80" + ONGOING_VALUE[11:]),
        (KEY, ONGOING_VALUE[:12] + bytes(4) + ONGOING_VALUE[16:]),
    ],
)
def test_a_record_that_cannot_be_read_is_an_error(key: bytes, value: bytes) -> None:
    with pytest.raises(StorageError, match="__transaction_state"):
        decode(key, value)


def test_a_flipped_bit_is_an_error_or_another_record() -> None:
    """Batches have checksums; behind those nothing but `StorageError` is raised, and what is read can be loaded."""
    whole = KEY + ONGOING_VALUE
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            record = decode(bytes(flipped[: len(KEY)]), bytes(flipped[len(KEY) :]))
        except StorageError:
            continue
        if record is not None:
            shard = TransactionShard(TransactionSettings())
            shard.apply(record)
            shard.on_loaded(5_000)
            while (decision := shard.expire(10**12)) is not None and decision.records:
                shard.commit(decision, now_ms=10**12)
