"""The users that log in by PLAIN: a file with salted hashes, or a JAAS configuration.

Laws: the file has neither passwords nor data from which they can be read. An unknown name takes as long as a wrong
password. A password that was right once is recognised without hashing rounds, by a digest that only this process makes.
Source: RFC 8018 (PBKDF2); Apache Kafka's PlainLoginModule (`user_NAME="PASSWORD"`).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Final

from kohort.base.values import value
from kohort.errors import ConfigError
from kohort.security.sasl_server import LONGEST_NAME_BYTES

#: Rounds of a new hash: about 40 ms of a processor. A broker allows five failed logins a second and address.
ITERATIONS: Final = 100_000
#: Fewer are refused, as a mistake; more would let a login last longer than clients wait.
LEAST_ITERATIONS: Final = 10_000
MOST_ITERATIONS: Final = 10_000_000
#: The longest file that is read: about 50,000 users.
MOST_BYTES: Final = 8 << 20
_SCHEME: Final = "pbkdf2-sha256"
_HASH: Final = "sha256"
_SALT_BYTES: Final = 16
_HEAD: Final = "# kohort's users for SASL/PLAIN: scheme, rounds, salt, hash, name. Made by `kohort user add --file`.\n"


@value(kw_only=False)
class PasswordHash:
    """A salted hash of a password; it is secret, and not shown."""

    iterations: int
    salt: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    @classmethod
    def of(cls, password: bytes, *, salt: bytes | None = None, iterations: int = ITERATIONS) -> PasswordHash:
        """Hash a password, with a new salt unless one is given."""
        salt = os.urandom(_SALT_BYTES) if salt is None else salt
        return cls(iterations, salt, hashlib.pbkdf2_hmac(_HASH, password, salt, iterations))

    def matches(self, password: bytes) -> bool:
        """Return whether this is the hash of that password; that takes `iterations` rounds."""
        return hmac.compare_digest(hashlib.pbkdf2_hmac(_HASH, password, self.salt, self.iterations), self.digest)


class PlainUsers:
    """The users of one listener at one moment; used by several threads.

    Args:
        hashes: name -> hash, from the file.
        passwords: name -> password, from a JAAS configuration.

    >>> users = PlainUsers(passwords={"alice": "wonder"})
    >>> users.verify("alice", b"wonder"), users.verify("alice", b"x"), users.verify("bob", b"wonder")
    (True, False, False)
    """

    def __init__(
        self, hashes: Mapping[str, PasswordHash] | None = None, *, passwords: Mapping[str, str] | None = None
    ) -> None:
        self._hashes: Final = dict(hashes or {})
        #: The key of digests that are of use only to this process.
        self._key: Final = os.urandom(32)
        self._passwords: Final = {name: self._digest(text.encode()) for name, text in (passwords or {}).items()}
        #: Name -> digest of the password that was right for its hash.
        self._proven: Final[dict[str, bytes]] = {}
        #: The hash that an unknown user is compared with, of as many rounds as most users have.
        rounds = Counter(each.iterations for each in self._hashes.values()).most_common(1)
        self._decoy: Final = PasswordHash(rounds[0][0] if rounds else ITERATIONS, os.urandom(16), bytes(32))

    @property
    def names(self) -> frozenset[str]:
        """The names of all users."""
        return frozenset(self._hashes) | frozenset(self._passwords)

    def verify(self, username: str, password: bytes) -> bool:
        """Return whether a user of this name has this password; that may take many rounds."""
        if self.recognises(username, password):
            return True
        if not self._hashes:
            return False
        known = self._hashes.get(username)
        # The rounds are computed for every name, or a quick failure would show that there is no such user.
        is_right = (known or self._decoy).matches(password) and known is not None
        if is_right:
            self._proven[username] = self._digest(password)
        return is_right

    def recognises(self, username: str, password: bytes) -> bool:
        """Return whether the password has matched the user's hash before, or is listed; takes no rounds."""
        digest = self._digest(password)
        known = self._proven.get(username, b""), self._passwords.get(username, b"")
        return any(hmac.compare_digest(each, digest) for each in known)

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, _HASH)


def check_username(name: str) -> str:
    """Check the name of a new user and return it; `ConfigError` says what is wrong with it."""
    if not name:
        raise ConfigError("the name of a user is not empty")
    if not name.isprintable() or name != name.strip():
        raise ConfigError("the name of a user has printable characters only, and no blanks around it")
    if len(name.encode()) > LONGEST_NAME_BYTES:
        raise ConfigError(f"the name of a user has {LONGEST_NAME_BYTES} bytes at most")
    return name


def read_users(path: str | Path) -> dict[str, PasswordHash]:
    """Read a file of users.

    Raises:
        ConfigError: the file cannot be read, is open to others, or is no file of users; no line of it is quoted.
    """
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MOST_BYTES + 1)
    except OSError as why:
        raise ConfigError(f"the file of users {path} cannot be read: {why.strerror}") from None
    # Readers of the file could guess passwords from hashes; writers could add users.
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise ConfigError(f"the file of users {path} is open to others; chmod 600 {path}")
    if len(data) > MOST_BYTES:
        raise ConfigError(f"the file of users {path} is longer than {MOST_BYTES} bytes")
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise ConfigError(f"the file of users {path} is not UTF-8") from None
    return _parse(lines, str(path))


def _parse(lines: Iterable[str], path: str) -> dict[str, PasswordHash]:
    users: dict[str, PasswordHash] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split(" ", 4)
        try:
            scheme, rounds, salt, digest, name = parts
            found = PasswordHash(int(rounds), b64decode(salt, validate=True), b64decode(digest, validate=True))
        except (ValueError, Base64Error):
            raise ConfigError(f"line {number} of {path} is no user; make it by kohort user add --file") from None
        if scheme != _SCHEME:
            raise ConfigError(f"line {number} of {path} has a hash of another kind than {_SCHEME}")
        if not LEAST_ITERATIONS <= found.iterations <= MOST_ITERATIONS or len(found.digest) != 32 or not found.salt:
            raise ConfigError(
                f"line {number} of {path} has a hash of another form: {LEAST_ITERATIONS} to {MOST_ITERATIONS} rounds "
                "of a salt are expected"
            )
        if check_username(name) in users:
            raise ConfigError(f"line {number} of {path} has a user that is there before; take one of them out")
        users[name] = found
    return users


def write_users(path: str | Path, users: Mapping[str, PasswordHash]) -> None:
    """Replace a file of users, in one step; only its owner may read it.

    Raises:
        OSError: the file cannot be written; the old one stays.
    """
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    lines = (
        f"{_SCHEME} {each.iterations} {b64encode(each.salt).decode()} {b64encode(each.digest).decode()} {name}\n"
        for name, each in sorted(users.items())
    )
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(_HEAD)
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
