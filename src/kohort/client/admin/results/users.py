"""Users that log in by SCRAM, as the admin client takes and returns them.

Source: KIP-554.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


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
