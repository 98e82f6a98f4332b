"""Random appends and reads against a list of batches."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.records.header import split_batches
from kohort.storage.files.fs import DiskFileSystem, FileSystem
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.topicconfig import LONG_MAX
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import MODEL_CASES, batch, empty_log, find_time, open_log


@contextmanager
def place(kind: str, most_open: int) -> Iterator[tuple[FileSystem, str]]:
    if kind == "disk":
        with tempfile.TemporaryDirectory() as directory:
            yield DiskFileSystem(most_open=most_open), f"{directory}/orders-0"
    else:
        yield MemoryFileSystem(volatile=kind == "volatile"), "/orders-0"


class Model:
    """What the log should hold: (base offset, last offset, size, largest timestamp) of each batch."""

    def __init__(self) -> None:
        self.batches: list[tuple[int, int, int, int]] = []

    @property
    def end(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else 0

    def append(self, count: int, size: int, max_timestamp: int) -> None:
        self.batches.append((self.end, self.end + count - 1, size, max_timestamp))

    def read(self, offset: int, max_bytes: int, up_to: int, *, at_least_one: bool) -> list[int]:
        """Base offsets of the batches that a read returns."""
        if offset >= up_to:
            return []
        found: list[int] = []
        for base, last, size, _ in self.batches:
            if last < offset or last >= up_to:
                continue
            if size > max_bytes and (found or not at_least_one):
                break
            found.append(base)
            max_bytes -= size
            if max_bytes <= 0:
                break
        return found

    def first_since(self, timestamp: int) -> int | None:
        return next((base for base, _, _, latest in self.batches if latest >= timestamp), None)


def base_offsets(views: list[memoryview]) -> list[int]:
    found = []
    for view in views:
        parts = split_batches(view)
        assert sum(header.size_bytes for _, header in parts) == len(view), "a batch was cut"
        found += [header.base_offset for _, header in parts]
    return found


appends = st.tuples(st.integers(1, 4), st.sampled_from([1, 10, 300, 3000]), st.integers(0, 50))
reads = st.tuples(
    st.floats(0, 1), st.sampled_from([1, 70, 80, 500, 2400, 6000, 1 << 30]), st.floats(0, 1), st.booleans()
)
steps = st.lists(st.one_of(appends, appends, reads), max_size=60)


@pytest.mark.parametrize("kind", ["disk", "memory", "volatile"])
@settings(max_examples=MODEL_CASES)
@given(
    steps=steps,
    # Many segments, or many index entries in one.
    segment_bytes=st.sampled_from([2500, 1 << 20]),
    most_open=st.sampled_from([1, 2, 100]),
    reopened_at=st.integers(0, 60),
)
def test_a_log_is_a_list_of_batches(
    kind: str, steps: list[tuple[int, ...]], segment_bytes: int, most_open: int, reopened_at: int
) -> None:
    with place(kind, most_open) as (fs, directory):
        log = empty_log(fs, directory, segment_bytes=segment_bytes, flush_messages=LONG_MAX)
        model = Model()
        kept: list[tuple[memoryview, bytes]] = []
        for at, step in enumerate(steps):
            if at == reopened_at:
                log.close()
                log = open_log(fs, directory, segment_bytes=segment_bytes, flush_messages=LONG_MAX)
            if len(step) == 3:
                take_append(log, model, *step)
            else:
                *read, at_least_one = step
                kept += take_read(log, model, *read, at_least_one=bool(at_least_one))
        log.close()
        assert all(view == content for view, content in kept), "a view changed"


def take_append(log: PartitionLog, model: Model, count: int, size: int, timestamp: int) -> None:
    data = batch(count, value=bytes(size), timestamp=timestamp)
    appended = log.append(data, now_ms=0)
    model.append(count, len(data), timestamp + count - 1)
    assert appended[:2] == model.batches[-1][:2]
    assert log.log_end_offset == log.high_watermark == model.end


def take_read(
    log: PartitionLog, model: Model, where: float, max_bytes: int, limit: float, *, at_least_one: bool
) -> list[tuple[memoryview, bytes]]:
    offset, up_to = round(where * model.end), round(limit * model.end)
    views = log.read(offset, max_bytes, up_to=up_to, at_least_one=at_least_one)
    assert base_offsets(views) == model.read(offset, max_bytes, up_to, at_least_one=at_least_one)
    found = find_time(log, offset)
    base = model.first_since(offset)
    assert (found is None) == (base is None)
    if found and base is not None:
        (first, *_) = [entry for entry in model.batches if entry[0] == base]
        assert first[0] <= found[1] <= first[1]
        assert found[0] >= offset
    return [(view, bytes(view)) for view in views]
