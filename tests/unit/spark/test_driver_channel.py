"""How the driver's Python tells a query's reader that a batch is finished, or to drain."""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.spark.driver_channel import (
    BatchDone,
    Drain,
    DriverChannel,
    HolderAsked,
    Message,
    NameHeld,
    OpenBatch,
    _digest,
    find_batch,
    fingerprint,
    is_open,
    note_batch,
    post,
    private_folder,
)

#: A group.instance.id may be anything: longer than a file's name, with separators, in any script.
NAMES = ["spark-7f3a", "../../etc/passwd", "x" * 5_000, "Ж/\0 *?[\ud800", ""]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, as a socket's path must be."""
    with tempfile.TemporaryDirectory(prefix="kohort-") as made:
        yield Path(made)


def send(path: Path, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(data, str(path))


def test_messages_arrive_in_their_order_and_once(folder: Path) -> None:
    """Nothing waits: what is not there yet is not there."""
    mailbox = DriverChannel.open("spark-1", folder=folder)
    assert mailbox.take() == []
    done = BatchDone(fingerprint({"orders": {"0": {"from": 1, "to": 2}}}))
    assert post("spark-1", done, folder=folder)
    assert post("spark-1", Drain(), folder=folder)
    assert mailbox.take() == [done, Drain()]
    assert mailbox.take() == []
    mailbox.close()


@pytest.mark.parametrize("name", NAMES, ids=["plain", "path", "long", "odd", "empty"])
def test_every_name_has_a_mailbox_of_its_own(name: str, folder: Path) -> None:
    mailbox, other = DriverChannel.open(name, folder=folder), DriverChannel.open(name + "x", folder=folder)
    assert post(name, Drain(), folder=folder)
    assert (mailbox.take(), other.take()) == ([Drain()], [])
    assert not post(name + "y", Drain(), folder=folder)
    assert {path.parent for path in folder.rglob("*")} == {folder}
    for each in (mailbox, other):
        each.close()


def test_two_readers_of_one_name_are_both_told(folder: Path) -> None:
    """A query is started again while its old reader is still leaving."""
    old, new = DriverChannel.open("spark-1", folder=folder), DriverChannel.open("spark-1", folder=folder)
    assert post("spark-1", Drain(), folder=folder)
    old.close()
    assert new.take() == [Drain()]
    assert post("spark-1", Drain(), folder=folder)
    assert new.take() == [Drain()]
    assert old.take() == []
    assert is_open("spark-1", folder=folder)
    new.close()
    assert not is_open("spark-1", folder=folder)
    assert not post("spark-1", Drain(), folder=folder)
    assert list(folder.iterdir()) == []


def test_what_is_no_message_is_dropped(folder: Path) -> None:
    """Whoever can write there is the same user, and may be mistaken all the same."""
    mailbox = DriverChannel.open("spark-1", folder=folder)
    (path,) = folder.iterdir()
    deep = b"[" * 250
    long = b'{"done": "%s"}' % (b"x" * 1_000)
    padded = b'{"drain": true}' + b" " * 1_000
    words = (b"", b"\xff\x00", b"{", b"[]", b"null", b'{"done": 7}', b'{"drain": 1e999}', b'{"go": 1}')
    for data in (*words, deep, long, padded):
        send(path, data)
        assert mailbox.take() == [], data[:20]
    post("spark-1", Drain(), folder=folder)
    assert mailbox.take() == [Drain()]
    mailbox.close()


def test_flood_neither_blocks_nor_ends_the_reader(folder: Path) -> None:
    """Who posts is told when the box is full; a take is bounded."""
    mailbox = DriverChannel.open("spark-1", folder=folder)
    sent = 0
    while post("spark-1", Drain(), folder=folder):
        sent += 1
        assert sent < 100_000, "the kernel bounds a socket's queue"
    assert is_open("spark-1", folder=folder), "it is full, not gone"
    taken: list[Message] = []
    while found := mailbox.take():
        assert len(found) <= 64
        taken += found
    assert len(taken) == sent
    assert post("spark-1", Drain(), folder=folder)
    mailbox.close()


def _open_and_die(folder: str) -> None:
    DriverChannel.open("spark-1", folder=Path(folder))
    os._exit(9)


@pytest.mark.process
def test_mailbox_of_a_killed_reader_is_removed_once_it_is_old(folder: Path) -> None:
    """A young file may belong to a reader between its socket's making and its listening."""
    died = multiprocessing.get_context("fork").Process(target=_open_and_die, args=(str(folder),))
    died.start()
    died.join(30)
    (left,) = folder.iterdir()
    assert not post("spark-1", Drain(), folder=folder)
    assert not is_open("spark-1", folder=folder)
    young = DriverChannel.open("other", folder=folder)
    assert left.exists()
    os.utime(left, (1, 1))
    (mine,) = set(folder.iterdir()) - {left}
    os.utime(mine, (1, 1))
    note = folder / "a-note"
    note.touch()
    os.utime(note, (1, 1))
    DriverChannel.open("third", folder=folder).close()
    assert set(folder.iterdir()) == {mine, note}, "one that listens stays, however old, and what is none"
    young.close()


@pytest.mark.parametrize("obstacle", ["open to others", "a link", "a file"])
def test_folder_that_is_not_private_is_not_used(
    obstacle: str, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody may make a folder in /tmp: the query goes on without a mailbox, and says so."""
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    place = folder / f"kohort-{os.getuid()}"
    match obstacle:
        case "open to others":
            place.mkdir()
            place.chmod(0o777)
        case "a link":
            (folder / "elsewhere").mkdir(mode=0o700)
            place.symlink_to(folder / "elsewhere")
        case _:
            place.touch()
    with caplog.at_level(logging.WARNING):
        mailbox = DriverChannel.open("spark-1")
    assert "this query cannot be told when a batch is finished" in caplog.text
    assert not post("spark-1", Drain())
    assert mailbox.take() == []
    mailbox.close()


def test_folder_is_made_for_its_user_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    assert private_folder() == folder / f"kohort-{os.getuid()}"
    assert private_folder().stat().st_mode & 0o777 == 0o700
    mailbox = DriverChannel.open("spark-1")
    assert post("spark-1", Drain())
    assert mailbox.take() == [Drain()]
    mailbox.close()


def test_long_folder_for_temporary_files_is_gone_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket's path is short; clusters give each container a long one."""
    monkeypatch.setattr(tempfile, "tempdir", "/var/" + "x" * 90)
    assert private_folder() == Path(f"/tmp/kohort-{os.getuid()}")


def test_readers_with_one_name_ask_each_other(folder: Path) -> None:
    """The answer goes to the reader that has asked, and nobody answers himself."""
    names = ("q-1", "q-1", "q-2")
    holder, asking, other = (DriverChannel.open(name, folder=folder) for name in names)
    asking.ask_holder()
    (asked,) = holder.take()
    assert isinstance(asked, HolderAsked)
    holder.answer(asked.sender, NameHeld("m-1"))
    assert (asking.take(), other.take(), holder.take()) == ([NameHeld("m-1")], [], [])
    asking.close()
    holder.answer(asked.sender, NameHeld("m-1"))
    asking.ask_holder()
    for mailbox in (holder, other):
        mailbox.close()


def test_notes_of_killed_readers_are_removed(folder: Path) -> None:
    """Those of a reader whose mailbox is there stay, however old: its batch takes long."""
    batch = OpenBatch("g", "m", 1, None, "end", {}, frozenset())
    living = DriverChannel.open("living", folder=folder)
    for name in ("living", "killed", "new"):
        note_batch(name, batch, folder=folder)
    found = {name: folder / f"batch-{_digest(name)}" for name in ("living", "killed", "new")}
    draft = found["living"].with_suffix(".77")
    draft.write_text("[")
    for path in (found["living"], found["killed"], draft):
        os.utime(path, (1, 1))
    DriverChannel.open("another", folder=folder).close()
    assert find_batch("living", folder=folder) == find_batch("new", folder=folder) == batch
    assert {each.name for each in folder.glob("batch-*")} == {found["living"].name, found["new"].name}
    living.close()
