"""AlterUserScramCredentials (key 51), KIP-554: set and remove users' SCRAM credentials.

The password itself is not sent: the client salts it.
"""

from kohort.wire.schema import BYTES, INT8, INT16, INT32, STRING, Message, array, field, message


class ScramCredentialDeletion(Message):
    """The removal of a user's credential: mechanism 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    name: str = field(STRING)
    mechanism: int = field(INT8)


class ScramCredentialUpsertion(Message):
    """A user's new credential for a mechanism; it is secret, and not shown."""

    name: str = field(STRING)
    mechanism: int = field(INT8)
    iterations: int = field(INT32)
    salt: bytes = field(BYTES)
    salted_password: bytes = field(BYTES)

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism}, iterations={self.iterations})"


@message(key=51, kind="request", versions="0", flexible="0+")
class AlterUserScramCredentialsRequest(Message):
    """Credentials to remove and to set; a user has at most one change per mechanism."""

    deletions: list[ScramCredentialDeletion] = field(array(ScramCredentialDeletion))
    upsertions: list[ScramCredentialUpsertion] = field(array(ScramCredentialUpsertion))


class AlterUserScramCredentialsResult(Message):
    """The result for one user: all of its changes are made, or none."""

    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


@message(key=51, kind="response", versions="0", flexible="0+")
class AlterUserScramCredentialsResponse(Message):
    """An answer per user."""

    throttle_time_ms: int = field(INT32)
    results: list[AlterUserScramCredentialsResult] = field(array(AlterUserScramCredentialsResult))
