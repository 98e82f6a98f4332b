"""Constructors of broker options by kind: switches, numbers, texts."""

from __future__ import annotations

from typing import Final

from kohort.config import Option, parse_bool, parse_int, parse_str

#: Units and limits of numbers.
KIBI: Final = 1024
MEBI: Final = 1024 * 1024
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def flag(name: str, default: bool, doc: str) -> Option:
    """Build an option that is a switch."""
    return Option(name=name, parse=parse_bool, default=default, doc=doc)


def count(name: str, default: int | None, doc: str, *, low: int = 0, high: int = INT32_MAX) -> Option:
    """Build an option that is a number within inclusive limits."""
    return Option(name=name, parse=parse_int, default=default, doc=doc, minimum=low, maximum=high)


def text(name: str, default: str | None, doc: str, *, choices: tuple[str, ...] = ()) -> Option:
    """Build an option that is a text, one of `choices` if there are any."""
    return Option(name=name, parse=parse_str, default=default, doc=doc, choices=choices)
