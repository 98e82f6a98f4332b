"""One bit that flips anywhere in a data directory: what is served is what was acknowledged, but for the batch it hit.

Whatever else is hit (indexes, catalogue, marker, checkpoints, producers) costs no record. The makefile's target `flips`
tries every byte, and `make test` some of them.
"""

from __future__ import annotations

import pytest

from kohort.errors import StorageError
from kohort.records.header import split_batches
from kohort.storage.data_directory import META_NAME
from kohort.storage.segments.segment import SUFFIX
from kohort.storage.store import Store
from support.builders.left_directory import ACKNOWLEDGED, BATCHES, PER_BATCH, files_in, left, scrub_all, served
from support.builders.storage_logs import sequenced
from support.depth import IS_SOAK

STRIDE = 1 if IS_SOAK else 13


@pytest.mark.large
@pytest.mark.parametrize("is_clean", [True, False])
def test_flipped_bit_costs_no_more_than_the_batch_that_it_hit(is_clean: bool) -> None:
    origin = left(is_clean=is_clean)
    tried = 0
    for path in files_in(origin):
        name = path.rpartition("/")[2]
        if name == META_NAME:
            continue
        for at in range(tried % STRIDE, origin.open(path).size(), STRIDE):
            fs = origin.copy()
            file = fs.open(path)
            file.write(at, bytes([file.read(at, 1)[0] ^ 1 << at % 8]))
            store = Store.open("/data", fs=fs)
            (log,) = store.topics["orders"].partitions
            scrub_all(fs, log)
            found = dict(served(log))
            stored = [] if log.holes else log.read(log.log_start_offset, 1 << 20)
            epochs = {header.partition_leader_epoch for view in stored for _, header in split_batches(view)}
            assert epochs <= {0}, f"{path} byte {at}"
            missing = {number // PER_BATCH for number in ACKNOWLEDGED.keys() - found.keys()}
            assert found.items() <= ACKNOWLEDGED.items(), f"{path} byte {at}: wrong, or deleted long ago"
            assert len(missing) <= name.endswith(SUFFIX), f"{path} byte {at}: {missing} are gone"
            assert not missing or log.holes or store.recovery.cuts, f"{path} byte {at}: nothing says what is missing"
            assert log.log_end_offset >= BATCHES * PER_BATCH - PER_BATCH * len(missing)
            assert log.log_end_offset <= BATCHES * PER_BATCH, f"{path} byte {at}: offsets that nobody wrote"
            if not missing:
                repeated = sequenced((BATCHES - 3) * PER_BATCH, PER_BATCH)
                assert log.append(repeated, now_ms=5).duplicate, f"{path} byte {at}: the producer is forgotten"
            store.close(clean=False)
            tried += 1


def test_identity_with_a_flipped_bit_is_refused_in_a_sentence_or_costs_nothing() -> None:
    origin = left(is_clean=False)
    path = f"/data/{META_NAME}"
    for at in range(0, origin.open(path).size(), STRIDE):
        fs = origin.copy()
        file = fs.open(path)
        file.write(at, bytes([file.read(at, 1)[0] ^ 1 << at % 8]))
        try:
            store = Store.open("/data", fs=fs)
        except StorageError as why:
            assert path in str(why)
            continue
        assert dict(served(store.topics["orders"].partitions[0])) == ACKNOWLEDGED
