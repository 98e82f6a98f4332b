"""Messages from the driver's Python to a query's reader on its machine, and between readers.

A message says that a batch is finished, or asks the reader to give up its partitions. Readers with one name ask each
other for the member that holds it. A reader is a process of its own, a child of the JVM, and Spark has no API to reach
it. Its mailbox is a datagram socket in a folder that only its user can enter.

Laws: neither the sender nor the reader waits. Data that is no message is dropped without a log line. The kernel bounds
the number of waiting datagrams. A folder that another user could write into is not used; the query then goes on
without a mailbox, as it does if the driver sends no messages.
Source: measured life of the reader's process; unix(7).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kohort.ids import TopicPartition

_log = logging.getLogger(__name__)

#: A longer datagram is no message of kohort's.
_MESSAGE_BYTES: Final = 256
#: One call of `take` reads at most this many datagrams; the next call reads the others.
_MESSAGES_AT_ONCE: Final = 64
#: A younger file is not removed: it may belong to a mailbox that is just being opened.
_STALE_S: Final = 60.0
#: A socket's path may have 108 bytes on Linux and 104 elsewhere, its closing zero included.
_PATH_BYTES: Final = 103
_FOLDER_BYTES: Final = _PATH_BYTES - len("/") - 32 - len(".") - 8


@dataclass(frozen=True, slots=True)
class BatchDone:
    """The message that Spark has finished a batch; `end` is the `fingerprint` of the batch's end."""

    end: str


@dataclass(frozen=True, slots=True)
class Drain:
    """The request to give up each partition once no batch needs it, leave the group, and plan no more.

    The reader closes its mailbox when that is done.
    """


@dataclass(frozen=True, slots=True)
class HolderAsked:
    """The question of another reader with this name for the member that holds it; `sender`: where its mailbox is."""

    sender: str


@dataclass(frozen=True, slots=True)
class NameHeld:
    """The answer to `HolderAsked`, from the reader whose member it is."""

    member_id: str


Message = BatchDone | Drain | HolderAsked | NameHeld


def fingerprint(end: Mapping[str, object] | str) -> str:
    """Return the digest that stands for a query's offset in a message.

    The offset itself may be longer than a datagram.

    `end`: the offset, or its JSON from the query's progress; the order of keys does not matter.

    >>> fingerprint('{"b": 1, "a": 2}') == fingerprint({"a": 2, "b": 1})
    True
    """
    offset = json.loads(end) if isinstance(end, str) else end
    return hashlib.sha256(json.dumps(offset, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class DriverChannel:
    """The reader's mailbox; `open` never fails, and a mailbox that could not be made is always empty."""

    def __init__(self, door: socket.socket | None, path: Path | None) -> None:
        self._door = door
        self._path = path

    @classmethod
    def open(cls, name: str, *, folder: Path | None = None) -> DriverChannel:
        """Open a mailbox for the messages posted to this name.

        `name`: the member's; any text. Several mailboxes of one name get the same messages. `folder`: holds the socket;
        by default `private_folder`.
        """
        door = None
        try:
            place = private_folder() if folder is None else folder
            _sweep(place)
            path = place / f"{_digest(name)}.{secrets.token_hex(4)}"
            door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            door.setblocking(False)
            door.bind(str(path))
        except OSError as why:
            _log.warning("this query cannot be told when a batch is finished, nor to drain: %s", why)
            if door is not None:
                door.close()
            return cls(None, None)
        return cls(door, path)

    def take(self) -> list[Message]:
        """Return the messages posted since the last call, oldest first, without waiting."""
        messages: list[Message] = []
        if self._door is None:
            return messages
        for _ in range(_MESSAGES_AT_ONCE):
            try:
                data, sender = self._door.recvfrom(_MESSAGE_BYTES + 1)
            except OSError:
                break
            message = _parse(data, str(sender or ""))
            if message is not None:
                messages.append(message)
        return messages

    def ask_holder(self) -> None:
        """Ask the other readers with this name for the member that holds it."""
        if self._path is not None:
            for path in self._path.parent.glob(f"{self._path.stem}.*"):
                if path != self._path:
                    self.answer(str(path), HolderAsked(""))

    def answer(self, receiver: str, message: HolderAsked | NameHeld) -> None:
        """Send a message to one mailbox, if it is still open."""
        if self._door is not None:
            with suppress(OSError):
                self._door.sendto(_build(message), receiver)

    def close(self) -> None:
        """Close the mailbox and remove its file; a second call does nothing."""
        door, self._door = self._door, None
        if door is not None and self._path is not None:
            door.close()
            with suppress(OSError):
                self._path.unlink()


def post(name: str, message: Message, *, folder: Path | None = None) -> bool:
    """Send a message to every mailbox of that name; return whether at least one has received it."""
    told = False
    try:
        place = private_folder() if folder is None else folder
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for path in place.glob(f"{_digest(name)}.*"):
                # The reader has ended, or has read nothing for so long that its mailbox is full.
                with suppress(OSError):
                    sender.sendto(_build(message), str(path))
                    told = True
    except OSError as why:
        _log.debug("no mailbox can be reached: %s", why)
    return told


def is_open(name: str, *, folder: Path | None = None) -> bool:
    """Return whether a mailbox of that name is open, even if full; a drained reader closes its own."""
    with suppress(OSError):
        place = private_folder() if folder is None else folder
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            for path in place.glob(f"{_digest(name)}.*"):
                with suppress(OSError):
                    probe.connect(str(path))
                    return True
    return False


def private_folder() -> Path:
    """Return the folder of this user's mailboxes; create it if it does not exist.

    Raises:
        PermissionError: the folder belongs to another user, or other users may enter it.
    """
    name = f"kohort-{os.getuid()}"
    folder = Path(tempfile.gettempdir(), name)
    if len(os.fsencode(folder)) > _FOLDER_BYTES:
        folder = Path("/tmp", name)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{folder} is not a folder that only this user can enter; remove it, or set TMPDIR")
    return folder


def _sweep(folder: Path) -> None:
    """Remove the mailboxes and the notes of killed processes."""
    for note in folder.glob("batch-*"):
        # A reader writes its note once a batch, and has a mailbox as long.
        with suppress(OSError):
            is_old = time.time() - note.lstat().st_mtime > _STALE_S
            if is_old and (note.suffix or not any(folder.glob(f"{note.name.removeprefix('batch-')}.*"))):
                note.unlink()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        for path in folder.iterdir():
            try:
                found = path.lstat()
                if stat.S_ISSOCK(found.st_mode) and time.time() - found.st_mtime > _STALE_S:
                    probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                continue


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:32]


def _build(message: Message) -> bytes:
    match message:
        case BatchDone(end=end):
            said: dict[str, object] = {"done": end}
        case Drain():
            said = {"drain": True}
        case HolderAsked():
            said = {"holder": None}
        case NameHeld(member_id=member_id):
            said = {"holder": member_id}
    return json.dumps(said).encode()


def _parse(data: bytes, sender: str) -> Message | None:
    """Parse a datagram of a sender; return `None` if it is no message of kohort's."""
    if len(data) > _MESSAGE_BYTES:
        return None
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return None
    match said:
        case {"done": str(end)}:
            return BatchDone(end)
        case {"drain": True}:
            return Drain()
        case {"holder": None} if sender:
            return HolderAsked(sender)
        case {"holder": str(member_id)}:
            return NameHeld(member_id)
    return None


@dataclass(frozen=True, slots=True)
class OpenBatch:
    """The open batch of a query, and its member, with which the query's sink, another process, commits offsets."""

    group_id: str
    member_id: str
    #: Of the member, or the generation of a classic group.
    epoch: int
    instance_id: str | None
    #: The `fingerprint` of the batch's end.
    end: str
    #: Partition that the batch reads -> start and end, and since and orders of the query as its holder.
    spans: Mapping[TopicPartition, tuple[int, int, int, int]]
    #: Those of them that the group has assigned to the query now.
    owned: frozenset[TopicPartition]


def note_batch(name: str, batch: OpenBatch | None, *, folder: Path | None = None) -> None:
    """Leave a note of the open batch of the query of that name, or take it away; the former note goes."""
    try:
        path = (private_folder() if folder is None else folder) / f"batch-{_digest(name)}"
        if batch is None:
            path.unlink(missing_ok=True)
            return
        rows = [[*partition, *span, partition in batch.owned] for partition, span in batch.spans.items()]
        told = [batch.group_id, batch.member_id, batch.epoch, batch.instance_id, batch.end, rows]
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(told))
        draft.replace(path)
    except (OSError, UnicodeError) as why:
        _log.debug("a sink of this query cannot commit its offsets: %s", why)


def find_batch(name: str, *, folder: Path | None = None) -> OpenBatch | None:
    """Return the open batch of the query of that name, as its reader on this machine has noted it."""
    try:
        path = (private_folder() if folder is None else folder) / f"batch-{_digest(name)}"
        group_id, member_id, epoch, instance_id, end, rows = json.loads(path.read_text())
        spans = {TopicPartition(row[0], row[1]): (row[2], row[3], row[4], row[5]) for row in rows}
        owned = frozenset(TopicPartition(topic, number) for topic, number, *_, is_owned in rows if is_owned)
        return OpenBatch(group_id, member_id, epoch, instance_id, end, spans, owned)
    except (OSError, ValueError, TypeError):
        return None


#: Names are short; a longer note was not written by kohort.
_NOTE_BYTES: Final = 1_000


# To Spark's own source `kafka.group.id` is a label, and every query reads everything. Here it is a membership: two
# sources of one application in one group divide its topics, perhaps by mistake. A log line says so when the second one
# begins, unless the user has set kafka.group.instance.id. Nothing is refused: a join of two topics in one group is a
# proper use. A note that cannot be read gives no warning.
def announce(group_id: str, name: str, *, application: int | None = None, folder: Path | None = None) -> None:
    """Leave a note of this source; log a warning if the application has other sources in the group.

    `name`: the member's. `application`: a number that the sources of one application share; by default the id of the
    parent process. `folder`: holds the notes; by default `private_folder`.
    """
    prefix = f"source-{os.getppid() if application is None else application}-{_digest(group_id)}"
    try:
        place = private_folder() if folder is None else folder
        others = sorted({_read(path) for path in place.glob(f"{prefix}.*") if _is_alive(path)} - {name, ""})
        own = place / f"{prefix}.{os.getpid()}"
        own.write_text(name[:_NOTE_BYTES])
    except (OSError, UnicodeError) as why:
        _log.debug("sources of this application are not compared: %s", why)
        return
    if others:
        _log.warning(
            "this application reads by several sources in group %s: %s and %s are members that divide the topics "
            "between them. In Spark's own source kafka.group.id is a label, and each query reads everything: if that "
            "is meant, give each query a group of its own; if sharing is, a kafka.group.instance.id",
            group_id,
            ", ".join(others),
            name,
        )


def _is_alive(path: Path) -> bool:
    """Return whether the process that left the note still runs; remove the note of one that has ended."""
    pid = path.suffix.removeprefix(".")
    if not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        with suppress(OSError):
            path.unlink()
        return False
    except (OSError, OverflowError):
        return False
    return True


def _read(path: Path) -> str:
    with path.open(errors="replace") as note:
        return note.read(_NOTE_BYTES)
