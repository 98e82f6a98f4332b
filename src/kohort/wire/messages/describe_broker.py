"""DescribeBroker (key 10004): the state of a broker of kohort's. An API of kohort's own.

Version 0. Announced to kohort's clients only; Apache Kafka has no such API.
"""

from kohort.wire.schema import INT16, INT32, STRING, Message, array, field, message


@message(key=10_004, kind="request", versions="0", flexible="0+")
class DescribeBrokerRequest(Message):
    """A request for the facts about the broker that gets it."""


class BrokerFact(Message):
    """One fact about the broker; names never change their meaning."""

    name: str = field(STRING)
    value: str = field(STRING)


@message(key=10_004, kind="response", versions="0", flexible="0+")
class DescribeBrokerResponse(Message):
    """The facts, in an order for readers; other versions of kohort have other facts."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    facts: list[BrokerFact] = field(array(BrokerFact))
