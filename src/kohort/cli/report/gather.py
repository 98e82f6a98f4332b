"""The sources of a report: history rows on disk, and the configs of groups and topics."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kohort.cli.bootstrap import connection
from kohort.cli.output import plain
from kohort.errors import BrokerError, ErrorCode, KohortError
from kohort.ids import JOURNAL_TOPIC

if TYPE_CHECKING:
    from kohort import Admin

_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The sources of one report."""

    #: Files with journal rows as JSON.
    paths: tuple[str, ...]
    #: Group ids; if empty, all groups in the rows.
    groups: tuple[str, ...] = ()
    #: Group -> its state, as the broker names it.
    states: dict[str, str] = field(default_factory=dict)
    #: The time of the report, milliseconds since 1970; `None` for that of the latest row.
    now_ms: int | None = None
    #: Remarks for the reader.
    notes: tuple[str, ...] = ()
    #: Group -> its session timeout.
    session_timeouts_ms: dict[str, int] = field(default_factory=dict)
    #: Topic -> its number of partitions.
    partitions: dict[str, int] = field(default_factory=dict)
    #: (group, topic, partition) -> log end offset, for partitions with committed offsets.
    ends: dict[tuple[str, str, int], int] = field(default_factory=dict)
    #: The broker's address; `None` without a broker, or without lag.
    bootstrap: str | None = None
    #: Client options for connections to that broker.
    settings: dict[str, str] = field(default_factory=dict, repr=False)
    #: Whether there are rows at all; only kohort's brokers write them.
    has_history: bool = True
    #: The broker whose topic `__group_journal` has older rows than these files; `None` if there are none.
    journal: str | None = None


def gather_files(paths: Sequence[str], group: str | None) -> Gathered:
    """Gather rows from files of `kohort group history --json`."""
    missing = next((path for path in paths if "*" not in path and "://" not in path and not Path(path).exists()), None)
    if missing is not None:
        raise KohortError(
            f"--input {missing}: there is no such file; kohort group history GROUP --json > FILE makes one"
        )
    return Gathered(paths=tuple(paths), groups=(group,) if group else ())


def gather_groups(options: argparse.Namespace, folder: Path) -> Gathered:
    """Gather the histories of a broker's groups into `folder`, with the groups' configs.

    Raises:
        BrokerError: GROUP_ID_NOT_FOUND: there is no such group.
        KohortError: the broker has no rows of the group, and lag is not wanted.
    """
    from kohort import Admin
    from kohort.cli.verbs.grouphistory import check_is_there

    with Admin(connection(options)) as admin:
        states = {row.group_id: row.state for row in admin.list_groups()}
        there = list(states)
        groups = [options.group] if options.group else there
        path = folder / "history.json"
        notes: list[str] = []
        rows = 0
        has_history = is_complete = True
        with path.open("w") as file:
            try:
                for group in groups:
                    found = admin.group_history(group)
                    check_is_there(admin, found, is_end_welcome=True)
                    rows += len(found.events)
                    for event in found.events:
                        file.write(json.dumps({"group_id": found.group_id, **plain(event)}) + "\n")
                    is_complete &= found.is_complete
            except BrokerError as why:
                if why.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
                has_history = False
        if not has_history:
            _check_lag_is_had(options, there)
            notes = ["Only kohort's broker keeps a history of groups, and this is another one: the page has only lag."]
        elif not rows and (options.no_lag or not groups):
            which = f"group {options.group}" if options.group else "any group"
            kept = "without a data directory a broker keeps only events since its start"
            raise KohortError(f"the history of {which} is empty: {kept}")
        topics = admin.list_topics()
        has_journal = any(topic.name == JOURNAL_TOPIC for topic in topics)
        if not is_complete and not has_journal:
            notes.append("Older rows were dropped: without a data directory journal.ring.rows are kept.")
        return Gathered(
            paths=(str(path),),
            groups=tuple(groups),
            states=states,
            now_ms=int(time.time() * 1000),
            notes=tuple(notes),
            session_timeouts_ms=dict(_session_timeouts(admin, groups)),
            partitions={topic.name: topic.partition_count for topic in topics},
            ends={} if options.no_lag else dict(_ends(admin, groups)),
            bootstrap=None if options.no_lag else options.bootstrap,
            settings={name: str(value) for name, value in getattr(options, "settings", {}).items()},
            has_history=has_history,
            journal=options.bootstrap if has_journal and not is_complete else None,
        )


def _check_lag_is_had(options: argparse.Namespace, there: Sequence[str]) -> None:
    """Raise an error if there is no lag to report either, which is all that is known without history."""
    if options.group and options.group not in there:
        raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {options.group}")
    if options.no_lag:
        raise KohortError("this broker is not kohort's and has no history of groups; without --no-lag there is lag")
    if not there:
        raise KohortError("this broker has no groups")


def _session_timeouts(admin: Admin, groups: Sequence[str]) -> Iterator[tuple[str, int]]:
    for group in groups:
        try:
            configs = {row.name: row.value for row in admin.describe_group_configs(group)}
        except BrokerError:
            # An older broker has no configs of groups; then the default is as good a guess.
            return
        value = configs.get(_SESSION_TIMEOUT)
        if value is not None:
            yield group, int(value)


def _ends(admin: Admin, groups: Sequence[str]) -> Iterator[tuple[tuple[str, str, int], int]]:
    for group, found in admin.groups_offsets(groups).items():
        if isinstance(found, KohortError):
            raise found
        for row in found:
            if row.committed is not None and row.end_offset >= 0:
                yield (group, row.topic, row.partition), row.end_offset
