"""RevokeTokens (key 10007): revoke capability tokens. An API of kohort's own.

Version 0. Announced to kohort's clients only; Apache Kafka has no such API.
"""

from kohort.wire.schema import INT8, INT16, INT32, INT64, STRING, Message, array, field, message


class RevocationToMake(Message):
    """Tokens that are to end: those with an id in their chain (kind 0), or with a label (kind 1).

    `not_after_ms`: the end of the last of their leases, ms since 1970; the revocation is forgotten then.
    """

    kind: int = field(INT8)
    name: str = field(STRING)
    not_after_ms: int = field(INT64)


@message(key=10_007, kind="request", versions="0", flexible="0+")
class RevokeTokensRequest(Message):
    """At most 10,000 revocations; all of them are made, or none."""

    revocations: list[RevocationToMake] = field(array(RevocationToMake))


@message(key=10_007, kind="response", versions="0", flexible="0+")
class RevokeTokensResponse(Message):
    """The answer, once they are in force and on disk."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
