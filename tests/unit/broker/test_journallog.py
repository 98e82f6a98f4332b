"""The topic of the journal: what is in it after which end, when the disk is full, and what goes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import dropwhile
from typing import cast

import pytest

from kohort.broker.durability import DiskFull, Durability
from kohort.broker.groups import journallog
from kohort.broker.groups.journallog import CRASH_GAP, JournalLog, OlderRows, read_older
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.topics.metadata import JOURNAL_SEGMENT_BYTES, Cluster
from kohort.ids import JOURNAL_TOPIC
from kohort.journal.ring import Journal
from kohort.journal.rows import Entry, Row, RowKind
from kohort.simulation.runtime import SimulatedLoop
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.store import Store
from kohort.testing.clock import VirtualClock
from kohort.testing.disks import MemoryFileSystem

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
            disk_full = DiskFull(self.clock)
            durability = Durability(loop, on_readable=lambda _: None, on_failure=lambda _: None, disk_full=disk_full)
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

    def pages(self, group_id: str = "g") -> list[OlderRows]:
        """What the topic has of a group, from its newest page to its oldest."""
        found: list[OlderRows] = []
        before: int | None = self.log.log_end_offset
        while before is not None:
            found.append(read_older(self.log, group_id, before=before))
            before = found[-1].older_offset
        return found

    def rows(self, group_id: str = "g") -> list[Row]:
        """All rows of a group that are in the topic, oldest first, without those of the broker before the first."""
        by_sequence: dict[int, Row] = {}
        for page in self.pages(group_id):
            by_sequence = {row.sequence: row for row in page.rows} | by_sequence
        rows = [by_sequence[number] for number in sorted(by_sequence)]
        return list(dropwhile(lambda row: row.entry.group_id != group_id, rows))

    def events(self, group_id: str = "g") -> list[str]:
        """What they tell."""
        return [row.entry.event for row in self.rows(group_id)]


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
    assert disk.events() == ["one", "two", *end, "three", *end, "broker_stopped"]
    rows = disk.rows()
    assert [row.sequence for row in rows] == list(range(1, 9))
    assert sorted({row.cause for row in rows}) == [row.cause for row in rows]
    assert disk.pages()[-1].is_complete
    assert not journal.history("g").is_complete, "an earlier life has had rows"
    assert list(journal.history("g").rows) == rows[-2:]
    assert disk.events("nobody") == []


def test_after_a_crash_a_row_says_what_may_be_missing() -> None:
    disk = Disk()
    disk.life(disk.tell("one"), is_killed=True)
    died_ms = disk.clock.now_ms()
    disk.life(disk.tell("two"))

    one, started, two, _ = disk.rows()
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
    assert "during" in disk.events()


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
    assert [event for event in disk.events() if event.startswith("e")] == ["e2", "e3", "e4"]
    (gap,) = [row for row in disk.rows() if row.entry.event == "journal_gap"]
    assert dict(gap.entry.details) == {"rows": "2"}, "the first row of this life, and e1"


def test_more_rows_than_one_batch_of_which_some_were_lost_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand joins in a moment: that rows were lost is told while the others are written, and has its own time."""
    monkeypatch.setattr(journallog, "WAITING_LIMIT", 3)
    monkeypatch.setattr(journallog, "BATCH_ROWS", 2)
    disk = Disk()

    async def run() -> None:
        journal, turns = Journal(limit=1_000), SimulatedLoop(disk.clock)
        disk_full = DiskFull(disk.clock)
        durability = Durability(
            asyncio.get_running_loop(), on_readable=lambda _: None, on_failure=lambda _: None, disk_full=disk_full
        )
        loop = cast(asyncio.AbstractEventLoop, turns)
        written = JournalLog(loop, disk.cluster, durability, disk.clock, journal, retention_ms=-1, retention_bytes=-1)
        written.start()
        disk.tell("e1", "e2", "e3", "e4")(journal, written)
        disk.clock.run_until(disk.clock.now_ms() + 1_000)

    asyncio.run(run())
    told = [row.entry.event for row in disk.rows()]
    assert told == ["e2", "e3", "e4", "journal_gap"]


def test_rows_go_by_size_and_then_the_history_is_not_complete() -> None:
    disk = Disk()
    limit = 2 * JOURNAL_SEGMENT_BYTES
    for _ in range(6):
        disk.life(disk.tell(*["e"] * 2_000, why="x" * 250), retention_bytes=limit)

    assert disk.log.size_bytes <= limit + JOURNAL_SEGMENT_BYTES
    assert disk.log.log_start_offset > 0
    assert not disk.pages()[-1].is_complete


def test_rows_go_by_age() -> None:
    disk = Disk()
    disk.life(disk.tell(*["old"] * 6_000, why="x" * 250), retention_ms=DAY_MS)
    disk.clock.run_until(disk.clock.now_ms() + 2 * DAY_MS)
    disk.life(disk.tell(*["new"] * 6_000, why="x" * 250), retention_ms=DAY_MS)

    told = disk.events()
    assert told.count("new") == 6_000
    assert told.count("old") < 6_000


def test_the_topic_is_read_from_its_end_in_pages_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journallog, "PAGE_ROWS", 100)
    monkeypatch.setattr(journallog, "BATCH_ROWS", 30)
    disk = Disk()
    disk.life(disk.tell("first"))
    disk.life(disk.tell(*[f"e{number}" for number in range(500)], group_id="busy"))
    disk.life(disk.tell("last"))

    pages = disk.pages("busy")
    assert len(pages) > 3
    assert max(len(page.rows) for page in pages) <= 130
    assert [page.is_complete for page in pages] == [False] * (len(pages) - 1) + [True]
    assert [event for event in disk.events("busy") if event.startswith("e")] == [f"e{number}" for number in range(500)]
    assert [event for event in disk.events() if not event.startswith("broker")] == ["first", "last"]


def test_what_the_topic_loses_while_it_is_read_is_missed_and_nothing_else() -> None:
    disk = Disk()
    disk.life(disk.tell(*["e"] * 9_000, why="x" * 250))
    (before,) = [page.older_offset for page in disk.pages()[:1]]
    assert before is not None
    while len(disk.log.segments) > 1:
        disk.log.drop_oldest()
    rest = read_older(disk.log, "g", before=before)
    assert disk.log.log_start_offset > 0 and not rest.is_complete
    gone = read_older(disk.log, "g", before=disk.log.log_start_offset)
    assert (gone.rows, gone.older_offset, gone.is_complete) == ((), None, False)


def test_a_damaged_batch_is_left_out() -> None:
    disk = Disk()
    for event in ("one", "two", "three"):
        disk.life(disk.tell(event))
    directory = f"/data/{JOURNAL_TOPIC}-0"
    (name,) = [name for name in disk.fs.list_directory(directory) if name.endswith(".log")]
    file = disk.fs.open(f"{directory}/{name}")
    file.write(file.read(0, file.size()).index(b'"two"'), b'"ten"')
    assert [event for event in disk.events() if event in ("one", "two", "three")] == ["one", "three"]


def test_a_refusal_that_repeats_is_written_with_its_number() -> None:
    disk = Disk()

    def live(journal: Journal, written: JournalLog) -> None:
        for times in (1, 8):
            disk.tell(*["refused"] * times)(journal, written)
            written.flush()

    disk.life(live)
    refused, end, *_ = disk.rows()
    assert (refused.entry.event, refused.times, end.entry.event) == ("refused", 9, "broker_stopped")
