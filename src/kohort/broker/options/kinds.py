"""Builders of the broker's options, one for each kind of value, and the units and limits of numbers."""

from __future__ import annotations

from typing import Final

from kohort.base import options
from kohort.base.options import Option

#: Units and limits of numbers.
KIBI: Final = 1024
MEBI: Final = 1024 * 1024
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def flag(name: str, default: bool, doc: str) -> Option:
    """Build a boolean option."""
    return Option(name=name, parse=options.parse_bool, default=default, doc=doc)


def count(name: str, default: int | None, doc: str, *, low: int = 0, high: int = INT32_MAX) -> Option:
    """Build an option that is a number within inclusive limits."""
    return Option(name=name, parse=options.parse_int, default=default, doc=doc, minimum=low, maximum=high)


def text(name: str, default: str | None, doc: str, *, choices: tuple[str, ...] = ()) -> Option:
    """Build an option that is a text, one of `choices` if there are any."""
    return Option(name=name, parse=options.parse_str, default=default, doc=doc, choices=choices)


def names(name: str, default: list[str], doc: str, *, choices: tuple[str, ...] = ()) -> Option:
    """Build an option that is a list of names, each one of `choices` if there are any."""
    return Option(name=name, parse=options.parse_list, default=default, doc=doc, choices=choices)


def password(name: str, doc: str) -> Option:
    """Build an option that is a secret: its value is a `Password`, shown nowhere."""
    return Option(name=name, parse=options.parse_password, default=None, doc=doc, is_secret=True)
