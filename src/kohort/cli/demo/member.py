"""One member of the demo's group, a process of its own: it reads, prints its account, and commits.

It prints JSON lines: `{"event": "assigned"|"revoked"|"lost", ...}`, `{"event": "processed", "spans": ...}` and
`{"event": "committed", "offsets": ...}`. The line `processed` is
written before the commit that follows it, so a kill can double records in the account but never hide one. The line
`committed` is written after the commit.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from kohort import Consumer, ConsumerRecord, TopicPartition
from kohort.errors import KohortError


def write_down(event: str, **facts: Any) -> None:
    """Write an event as one line, out of this process before anything else happens."""
    try:
        sys.stdout.write(json.dumps({"event": event, "at": time.time(), **facts}) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The demo was killed and its broker with it: there is no group to leave, and no reader of the account.
        os._exit(1)


def name_partitions(partitions: Sequence[TopicPartition]) -> list[int]:
    """Return the partition numbers; the demo has one topic."""
    return sorted(partition.partition for partition in partitions)


def spans_of(records: Sequence[ConsumerRecord]) -> dict[int, list[int]]:
    """Return partition -> [first offset, last offset, records]."""
    spans: dict[int, list[int]] = {}
    for record in records:
        span = spans.setdefault(record.partition, [record.offset, record.offset, 0])
        span[1] = record.offset
        span[2] += 1
    return spans


def wait_for_end_of_input(stopping: threading.Event) -> None:
    """Set the event once the standard input has ended."""
    sys.stdin.read()
    stopping.set()


def main() -> int:
    """Read records until the standard input ends, then leave the group."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--name", required=True)
    options = parser.parse_args()
    # The input also ends when the process that started this one ends.
    stopping = threading.Event()
    threading.Thread(target=wait_for_end_of_input, args=(stopping,), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    consumer = Consumer(
        bootstrap_servers=options.bootstrap,
        group_id=options.group,
        client_id=options.name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    consumer.subscribe(
        [options.topic],
        on_assigned=lambda _, gained: write_down("assigned", partitions=name_partitions(gained)),
        on_revoked=lambda _, given: write_down("revoked", partitions=name_partitions(given)),
        on_lost=lambda _, lost: write_down("lost", partitions=name_partitions(lost)),
    )
    with consumer:
        while not stopping.is_set():
            records = consumer.poll(0.2)
            if records:
                spans = spans_of(records)
                write_down("processed", spans=spans)
                try:
                    consumer.commit()
                except KohortError as why:
                    # Refused because the partitions have moved: their new owner reads these records again.
                    write_down("commit refused", why=str(why))
                else:
                    write_down("committed", offsets={partition: last + 1 for partition, (_, last, _) in spans.items()})
    write_down("left")
    return 0


if __name__ == "__main__":
    sys.exit(main())
