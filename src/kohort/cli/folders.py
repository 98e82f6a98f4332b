"""Files and folders that verbs write; a verb replaces and removes only files that a verb has written.

Laws: the demo and the report's tables use a folder that is new, empty or has their mark; a page replaces only a page of
kohort's. The demo removes `data`, the picture and the report, and `data` only if it has only files that the demo's
broker writes. Anything else is refused by name before anything is changed. No link is followed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

from kohort.errors import KohortError
from kohort.ids import JOURNAL_TOPIC, OFFSETS_TOPIC
from kohort.security.capabilities.root_keys import FILE_NAME as KEYS_NAME
from kohort.storage import catalog, data_directory, log_state, topics
from kohort.storage.files.fs import DiskFileSystem
from kohort.storage.partitions.quarantine import UNFINISHED_SUFFIX
from kohort.storage.segments.segment import DELETED_SUFFIX

#: The topic that the demo makes.
TOPIC: Final = "flights"
MARK_NAME: Final = ".kohort-demo"
DATA_NAME: Final = "data"
PICTURE_NAME: Final = "flights.png"
REPORT_NAME: Final = "report.html"
_TABLES_MARK_NAME: Final = ".kohort-report"
#: The mark near the beginning of a report's page, by which it differs from other pages.
PAGE_MARK: Final = '<meta name="generator" content="kohort report">'

_MARK: Final = (
    f"kohort demo wrote this folder. Its next run removes {DATA_NAME}/, {PICTURE_NAME} and {REPORT_NAME} and makes "
    "them anew;\nremove this file to keep them.\n"
)


class FolderRefusedError(KohortError):
    """The output folder has foreign files, or the demo cannot write there."""

    def __init__(self, place: Path, why: str) -> None:
        super().__init__(place, why)
        self.place = place
        self.why = why

    def __str__(self) -> str:
        return f"{self.place} {self.why}; name another folder with --output DIR"


def take_demo_folder(folder: Path) -> Path:
    """Prepare the demo's folder, remove an earlier run's files, and return the broker's data folder.

    Raises:
        FolderRefusedError: the folder has files that the demo did not write, a broker uses the data of the earlier
            run, or the folder is not writable.
    """
    data = folder / DATA_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_ours(folder)
        if data.exists():
            # Not `take_directory`: an earlier removal that was interrupted may have left less than a data directory.
            lock = DiskFileSystem().lock(str(data / data_directory.LOCK_NAME), "kohort demo")
            if lock is None:
                raise FolderRefusedError(data, "is in use by a running broker: stop it")
            try:
                shutil.rmtree(data)
            finally:
                lock.release()
        # The mark is written before the data, so that files of an interrupted run are recognised as the demo's.
        (folder / MARK_NAME).write_text(_MARK)
        for name in (PICTURE_NAME, REPORT_NAME):
            (folder / name).unlink(missing_ok=True)
        data.mkdir()
    except FileExistsError as why:
        raise FolderRefusedError(folder, "is a file, and the demo needs a folder") from why
    except OSError as why:
        raise FolderRefusedError(folder, f"cannot be written to ({why.strerror})") from why
    return data


def take_tables_folder(folder: Path) -> Path:
    """Prepare a folder for a report's tables, which is new or empty, or has the mark of an earlier run."""
    mark = folder / _TABLES_MARK_NAME
    if folder.exists() and not mark.exists() and any(folder.iterdir()):
        raise KohortError(f"{folder} holds files and not the mark of a report's tables: choose another with --tables")
    try:
        (folder / "history").mkdir(parents=True, exist_ok=True)
        mark.touch()
    except OSError as why:
        raise KohortError(f"{folder} cannot hold tables: {why.strerror}; choose another with --tables") from why
    return folder


def check_page(out: Path, *, is_forced: bool) -> None:
    """Raise an error if a report's page cannot be written there, or would replace another file."""
    if not out.parent.is_dir():
        raise KohortError(f"--out {out}: there is no folder {out.parent}")
    if out.is_dir():
        raise KohortError(f"--out {out} is a folder: a file is expected, such as {out / 'report.html'}")
    if out.exists() and not is_forced:
        with out.open("rb") as page:
            if PAGE_MARK.encode() not in page.read(1_000):
                raise KohortError(f"{out} is there and is no report: it is left alone; --force writes over it")
    try:
        with TemporaryFile(dir=out.parent):
            pass
    except OSError as why:
        raise KohortError(f"--out {out} cannot be written: {why.strerror}") from why


def _one_of(*texts: str) -> str:
    return f"({'|'.join(map(re.escape, texts))})"


_FILE: Final = _one_of(
    *(data_directory.META_NAME, data_directory.MARKER_NAME, data_directory.EPOCH_NAME),
    *(data_directory.RECOVERY_POINT_NAME, catalog.CATALOG_NAME, catalog.FORMER_CATALOG_NAME, log_state.LAST_STOP_NAME),
)
#: Names of the broker's files and folders in the data folder, and of the files in a partition's folder.
_KEYS: Final = rf"{re.escape(KEYS_NAME)}|\.{re.escape(KEYS_NAME)}\.[0-9a-f]{{8}}\.tmp"
_IN_DATA: Final = re.compile(rf"{re.escape(data_directory.LOCK_NAME)}|{_FILE}(\.tmp)?|{_KEYS}")
_FOLDER: Final = re.compile(rf"{_one_of(TOPIC, OFFSETS_TOPIC, JOURNAL_TOPIC)}-\d+")
_IN_FOLDER: Final = re.compile(
    rf"\d{{20}}\.log{_one_of(UNFINISHED_SUFFIX, DELETED_SUFFIX)}?|\d{{20}}{_one_of(*topics.SUFFIXES_BESIDE)}"
    rf"|{_one_of(*topics.NAMES_BESIDE)}(\.tmp)?"
)
_NAMES_SHOWN: Final = 3


def _check_ours(folder: Path) -> None:
    names, mark, data = os.listdir(folder), folder / MARK_NAME, folder / DATA_NAME
    if names and (mark.is_symlink() or not mark.is_file()):
        raise FolderRefusedError(folder, f"holds {_show(names)} and not the demo's mark {MARK_NAME}: it is left alone")
    for path, kind in ((folder / PICTURE_NAME, "file"), (folder / REPORT_NAME, "file"), (data, "folder")):
        is_kind = path.is_dir() if kind == "folder" else path.is_file()
        if path.is_symlink() or (path.exists() and not is_kind):
            raise FolderRefusedError(path, f"is not a {kind} of the demo's: it is left alone")
    if data.exists() and (foreign := list(_foreign_to(data))):
        raise FolderRefusedError(data, f"holds {_show(foreign)}, which the demo did not write: it is left alone")


def _foreign_to(data: Path) -> Iterator[str]:
    """Yield the paths in the data folder that are not of the demo's broker."""
    for entry in os.scandir(data):
        is_folder = entry.is_dir()
        if entry.is_symlink() or not (_FOLDER if is_folder else _IN_DATA).fullmatch(entry.name):
            yield entry.name
        elif is_folder:
            for file in os.scandir(entry):
                if not (file.is_file(follow_symlinks=False) and _IN_FOLDER.fullmatch(file.name)):
                    yield f"{entry.name}/{file.name}"


def _show(names: Iterable[str]) -> str:
    shown = sorted(names)
    more = len(shown) - _NAMES_SHOWN
    return ", ".join(shown[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
