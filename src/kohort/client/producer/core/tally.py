"""The counters of a producer's records, by batch; written by the machine, read from any thread."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Tally:
    """The counts since the producer was created."""

    #: Stored records, their batches, and the bytes of these.
    sent_records: int = 0
    sent_batches: int = 0
    sent_bytes: int = 0
    #: Records that ended in an error.
    failed_records: int = 0
    #: Records that were sent again, counted each time.
    retried_records: int = 0
