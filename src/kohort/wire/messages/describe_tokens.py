"""DescribeTokens (key 10008): the tokens that clients are logged in with, and those revoked. An API of kohort's own.

Version 0. Announced to kohort's clients only; Apache Kafka has no such API.
"""

from kohort.wire.schema import INT8, INT16, INT32, INT64, STRING, Message, array, field, message


@message(key=10_008, kind="request", versions="0", flexible="0+")
class DescribeTokensRequest(Message):
    """A request for the tokens of the broker that gets it."""


class DescribedToken(Message):
    """A token with connections; of several with one id and other leases that which ends last.

    `chain`: the ids that end it when they are revoked, the first one's that of the token as it was minted.
    `not_after_ms`: the end of its lease, ms since 1970; the largest int64: it has none.
    """

    token_id: str = field(STRING)
    label: str | None = field(STRING, nullable=0, default=None)
    chain: list[str] = field(array(STRING))
    not_after_ms: int = field(INT64)
    connections: int = field(INT32)


class DescribedRevocation(Message):
    """A revocation, with its time and the time until which it is remembered; see RevokeTokens."""

    kind: int = field(INT8)
    name: str = field(STRING)
    revoked_ms: int = field(INT64)
    not_after_ms: int = field(INT64)


@message(key=10_008, kind="response", versions="0", flexible="0+")
class DescribeTokensResponse(Message):
    """The tokens by id, and the revocations in the order in which they were made."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    tokens: list[DescribedToken] = field(array(DescribedToken))
    revocations: list[DescribedRevocation] = field(array(DescribedRevocation))
