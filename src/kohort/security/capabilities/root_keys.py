"""The secrets with which a broker mints and verifies tokens: two at a time, and the file that keeps them.

Laws: only its owner may read the file; it is replaced atomically, and read as a whole or not at all. A key's id is a
digest of it. No error or log line shows a secret.
Source: RFC 2104 (keys as long as the hash); NIST SP 800-57, key rotation with an overlap.
"""

from __future__ import annotations

import hashlib
import os
import stat
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from dataclasses import field
from pathlib import Path
from typing import Final

from kohort.base.values import value
from kohort.errors import ConfigError

#: The name of the file in a broker's data directory.
FILE_NAME: Final = "capability.keys"
KEY_ID_BYTES: Final = 4
SECRET_BYTES: Final = 32
#: The size of two keys, and of comments.
MOST_BYTES: Final = 4_096
_SCHEME: Final = "hmac-sha256"
_HEAD: Final = (
    "# kohort's root keys of capability tokens: scheme, id, secret; the first mints, both verify.\n"
    "# Made by the broker; a new one is made by `kohort token rotate`. Keep them secret.\n"
)
_END: Final = "end"


@value(kw_only=False)
class RootKey:
    """One secret; it is not shown."""

    secret: bytes
    #: A digest of the secret, by which tokens name it.
    id: bytes = field(init=False)

    def __post_init__(self) -> None:
        if len(self.secret) != SECRET_BYTES:
            raise ConfigError(f"a root key of capability tokens has {SECRET_BYTES} bytes")
        object.__setattr__(self, "id", hashlib.sha256(b"kohort root key\0" + self.secret).digest()[:KEY_ID_BYTES])

    def __repr__(self) -> str:
        return f"RootKey({self.id.hex()})"


@value(kw_only=False)
class RootKeys:
    """The keys of a broker: the one that mints, and the one before it, whose tokens are still valid.

    >>> first = RootKeys.of(bytes(32))
    >>> first
    RootKeys(current=RootKey(de661fb6), former=None)
    >>> first.rotated(bytes(31) + b"x").former == first.current
    True
    """

    current: RootKey
    former: RootKey | None = None

    @classmethod
    def of(cls, secret: bytes) -> RootKeys:
        """Return keys of which 32 random bytes are the first one."""
        return cls(RootKey(secret))

    def rotated(self, secret: bytes) -> RootKeys:
        """Return keys that mint with a new secret; the current key becomes the former, which is dropped."""
        key = RootKey(secret)
        if key.id == self.current.id:
            raise ConfigError("the new root key has the id of the current one; another one is needed")
        return RootKeys(key, self.current)

    def find(self, key_id: bytes) -> RootKey | None:
        """Return the live key of this id."""
        if key_id == self.current.id:
            return self.current
        return self.former if self.former is not None and key_id == self.former.id else None

    def to_bytes(self) -> bytes:
        """Write the content of a file of keys."""
        lines = [
            f"{_SCHEME} {key.id.hex()} {b64encode(key.secret).decode()}\n"
            for key in (self.current, self.former)
            if key is not None
        ]
        return "".join([_HEAD, *lines, f"{_END}\n"]).encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str | Path) -> RootKeys:
        """Read the content of a file of keys; the path is for errors.

        Raises:
            ConfigError: the content is cut off, changed, or not of such a file; no part of it is quoted.
        """
        if len(data) > MOST_BYTES:
            raise ConfigError(f"{path} is longer than {MOST_BYTES} bytes: that is no file of root keys")
        try:
            lines = [line for line in data.decode("ascii").splitlines() if line.strip() and not line.startswith("#")]
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is no file of root keys: it has characters beyond ASCII") from None
        if not lines or lines[-1] != _END or not data.endswith(b"\n"):
            raise ConfigError(
                f"{path} is cut off: its last line should be `{_END}`; take it from a backup, or delete it, which ends "
                "every token"
            )
        keys = [_parse(line, number, path) for number, line in enumerate(lines[:-1], start=1)]
        if not 1 <= len(keys) <= 2:
            raise ConfigError(f"{path} has {len(keys)} root keys: one or two are expected")
        if len(keys) == 2 and keys[0].id == keys[1].id:
            raise ConfigError(f"{path} has the same root key twice")
        return cls(*keys)


def _parse(line: str, number: int, path: str | Path) -> RootKey:
    parts = line.split(" ")
    if parts[0] != _SCHEME:
        raise ConfigError(f"key {number} of {path} is not of the kind {_SCHEME}")
    try:
        _, key_id, secret = parts
        key = RootKey(b64decode(secret, validate=True))
    except (ValueError, Base64Error):
        raise ConfigError(f"key {number} of {path} is no root key") from None
    if key.id.hex() != key_id:
        raise ConfigError(f"key {number} of {path} is damaged: its id is another one")
    return key


def read_keys(path: str | Path) -> RootKeys:
    """Read a file of keys.

    Raises:
        ConfigError: the file cannot be read, is open to others, or is no whole file of keys.
    """
    try:
        with Path(path).open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MOST_BYTES + 1)
    except OSError as why:
        raise ConfigError(f"the root keys {path} cannot be read: {(why.strerror or str(why)).lower()}") from None
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"the root keys {path} are open to others; chmod 600 {path}")
    return RootKeys.from_bytes(data, path)


def write_keys(path: str | Path, keys: RootKeys) -> None:
    """Replace a file of keys, in one step; only its owner may read it.

    Raises:
        OSError: the file cannot be written; the old one stays.
    """
    path = Path(path)
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(keys.to_bytes())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
