"""AlterUserScramCredentials (key 51), KIP-554: set and remove what users log in with by SCRAM.

The password does not travel: it is salted by who asks.
"""

from __future__ import annotations

from kohort.wire.schema import BYTES, INT8, INT16, INT32, STRING, Message, array, field, message, struct


@struct
class ScramCredentialDeletion(Message):
    """A user shall not log in by a mechanism any more: 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    name: str = field(STRING)
    mechanism: int = field(INT8)


@struct
class ScramCredentialUpsertion(Message):
    """What a user logs in with by a mechanism from now on; it is a secret, and not shown."""

    name: str = field(STRING)
    mechanism: int = field(INT8)
    iterations: int = field(INT32)
    salt: bytes = field(BYTES)
    salted_password: bytes = field(BYTES)

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism}, iterations={self.iterations})"


@message(key=51, kind="request", versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Message):
    """A user is in one of the two at most once per mechanism."""

    deletions: list[ScramCredentialDeletion] = field(array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(array(ScramCredentialUpsertion))


@struct
class AlterUserScramCredentialsResult(Message):
    """Whether all that was asked for one user was done; it is done, or nothing of it."""

    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


@message(key=51, kind="response", versions="0", flexible="0+")
class AlterUserScramCredentialsResponse(Message):
    """An answer per user."""

    throttle_time_ms: int = field(INT32)
    results: list[AlterUserScramCredentialsResult] = field(array(AlterUserScramCredentialsResult))
