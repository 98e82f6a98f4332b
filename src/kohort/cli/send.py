"""`kohort send TOPIC`: lines of the standard input become records."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from kohort.cli.main import add_bootstrap, add_json
from kohort.cli.output import print_json
from kohort.errors import ConfigError


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    send = subparsers.add_parser("send", help="send the lines of the standard input as records", allow_abbrev=False)
    send.add_argument("topic", metavar="TOPIC")
    send.add_argument("--keyed", action="store_true", help="each line is KEY, a tab, VALUE")
    add_bootstrap(send)
    add_json(send)
    send.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Send until the input ends, then wait until every record is acknowledged."""
    from kohort import Producer

    sent = 0
    pending: list[Any] = []
    with Producer(bootstrap_servers=options.bootstrap) as producer:
        for line in sys.stdin.buffer:
            key, value = split_line(line.rstrip(b"\r\n"), is_keyed=options.keyed, number=sent + 1)
            pending.append(producer.send(options.topic, value, key))
            sent += 1
            if len(pending) >= 10_000:
                # The oldest answers are looked at while later ones are under way, so memory stays bounded.
                for future in pending[:5_000]:
                    future.result()
                del pending[:5_000]
        for future in pending:
            future.result()
    if options.json:
        print_json({"topic": options.topic, "sent": sent})
    else:
        print(f"sent {sent} record{'s' * (sent != 1)} to {options.topic}")
    return 0


def split_line(line: bytes, *, is_keyed: bool, number: int) -> tuple[bytes | None, bytes]:
    """Key and value of one input line."""
    if not is_keyed:
        return None, line
    key, tab, value = line.partition(b"\t")
    if not tab:
        raise ConfigError(f"line {number} has no tab between key and value, which --keyed asks for")
    return key, value
