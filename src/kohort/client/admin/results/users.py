"""Users that log in by SCRAM, as the admin client takes and returns them.

Source: KIP-554.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kohort.client.arguments import encode, to_several, whole_number
from kohort.client.core.refusals import refused
from kohort.errors import BrokerError, ConfigError, ErrorCode
from kohort.security.scram import salted_password
from kohort.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kohort.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """A password that a user is to log in with from now on; it is in no text that is made of this.

    Args:
        mechanism: "SCRAM-SHA-512" or "SCRAM-SHA-256".
        iterations: rounds, 4,096 to 16,384: with more of them a stolen password takes longer to guess.

    >>> ScramCredential(user="alice", password="wonder")
    ScramCredential(user='alice', mechanism='SCRAM-SHA-512', iterations=8192)
    """

    user: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-512"
    iterations: int = 8_192


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredential:
    """That a user can log in by a mechanism; nobody can say by which password."""

    user: str
    mechanism: str
    iterations: int


class ScramLogin(NamedTuple):
    """A user and a mechanism that it logs in by.

    >>> print(ScramLogin("alice", "SCRAM-SHA-512"))
    SCRAM-SHA-512 of alice
    """

    user: str
    mechanism: str

    def __str__(self) -> str:
        return f"{self.mechanism} of {self.user}"


# Users that log in by SCRAM, as the admin client asks for them: requests and answers.
#
# Laws: a password is salted before it travels; a user is changed once per mechanism in one call.
# Source: KIP-554; Kafka's ScramMechanism (which takes 4,096 to 16,384 rounds).

MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
#: Rounds that Apache Kafka takes.
LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 16_384
_ONE: Final = "kohort.ScramCredential(user='alice', password=...)"


def to_credential(value: object) -> ScramCredential:
    """What a user is to log in with."""
    if not isinstance(value, ScramCredential):
        raise TypeError(f"a credential cannot be a {type(value).__name__}: {_ONE} is one")
    if not isinstance(value.password, str):
        raise TypeError(f"password must be text, not {type(value.password).__name__}")
    if not value.password:
        raise ConfigError(f"the password of {to_user(value.user)} is empty: at least one character is expected")
    encode(value.password, "password")
    expected = f"a number of rounds from {LEAST_ITERATIONS} to {MOST_ITERATIONS}"
    return ScramCredential(
        user=to_user(value.user),
        password=value.password,
        mechanism=to_mechanism(value.mechanism),
        iterations=whole_number(
            value.iterations, "iterations", expected, MOST_ITERATIONS, minimum=LEAST_ITERATIONS
        ),
    )  # fmt: skip


def to_deletion(value: object) -> ScramLogin:
    """A user and a mechanism that it is not to log in by any more."""
    if isinstance(value, UserScramCredential):
        return ScramLogin(to_user(value.user), to_mechanism(value.mechanism))
    match value:
        case (user, mechanism) if isinstance(value, tuple):
            return ScramLogin(to_user(user), to_mechanism(mechanism))
        case _:
            raise TypeError(f"a deletion cannot be {value!r}: ('alice', 'SCRAM-SHA-512') is one")


def login_of(credential: ScramCredential) -> ScramLogin:
    """What a password is for."""
    return ScramLogin(credential.user, credential.mechanism)


def check_once(changed: Iterable[ScramLogin]) -> None:
    """Whether nobody is named twice with one mechanism; `ConfigError` says who is."""
    seen: set[ScramLogin] = set()
    for each in changed:
        if each in seen:
            raise ConfigError(f"{each} is named twice in one call: name it once")
        seen.add(each)


def to_users(values: object) -> list[str] | None:
    """Names of users; `None`: all."""
    return None if values is None else [to_user(value) for value in to_several(values, "users", "['alice']")]


def to_user(value: object) -> str:
    """A user's name."""
    if not isinstance(value, str):
        raise TypeError(f"a user must be text, not {type(value).__name__}: 'alice'")
    if not value:
        raise ConfigError("the name of a user is empty: at least one character is expected")
    encode(value, "the name of a user")
    return value


def to_mechanism(value: object) -> str:
    """A mechanism's name as brokers write it."""
    if not isinstance(value, str):
        raise TypeError(f"mechanism must be text, not {type(value).__name__}: 'SCRAM-SHA-512'")
    known = value.upper().replace("_", "-")
    if known not in MECHANISMS:
        raise ConfigError(f"mechanism cannot be {value!r}: {' or '.join(MECHANISMS)} is expected")
    return known


def describe_request(users: Sequence[str] | None) -> DescribeUserScramCredentialsRequest:
    """Who is to be looked up; `None`: everybody."""
    # Null means the same as nobody, but Apache Kafka 4.3 cannot refuse it to who may not ask: no answer comes.
    return DescribeUserScramCredentialsRequest(users=[UserName(name=user) for user in users or ()])


def described(response: DescribeUserScramCredentialsResponse) -> list[UserScramCredential]:
    """By user and mechanism."""
    names = {number: name for name, number in MECHANISMS.items()}
    rows = [
        UserScramCredential(
            user=result.user, mechanism=names.get(each.mechanism, "unknown"), iterations=each.iterations
        )
        for result in response.results
        for each in result.credential_infos
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (row.user, row.mechanism))


def alter_request(
    upsertions: Iterable[tuple[ScramCredential, bytes]], deletions: Iterable[ScramLogin]
) -> AlterUserScramCredentialsRequest:
    """Passwords to set, each with the salt that it gets, and some to forget."""
    return AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism]) for user, mechanism in deletions
        ],
        upsertions=[
            ScramCredentialUpsertion(
                name=each.user,
                mechanism=MECHANISMS[each.mechanism],
                iterations=each.iterations,
                salt=salt,
                salted_password=salted_password(
                    each.mechanism, each.password, salt=salt, iterations=each.iterations
                ),
            )
            for each, salt in upsertions
        ],
    )  # fmt: skip


def error_of(code: int, message: str | None, during: str, *, operation: str, user: str = "") -> BrokerError | None:
    """What a code of an answer means; `operation` is the right on the cluster that was needed for it."""
    found = ErrorCode.of(code)
    if found is ErrorCode.NONE:
        return None
    if found is ErrorCode.RESOURCE_NOT_FOUND and user:
        message = f"no user {user} logs in by it; kohort user list shows the users"
    return refused(found, message, during=during, operation=operation)
