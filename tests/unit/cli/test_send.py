"""`kohort send`: a line of input becomes key and value, an argument a header."""

from __future__ import annotations

from argparse import ArgumentTypeError

import pytest

from kohort.cli.verbs.send import parse_header, split_line
from kohort.errors import ConfigError


@pytest.mark.parametrize(
    ("line", "separator", "expected"),
    [
        (b"a\tb", b"\t", (b"a", b"b")),
        (b"a\tb\tc", b"\t", (b"a", b"b\tc")),
        (b"\tb", b"\t", (b"", b"b")),
        (b"a\t", b"\t", (b"a", b"")),
        (b"\xff\t\xfe", b"\t", (b"\xff", b"\xfe")),
        (b"a::b:c", b"::", (b"a", b"b:c")),
    ],
)
def test_a_line_is_split_at_its_first_separator(line: bytes, separator: bytes, expected: tuple[bytes, bytes]) -> None:
    assert split_line(line, separator) == expected


@pytest.mark.parametrize(("separator", "shown"), [(b"\t", "tab"), (b"::", "'::'")])
def test_a_keyed_line_without_its_separator_is_refused(separator: bytes, shown: str) -> None:
    with pytest.raises(ConfigError, match=rf"^no {shown} between key and value$"):
        split_line(b"a b", separator)


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("a=b", ("a", b"b")),
        ("a=", ("a", b"")),
        ("a:b", ("a", b"b")),
        ("url=http://x", ("url", b"http://x")),
        ("a=b=c", ("a", b"b=c")),
        ("ä=ö", ("ä", "ö".encode())),
    ],
)
def test_a_header_is_name_and_value(text: str, header: tuple[str, bytes]) -> None:
    assert parse_header(text) == header


@pytest.mark.parametrize("text", ["a", "", "=b", ":b"])
def test_a_header_without_name_or_value_is_refused(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="is not NAME=VALUE"):
        parse_header(text)
