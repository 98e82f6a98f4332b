"""A consumer in a process of its own that shares a topic with others and tells on stdout what it does.

One JSON line per event: {"what": "assigned" | "revoked" | "lost", "partitions": [...]}, {"what": "read", "records":
[[partition, offset], ...]} and at last {"what": "left"}.
SIGTERM makes it leave; SIGKILL does not.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from kohort import Consumer, TopicPartition

#: Notified with each event of any member: what is waited for is often up to several of them.
_CHANGED: Final = threading.Condition()


class SharingMember:
    """The process, seen from the test."""

    def __init__(self, bootstrap: str, protocol: str, group: str, topic: str) -> None:
        command = [sys.executable, __file__, bootstrap, protocol, group, topic]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def owned(self) -> set[int]:
        """The partitions that it says it has."""
        held: set[int] = set()
        for event in list(self.events):
            if event["what"] == "assigned":
                held |= set(event["partitions"])
            elif event["what"] in ("revoked", "lost"):
                held -= set(event["partitions"])
        return held

    @property
    def read(self) -> list[tuple[int, int]]:
        """(partition, offset) of everything that it has processed, in order."""
        return [tuple(pair) for event in list(self.events) if event["what"] == "read" for pair in event["records"]]

    def wait_for(self, test: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
        """Wait until something holds; looked at after each event of any member."""
        with _CHANGED:
            assert _CHANGED.wait_for(test, timeout_s), f"{what}; it said {self.events[-5:]}"

    def leave(self) -> None:
        """Let it go in peace."""
        self._process.send_signal(signal.SIGTERM)
        self._end()
        assert self.events[-1]["what"] == "left", self.events[-3:]

    def kill(self) -> None:
        """Let it go without a word."""
        self._process.kill()
        self._end()

    def _end(self) -> None:
        self._process.wait(20)
        self._reader.join(20)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with _CHANGED:
                self.events.append(json.loads(line))
                _CHANGED.notify_all()


@contextmanager
def sharing(bootstrap: str, protocol: str, group: str, topic: str) -> Iterator[SharingMember]:
    """A member that is gone after the block, whatever happens in it."""
    member = SharingMember(bootstrap, protocol, group, topic)
    try:
        yield member
    finally:
        member.kill()


def say(what: str, **facts: object) -> None:
    """One event."""
    print(json.dumps({"what": what, **facts}), flush=True)


def tell(what: str) -> Callable[[Consumer, list[TopicPartition]], None]:
    """A rebalance callback that says what it was called with."""
    return lambda _, partitions: say(what, partitions=[each.partition for each in partitions])


def main() -> None:
    """Read, say so, commit; leave on SIGTERM."""
    bootstrap, protocol, group, topic = sys.argv[1:]
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    consumer = Consumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        session_timeout_ms=1_500,
        heartbeat_interval_ms=100,
        max_poll_records=50,
    )
    with consumer:
        consumer.subscribe([topic], on_assigned=tell("assigned"), on_revoked=tell("revoked"), on_lost=tell("lost"))
        while not stopping:
            records = consumer.poll(0.1)
            if records:
                say("read", records=[(record.partition, record.offset) for record in records])
    say("left")


if __name__ == "__main__":
    main()
