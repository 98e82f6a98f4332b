"""JSON of others: whatever it is instead, one error says so."""

from __future__ import annotations

import pytest

from kohort.base.jsontext import parse_json


def test_what_stands_there() -> None:
    assert parse_json(b'{"a": [1, null, "b"]}') == {"a": [1, None, "b"]}


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, '{"a":' * 100_000, b"[" * 2_000 + b"]" * 2_000])
def test_whatever_else_is_one_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(text)
