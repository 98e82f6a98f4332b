"""One member of the demo's group, a process of its own: it reads, prints its account, and commits.

It prints JSON lines: `{"event": "owns", "partitions": ...}`, `{"event": "processed", "spans": ...}` and
`{"event": "committed", "offsets": ...}`. The line `processed` is written before the commit that follows it, so a kill
can double records in the account but never hide one. The line `committed` is written after the commit.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from kohort import Consumer
from kohort.errors import KohortError


def main(bootstrap: str, group: str, topic: str, name: str) -> None:
    """Read records until the standard input ends, then leave the group."""
    stopping = threading.Event()

    def stop_at_end_of_input() -> None:
        # The input also ends when the process that started this one ends.
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    where: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": group, "client_id": name}
    with Consumer(**where, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        owned: list[int] = []
        while not stopping.is_set():
            #: Partition -> [first offset, last offset, records].
            spans: dict[int, list[int]] = {}
            for record in consumer.poll(0.2):
                span = spans.setdefault(record.partition, [record.offset, record.offset, 0])
                span[1:] = record.offset, span[2] + 1
            before, owned = owned, sorted(partition.partition for partition in consumer.assignment())
            if owned != before:
                write_down("owns", partitions=owned)
            if spans:
                write_down("processed", spans=spans)
                try:
                    consumer.commit()
                except KohortError as why:
                    # Refused because the partitions have moved: their new owner reads these records again.
                    write_down("commit refused", why=str(why))
                else:
                    write_down("committed", offsets={partition: last + 1 for partition, (_, last, _) in spans.items()})
    write_down("left")


def write_down(event: str, **facts: Any) -> None:
    """Write an event as one line, and flush it, so that a kill cannot lose the line."""
    try:
        print(json.dumps({"event": event, "at": time.time(), **facts}), flush=True)
    except BrokenPipeError:
        # The demo was killed and its broker with it: there is no group to leave, and no reader of the account.
        os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
