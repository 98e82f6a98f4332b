"""Where the demo writes: a folder of its own, in which nothing but its own files is ever removed.

Laws: a folder is taken if it is new, empty or carries the demo's mark. What is removed is `data`, the picture and the
report, and `data` only if everything in it is what the demo's broker writes; anything else is refused by name before
anything is touched. No link is followed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kohort.errors import KohortError
from kohort.ids import JOURNAL_TOPIC, OFFSETS_TOPIC
from kohort.storage.catalog import CATALOG_NAME, FORMER_CATALOG_NAME
from kohort.storage.data_directory import EPOCH_NAME, LOCK_NAME, MARKER_NAME, META_NAME, RECOVERY_POINT_NAME
from kohort.storage.files.fs import DiskFileSystem
from kohort.storage.log_state import LAST_STOP_NAME
from kohort.storage.partitions.quarantine import UNFINISHED_SUFFIX
from kohort.storage.segments.segment import DELETED_SUFFIX
from kohort.storage.topics import NAMES_BESIDE, SUFFIXES_BESIDE

TOPIC: Final = "flights"
PARTITIONS: Final = 12
MARK_NAME: Final = ".kohort-demo"
DATA_NAME: Final = "data"
PICTURE_NAME: Final = "flights.png"
REPORT_NAME: Final = "report.html"

#: Files that are removed beside the data.
_FILES: Final = (PICTURE_NAME, REPORT_NAME)

_MARK: Final = (
    f"kohort demo wrote this folder. Its next run removes {DATA_NAME}/, {' and '.join(_FILES)} and makes them anew;\n"
    "remove this file to keep them.\n"
)
_CATALOG_NAMES: Final = (META_NAME, CATALOG_NAME, FORMER_CATALOG_NAME, MARKER_NAME)
_NAMES_IN_DATA: Final = (*_CATALOG_NAMES, EPOCH_NAME, RECOVERY_POINT_NAME, LAST_STOP_NAME)
_IN_DATA: Final = re.compile(rf"{re.escape(LOCK_NAME)}|({'|'.join(map(re.escape, _NAMES_IN_DATA))})(\.tmp)?")
_FOLDER: Final = re.compile(rf"({TOPIC}|{OFFSETS_TOPIC}|{JOURNAL_TOPIC})-\d+")
_IN_FOLDER: Final = re.compile(
    rf"\d{{20}}\.log({re.escape(UNFINISHED_SUFFIX)}|{re.escape(DELETED_SUFFIX)})?"
    rf"|\d{{20}}({'|'.join(map(re.escape, SUFFIXES_BESIDE))})"
    rf"|({'|'.join(map(re.escape, NAMES_BESIDE))})(\.tmp)?"
)
_NAMES_SHOWN: Final = 3


class PlaceRefusedError(KohortError):
    """The output folder has foreign files, or the demo cannot write there."""

    def __init__(self, place: Path, why: str) -> None:
        super().__init__(place, why)
        self.place = place
        self.why = why

    def __str__(self) -> str:
        return f"{self.place} {self.why}; name another folder with --output DIR"


def take_place(folder: Path) -> Path:
    """Make the folder the demo's, free it of an earlier run, and return where the broker keeps its data.

    Raises:
        PlaceRefusedError: it holds what the demo did not write, a broker is at work on the data of the earlier run,
            or it cannot be written to.
    """
    data = folder / DATA_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_ours(folder)
        if data.exists():
            # Not `take_directory`: an earlier removal that was interrupted may have left less than a data directory.
            lock = DiskFileSystem().lock(str(data / LOCK_NAME), "kohort demo")
            if lock is None:
                raise PlaceRefusedError(data, "is in use by a running broker: stop it")
            try:
                shutil.rmtree(data)
            finally:
                lock.release()
        # Before the data, so that what an interrupted run leaves is known for the demo's.
        (folder / MARK_NAME).write_text(_MARK)
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
        data.mkdir()
    except FileExistsError as why:
        raise PlaceRefusedError(folder, "is a file, and the demo needs a folder") from why
    except OSError as why:
        raise PlaceRefusedError(folder, f"cannot be written to ({why.strerror})") from why
    return data


def _check_ours(folder: Path) -> None:
    names = sorted(os.listdir(folder))
    mark = folder / MARK_NAME
    if names and (mark.is_symlink() or not mark.is_file()):
        raise PlaceRefusedError(folder, f"holds {_show(names)} and not the demo's mark {MARK_NAME}: it is left alone")
    for name, is_kind in (*((name, Path.is_file) for name in _FILES), (DATA_NAME, Path.is_dir)):
        path = folder / name
        if path.is_symlink() or (path.exists() and not is_kind(path)):
            kind = "folder" if name == DATA_NAME else "file"
            raise PlaceRefusedError(path, f"is not a {kind} of the demo's: it is left alone")
    data = folder / DATA_NAME
    foreign = sorted(_foreign_to(data)) if data.exists() else []
    if foreign:
        raise PlaceRefusedError(data, f"holds {_show(foreign)}, which the demo did not write: it is left alone")


def _foreign_to(data: Path) -> Iterator[str]:
    """Yield the paths in the data folder that no broker of the demo has made."""
    for entry in os.scandir(data):
        is_folder = entry.is_dir()
        if entry.is_symlink() or not (_FOLDER if is_folder else _IN_DATA).fullmatch(entry.name):
            yield entry.name
        elif is_folder:
            for file in os.scandir(entry):
                if not (file.is_file(follow_symlinks=False) and _IN_FOLDER.fullmatch(file.name)):
                    yield f"{entry.name}/{file.name}"


def _show(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
