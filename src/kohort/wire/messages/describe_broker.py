"""DescribeBroker (key 10004): how a broker of kohort's is doing. An API of kohort's own.

Version 0. Announced to kohort's clients only; Apache Kafka has no such API.
"""

from __future__ import annotations

from kohort.wire.schema import INT16, INT32, STRING, Message, array, field, message, struct


@message(key=10_004, kind="request", versions="0", flexible="0+")
class DescribeBrokerRequest(Message):
    """Of the broker that is asked."""


@struct
class BrokerFact(Message):
    """One thing that is so; names are never given another meaning."""

    name: str = field(STRING)
    value: str = field(STRING)


@message(key=10_004, kind="response", versions="0", flexible="0+")
class DescribeBrokerResponse(Message):
    """What is so, in an order to be read; other versions know other facts."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    facts: list[BrokerFact] = field(array(BrokerFact))
