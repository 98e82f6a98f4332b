"""DescribeUserScramCredentials (key 50), KIP-554: users' SCRAM mechanisms and iterations."""

from kohort.wire.schema import INT8, INT16, INT32, STRING, Message, array, field, message


class UserName(Message):
    """A user to look for."""

    name: str = field(STRING)


@message(key=50, kind="request", versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Message):
    """Some users, or with null all of them."""

    users: list[UserName] | None = field(array(UserName), nullable=0)


class CredentialInfo(Message):
    """A mechanism by which a user can log in: 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    mechanism: int = field(INT8)
    iterations: int = field(INT32)


class DescribeUserScramCredentialsResult(Message):
    """One user."""

    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    credential_infos: list[CredentialInfo] = field(array(CredentialInfo))


@message(key=50, kind="response", versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse(Message):
    """An answer per user; the outer code is that of the whole request."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    results: list[DescribeUserScramCredentialsResult] = field(array(DescribeUserScramCredentialsResult))
