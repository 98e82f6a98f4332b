"""Hashes decide which log a group is in: they are Java's, or a data directory of Apache Kafka would be read wrongly."""

from __future__ import annotations

import pytest

from kohort.ids import coordinator_partition, java_string_hash


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("polygenelubricants", -(1 << 31)),
        ("é", 233),
        ("aé", 97 * 31 + 233),
        # Beyond 16 bits Java counts the two halves.
        ("\U0001f600", 0xD83D * 31 + 0xDE00),
    ],
)
def test_hash_is_javas(text: str, hashed: int) -> None:
    assert java_string_hash(text) == hashed


def test_ascii_and_other_texts_go_on_alike() -> None:
    """What is ASCII but for its end has the hash that its beginning leads to."""
    beginning = "a-group.of_some-length" * 20
    expected = (java_string_hash(beginning) * 31 + ord("ü")) & 0xFFFFFFFF
    assert java_string_hash(f"{beginning}ü") & 0xFFFFFFFF == expected


def test_the_hash_that_has_no_absolute_value_is_partition_0() -> None:
    assert coordinator_partition("polygenelubricants", 50) == 0
    assert coordinator_partition("hello", 50) == 99_162_322 % 50
