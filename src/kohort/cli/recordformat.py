"""The output format of a record: its value with or without key and headers, JSON, or kcat's tokens.

Source: kcat 1.7, `-f`, `-K`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kohort.cli.output import text

if TYPE_CHECKING:
    from kohort import ConsumerRecord


def _value(record: ConsumerRecord) -> str:
    shown = text(record.value)
    return "null" if shown is None else shown


def _key(record: ConsumerRecord) -> str:
    return text(record.key) or ""


def _headers(record: ConsumerRecord) -> str:
    pairs = ((name, text(value)) for name, value in record.headers)
    return ",".join(name if value is None else f"{name}={value}" for name, value in pairs)


def _length(value: bytes | None) -> str:
    return "-1" if value is None else str(len(value))


#: Token -> its meaning, and the function that reads it from a record.
TOKENS: Final[dict[str, tuple[str, Callable[[ConsumerRecord], str]]]] = {
    "%t": ("topic", lambda record: record.topic),
    "%p": ("partition", lambda record: str(record.partition)),
    "%o": ("offset", lambda record: str(record.offset)),
    "%T": ("timestamp in ms", lambda record: str(record.timestamp)),
    "%k": ("key", _key),
    "%K": ("its length, -1 for null", lambda record: _length(record.key)),
    "%s": ("value", _value),
    "%S": ("its length, -1 for null", lambda record: _length(record.value)),
    "%h": ("headers as NAME=VALUE,...", _headers),
    "%%": ("a percent sign", lambda _: "%"),
}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_PIECES: Final = re.compile(r"%.|%$|\\x[0-9a-fA-F]{2}|\\[ntr0\\]|[^%\\]+|\\", re.DOTALL)


def unescape(text_: str) -> str:
    r"""Replace the escapes `\t`, `\n`, `\r`, `\0`, `\\` and `\xHH` by their characters."""
    return re.sub(
        r"\\(?:x([0-9a-fA-F]{2})|([ntr0\\]))",
        lambda found: chr(int(found[1], 16)) if found[1] else _ESCAPES[found[2]],
        text_,
    )


def compile_format(text_: str) -> Callable[[ConsumerRecord], str]:
    """Build a function that formats a record; `ArgumentTypeError` for an unknown token."""
    pieces: list[Callable[[ConsumerRecord], str]] = []
    for piece in _PIECES.findall(text_):
        if not piece.startswith("%"):
            pieces.append(_literal(unescape(piece)))
        elif piece in TOKENS:
            pieces.append(TOKENS[piece][1])
        else:
            known = ", ".join(f"{token} {meaning}" for token, (meaning, _) in TOKENS.items())
            raise argparse.ArgumentTypeError(f"unknown token {piece} in {text_!r}; known are {known}")
    return lambda record: "".join(piece(record) for piece in pieces)


def _literal(text_: str) -> Callable[[ConsumerRecord], str]:
    return lambda _: text_


def choose_format(options: argparse.Namespace) -> Callable[[ConsumerRecord], str]:
    """Return the function that formats records by these options, including the end of the line.

    With `--format` no end of the line is added. Not for `--json`.
    """
    if options.format is not None:
        chosen: Callable[[ConsumerRecord], str] = options.format
        return chosen
    columns = [TOKENS[token][1] for token in _columns(options)]
    separator = "\t" if options.separator is None else options.separator
    return lambda record: separator.join(column(record) for column in columns) + "\n"


def _columns(options: argparse.Namespace) -> list[str]:
    if options.key_only:
        return ["%k"]
    with_key = options.keys or options.separator is not None
    return ["%h"] * options.headers + ["%k"] * with_key + ["%s"]


def json_of(record: ConsumerRecord) -> dict[str, Any]:
    """Convert a record to a JSON object; a field that is not UTF-8 becomes an object with base64."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        "headers": [list(pair) for pair in record.headers],
    }


def add_key_separator(group: Any, *, help_text: str) -> None:
    """Add `--key-separator`, an option of both `send` and `tail`."""
    group.add_argument("-K", "--key-separator", dest="separator", type=_separator, metavar="SEP", help=help_text)


def _separator(text_: str) -> str:
    if not text_:
        raise argparse.ArgumentTypeError("at least one character is expected")
    return unescape(text_)
