"""What has become of a producer's records, counted per batch; written by the machine, read from anywhere."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Tally:
    """Since the producer was made."""

    #: Records that the broker has, and their batches with the size of those.
    sent_records: int = 0
    sent_batches: int = 0
    sent_bytes: int = 0
    #: Records that ended in an error.
    failed_records: int = 0
    #: Records that were sent again, each time.
    retried_records: int = 0
