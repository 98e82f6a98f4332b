"""`kohort tail TOPIC`: show records as they come."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from kohort.cli.main import add_bootstrap, add_json
from kohort.cli.output import print_json, text
from kohort.errors import ConfigError, UnknownTopicError

if TYPE_CHECKING:
    from kohort import ConsumerRecord


def add_parser(subparsers: Any) -> None:
    """Add the verb to the command line."""
    tail = subparsers.add_parser("tail", help="print records of a topic as they arrive", allow_abbrev=False)
    tail.add_argument("topic", metavar="TOPIC")
    tail.add_argument(
        "--from", dest="start", choices=("beginning", "end"), default="end", help="where to start (default end)"
    )
    tail.add_argument("--count", type=int, default=0, metavar="N", help="stop after N records (default: never)")
    tail.add_argument("--keys", action="store_true", help="print KEY, a tab, VALUE")
    add_bootstrap(tail)
    add_json(tail)
    tail.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Read without a group, so that nothing is committed and nobody is disturbed."""
    from kohort import Consumer, TopicPartition

    if options.count < 0:
        raise ConfigError(f"--count {options.count} cannot be: 0 (no end) or more is expected")
    shown = 0
    reset = "earliest" if options.start == "beginning" else "latest"
    with Consumer(bootstrap_servers=options.bootstrap, auto_offset_reset=reset) as consumer:
        partitions = consumer.partitions_for(options.topic)
        if not partitions:
            raise UnknownTopicError(options.topic)
        consumer.assign([TopicPartition(options.topic, partition) for partition in sorted(partitions)])
        while True:
            for record in consumer.poll(1.0):
                show(record, options)
                shown += 1
                if shown == options.count:
                    return 0


def show(record: ConsumerRecord, options: argparse.Namespace) -> None:
    """One record, one line."""
    if options.json:
        print_json(
            {
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": text(record.key),
                "value": text(record.value),
                "headers": [[name, text(value)] for name, value in record.headers],
            }
        )
        return
    value = text(record.value)
    line = "null" if value is None else value
    print(f"{text(record.key) or ''}\t{line}" if options.keys else line, flush=True)
