"""Wrong arguments of `Producer.send`: refused in the caller's line, and the records of others still go their way."""

from __future__ import annotations

from typing import Any

import pytest

import kohort
from kohort.client.producer.encoder import check_partition, check_timestamp, check_topic, to_bytes, to_headers
from kohort.errors import ConfigError

PAIRS = r"pairs of a name and bytes are expected, like \[\('trace', b'1'\)\]"


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"topic": b"orders"}, TypeError, r"topic must be text, not bytes: send\('orders', ...\)"),
        ({"topic": None}, TypeError, "topic must be text, not NoneType"),
        ({"topic": ["orders"]}, TypeError, "topic must be text, not list"),
        ({"topic": ""}, ConfigError, "topic has 0 characters: 1 to 249 are expected"),
        ({"topic": "x" * 40_000}, ConfigError, "topic has 40000 characters"),
        ({"topic": "\udc80"}, ConfigError, "topic is text that UTF-8 cannot carry"),
        ({"partition": "1"}, ConfigError, "partition cannot be '1': the number of a partition, 0 or above, is"),
        ({"partition": 1.0}, ConfigError, "partition cannot be 1.0"),
        ({"partition": True}, ConfigError, "partition cannot be True"),
        ({"partition": -1}, ConfigError, "partition cannot be -1"),
        ({"partition": 2**31}, ConfigError, "partition cannot be 2147483648"),
        ({"timestamp_ms": 1.5e12}, ConfigError, "timestamp_ms cannot be 1500000000000.0: a whole number of milli"),
        ({"timestamp_ms": "now"}, ConfigError, "timestamp_ms cannot be 'now'"),
        ({"timestamp_ms": -1}, ConfigError, "timestamp_ms cannot be -1"),
        ({"timestamp_ms": 2**63}, ConfigError, "timestamp_ms cannot be 9223372036854775808"),
        ({"key": 7}, TypeError, "key is a int: bytes, text or None is expected"),
        ({"value": {"a": 1}}, TypeError, "value is a dict: bytes, text or None is expected"),
        ({"value": "\ud800"}, ConfigError, "value is text that UTF-8 cannot carry"),
        ({"headers": {"trace": 1}}, TypeError, "header trace is a int"),
        ({"headers": "trace"}, TypeError, "headers cannot be 'trace': " + PAIRS),
        ({"headers": 5}, TypeError, "headers cannot be 5: " + PAIRS),
        ({"headers": ["trace"]}, TypeError, "headers cannot hold 'trace': " + PAIRS),
        ({"headers": [("trace",)]}, TypeError, r"headers cannot hold \('trace',\): " + PAIRS),
        ({"headers": [(b"trace", b"1")]}, TypeError, "headers cannot hold"),
        ({"headers": [("trace", 1)]}, TypeError, "header trace is a int"),
        ({"headers": [("\ud800", b"1")]}, ConfigError, "the name of a header is text that UTF-8 cannot carry"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_wrong_argument_is_refused_at_the_call_and_the_producer_goes_on(
    broker: kohort.Broker, arguments: dict[str, Any], kind: type[Exception], words: str
) -> None:
    """Before, such a record ended the sending of every other one."""
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
        with pytest.raises(kind, match=words):
            producer.send(**{"topic": "orders", "value": b"bad", **arguments})
        producer.send("orders", b"good").result(10)


@pytest.fixture(scope="module")
def broker() -> Any:
    with kohort.Broker() as made:
        yield made


class Number:
    """As numpy's integers are: no int, but one by its index."""

    def __index__(self) -> int:
        return 3


def test_what_fits_passes() -> None:
    check_topic("orders")
    assert [check_partition(number) for number in (0, Number(), 2**31 - 1)] == [0, 3, 2**31 - 1]
    assert [check_timestamp(number) for number in (0, Number(), 2**63 - 1)] == [0, 3, 2**63 - 1]
    assert [to_bytes(payload, "key") for payload in (None, b"a", "ä", bytearray(b"b"), memoryview(b"c"))] == [
        None, b"a", "ä".encode(), b"b", b"c",
    ]  # fmt: skip
    headers = to_headers(iter([("a", b"1"), ["b", "ä"], ("c", None)]))
    assert headers == (("a", b"1"), ("b", "ä".encode()), ("c", None))
    assert to_headers({"a": b"1", "b": None}) == (("a", b"1"), ("b", None))
