"""Messages from the driver's Python to a query's reader on its machine, and notes between readers.

A message says that a batch is finished, or that the reader shall give its partitions up. The reader is a process of its
own, a child of the JVM; Spark offers no way to speak to it. A mailbox is a datagram socket in a folder that only its
user can enter.

Laws: neither the sender nor the reader waits. Foreign data is dropped without a log line. The size and the number of
datagrams are bounded as the kernel bounds them. A folder that another user could write into is not used; the query
then goes on without a mailbox, as it does where no driver posts.
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

_log = logging.getLogger(__name__)

#: Longer datagrams are not ours.
_MESSAGE_BYTES: Final = 256
#: Messages taken at once; more are left for the next time.
_MESSAGES_AT_ONCE: Final = 64
#: A file younger than this may be that of a mailbox that is being opened.
_STALE_S: Final = 60.0
#: A socket's path has 108 bytes on Linux and 104 elsewhere, its end included.
_PATH_BYTES: Final = 103
_FOLDER_BYTES: Final = _PATH_BYTES - len("/") - 32 - len(".") - 8


@dataclass(frozen=True, slots=True)
class BatchDone:
    """The message that Spark has finished the batch with this `fingerprint` of its end."""

    end: str


@dataclass(frozen=True, slots=True)
class Drain:
    """The message to give up every partition once no batch needs it, leave, and plan no more.

    The closed mailbox says that the reader has done it.
    """


Message = BatchDone | Drain


def fingerprint(end: Mapping[str, object] | str) -> str:
    """Return the digest that stands for a query's offset in a message.

    The offset itself may be longer than a datagram.

    Args:
        end: the offset, or its JSON as a query's progress has it; the order of names does not count.

    >>> fingerprint('{"b": 1, "a": 2}') == fingerprint({"a": 2, "b": 1})
    True
    """
    offset = json.loads(end) if isinstance(end, str) else end
    return hashlib.sha256(json.dumps(offset, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


class DriverChannel:
    """The reader's end; `open` never fails, and a mailbox that cannot be is always empty."""

    def __init__(self, door: socket.socket | None, path: Path | None) -> None:
        self._door = door
        self._path = path

    @classmethod
    def open(cls, name: str, *, folder: Path | None = None) -> DriverChannel:
        """Open a mailbox for the messages posted to this name.

        Args:
            name: of the member; any text. Several mailboxes of one name get the same messages.
            folder: where; by default a folder of this user's own.
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
                data = self._door.recv(_MESSAGE_BYTES + 1)
            except OSError:
                break
            message = _parse(data)
            if message is not None:
                messages.append(message)
        return messages

    def close(self) -> None:
        """Listen no more; safe to call twice."""
        door, self._door = self._door, None
        if door is not None and self._path is not None:
            door.close()
            with suppress(OSError):
                self._path.unlink()


def post(name: str, message: Message, *, folder: Path | None = None) -> bool:
    """Tell every mailbox of that name; whether one of them has it now."""
    told = False
    try:
        place = private_folder() if folder is None else folder
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for path in place.glob(f"{_digest(name)}.*"):
                # No reader listens any more, or it has stood still for so long that its box is full.
                with suppress(OSError):
                    sender.sendto(_build(message), str(path))
                    told = True
    except OSError as why:
        _log.debug("no mailbox can be reached: %s", why)
    return told


def is_open(name: str, *, folder: Path | None = None) -> bool:
    """Whether a mailbox of that name listens, be it full: a reader that has drained closes its own."""
    with suppress(OSError):
        place = private_folder() if folder is None else folder
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            for path in place.glob(f"{_digest(name)}.*"):
                with suppress(OSError):
                    probe.connect(str(path))
                    return True
    return False


def private_folder() -> Path:
    """Return the folder of this user's mailboxes, which is made if it does not exist.

    Raises:
        PermissionError: it belongs to another user, or other users may enter it.
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
    """Remove the mailbox files of killed processes."""
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
    said = {"done": message.end} if isinstance(message, BatchDone) else {"drain": True}
    return json.dumps(said).encode()


def _parse(data: bytes) -> Message | None:
    """Parse a message; `None` if the data is none."""
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
    return None


#: Names are short; a longer note was not written by kohort.
_NOTE_BYTES: Final = 1_000


# To Spark's own source `kafka.group.id` is a label, and every query reads everything. Here it is a membership: two
# sources of one application in one group divide its topics, perhaps by mistake. A log line says so when the second one
# begins, but for a name in the group that the user has given. Nothing is refused: a join of two topics in one group is
# right. A note that cannot be read gives no warning.
def announce(group_id: str, name: str, *, application: int | None = None, folder: Path | None = None) -> None:
    """Leave a note of this source, and warn of another source of the application in the group.

    Args:
        name: of the member.
        application: a number that the sources of one application share; by default the process that started this.
        folder: for notes; by default that of this user's own.
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
    """Whether the process that left the note is there; the note of one that is not is removed."""
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
