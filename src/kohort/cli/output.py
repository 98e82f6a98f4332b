"""How the command line speaks: tables for people, JSON lines for machines, one sentence for errors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any


def plain(value: Any) -> Any:
    """A value as JSON can carry it: dataclasses become objects, bytes text where they are UTF-8."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, (bytes, memoryview)):
        return text(bytes(value))
    return value


def text(value: bytes | None) -> str | None:
    """Bytes for a person: UTF-8 where they are, escaped where not, `None` stays `None`."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def print_json(value: Any) -> None:
    """One JSON document on a line of its own."""
    sys.stdout.write(json.dumps(plain(value), ensure_ascii=False) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """A table without frills: wide enough for its content, so that it can be piped; `empty` is said without rows."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=not sys.stdout.isatty())
    filled = False
    for row in rows:
        filled = True
        table.add_row(*("-" if cell is None else str(cell) for cell in row))
    if not filled:
        sys.stdout.write(empty + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 240, soft_wrap=not sys.stdout.isatty(), highlight=False)
    console.print(table)


def complain(sentence: object) -> None:
    """One line on the error output."""
    sys.stderr.write(f"kohort: {sentence}\n")
