"""Aborted transactions are left out for readers of committed records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kohort.client.consumer.fetch.completed_fetch import committed_parts
from kohort.records.batch import build_batch, iterate_records

CONTROL = 0x20


def data(offset: int, producer: int, *, is_transactional: bool = True) -> bytes:
    return build_batch(
        [(None, b"%d" % offset, 0, ())],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=is_transactional,
    )


def marker(offset: int, producer: int, *, is_commit: bool) -> bytes:
    """A control batch, built by hand: its key is version 0 and type 0 (abort) or 1 (commit)."""
    from crc32c import crc32c

    key = b"\x00\x00\x00\x01" if is_commit else b"\x00\x00\x00\x00"
    batch = bytearray(
        build_batch(
            [(key, b"\x00\x00\x00\x00\x00\x00", 0, ())],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            is_transactional=True,
        )
    )
    batch[22] |= CONTROL
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def values(records: bytes, aborted: list[tuple[int, int]]) -> list[bytes | None]:
    parts = committed_parts(memoryview(records), aborted)
    return [record.value for part in parts for record in iterate_records(part)]


def test_aborted_records_are_left_out() -> None:
    """Between the first offset of the transaction and its marker."""
    log = data(0, 1) + data(1, 2) + marker(2, 1, is_commit=False) + data(3, 1) + marker(4, 1, is_commit=True)

    assert values(log, [(1, 0)]) == [b"1", b"3"]


def test_nothing_aborted_means_no_copy() -> None:
    """The usual case costs nothing."""
    log = memoryview(data(0, 1))

    assert committed_parts(log, []) == [log]


def test_records_outside_of_transactions_stay() -> None:
    """Also those of a producer that has aborted before."""
    log = data(0, 1) + data(1, -1, is_transactional=False) + marker(2, 1, is_commit=False)

    assert values(log, [(1, 0)]) == [b"1"]


def test_transaction_that_began_before_this_answer() -> None:
    """Its first offset lies in front of the first batch."""
    assert values(data(10, 1) + marker(11, 1, is_commit=False) + data(12, 1), [(1, 3)]) == [b"12"]


@given(
    steps=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["data", "commit", "abort"])), max_size=25),
)
def test_what_stays_is_what_was_not_aborted(steps: list[tuple[int, str]]) -> None:
    """Any interleaving of three producers; open transactions count as not aborted."""
    log, kept, aborted = b"", [], []
    pending: dict[int, list[int]] = {}
    for offset, (producer, what) in enumerate(steps):
        if what == "data":
            log += data(offset, producer)
            pending.setdefault(producer, []).append(offset)
            continue
        log += marker(offset, producer, is_commit=what == "commit")
        offsets = pending.pop(producer, [])
        if what == "commit":
            kept += offsets
        elif offsets:
            aborted.append((producer, offsets[0]))
    kept += [offset for offsets in pending.values() for offset in offsets]

    assert values(log, aborted) == [b"%d" % offset for offset in sorted(kept)]
