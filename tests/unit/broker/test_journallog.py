"""The topic of the journal: what is in it after which end, when the disk is full, and what goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from kohort.broker import journallog
from kohort.broker.durability import Durability
from kohort.broker.journallog import CRASH_GAP, JournalLog
from kohort.broker.metadata import JOURNAL_SEGMENT_BYTES, Cluster
from kohort.broker.settings import BrokerSettings
from kohort.ids import JOURNAL_TOPIC
from kohort.journal.ring import Journal
from kohort.journal.rows import Entry, RowKind
from kohort.storage.memoryfs import MemoryFileSystem
from kohort.storage.partition import PartitionLog
from kohort.storage.store import Store
from kohort.testing.clock import VirtualClock

DAY_MS = 86_400_000


class Disk:
    """What stays from one life of a broker to the next."""

    def __init__(self) -> None:
        self.fs = MemoryFileSystem()
        self.store = Store.open("/data", fs=self.fs)
        self.cluster = Cluster(self.store, BrokerSettings.of(port=0))
        self.clock = VirtualClock()

    @property
    def log(self) -> PartitionLog:
        """The journal's."""
        return self.store.topics[JOURNAL_TOPIC].partitions[0]

    def life(
        self,
        live: Callable[[Journal, JournalLog], None] = lambda *_: None,
        *,
        ring_rows: int = 1_000,
        retention_ms: int = -1,
        retention_bytes: int = -1,
        is_killed: bool = False,
    ) -> Journal:
        """A broker starts, `live` happens, all is written, and it stops or is killed."""

        async def run() -> Journal:
            loop = asyncio.get_running_loop()
            journal = Journal(limit=ring_rows)
            durability = Durability(loop, on_readable=lambda _: None, on_failure=lambda _: None)
            written = JournalLog(
                loop,
                self.cluster,
                durability,
                self.clock,
                journal,
                retention_ms=retention_ms,
                retention_bytes=retention_bytes,
            )
            written.start()
            live(journal, written)
            written.flush() if is_killed else written.stop()
            return journal

        return asyncio.run(run())

    def tell(self, *events: str, group_id: str = "g", why: str = "") -> Callable[[Journal, JournalLog], None]:
        """Something happens to a group, each with a cause of its own."""

        def live(journal: Journal, written: JournalLog) -> None:
            for event in events:
                cause = written.last_cause + 1
                details = (("why", why),) if why else ()
                told = Entry(kind=RowKind.DECISION, event=event, group_id=group_id, member_id="m", details=details)
                journal.record([told], cause=cause, now_ms=self.clock.now_ms())

        return live


def events(journal: Journal, group_id: str = "g") -> list[str]:
    return [row.entry.event for row in journal.history(group_id).rows]


def test_a_broker_to_whose_groups_nothing_happens_has_no_topic() -> None:
    disk = Disk()
    disk.life()
    assert JOURNAL_TOPIC not in disk.store.topics


def test_after_a_stop_the_history_goes_on() -> None:
    disk = Disk()
    disk.life(disk.tell("one", "two"))
    disk.life(disk.tell("three"))
    journal = disk.life()

    end = ["broker_stopped", "broker_started"]
    assert events(journal) == ["one", "two", *end, "three", *end, "broker_stopped"]
    rows = journal.history("g").rows
    assert [row.sequence for row in rows] == list(range(1, 9))
    assert sorted({row.cause for row in rows}) == [row.cause for row in rows]
    assert journal.history("g").is_complete
    assert journal.history("g", after=4).rows == rows[4:]
    assert events(journal, "nobody") == []


def test_after_a_crash_a_row_says_what_may_be_missing() -> None:
    disk = Disk()
    disk.life(disk.tell("one"), is_killed=True)
    died_ms = disk.clock.now_ms()
    journal = disk.life(disk.tell("two"))

    one, started, two, _ = journal.history("g").rows
    assert dict(started.entry.details) == {"before": "crashed", "last_ms": str(died_ms)}
    assert started.sequence == one.sequence + CRASH_GAP + 1, "rows that were told and not written had numbers, too"
    assert two.cause > started.cause > one.cause + CRASH_GAP


def test_a_full_disk_stops_nobody_and_is_told_of() -> None:
    disk = Disk()
    disk.life(disk.tell("before"))

    def live(journal: Journal, written: JournalLog) -> None:
        disk.fs.space_left = 0
        disk.tell("during")(journal, written)
        written.flush()
        assert events(journal)[-1] == "during", "the ring has it"
        disk.fs.space_left = None

    disk.life(live)
    assert "during" in events(disk.life())


def test_what_does_not_wait_any_more_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journallog, "WAITING_LIMIT", 3)
    disk = Disk()
    disk.life(disk.tell("before"))

    def live(journal: Journal, written: JournalLog) -> None:
        disk.fs.space_left = 0
        disk.tell("e1", "e2", "e3", "e4")(journal, written)
        written.flush()
        disk.fs.space_left = None
        written.flush()

    disk.life(live)
    journal = disk.life()
    assert [event for event in events(journal) if event.startswith("e")] == ["e2", "e3", "e4"]
    (gap,) = [row for row in journal.history("g").rows if row.entry.event == "journal_gap"]
    assert dict(gap.entry.details) == {"rows": "2"}, "the first row of this life, and e1"


def test_rows_go_by_size_and_then_the_history_is_not_complete() -> None:
    disk = Disk()
    limit = 2 * JOURNAL_SEGMENT_BYTES
    for _ in range(6):
        disk.life(disk.tell(*["e"] * 2_000, why="x" * 250), retention_bytes=limit)

    assert disk.log.size_bytes <= limit + JOURNAL_SEGMENT_BYTES
    assert disk.log.log_start_offset > 0
    assert not disk.life(ring_rows=100_000).history("g").is_complete


def test_rows_go_by_age() -> None:
    disk = Disk()
    disk.life(disk.tell(*["old"] * 6_000, why="x" * 250), retention_ms=DAY_MS)
    disk.clock.run_until(disk.clock.now_ms() + 2 * DAY_MS)
    disk.life(disk.tell(*["new"] * 6_000, why="x" * 250), retention_ms=DAY_MS)

    told = events(disk.life(ring_rows=100_000))
    assert told.count("new") == 6_000
    assert told.count("old") < 6_000


def test_no_more_is_remembered_than_the_ring_has_room_for() -> None:
    disk = Disk()
    disk.life(disk.tell(*["e"] * 50))
    journal = disk.life(disk.tell("new"), ring_rows=20)

    history = journal.history("g")
    assert history.rows[-2].entry.event == "new"
    assert len(history.rows) <= 20
    assert not history.is_complete


def test_a_refusal_that_repeats_is_written_with_its_number() -> None:
    disk = Disk()

    def live(journal: Journal, written: JournalLog) -> None:
        for times in (1, 8):
            disk.tell(*["refused"] * times)(journal, written)
            written.flush()

    disk.life(live)
    refused, end, *_ = disk.life().history("g").rows
    assert (refused.entry.event, refused.times, end.entry.event) == ("refused", 9, "broker_stopped")
