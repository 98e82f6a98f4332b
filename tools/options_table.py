"""Prints docs/options.md: every option of broker, clients and Spark source, from the sets that parse them.

Run it with: python tools/options_table.py > docs/options.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from kohort.broker.settings import BROKER_OPTIONS
from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.config import Option, OptionSet, parse_bool, parse_float, parse_int, parse_list
from kohort.spark.options import OPTIONS as SPARK_OPTIONS

HEAD = """\
# Options

Made by `python tools/options_table.py > docs/options.md`; a test keeps it true.

Names, units and defaults are those of Apache Kafka 4.3, and Spark's for the Spark source, unless a row says otherwise.
An unknown name is an error that tells the nearest one that exists; so is a value out of its range.
"""

SECTIONS: tuple[tuple[str, str, OptionSet], ...] = (
    (
        "Broker",
        "`kohort up --config NAME=VALUE`, a server.properties or TOML file, or "
        '`kohort.Broker(config={"num.partitions": 4})`.',
        BROKER_OPTIONS,
    ),
    (
        "Consumer",
        'In Python with underscores, `kohort.Consumer(group_id="billing")`, or as they are, '
        '`kohort.Consumer.from_config({"group.id": "billing"})`.',
        CONSUMER_OPTIONS,
    ),
    ("Producer", 'Likewise: `kohort.Producer(acks="all")`.', PRODUCER_OPTIONS),
    ("Admin", "Likewise: `kohort.Admin(request_timeout_ms=5000)`.", ADMIN_OPTIONS),
    (
        "Spark source",
        '`spark.read.format("kohort").option("subscribe", "orders")`; beside these every consumer option with `kafka.` '
        "in front, of which `kafka.bootstrap.servers` is needed and `kafka.group.id` makes a streaming query a member.",
        SPARK_OPTIONS,
    ),
)


def kind_of(option: Option) -> str:
    """What a value may be."""
    if option.choices:
        return ", ".join(option.choices)
    if option.parse is parse_bool:
        return "true, false"
    if option.parse in (parse_int, parse_float):
        return range_of(option)
    return "list" if option.parse is parse_list or isinstance(option.default, list) else "text"


def range_of(option: Option) -> str:
    """The numbers that are allowed; the limits that come from the wire's number types are left out."""
    has_maximum = option.maximum is not None and option.maximum < 2**31 - 1
    if option.minimum is not None and has_maximum:
        return f"{option.minimum} to {option.maximum}" if option.minimum != option.maximum else f"{option.minimum}"
    if option.minimum is not None:
        return f"number from {option.minimum}"
    return f"number up to {option.maximum}" if has_maximum else "number"


def default_of(option: Option) -> str:
    """The default as it would be written in a file."""
    value = option.default
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{','.join(value) if isinstance(value, list) else value}`"


def table(options: Iterable[Option]) -> list[str]:
    """The rows of a Markdown table, by name."""
    rows = ["| option | values | default | meaning |", "| --- | --- | --- | --- |"]
    for option in sorted(options, key=lambda option: option.name):
        cells = [f"`{option.name}`", kind_of(option), default_of(option), option.doc]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return rows


def document() -> str:
    """The whole file."""
    lines = [HEAD]
    for title, usage, options in SECTIONS:
        lines += [f"## {title}", "", usage, "", *table(options), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(document())
