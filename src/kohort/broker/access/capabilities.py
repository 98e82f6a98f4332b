"""Capability tokens at one broker: its root keys, the logins by a token, and the rights that follow from one.

A client logs in with a token as the password of the user `token` (PLAIN), or as its bearer token (OAUTHBEARER). Its
principal is `Token:ID`. It may do what the token's caveats leave and no access list denies.

Laws: a token that was revoked or is over admits no one; one that names a member or an epoch is for the fetches of that
member, and for no login. Keys are made when they are first needed, kept in a file for the broker's user alone, and read
again when that file changes; a file that cannot be read leaves the keys as they were. No text has a token or a key.
Source: requirement H6; KIP-48 (tokens as principals), KIP-368 (sessions that end).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from kohort.broker.access.rights import Rights
from kohort.broker.authorized_operations import OPERATIONS_OF
from kohort.errors import ConfigError
from kohort.security.access_control import CLUSTER_NAME, AclOperation, ResourceType
from kohort.security.authorizer import Authorizer, whos_of
from kohort.security.capabilities.capability import LONGEST_TOKEN, Capability, mint, verify
from kohort.security.capabilities.caveats import COMMIT, CapabilityError, Caveat, Kind
from kohort.security.capabilities.root_keys import FILE_NAME, SECRET_BYTES, RootKeys, read_keys, write_keys

log = logging.getLogger("kohort.broker.access")

#: How principals of tokens begin.
PRINCIPAL: Final = "Token:"
#: How often it is looked at whether the file of keys has changed.
LOOK_SECONDS: Final = 1.0
#: Verified tokens that are kept, by their hash; a few KB each at most.
MOST_KEPT: Final = 10_000


class Capabilities:
    """The tokens that one broker mints and admits; brokers of one cluster share it.

    Args:
        directory: the data directory, which keeps the keys; `None`: they are kept in memory.
        now_ms: the time of the day, milliseconds since 1970.
    """

    def __init__(self, directory: str | None, now_ms: Callable[[], int]) -> None:
        self._path: Final = None if directory is None else Path(directory) / FILE_NAME
        self.now_ms: Final = now_ms
        self._keys: RootKeys | None = None
        self._stamp: tuple[int, int, int] | None = None
        #: Hash of a token -> what it allows; the latest used last.
        self._kept: Final[OrderedDict[bytes, Capability]] = OrderedDict()
        #: Whether a token was revoked, by the ids of its chain and its label.
        self.is_revoked: Callable[[Capability], bool] = lambda _: False
        #: Whether any token was.
        self.has_revoked: Callable[[], bool] = lambda: False
        #: Rises when a token that was good may be none any more.
        self.edition = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def keys(self) -> RootKeys:
        """The root keys in force; they are made now if there are none.

        Raises:
            ConfigError: the file of keys cannot be read or made.
        """
        if self._keys is None:
            self._keys = self._load()
        return self._keys

    def prepare(self) -> None:
        """Read the keys, or make them; `ConfigError` as `keys`."""
        self._keys = self.keys

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to look at the file of keys."""
        self._loop = loop
        if self._path is not None and self._timer is None:
            self._timer = loop.call_later(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Stop looking at it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def mint(self, *caveats: Caveat, token_id: bytes) -> str:
        """Make a token with the current root key."""
        return mint(self.keys, *caveats, token_id=token_id)

    def verify(self, token: str) -> Capability:
        """Verify a token; one that is presented again costs a hash.

        Raises:
            CapabilityError: it is no token of this broker, or was revoked. Its lease is not looked at.
        """
        capability = self._find(token)
        if self.is_revoked(capability):
            raise CapabilityError("the token was revoked")
        return capability

    def is_renewal_revoked(self, token: str) -> bool:
        """Whether a token of this broker was revoked with all later leases of its holder."""
        if not self.has_revoked():
            return False
        try:
            capability = self._find(token)
        except CapabilityError:
            # Its root key has ended.
            return False
        # The ids behind that of the holder are those of leases.
        return self.is_revoked(replace(capability, chain=capability.chain[: capability.chain.index(capability.id) + 1]))

    def _find(self, token: str) -> Capability:
        """Verify a token, or find it among those that were; `CapabilityError` if it is none of this broker's."""
        # A hostile token is refused unread.
        if len(token) > LONGEST_TOKEN:
            raise CapabilityError(f"a token has {LONGEST_TOKEN} characters at most")
        key = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        capability = self._kept.get(key)
        if capability is None:
            capability = verify(token, self.keys)
            self._kept[key] = capability
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(key)
        return capability

    def admit(self, token: str, host: str) -> Capability:
        """Verify the token that a client of an address logs in with.

        Raises:
            CapabilityError: it may not log in; the text names the caveat that refuses it.
        """
        capability = self.verify(token)
        if capability.member is not None or capability.epoch is not None:
            raise CapabilityError("a token of one member is for its fetches and commits, and for no login")
        # Every client may ask for what the cluster shows it; only its address and the time count here.
        refused = capability.refusal(
            operation=_any_operation(capability), resource_type=ResourceType.GROUP, now_ms=self.now_ms(), peer=host
        )
        if refused == Kind.NOT_AFTER.word:
            raise CapabilityError("the token's lease is over (not_after)")
        if refused is not None:
            raise CapabilityError(f"the caveat {refused} of the token refuses this client")
        return capability

    def lifetime_ms(self, capability: Capability) -> int | None:
        """Return how long a token admits from now on, milliseconds; `None`: it has no lease."""
        return None if capability.not_after_ms is None else max(1, capability.not_after_ms - self.now_ms() + 1)

    def _load(self) -> RootKeys:
        path = self._path
        if path is None:
            return RootKeys.of(secrets.token_bytes(SECRET_BYTES))
        self._stamp = _stamp(path)
        if self._stamp is not None:
            return read_keys(path)
        keys = RootKeys.of(secrets.token_bytes(SECRET_BYTES))
        try:
            write_keys(path, keys)
        except OSError as why:
            raise ConfigError(f"the root keys {path} cannot be written: {why.strerror or why}") from None
        self._stamp = _stamp(path)
        log.info("event=root_keys_made file=%s", path)
        return keys

    def _look(self) -> None:
        path, loop = self._path, self._loop
        assert path is not None and loop is not None, "there is a file to look at"
        self._timer = loop.call_later(LOOK_SECONDS, self._look)
        if self._keys is None:
            return
        found = _stamp(path)
        if found == self._stamp:
            return
        self._stamp = found
        try:
            keys = read_keys(path)
        except ConfigError as why:
            log.error("event=root_keys_unread reason=%r action='the keys stay as they were'", str(why))
            return
        self._keys = keys
        # A kept token may be of a key that has ended.
        self._kept.clear()
        self.edition += 1
        log.info("event=root_keys_read file=%s", path)


class CapabilityRights(Rights):
    """The rights of a client with a token: those that its caveats leave and no access list denies."""

    __slots__ = (
        "_authorizer", "_now_ms", "_whos", "capability", "host", "is_metered", "is_partial", "tells_requests",
    )  # fmt: skip

    is_restricted = True

    def __init__(
        self, capability: Capability, host: str, authorizer: Authorizer | None, now_ms: Callable[[], int]
    ) -> None:
        self.capability: Capability = capability
        self.is_metered = bool(capability.byte_rates or capability.request_rates)
        self.is_partial = capability.partitions is not None or capability.partitions_by_id is not None
        # Every line about a request is one for debugging.
        self.tells_requests = capability.log_level in ("TRACE", "DEBUG")
        self._authorizer: Final = authorizer
        self._now_ms: Final = now_ms
        self._whos: Final = whos_of(f"{PRINCIPAL}{capability.id}", host)
        self.host: Final = host

    @property
    def edition(self) -> int:
        """A number that changes whenever an answer of `allows` may change."""
        # A revoked token, and one whose lease is over, ends its connections.
        return 0 if self._authorizer is None else self._authorizer.edition

    def allows(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the token's holder may do this to the resource of that name."""
        if not self._leaves(operation, resource, name):
            return False
        authorizer = self._authorizer
        return authorizer is None or not authorizer.denials(self._whos, resource, name) >> operation & 1

    def allows_any(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether the holder may do this to at least one resource of that type (KIP-679)."""
        return self._leaves(operation, resource, None)

    def operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the bit field of the allowed operations on a resource (KIP-430)."""
        shown = OPERATIONS_OF[resource]
        return sum(1 << each for each in AclOperation if shown >> each & 1 and self.allows(each, resource, name))

    def allows_commit(self, topic: str) -> bool:
        """Whether the holder may commit offsets of a topic: an operation of its own, as reading is another one."""
        if self._refusal(COMMIT, ResourceType.TOPIC, topic) is not None:
            return False
        authorizer = self._authorizer
        read = AclOperation.READ
        return authorizer is None or not authorizer.denials(self._whos, ResourceType.TOPIC, topic) >> read & 1

    def allows_partition(self, topic: str, topic_id: bytes, partition: int) -> bool:
        """Whether the caveats about partitions leave this one."""
        return self.capability.covers(topic_id, topic, partition)

    def _leaves(self, operation: AclOperation, resource: ResourceType, name: str | None) -> bool:
        if self._refusal(operation, resource, name) is None:
            return True
        # Members of a group read, or commit alone.
        is_of_member = operation is AclOperation.READ and resource is ResourceType.GROUP
        return is_of_member and self._refusal(COMMIT, resource, name) is None

    def _refusal(self, operation: int, resource: ResourceType, name: str | None) -> str | None:
        return self.capability.refusal(
            operation=operation, resource_type=resource, name=name, now_ms=self._now_ms(), peer=self.host
        )


def _any_operation(capability: Capability) -> int:
    """Return an operation that the caveats leave."""
    operations = capability.operations
    return AclOperation.DESCRIBE if not operations else (operations & -operations).bit_length() - 1


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return inode, size and time of a file; `None` if it is not there or cannot be looked at."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
