"""Prints the options as keyword arguments with types: the clients', or those of Spark's source and sink.

Run it with: python tools/typed_options.py > src/kohort/client/typed_options.py
and:         python tools/typed_options.py spark > src/kohort/spark/typed_options.py
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator

from kohort.client.localassignors import parse_assignors
from kohort.client.option_kinds import parse_function, parse_servers
from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.client.producer.core.partitioner import parse_partitioner
from kohort.client.securityoptions import (
    parse_context,
    parse_identification,
    parse_mechanism,
    parse_provider,
    parse_upper,
)
from kohort.config import Option, as_keyword, parse_bool, parse_int, parse_list, parse_str
from kohort.spark import option_table, sinkoptions

HEAD = '''\
"""The clients' options as keyword arguments, for editors and for those who check types; nothing of it runs.

Made by `python tools/typed_options.py > src/kohort/client/typed_options.py` from the tables in `options.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ssl import SSLContext
from typing import Any, Literal, TypedDict

from kohort.assign.interface import Assignor
'''

SPARK_HEAD = '''\
"""The options of `kohort.spark.read_topic` and its like, for editors and for those who check types; nothing of it runs.

Made by `python tools/typed_options.py spark > src/kohort/spark/typed_options.py` from `option_table.py`,
`sinkoptions.py` and the clients' tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from kohort.client.typed_options import SharedOptions
from kohort.ids import TopicPartition

#: earliest, latest or committed, or a number for each partition; milliseconds where timestamps are wanted.
ByPartition: TypeAlias = str | Mapping[TopicPartition, int] | Mapping[str, Mapping[str, int]]
'''

#: What may be given in other forms than text and numbers.
SPARK_TYPES = {
    "assign": "str | Sequence[TopicPartition]",
    "startingOffsets": "ByPartition",
    "startingOffsetsByTimestamp": "ByPartition",
    "endingOffsets": "ByPartition",
    "endingOffsetsByTimestamp": "ByPartition",
}

TYPES = {
    parse_bool: "bool",
    parse_int: "int",
    parse_str: "str",
    parse_list: "str | Sequence[str]",
    parse_servers: "str | Sequence[str]",
    parse_assignors: "Assignor | Sequence[Assignor]",
    parse_function: "Callable[[Any], Any]",
    parse_partitioner: "str | Callable[[str, bytes | None, int], int]",
    parse_identification: "str | bool",
    parse_context: "SSLContext",
    parse_provider: "Callable[[], Any] | object",
    parse_mechanism: "str",
    parse_upper: "str",
}


def type_of(option: Option) -> str:
    """What may be given; numbers and switches as such, not as text."""
    if option.name in SPARK_TYPES:
        kind = SPARK_TYPES[option.name]
    elif option.choices and TYPES.get(option.parse, "str") == "str":
        numbers = [choice for choice in option.choices if choice.lstrip("-").isdigit()]
        shown = ", ".join([*(f'"{choice}"' for choice in option.choices), *numbers])
        kind = f"Literal[{shown}]"
    else:
        kind = TYPES[option.parse]
    return f"{kind} | None" if option.default is None else kind


def rows(options: Iterable[Option]) -> Iterator[str]:
    """One field each, with its sentence below, where editors look for it."""
    for option in options:
        yield f"    {option.keyword}: {type_of(option)}"
        lines = textwrap.wrap(option.doc.replace('"', "'"), 108)
        yield f'    """{lines[0]}' + "".join(f"\n    {line}" for line in lines[1:]) + '"""'
        for name in option.also:
            yield f"    {as_keyword(name)}: {type_of(option)}"
            yield f'    """The same as {option.keyword}."""'


def document() -> str:
    """The whole module."""
    shared = [option for option in ADMIN_OPTIONS if option.name in PRODUCER_OPTIONS]
    names = {option.name for option in shared}
    parts = [HEAD]
    for name, base, what, options in (
        ("SharedOptions", "TypedDict", "every client", shared),
        ("AdminOptions", "SharedOptions", "admin clients", ADMIN_OPTIONS),
        ("ConsumerOptions", "SharedOptions", "consumers", CONSUMER_OPTIONS),
        ("ProducerOptions", "SharedOptions", "producers", PRODUCER_OPTIONS),
    ):
        own = [option for option in options if name == "SharedOptions" or option.name not in names]
        head = f'class {name}({base}, total=False):\n    """Options of {what}."""\n'
        parts.append("\n".join([head, *rows(own)]) + "\n")
    return "\n\n".join(parts)


def spark_document() -> str:
    """The whole module for Spark."""
    names = {option.name for option in ADMIN_OPTIONS if option.name in PRODUCER_OPTIONS}
    parts = [SPARK_HEAD]
    for name, what, own, client, left_out in (
        ("ReadOptions", "reading", option_table.OPTIONS, CONSUMER_OPTIONS, {*option_table.REFUSED, *option_table.IDLE}),
        ("WriteOptions", "writing", sinkoptions.SINK_OPTIONS, PRODUCER_OPTIONS, sinkoptions.REFUSED),
    ):
        kafkas = [option for option in client if option.name not in names and option.name not in left_out]
        sparks = [option for option in own if option.keyword != "topic"]
        head = f'class {name}(SharedOptions, total=False):\n    """Options of {what}: Spark\'s, then Kafka\'s."""\n'
        parts.append("\n".join([head, *rows([*sparks, *kafkas])]) + "\n")
    # Functions do not travel as text.
    return "\n\n".join(parts).replace(TYPES[parse_partitioner], "str")


if __name__ == "__main__":
    sys.stdout.write(spark_document() if sys.argv[1:] == ["spark"] else document())
