"""Two sources of one application in one group: they divide its topics, perhaps by mistake.

To Spark's own source `kafka.group.id` is a label, and every query reads everything. Here it is a membership: two
queries of one DataFrame are two members. A log line says so when the second one begins; a query that the user has
given a name in the group is a member on purpose.

Laws: nothing is refused, for a join of two topics in one group is right. A note that cannot be read gives no warning.
Source: the readers of an application are children of one JVM; each leaves a note in the user's private folder.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from kohort.spark.driver_channel import private_folder

_log = logging.getLogger(__name__)

#: Names are short; a longer note was not written by kohort.
_NOTE_BYTES: Final = 1_000


def announce(group_id: str, name: str, *, application: int | None = None, folder: Path | None = None) -> None:
    """Leave a note of this source, and warn of another source of the application in the group.

    Args:
        group_id: the group that it joins.
        name: of the member.
        application: a text that the sources of one application share; by default the process that started this.
        folder: for notes; by default that of this user's own.
    """
    group = hashlib.sha256(group_id.encode(errors="surrogatepass")).hexdigest()[:32]
    prefix = f"source-{os.getppid() if application is None else application}-{group}"
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
