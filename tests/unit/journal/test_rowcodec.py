"""Rows as records of a topic: the same again, and never an exception."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.journal.explain.explaining import explain
from kohort.journal.rows import VERSION, Entry, Row, RowKind, decode_row, encode_row
from support.dialogues.explained import event_of
from support.scenarios.situations import SITUATIONS

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@given(st.integers(1, 2**62), st.integers(0, 2**62), st.sampled_from(RowKind), TEXT, st.dictionaries(TEXT, TEXT))
def test_a_row_is_the_same_again(number: int, time_ms: int, kind: RowKind, text: str, details: dict[str, str]) -> None:
    entry = Entry(kind=kind, event="e", group_id=text, member_id=text, details=tuple(details.items()))
    row = Row(sequence=number, time_ms=time_ms, last_time_ms=time_ms, times=3, cause=number, origin=number, entry=entry)
    key, value = encode_row(row)
    assert key == text.encode()
    assert decode_row(value) == row


def test_rows_of_an_earlier_version_are_explained_as_far_as_they_go() -> None:
    """They do not say when a partition was read last, nor when it is read again."""
    rows = SITUATIONS["member_leaves"][0]().journal.history("g").rows
    written = [json.loads(encode_row(row)[1]) for row in rows if row.entry.event != "partitions_read"]
    for row in written:
        for name in ("read_ms", "at_most", "silent_ms", "session_ms", "disconnected_ms"):
            row["details"].pop(name, None)
    older = [row for each in written if (row := decode_row(json.dumps(each).encode())) is not None]
    found = explain("g", map(event_of, older)).last
    assert found is not None and found.unread_ms is None
    assert found.sentence == (
        "the rebalance to epoch 3, because b left: a took t:2-3 from b; it took 200 ms; "
        "2 partitions were without an owner for up to 200 ms"
    )


def written(**changes: object) -> bytes:
    row = Row(
        sequence=1, time_ms=1, last_time_ms=1, times=1, cause=1, origin=1,
        entry=Entry(kind=RowKind.DECISION, event="e", group_id="g"),
    )  # fmt: skip
    return json.dumps({**json.loads(encode_row(row)[1]), **changes}).encode()


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"{", b"[1]", b"null", b"\xff", b"{}",
        written(v=VERSION + 1), written(kind="mood"), written(sequence="one"), written(details=[1]),
        written(times=None),
    ],
)  # fmt: skip
def test_what_is_no_row_is_none(value: bytes | None) -> None:
    assert decode_row(written()) is not None
    assert decode_row(value) is None
