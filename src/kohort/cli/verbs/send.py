"""`kohort send TOPIC`: lines of the standard input become records.

Laws: the number of sent records is always printed: at the end of the input, after a line that cannot be sent, and after
Ctrl-C. If the broker creates the topic with the first record, the output suggests an existing topic of a similar name.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.advice import nearest
from kohort.cli.bootstrap import connection, open_admin
from kohort.cli.main import add_common, exit_code
from kohort.cli.output import complain, print_json
from kohort.cli.recordformat import add_key_separator
from kohort.errors import ConfigError, KohortError

if TYPE_CHECKING:
    from kohort import RecordMetadata


CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
#: Unacknowledged records at most; then the verb waits before it reads more lines.
_UNDER_WAY: Final = 10_000
#: Wait for acknowledgements after Ctrl-C, seconds.
_LAST_ANSWERS_S: Final = 5.0


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    send = subparsers.add_parser("send", help="send the lines of the standard input as records", run=run)
    send.add_argument("topic", metavar="TOPIC")
    keys = send.add_mutually_exclusive_group()
    keys.add_argument("-k", "--key", metavar="KEY", help="the key of every record")
    add_key_separator(keys, help_text="each line is KEY, SEP, VALUE; \\t and other escapes are understood")
    keys.add_argument(
        "--keyed", dest="separator", action="store_const", const="\t", help="each line is KEY, a tab, VALUE"
    )
    send.add_argument(
        "-p", "--partition", type=int, metavar="N", help="send to this partition (default: by the key, or any)"
    )
    send.add_argument(
        "-H",
        "--header",
        action="append",
        default=[],
        type=parse_header,
        metavar="NAME=VALUE",
        help="a header of every record; repeatable",
    )
    send.add_argument("-z", "--compression", choices=CODECS, default="none", help="codec of batches (default none)")
    send.add_argument(
        "-Z", "--tombstone", action="store_true", help="send an empty value as null, which deletes its key"
    )
    add_common(send)


def parse_header(text: str) -> tuple[str, bytes]:
    """Parse `NAME=VALUE`, or rpk's and kaf's `NAME:VALUE` where there is no `=`."""
    name, found, value = text.partition("=" if "=" in text else ":")
    if not found or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, os.fsencode(value)


def run(options: argparse.Namespace) -> int:
    """Send until the input ends, then wait until every record is acknowledged."""
    from kohort import Producer

    with open_admin(options) as admin:
        topics = {topic.name: topic for topic in admin.list_topics()}
    is_new = options.topic not in topics
    near = nearest(options.topic, [name for name, row in topics.items() if not row.is_internal]) if is_new else None
    if sys.stdin.isatty():
        complain("each line becomes a record; Ctrl-D ends")
    producer = Producer(connection(options), compression_type=options.compression)
    lines = Lines(producer, options, near=near)
    try:
        with producer:
            code = lines.send_all()
    except KeyboardInterrupt:
        code = 130
    if options.json:
        print_json({"topic": options.topic, "sent": lines.sent, "created": is_new and lines.sent > 0})
    elif code in (0, 130):
        print(f"sent {lines.sent} record{'s' * (lines.sent != 1)} to {options.topic}")
    return code


class Lines:
    """A sender of the lines of the standard input to one topic."""

    def __init__(self, producer: Any, options: argparse.Namespace, *, near: str | None) -> None:
        """Create a sender to one topic.

        `near`: an existing topic of a similar name, to be suggested if this one is created; `None`: no suggestion.
        """
        self._producer = producer
        self._options = options
        self._near = near
        self._key = None if options.key is None else os.fsencode(options.key)
        self._separator = None if options.separator is None else os.fsencode(options.separator)
        self._pending: deque[Future[RecordMetadata]] = deque()
        #: Records that the broker has acknowledged.
        self.sent = 0

    def send_all(self) -> int:
        """Send every line of the input, and return the exit code of the verb."""
        try:
            for number, line in enumerate(sys.stdin.buffer, 1):
                try:
                    self._send(line.rstrip(b"\r\n"))
                except KohortError as why:
                    self._settle()
                    complain(f"line {number}: {why}; {self.sent} sent before it")
                    return exit_code(why)
                if self._near is not None:
                    # The client has logged that the topic was created.
                    self._settle()
                    complain(f"did you mean {self._near}?")
                    self._near = None
                elif len(self._pending) >= _UNDER_WAY:
                    # The oldest records are waited for while later ones are in flight, so memory stays bounded.
                    self._settle(down_to=_UNDER_WAY // 2)
            self._settle()
        except KeyboardInterrupt:
            self._producer.flush(_LAST_ANSWERS_S)
            self.sent += self._count_acknowledged()
            raise
        return 0

    def _send(self, line: bytes) -> None:
        key, value = (self._key, line) if self._separator is None else split_line(line, self._separator)
        is_null = self._options.tombstone and not value
        where = {"partition": self._options.partition, "headers": self._options.header}
        self._pending.append(self._producer.send(self._options.topic, None if is_null else value, key, **where))

    def _settle(self, *, down_to: int = 0) -> None:
        """Wait for the oldest records until `down_to` are unacknowledged; raise the first error."""
        while len(self._pending) > down_to:
            try:
                self._pending[0].result()
            except KohortError as why:
                total = self.sent + len(self._pending)
                sent = self.sent + self._count_acknowledged()
                if not sent:
                    raise
                raise KohortError(f"{why}; {sent} of {total} records were sent") from why
            self._pending.popleft()
            self.sent += 1

    def _count_acknowledged(self) -> int:
        return sum(future.exception() is None for future in self._pending if future.done())


def split_line(line: bytes, separator: bytes) -> tuple[bytes, bytes]:
    """Split an input line into key and value."""
    key, found, value = line.partition(separator)
    if not found:
        shown = "tab" if separator == b"\t" else repr(os.fsdecode(separator))
        raise ConfigError(f"no {shown} between key and value")
    return key, value
