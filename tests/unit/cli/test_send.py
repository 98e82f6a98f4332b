"""`kohort send`: a line of input becomes key and value."""

from __future__ import annotations

import pytest

from kohort.cli.send import split_line
from kohort.errors import ConfigError


@pytest.mark.parametrize(
    ("line", "is_keyed", "expected"),
    [
        (b"hello", False, (None, b"hello")),
        (b"", False, (None, b"")),
        (b"a\tb", False, (None, b"a\tb")),
        (b"a\tb", True, (b"a", b"b")),
        (b"a\tb\tc", True, (b"a", b"b\tc")),
        (b"\tb", True, (b"", b"b")),
        (b"a\t", True, (b"a", b"")),
        (b"\xff\t\xfe", True, (b"\xff", b"\xfe")),
    ],
)
def test_a_line_is_split_only_where_keys_were_asked_for(
    line: bytes, is_keyed: bool, expected: tuple[bytes | None, bytes]
) -> None:
    assert split_line(line, is_keyed=is_keyed, number=1) == expected


def test_a_keyed_line_without_a_tab_is_refused_with_its_number() -> None:
    with pytest.raises(ConfigError, match=r"^line 7 has no tab between key and value"):
        split_line(b"a b", is_keyed=True, number=7)
