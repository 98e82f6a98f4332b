"""`kohort log dump`: the batches of a segment file or of a partition's folder, and their records.

Laws: what cannot be read is said where it stands, and what follows is shown all the same.
Source: kafka-dump-log with its options --print-data-log, --offsets-decoder and --deep-iteration.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.output import plain, print_json, text
from kohort.cli.words import parse_offset
from kohort.errors import CorruptRecordError, StorageError
from kohort.ids import OFFSETS_TOPIC, format_topic_id

if TYPE_CHECKING:
    from kohort.records.batch import Record
    from kohort.storage.files.fs import FileSystem
    from kohort.storage.offline.inspection import Damage, FoundBatch

_ID_BYTES: Final = 16


def add_dump(actions: Any) -> Any:
    """Add `dump` to the actions of `kohort log`; its parser."""
    dump = actions.add_parser(
        "dump",
        help="print the batches of a segment file or of a partition's folder, and their records",
        description="Print a line for each batch. With --records also each record; those of __consumer_offsets as what "
        "they say of groups. Ends with 1 where something is damaged.",
        allow_abbrev=False,
    )
    dump.add_argument("path", metavar="PATH", help="DIR/orders-0, or one of the files in it that end in .log")
    dump.add_argument("-r", "--records", action="store_true", help="print records, too")
    dump.add_argument("--raw", action="store_true", help="print keys and values of __consumer_offsets as they are")
    dump.add_argument("-o", "--from", dest="start", type=parse_offset, default=0, metavar="N", help="from offset N on")
    dump.add_argument("-n", "--count", type=int, default=0, metavar="N", help="stop after N batches")
    dump.set_defaults(run=run_dump)
    return dump


def run_dump(options: argparse.Namespace) -> int:
    """Print a line or a JSON document for each batch, in order."""
    from kohort.storage.files.fs import DiskFileSystem
    from kohort.storage.offline.inspection import Damage

    fs = DiskFileSystem(reads_only=True)
    path = options.path.rstrip("/") or "/"
    folder = path.rpartition("/")[0] or "." if path.endswith(".log") else path
    _refuse_while_held(fs, folder)
    decode_groups = not options.raw and (folder.rpartition("/")[2]).startswith(f"{OFFSETS_TOPIC}-")
    left = options.count or -1
    is_damaged = False
    for each in _batches(fs, path):
        if isinstance(each, Damage):
            is_damaged = True
            _tell_damage(each, as_json=options.json)
        elif each.header.last_offset >= options.start:
            _tell_batch(each, options, decode_groups=decode_groups)
            left -= 1
            if left == 0:
                break
    return 1 if is_damaged else 0


def _refuse_while_held(fs: FileSystem, folder: str) -> None:
    from kohort.storage.directory.datadir import broker_on

    directory = folder.rpartition("/")[0] or "."
    holder = broker_on(fs, directory)
    if holder is not None:
        raise StorageError(f"a broker{holder} works on {directory}; stop it first, or read with kohort tail")


def _batches(fs: FileSystem, path: str) -> Iterator[FoundBatch | Damage]:
    from kohort.storage.offline.inspection import walk_segment
    from kohort.storage.segments.segment import segment_base

    folder, _, name = path.rpartition("/")
    if segment_base(name) is not None:
        names = [name]
    else:
        folder, names = path, [each for each in fs.list_directory(path) if segment_base(each) is not None]
        if not names:
            raise StorageError(f"{path} is no segment file (20 digits and .log), and holds none")
    for each in names:
        # Compaction leaves gaps, and what a file says is shown whatever it is: only damage is noticed.
        yield from walk_segment(fs, f"{folder or '.'}/{each}", segment_base(each) or 0)


def _tell_damage(damage: Damage, *, as_json: bool) -> None:
    if as_json:
        print_json({"damage": damage})
    else:
        print(f"DAMAGED {damage}")


def _tell_batch(batch: FoundBatch, options: argparse.Namespace, *, decode_groups: bool) -> None:
    header = batch.header
    rows = _records(batch, decode_groups=decode_groups) if options.records else []
    if options.json:
        shown = {"position": batch.position, "size_bytes": header.size_bytes, **header._asdict()}
        shown |= {"last_offset": header.last_offset, "compression": header.compression}
        print_json(shown | ({"records": [row for row, _ in rows]} if options.records else {}))
        return
    words = [
        f"offsets {header.base_offset}-{header.last_offset}",
        f"byte {batch.position}",
        f"{header.size_bytes} bytes",
    ]
    words += [f"{header.record_count} records", header.compression, f"epoch {header.partition_leader_epoch}"]
    if header.producer_id >= 0:
        words.append(f"producer {header.producer_id}/{header.producer_epoch} from {header.base_sequence}")
    words += ["transactional"] * header.is_transactional + ["control"] * header.is_control
    words.append(_time(header.max_timestamp) + (" (broker's)" if header.has_log_append_time else ""))
    print(", ".join(words))
    for _, line in rows:
        print(f"  {line}")


def _records(batch: FoundBatch, *, decode_groups: bool) -> list[tuple[object, str]]:
    """Yield each record as JSON and as a line; one that cannot be read ends its batch."""
    from kohort.records.batch import iterate_records

    rows: list[tuple[object, str]] = []
    try:
        for record in iterate_records(batch.read(), include_control=True, check_crcs=False):
            is_group = decode_groups and not batch.header.is_control
            rows.append(_group_row(record) if is_group else _plain_row(record))
    except CorruptRecordError as why:
        rows.append(({"unreadable": str(why)}, f"UNREADABLE {why}"))
    return rows


def _plain_row(record: Record) -> tuple[object, str]:
    words = [f"{record.offset}", _time(record.timestamp), f"key={text(record.key)}", f"value={text(record.value)}"]
    words += [f"{name}={text(value)}" for name, value in record.headers]
    return record, "  ".join(words)


def _group_row(record: Record) -> tuple[object, str]:
    """Return a coordinator's record, decoded, as JSON and as a line of text."""
    from kohort.coordinator.recordcodec import decode

    try:
        fact = decode(record.key or b"", record.value)
    except StorageError as why:
        return {"offset": record.offset, "unreadable": str(why)}, f"{record.offset}  UNREADABLE {why}"
    if fact is None:
        return _plain_row(record)
    # Topic ids are bytes inside, and text everywhere else.
    said = {field.name: _with_ids(getattr(fact, field.name)) for field in fields(fact)}
    kind = type(fact).__name__
    shown = "  ".join(f"{name}={value}" for name, value in said.items())
    return {"offset": record.offset, "type": kind, **said}, f"{record.offset}  {kind}  {shown}"


def _with_ids(value: Any) -> Any:
    if isinstance(value, bytes) and len(value) == _ID_BYTES:
        return format_topic_id(value)
    if isinstance(value, Mapping):
        return {_with_ids(key): _with_ids(each) for key, each in value.items()}
    return plain(value)


def _time(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "no time"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError):
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
