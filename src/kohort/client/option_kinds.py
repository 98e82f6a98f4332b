"""The kinds of options that clients have, each as one call in the tables of `options.py`.

Source: Apache Kafka's ConfigDef.
"""

from __future__ import annotations

from typing import Final

from kohort.config import Option, parse_bool, parse_function, parse_int, parse_str

_INT32_MAX: Final = 2**31 - 1


def number(name: str, default: int, doc: str, *, minimum: int = 0, maximum: int = _INT32_MAX) -> Option:
    """A whole number within limits."""
    return Option(name=name, parse=parse_int, default=default, doc=doc, minimum=minimum, maximum=maximum)


def switch(name: str, default: bool, doc: str) -> Option:
    """True or false."""
    return Option(name=name, parse=parse_bool, default=default, doc=doc)


def choice(name: str, default: str, doc: str, *choices: str) -> Option:
    """One of several words."""
    return Option(name=name, parse=parse_str, default=default, doc=doc, choices=choices)


def text(name: str, default: str | None, doc: str) -> Option:
    """Any text; `None` by default means that there is none."""
    return Option(name=name, parse=parse_str, default=default, doc=doc)


def function(name: str, doc: str) -> Option:
    """Something of the application's to call; none by default."""
    return Option(name=name, parse=parse_function, default=None, doc=doc)
