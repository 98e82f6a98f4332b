"""What is kohort's own on the wire stays out of the numbers that Kafka may give out."""

from __future__ import annotations

from kohort.wire import private
from kohort.wire.registry import ApiKey


def test_private_numbers_are_above_every_number_of_kafka() -> None:
    assert all(key >= private.FIRST_API_KEY > max(ApiKey) for key in [*private.API_KEYS, private.FIRST_API_KEY])
    assert all(tag >= private.FIRST_TAG for _, tag in private.TAGGED_FIELDS)
    assert all(number >= private.FIRST_RECORD_TYPE for number in private.RECORD_TYPES)
