"""The checker of histories: one planted anomaly a check, and none where nothing is wrong."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.testing import History, check_history
from kohort.testing.history import _CHECKS, operations

A = [("t", 0)]


class Story:
    """A history whose clock goes by a millisecond an event, with short words for what happens."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.history = History(clock=self._tick)

    def _tick(self) -> int:
        self.now_ns += 1_000_000
        return self.now_ns

    def send(self, value: str, offset: int | None = None, *, process: str = "p", kind: str = "ok") -> None:
        number = self.history.invoke(process, "send", topic="t", partition=0, value=value)
        if kind == "ok":
            self.history.ok(number, offset=offset)
        elif kind == "fail":
            self.history.fail(number)
        elif kind == "info":
            self.history.info(number)

    def poll(self, *rows: tuple[int, str], process: str = "q") -> None:
        self.history.note(process, "poll", records=[("t", 0, offset, value) for offset, value in rows])

    def own(self, name: str, process: str, *, group: str = "g") -> None:
        self.history.note(process, name, group=group, partitions=A)

    def commit(self, offset: int, name: str = "commit") -> None:
        self.history.ok(self.history.invoke("q", name, group="g", offsets=[("t", 0, offset)]))

    def committed(self, offset: int | None) -> None:
        rows = [] if offset is None else [("t", 0, offset)]
        self.history.ok(self.history.invoke("q", "committed", group="g"), offsets=rows)

    def finish(self) -> None:
        self.history.note("q", "finish")


def three_sent(story: Story) -> None:
    for offset, value in enumerate("abc"):
        story.send(value, offset)


def lost_write(story: Story) -> None:
    three_sent(story)
    story.own("assigned", "q")
    story.poll((0, "a"))
    story.own("assigned", "q")
    story.poll((2, "c"))


def unseen(story: Story) -> None:
    three_sent(story)
    story.poll((0, "a"), (1, "b"))
    story.finish()


def inconsistent_offset(story: Story) -> None:
    story.send("a", 0)
    story.send("b", kind="info")
    story.poll((0, "b"))


def duplicate(story: Story) -> None:
    story.send("a", 0)
    story.poll((0, "a"), (1, "a"))


def failed_read(story: Story) -> None:
    story.send("a", kind="fail")
    story.poll((0, "a"))


def nonmonotonic_send(story: Story) -> None:
    story.send("a", 1)
    story.send("b", 0)


def poll_skip(story: Story) -> None:
    three_sent(story)
    story.poll((0, "a"), (2, "c"))
    story.poll((0, "a"), (1, "b"), (2, "c"), process="another")


def nonmonotonic_poll(story: Story) -> None:
    three_sent(story)
    story.poll((0, "a"), (1, "b"))
    story.poll((1, "b"), (2, "c"))


def unowned_read(story: Story) -> None:
    three_sent(story)
    story.own("assigned", "q")
    story.poll((0, "a"))
    story.own("revoked", "q")
    story.poll((1, "b"))


def commit_regress(story: Story) -> None:
    story.commit(5)
    story.commit(4)


def commit_lost(story: Story) -> None:
    story.commit(4)
    story.commit(5)
    story.committed(4)


def double_owner(story: Story) -> None:
    three_sent(story)
    story.own("assigned", "one")
    story.poll((0, "a"), process="one")
    story.own("assigned", "two")
    story.poll((1, "b"), process="two")
    story.own("revoked", "one")


def orphan(story: Story) -> None:
    story.history.note("two", "assigned", group="g", partitions=[("t", 1)])
    story.own("assigned", "one")
    story.own("revoked", "one")
    story.now_ns += 1_000_000_000
    story.own("assigned", "two")


PLANTED: dict[str, Callable[[Story], None]] = {
    "lost-write": lost_write,
    "unseen": unseen,
    "inconsistent-offset": inconsistent_offset,
    "duplicate": duplicate,
    "failed-read": failed_read,
    "nonmonotonic-send": nonmonotonic_send,
    "poll-skip": poll_skip,
    "nonmonotonic-poll": nonmonotonic_poll,
    "unowned-read": unowned_read,
    "commit-regress": commit_regress,
    "commit-lost": commit_lost,
    "double-owner": double_owner,
    "orphan": orphan,
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_anomaly_is_found_and_no_other(name: str) -> None:
    story = Story()
    PLANTED[name](story)
    assert [anomaly.check for anomaly in check_history(story.history.events, orphan_limit_ms=500)] == [name]


def test_each_check_has_its_planted_anomaly() -> None:
    assert {*_CHECKS, "orphan"} == {*PLANTED}


def moved_partition(story: Story) -> None:
    """Given back, read again from the committed offset, by another and then by the first."""
    three_sent(story)
    story.own("assigned", "one")
    story.poll((0, "a"), (1, "b"), process="one")
    story.own("revoked", "one")
    story.own("assigned", "two")
    story.poll((1, "b"), (2, "c"), process="two")
    story.own("revoked", "two")
    story.own("assigned", "one")
    story.poll((2, "c"), process="one")
    story.finish()


def lost_partition(story: Story) -> None:
    """Who lost it reads no more, and is told late."""
    three_sent(story)
    story.own("assigned", "one")
    story.poll((0, "a"), (1, "b"), (2, "c"), process="one")
    story.own("assigned", "two")
    story.poll((2, "c"), process="two")
    story.own("lost", "one")


def unknown_outcomes(story: Story) -> None:
    """What nobody knows of may have happened or not."""
    story.send("a", kind="info")
    story.send("b", kind="never ended")
    story.send("c", 0)
    story.poll((0, "c"), (1, "a"))
    story.history.invoke("q", "commit", group="g", offsets=[("t", 0, 2)])
    story.commit(1)
    story.committed(2)
    story.finish()


def gaps(story: Story) -> None:
    """Offsets that no record has: of a batch that was compacted, or of a marker."""
    story.send("a", 0)
    story.send("b", 7)
    story.poll((0, "a"), (7, "b"))
    story.finish()


def reset_group(story: Story) -> None:
    story.commit(5)
    story.commit(0, "reset")
    story.commit(1)
    story.committed(1)


def overlapping_commits(story: Story) -> None:
    """Two commits under way at once may be carried out in either order."""
    first = story.history.invoke("q", "commit", group="g", offsets=[("t", 0, 5)])
    second = story.history.invoke("r", "commit", group="g", offsets=[("t", 0, 4)])
    story.history.ok(first)
    story.history.ok(second)
    story.committed(4)


def sought(story: Story) -> None:
    three_sent(story)
    story.poll((0, "a"), (1, "b"), (2, "c"))
    story.history.note("q", "seek", partitions=A)
    story.poll((0, "a"))


@pytest.mark.parametrize(
    "play", [moved_partition, lost_partition, unknown_outcomes, gaps, reset_group, overlapping_commits, sought]
)
def test_what_a_log_may_do_is_no_anomaly(play: Callable[[Story], None]) -> None:
    story = Story()
    play(story)
    assert check_history(story.history.events, orphan_limit_ms=500) == []


def test_history_is_kept_as_lines_of_json(tmp_path: Path) -> None:
    """A line that a crash has cut is left out."""
    path = tmp_path / "history.jsonl"
    history = History(path, clock=lambda: 7)
    history.ok(history.invoke("p", "send", topic="t", partition=0, value="a"), offset=3)
    history.note("q", "poll", records=[["t", 0, 3, "a"]])
    history.close()
    assert History.load(path) == history.events
    assert json.loads(path.read_text().splitlines()[1]) == {
        "number": 0,
        "process": "p",
        "kind": "ok",
        "name": "send",
        "value": {"topic": "t", "partition": 0, "value": "a", "offset": 3},
        "time_ns": 7,
    }
    path.write_text(path.read_text()[:-5])
    assert History.load(path) == history.events[:-1]


def test_threads_note_whole_events() -> None:
    history = History()

    def work() -> None:
        for number in range(200):
            history.ok(history.invoke("p", "send", topic="t", partition=0, value=str(number)), offset=number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = operations(history.events)
    assert len(found) == 800
    assert all(op.is_ok and op.began < op.ended for op in found)
