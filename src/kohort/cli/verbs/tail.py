"""`kohort tail TOPIC`: print records as they arrive.

Laws: the verb reads without a group, commits nothing and disturbs no group. The standard output has records only;
remarks go to the standard error.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from kohort.cli.arguments import parse_since
from kohort.cli.bootstrap import add_bootstrap, connection
from kohort.cli.main import add_json
from kohort.cli.output import complain, print_json
from kohort.cli.recordformat import TOKENS, add_key_separator, choose_format, compile_format, json_of
from kohort.errors import ConfigError, UnknownTopicError

if TYPE_CHECKING:
    from kohort import Consumer, ConsumerRecord, TopicPartition


#: Names that other tools have for the beginning and the end of a log -> kohort's names.
_ENDS: Final = {
    **dict.fromkeys(("beginning", "earliest", "start", "oldest"), "beginning"),
    **dict.fromkeys(("end", "latest", "newest"), "end"),
}


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    tail = subparsers.add_parser("tail", help="print records of a topic as they arrive", run=run)
    tail.add_argument("topic", metavar="TOPIC")
    tail.add_argument(
        "-o",
        "--from",
        "--offset",
        dest="start",
        type=parse_start,
        metavar="WHERE",
        help="beginning (earliest), end (latest), an OFFSET, -N: the last N of each partition, or a time: 2h ago, or "
        "2026-01-31T12:00Z (default end, with --exit beginning)",
    )
    tail.add_argument("--from-beginning", dest="start", action="store_const", const="beginning", help=argparse.SUPPRESS)
    tail.add_argument(
        "-p",
        "--partition",
        "--partitions",
        dest="partitions",
        action="append",
        type=parse_partitions,
        metavar="N",
        help="read these partitions only: N, 0,2 or 0-3; repeatable (default all)",
    )
    tail.add_argument(
        "-n", "-c", "--count", "--num", type=int, default=0, metavar="N", help="stop after N records (default: never)"
    )
    tail.add_argument("-e", "--exit", action="store_true", help="stop at the end offsets of the time when it starts")
    tokens = ", ".join(f"{token} {meaning}" for token, (meaning, _) in TOKENS.items()).replace("%", "%%")
    shape = tail.add_mutually_exclusive_group()
    shape.add_argument(
        "-f",
        "--format",
        type=compile_format,
        metavar="FORMAT",
        help=f"print each record in this format, without a line end: {tokens}; \\n, \\t, \\xHH",
    )
    shape.add_argument("--keys", action="store_true", help="print KEY, a tab, VALUE")
    add_key_separator(shape, help_text="print KEY, SEP, VALUE")
    shape.add_argument("--key-only", action="store_true", help="print the key without the value")
    add_json(shape)
    shape.add_argument("-J", dest="json", action="store_true", help=argparse.SUPPRESS)
    tail.add_argument("--headers", action="store_true", help="print NAME=VALUE,... of headers in front")
    add_bootstrap(tail)


def parse_start(word: str) -> str | datetime:
    """Parse `beginning`, `end`, `N` or `-N`, a time, or a duration before now."""
    if word in _ENDS:
        return _ENDS[word]
    if re.fullmatch(r"-?\d+", word):
        return word
    if (since := parse_since(word, now=datetime.now(UTC))) is not None:
        return since
    from difflib import get_close_matches

    near = get_close_matches(word, _ENDS, n=1, cutoff=0.65)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise argparse.ArgumentTypeError(f"{word!r} is none of beginning, end, OFFSET, -N, 2h and 2026-01-31T12:00Z{hint}")


def parse_partitions(word: str) -> list[range]:
    """Parse partitions such as `0,2-3` to ranges."""
    chosen = []
    for part in word.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        numbers = range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)
        if not numbers:
            raise argparse.ArgumentTypeError(f"{part!r} is no partition: numbers like 0,2 or 0-3 are expected")
        chosen.append(numbers)
    return chosen


def first_offset(start: str, *, begin: int, end: int) -> int:
    """Return the offset to start at in a partition with offsets from `begin` to below `end`."""
    if start == "beginning":
        return begin
    if start == "end":
        return end
    number = int(start)
    return max(begin, end + number) if start.startswith("-") else min(max(begin, number), end)


def run(options: argparse.Namespace) -> int:
    """Print records from the chosen start on, until the chosen end or Ctrl-C."""
    from kohort import Consumer

    if options.count < 0:
        raise ConfigError(f"--count {options.count} cannot be: 0 (no end) or more is expected")
    start = options.start or ("beginning" if options.exit else "end")
    reset: Literal["latest", "earliest"] = "latest" if start == "end" else "earliest"
    with Consumer(connection(options), auto_offset_reset=reset) as consumer:
        partitions = _choose_partitions(consumer, options)
        begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        consumer.assign(partitions)
        for each, offset in _first_offsets(consumer, start, begins, ends).items():
            consumer.seek(each, offset)
        older = sum(ends[each] - begins[each] for each in partitions)
        if older and options.start is None and not options.exit:
            complain(f"starts at the end; {older} older record{'s' * (older != 1)}: --from beginning")
        # An offset beyond the end is waited for, and no record below it is printed.
        lowest = int(start) if isinstance(start, str) and start.isdigit() else 0
        if lowest > max(ends.values()):
            waits = "" if options.exit else "; waiting for it"
            complain(f"offset {lowest} is beyond the end, which is at {max(ends.values())}{waits}")
        _read(consumer, options, lowest=lowest, ends=ends if options.exit else None)
    return 0


def _first_offsets(
    consumer: Consumer,
    start: str | datetime,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the offsets to start at; for a time that of the first record since then, else the end."""
    if isinstance(start, str):
        return {each: first_offset(start, begin=begin, end=ends[each]) for each, begin in begins.items()}
    found = consumer.offsets_for_times(dict.fromkeys(begins, int(start.timestamp() * 1000)))
    return {each: ends[each] if at is None else at[0] for each, at in found.items()}


def _choose_partitions(consumer: Consumer, options: argparse.Namespace) -> list[TopicPartition]:
    from kohort import TopicPartition

    there = consumer.partitions_for(options.topic)
    if not there:
        raise UnknownTopicError(options.topic)
    ranges = [each for word in options.partitions or () for each in word] or [range(len(there))]
    last = max(each.stop for each in ranges) - 1
    if last not in there:
        raise ConfigError(f"{options.topic} has no partition {last}: it has {len(there)}, counted from 0")
    return [TopicPartition(options.topic, number) for number in there if any(number in each for each in ranges)]


def _read(
    consumer: Consumer, options: argparse.Namespace, *, lowest: int, ends: Mapping[TopicPartition, int] | None
) -> None:
    """Print records until `--count` is reached, or every partition is read up to its offset in `ends`."""
    show = _printer(options)
    shown = 0
    unfinished = set(ends or ())
    while True:
        if ends is not None:
            unfinished -= {each for each in unfinished if consumer.position(each) >= ends[each]}
            if not unfinished:
                return
        for record in consumer.poll(1.0):
            if record.offset < lowest or (ends is not None and record.offset >= ends[record.topic_partition]):
                continue
            show(record)
            shown += 1
            if shown == options.count:
                return
        sys.stdout.flush()


def _printer(options: argparse.Namespace) -> Callable[[ConsumerRecord], None]:
    if options.json:
        return lambda record: print_json(json_of(record))
    shape = choose_format(options)

    def show(record: ConsumerRecord) -> None:
        sys.stdout.write(shape(record))

    return show
