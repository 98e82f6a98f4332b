"""SCRAM credentials of users, and the requests about them.

Laws: only the salted form of a password is sent. One call changes a user at most once per mechanism.
Source: KIP-554; Kafka's ScramMechanism (which takes 4,096 to 16,384 rounds).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from kohort.base.values import from_row, value
from kohort.client.arguments import encode, to_several, whole_number
from kohort.errors import ConfigError
from kohort.security.scram import NUMBERS, salted_password
from kohort.wire.messages import alter_user_scram_credentials as alter_scram
from kohort.wire.messages import describe_user_scram_credentials as describe_scram


@value
class ScramCredential:
    """A password to set for a user and a mechanism; `repr` and `str` do not show it.

    Args:
        mechanism: "SCRAM-SHA-512" or "SCRAM-SHA-256".
        iterations: rounds of hashing, 4,096 to 16,384; with more, a stolen credential takes longer to crack.

    >>> ScramCredential(user="alice", password="wonder")
    ScramCredential(user='alice', mechanism='SCRAM-SHA-512', iterations=8192)
    """

    user: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-512"
    iterations: int = 8_192


@value
class UserScramCredential:
    """A mechanism with which a user can log in; brokers never return the password."""

    user: str
    mechanism: str
    iterations: int


class ScramLogin(NamedTuple):
    """A user and a SCRAM mechanism, the key of a credential.

    >>> print(ScramLogin("alice", "SCRAM-SHA-512"))
    SCRAM-SHA-512 of alice
    """

    user: str
    mechanism: str

    def __str__(self) -> str:
        return f"{self.mechanism} of {self.user}"


MECHANISMS: Final = NUMBERS
#: Rounds that Apache Kafka takes.
LEAST_ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 16_384
_ONE: Final = "kohort.ScramCredential(user='alice', password=...)"


def to_credential(value: object) -> ScramCredential:
    """Check a credential to set."""
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
        iterations=whole_number(value.iterations, "iterations", expected, MOST_ITERATIONS, minimum=LEAST_ITERATIONS),
    )


def to_deletion(value: object) -> ScramLogin:
    """Check a credential to delete, a user and a mechanism."""
    if isinstance(value, UserScramCredential):
        return ScramLogin(to_user(value.user), to_mechanism(value.mechanism))
    match value:
        case (user, mechanism) if isinstance(value, tuple):
            return ScramLogin(to_user(user), to_mechanism(mechanism))
        case _:
            raise TypeError(f"a deletion cannot be {value!r}: ('alice', 'SCRAM-SHA-512') is one")


def login_of(credential: ScramCredential) -> ScramLogin:
    """Return the user and mechanism of a credential."""
    return ScramLogin(credential.user, credential.mechanism)


def check_once(changed: Iterable[ScramLogin]) -> None:
    """Raise `ConfigError` if a user is named twice with one mechanism."""
    seen: set[ScramLogin] = set()
    for each in changed:
        if each in seen:
            raise ConfigError(f"{each} is named twice in one call: name it once")
        seen.add(each)


def to_users(values: object) -> list[str] | None:
    """Check user names, and remove duplicates; `None` means all users."""
    return None if values is None else list(dict.fromkeys(map(to_user, to_several(values, "users", "['alice']"))))


def to_user(value: object) -> str:
    """Check a user's name."""
    if not isinstance(value, str):
        raise TypeError(f"a user must be text, not {type(value).__name__}: 'alice'")
    if not value:
        raise ConfigError("the name of a user is empty: at least one character is expected")
    encode(value, "the name of a user")
    return value


def to_mechanism(value: object) -> str:
    """Return a mechanism's name as brokers write it."""
    if not isinstance(value, str):
        raise TypeError(f"mechanism must be text, not {type(value).__name__}: 'SCRAM-SHA-512'")
    known = value.upper().replace("_", "-")
    if known not in MECHANISMS:
        raise ConfigError(f"mechanism cannot be {value!r}: {' or '.join(MECHANISMS)} is expected")
    return known


def describe_request(users: Sequence[str] | None) -> describe_scram.DescribeUserScramCredentialsRequest:
    """Ask for users; `None`: all."""
    # Null means the same as an empty list, but Apache Kafka 4.3 cannot refuse null to a client without the right: no
    # answer comes.
    rows = [describe_scram.UserName(name=user) for user in users or ()]
    return describe_scram.DescribeUserScramCredentialsRequest(users=rows)


def described(response: describe_scram.DescribeUserScramCredentialsResponse) -> list[UserScramCredential]:
    """Read the mechanisms of users, by user and mechanism."""
    names = {number: name for name, number in MECHANISMS.items()}
    rows = [
        from_row(UserScramCredential, each, user=result.user, mechanism=names.get(each.mechanism, "unknown"))
        for result in response.results
        for each in result.credential_infos
    ]
    return sorted(rows, key=lambda row: (row.user, row.mechanism))


def alter_request(
    upsertions: Iterable[tuple[ScramCredential, bytes]], deletions: Iterable[ScramLogin]
) -> alter_scram.AlterUserScramCredentialsRequest:
    """Build the request that sets passwords, each with its salt, and deletes others."""
    upserted = [
        alter_scram.ScramCredentialUpsertion(
            name=each.user,
            mechanism=MECHANISMS[each.mechanism],
            iterations=each.iterations,
            salt=salt,
            salted_password=salted_password(each.mechanism, each.password, salt=salt, iterations=each.iterations),
        )
        for each, salt in upsertions
    ]
    deleted = [
        alter_scram.ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism]) for user, mechanism in deletions
    ]
    return alter_scram.AlterUserScramCredentialsRequest(deletions=deleted, upsertions=upserted)
