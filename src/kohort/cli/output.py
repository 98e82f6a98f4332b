"""The output of the command line: tables for people, JSON lines for programs, sentences for errors.

Names of groups, members and clients are any text that a client has sent. Laws: a cell and a sentence are one line each,
and nothing in them moves the cursor of a terminal or changes the direction of text.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from argparse import Namespace
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any, Final

#: The remark of a command that has only shown its changes.
NOTHING_CHANGED: Final = "nothing is changed yet: --execute does it"

#: The least width of a table's column in a terminal, unless all of its cells are shorter.
_NARROWEST: Final = 8


def plain(value: Any) -> Any:
    """Convert a value to JSON's types: dataclasses to objects, bytes to text or marked base64."""
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, (bytes, memoryview)):
        return _plain_bytes(bytes(value))
    return value


def _plain_bytes(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        # An object, since any text that stands for bytes could also be the text itself.
        return {"base64": b64encode(value).decode()}


def text(value: bytes | None) -> str | None:
    """Convert bytes to text, with escapes for bytes that are not UTF-8; `None` stays `None`."""
    return None if value is None else value.decode("utf-8", "backslashreplace")


def one_line(value: object) -> str:
    r"""Return the text of a value, with escapes for characters that are not printable.

    >>> one_line("a\nb \u65e5\u3000\u672c \x1b[2J") == r"a\nb 日　本 \x1b[2J"
    True
    """
    return _escaped(str(value), lambda character: character.encode("unicode_escape").decode())


def _escaped(said: str, escape: Callable[[str], str]) -> str:
    if said.isprintable():
        return said
    # To Python the spaces of other scripts are unprintable, too.
    return "".join(each if each.isprintable() or unicodedata.category(each) == "Zs" else escape(each) for each in said)


def say(*sentences: object) -> None:
    """Print sentences, a line each."""
    sys.stdout.write("".join(f"{one_line(sentence)}\n" for sentence in sentences))


def print_json(value: Any) -> None:
    """Print one JSON document on a line of its own, in ASCII if the output is not UTF-8."""
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    said = json.dumps(plain(value), ensure_ascii=not is_utf8)
    # JSON itself escapes only some of the characters that are not printable.
    sys.stdout.write(_escaped(said, lambda character: json.dumps(character)[1:-1]) + "\n")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str, has_heading: bool = True
) -> None:
    """Print a table, or `empty` if it has no rows."""
    cells = [["-" if cell is None else one_line(cell) for cell in row] for row in rows]
    if not cells:
        sys.stdout.write(empty + "\n")
    elif sys.stdout.isatty():
        _print_for_person(columns, cells, has_heading=has_heading)
    else:
        widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
        for row in (columns, *cells) if has_heading else cells:
            # For programs that read the output a row is one line, however long.
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            sys.stdout.write(line.rstrip() + "\n")


def show(
    options: Namespace, value: Any, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str
) -> int:
    """Print the value as JSON with `--json`, else the table; return the exit code 0."""
    if options.json:
        print_json(value)
    else:
        print_table(columns, rows, empty=empty)
    return 0


def show_plan(
    options: Namespace, value: Any, columns: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str
) -> int:
    """Print as `show` does; without `--execute` add the remark that nothing is changed yet."""
    show(options, value, columns, rows, empty=empty)
    if rows and not options.execute and not options.json:
        complain(NOTHING_CHANGED)
    return 0


def _print_for_person(columns: Sequence[str], cells: Sequence[Sequence[str]], *, has_heading: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    if sum(min(width, _NARROWEST) + 2 for width in widths) - 2 > console.width:
        _print_as_lists(columns, cells)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=has_heading)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        # Names may have square brackets, which rich would interpret as markup.
        table.add_row(*map(Text, row))
    console.print(table)


def _print_as_lists(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print each row as a paragraph, with a line for each cell."""
    # In a narrow terminal cells side by side would have one letter a line.
    width = max(map(len, columns))
    rows = [
        "".join(f"{name.ljust(width)}  {cell}".rstrip() + "\n" for name, cell in zip(columns, row, strict=True))
        for row in cells
    ]
    sys.stdout.write("\n".join(rows))


def complain(sentence: object) -> None:
    """Print a sentence to stderr."""
    # Several mistakes are printed at once, a line each.
    sys.stderr.write("kohort: " + "\n".join(map(one_line, str(sentence).split("\n"))) + "\n")
