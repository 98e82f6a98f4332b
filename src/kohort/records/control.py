"""Transaction markers: control batches that commit or abort the records of a producer's transaction.

Laws: a marker is a batch of one record, whose key says commit or abort; any other control record is no marker.
Source: Apache Kafka's control records and `EndTxnMarker` (KIP-98).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kohort.records.batch import build_batch

#: Version and kind of the control record.
_KEY: Final = Struct(">hh")
#: Version and epoch of the transaction coordinator that decided.
_VALUE: Final = Struct(">hi")
_ABORT: Final = 0
_COMMIT: Final = 1


def build_marker(
    *, producer_id: int, producer_epoch: int, is_commit: bool, timestamp_ms: int, coordinator_epoch: int = 0
) -> bytes:
    """Build the batch that ends a producer's transaction in one partition."""
    key = _KEY.pack(0, _COMMIT if is_commit else _ABORT)
    return build_batch(
        [(key, _VALUE.pack(0, coordinator_epoch), timestamp_ms, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def is_commit_marker(key: bytes | None) -> bool | None:
    """Whether a control record's key is a commit, not an abort; `None`: no transaction marker.

    >>> is_commit_marker(bytes([0, 0, 0, 1])), is_commit_marker(bytes(4)), is_commit_marker(b"")
    (True, False, None)
    """
    if key is None or len(key) < _KEY.size:
        return None
    _, kind = _KEY.unpack_from(key)
    return {_ABORT: False, _COMMIT: True}.get(kind)
