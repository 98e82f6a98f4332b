"""Records that are put into batches many at once go where they would go one by one."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.client.producer.core import accumulator as home
from kohort.client.producer.core import submission_kernels
from kohort.client.producer.core.accumulator import Accumulator
from kohort.client.producer.core.partitioner import Partitioner
from kohort.client.producer.record_future import RecordFuture
from kohort.records.kernel_form import plain_form

#: (topic, key, partition, bytes)
RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["orders", "bills"]),
        st.one_of(st.none(), st.binary(max_size=3)),
        st.one_of(st.none(), st.none(), st.integers(0, 3)),
        st.integers(24, 400),
    ),
    max_size=60,
)


def placed(rows: list[tuple[str, bytes | None, int | None, int]], rule: str, *, at_once: bool) -> object:
    """What is in which batch, and which may leave."""
    accumulator = Accumulator(
        batch_bytes=500, linger_ms=60_000, limit_bytes=900, partitioner=Partitioner(rule, batch_bytes=500, seed=3)
    )
    records = []
    for number, (topic, key, partition, size) in enumerate(rows):
        record = RecordFuture(topic, key, None, number, size)
        if partition is not None:
            record.partition = partition
        records.append(record)
    position = 0
    while position < len(records):
        stop = accumulator.add_run(records, position, 4) if at_once else position
        if stop == position:
            accumulator.add(records[position], 4, 10)
            stop += 1
        position = stop
    found = []
    for partition, queue in sorted(accumulator.queues.items()):
        for batch in queue:
            contents = [(record.timestamp_ms, record.index) for record in batch.records]
            found.append((partition, batch.state, batch.size_bytes, contents))
    return found


@pytest.mark.parametrize("kernels", [submission_kernels, plain_form(submission_kernels)], ids=["as built", "plain"])
@given(rows=RECORDS, rule=st.sampled_from(["murmur2_random", "consistent", "round_robin"]))
def test_runs_of_records_are_placed_as_single_ones_are(
    kernels: ModuleType, rows: list[tuple[str, bytes | None, int | None, int]], rule: str
) -> None:
    """The same partition, batch, place in it, and the same batches that may leave."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(home, "place", kernels.place)
        assert placed(rows, rule, at_once=True) == placed(rows, rule, at_once=False)
