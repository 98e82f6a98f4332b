"""Prints docs/options.md: every option of broker, clients, Spark source and sink, from the sets that parse them.

Run it with: python tools/options_table.py > docs/options.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from kohort.base.options import Option, OptionSet, as_text, parse_bool, parse_float, parse_int, parse_list
from kohort.broker.options.settings import BROKER_OPTIONS
from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.spark.option_table import OPTIONS as SPARK_OPTIONS
from kohort.spark.option_table import SINK_OPTIONS
from kohort.storage.topicconfig import TOPIC_OPTIONS

HEAD = """\
# Options

Made by `python tools/options_table.py > docs/options.md`; a test keeps it true.

Names, units and defaults are Apache Kafka 4.3's, and Spark's for its source and sink, unless a row says otherwise.
An unknown name is an error that tells the nearest one that exists; so is a value out of its range. A name that only
Kafka or another of its clients has is an error that says what is so instead, and one that is given twice is refused.
"""

SECTIONS: tuple[tuple[str, str, OptionSet], ...] = (
    (
        "Broker",
        "`kohort up --config NAME=VALUE`, a server.properties or TOML file (`--config-file`), or "
        '`kohort.Broker(config={"num.partitions": 4})`.\n\n'
        "A file that was written for Apache Kafka may be given as it is: what it has and this broker has not is passed "
        "over, named in one line at the start, and listeners for controllers are left out. All that is wrong in it is "
        "told at once, with file and line. It is refused where going on would break a promise: encryption, logins and "
        "permissions (`ssl.*`, `sasl.*`, `authorizer.class.name`, ...), more copies than one, policies and config "
        "providers, or `process.roles` without `broker`.",
        BROKER_OPTIONS,
    ),
    (
        "Topic",
        "`kohort topic create NAME --config NAME=VALUE`, or any tool of Kafka that creates or alters topics. Every "
        "config of Kafka is taken, kept and shown, and a value that Kafka would refuse is refused. One that changes "
        "nothing is said: by `kohort topic create` and `describe`, in the documentation that DescribeConfigs answers, "
        "and in a line of the broker's log; a value that *holds* asks for what happens anyway. Topics that are created "
        "by themselves have the broker's defaults: options of the broker where it has some, or else the ones below.",
        TOPIC_OPTIONS,
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
    (
        "Spark sink",
        '`frame.write.format("kohort").mode("append").option("topic", "orders")`; beside these every producer option '
        "with `kafka.` in front, of which `kafka.bootstrap.servers` is needed.",
        SINK_OPTIONS,
    ),
)


def kind_of(option: Option) -> str:
    """What a value may be."""
    if option.choices:
        choices = ", ".join(map(str, option.choices))
        return f"list of {choices}" if isinstance(option.default, list) else choices
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
    return "" if option.default in (None, "", []) else f"`{as_text(option.default)}`"


def effect_of(option: Option) -> str:
    """Whether it is acted on, and for which values that makes no difference."""
    if option.idle is None:
        return "yes"
    effect = option.idle.words
    return effect + "".join(f"; `{as_text(value)}` holds" for value in option.idle.unless if value != [])


def table(options: Iterable[Option]) -> list[str]:
    """The rows of a Markdown table, by name; with a column on what is acted on, if not all is."""
    rows = sorted(options, key=lambda option: option.name)
    columns = {
        "option": [f"`{option.name}`" for option in rows],
        "values": [kind_of(option) for option in rows],
        "default": [default_of(option) for option in rows],
        "acted on": [effect_of(option) for option in rows],
        "meaning": [option.doc for option in rows],
    }
    if all(option.idle is None for option in rows):
        del columns["acted on"]
    lines = [columns.keys(), ["---"] * len(columns), *zip(*columns.values(), strict=True)]
    return ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in lines]


def document() -> str:
    """The whole file."""
    lines = [HEAD]
    for title, usage, options in SECTIONS:
        lines += [f"## {title}", "", usage, "", *table(options), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(document())
