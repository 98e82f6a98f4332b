"""The SCRAM users that a broker is started with, so that its first administrator can log in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kohort.base.options import Password
from kohort.base.values import value
from kohort.errors import ConfigError
from kohort.security.scram import HASHES

#: The mechanism of a user without a named mechanism.
DEFAULT_MECHANISM: Final = "SCRAM-SHA-512"


@value
class FirstUser:
    """A SCRAM user that is created at the start, unless the user exists."""

    name: str
    mechanism: str
    password: Password

    @classmethod
    def of(cls, name: str, password: str, mechanism: str = DEFAULT_MECHANISM) -> FirstUser:
        """Check a user; the message of a `ConfigError` does not have the password."""
        # Few brokers are given users.
        from kohort.security.plain_users import check_username

        if mechanism not in HASHES:
            raise ConfigError(f"{mechanism} is no mechanism of a SCRAM user: {' or '.join(HASHES)} is expected")
        if not password:
            raise ConfigError(f"the password of {check_username(name)} is empty")
        return cls(name=check_username(name), mechanism=mechanism, password=Password(password))


def check_first_users(users: Iterable[FirstUser]) -> tuple[FirstUser, ...]:
    """Return the users; `ConfigError` if one is given twice."""
    found = tuple(users)
    keys = [(user.name, user.mechanism) for user in found]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError(f"the user {twice[0][0]} is given twice for {twice[0][1]}")
    return found
