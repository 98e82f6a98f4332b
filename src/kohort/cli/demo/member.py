"""One member of a group of the demo, a process of its own: it reads, prints its account, and commits, or copies.

It prints JSON lines: `{"event": "owns", "partitions": ...}`, `{"event": "processed", "spans": ...}` and
`{"event": "committed", "offsets": ...}`. The line `processed` is written before the commit that follows it, so a kill
can double records in the account but never hide one. The line `committed` is written after the commit. A process that
copies prints nothing but its end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any, Final

from kohort import Consumer, ConsumerRecord, Producer, transform
from kohort.client.producer.producer import Transaction
from kohort.errors import KohortError

#: Options of a consumer that counts, and of one that copies.
_READ: Final[tuple[dict[str, Any], ...]] = ({}, {"isolation_level": "read_committed"})


def main(bootstrap: str, group: str, topic: str, name: str, *copying: str) -> None:
    """Read records until the standard input ends, then leave the group.

    `copying`: the topic that gets a copy of each record, the most records of one transaction, and after how many the
    process kills itself in the middle of one, 0 for never; empty: nothing is copied.
    """
    stopping = threading.Event()

    def stop_at_end_of_input() -> None:
        # The input also ends when the process that started this one ends.
        sys.stdin.read()
        stopping.set()

    threading.Thread(target=stop_at_end_of_input, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    where: dict[str, Any] = {"bootstrap_servers": bootstrap, "group_id": group, "client_id": name}
    with Consumer(**where, auto_offset_reset="earliest", enable_auto_commit=False, **_READ[bool(copying)]) as consumer:
        consumer.subscribe([topic])
        if copying:
            target, most, killed_after = copying
            copy(consumer, bootstrap, stopping, target=target, most=int(most), killed_after=int(killed_after))
            return
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


def copy(
    consumer: Consumer, bootstrap: str, stopping: threading.Event, *, target: str, most: int, killed_after: int
) -> None:
    """Copy records in transactions until the event is set, or until it is killed."""
    copied, most_copied = 0, killed_after or sys.maxsize
    # The next process has the same id: the broker aborts the transaction in which this one was killed.
    with Producer(bootstrap_servers=bootstrap, transactional_id=target) as producer:

        def send_again(records: list[ConsumerRecord], transaction: Transaction) -> None:
            nonlocal copied
            for record in records:
                transaction.send(target, record.value, record.key, partition=record.partition)
            copied += len(records)
            if copied > most_copied:
                # The broker has the records, and never hears of their commit.
                producer.flush()
                os.kill(os.getpid(), signal.SIGKILL)

        transform(consumer, producer, send_again, timeout=0.2, max_records=most, until=stopping.is_set)
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
