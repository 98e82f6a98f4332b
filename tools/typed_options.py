"""Prints src/kohort/client/typed_options.py: the clients' options as keyword arguments with types.

Run it with: python tools/typed_options.py > src/kohort/client/typed_options.py
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator

from kohort.client.option_kinds import parse_function
from kohort.client.options import ADMIN_OPTIONS, CONSUMER_OPTIONS, PRODUCER_OPTIONS, parse_servers
from kohort.client.producer.core.partitioner import parse_partitioner
from kohort.config import Option, parse_bool, parse_int, parse_list, parse_str

HEAD = '''\
"""The clients' options as keyword arguments, for editors and for those who check types; nothing of it runs.

Made by `python tools/typed_options.py > src/kohort/client/typed_options.py` from the tables in `options.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict
'''

TYPES = {
    parse_bool: "bool",
    parse_int: "int",
    parse_str: "str",
    parse_list: "str | Sequence[str]",
    parse_servers: "str | Sequence[str]",
    parse_function: "Callable[[Any], Any]",
    parse_partitioner: "str | Callable[[str, bytes | None, int], int]",
}


def type_of(option: Option) -> str:
    """What may be given; numbers and switches as such, not as text."""
    if option.choices and option.parse is parse_str:
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


if __name__ == "__main__":
    sys.stdout.write(document())
