"""Capability tokens at one broker: its root keys, logins with a token, and the rights of a token.

A client logs in with a token as the password of the user `token` (PLAIN), or as its bearer token (OAUTHBEARER). The
principal of the client is `Token:ID`. The client may do what the token's caveats allow and no ACL denies.

Laws: a revoked or expired token admits no client. A token that names a member or an epoch is for the fetches of that
member, and for no login. Keys are made when they are first needed, and kept in a file that only the broker's user may
read. The file is read again when it changes; if it cannot be read, the keys stay. No log line or error has a token or
a key.
Source: requirement H6; KIP-48 (tokens as principals), KIP-368 (sessions that end).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
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

#: The prefix of the principals of tokens.
PRINCIPAL: Final = "Token:"
#: The interval at which the broker checks whether the file of keys has changed.
LOOK_SECONDS: Final = 1.0
#: The most verified tokens that are cached; each takes a few KB at most.
MOST_KEPT: Final = 10_000


class Capabilities:
    """The tokens that one broker mints and admits; the brokers of one cluster share this object.

    Args:
        directory: the data directory with the file of keys; `None`: the keys are kept in memory.
        now_ms: returns the wall-clock time, milliseconds since 1970.
    """

    def __init__(self, directory: str | None, now_ms: Callable[[], int]) -> None:
        self._path: Final = None if directory is None else Path(directory) / FILE_NAME
        self.now_ms: Final = now_ms
        self._keys: RootKeys | None = None
        self._stamp: tuple[int, int, int] | None = None
        #: Hash of a token -> its verified content; the most recently used last.
        self._kept: Final[OrderedDict[bytes, Capability]] = OrderedDict()
        #: Whether a token was revoked, by the ids of its chain and its label.
        self.is_revoked: Callable[[Capability], bool] = lambda _: False
        #: Whether any token was revoked.
        self.has_revoked: Callable[[], bool] = lambda: False
        #: Increases when a token that was valid may have become invalid.
        self.edition = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def keys(self) -> RootKeys:
        """The root keys in force; they are made on first use.

        Raises:
            ConfigError: the file of keys cannot be read or made.
        """
        if self._keys is None:
            self._keys = self._load()
        return self._keys

    def prepare(self) -> None:
        """Read the keys, or make them; raise `ConfigError` as `keys` does."""
        self._keys = self.keys

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to check whether the file of keys has changed."""
        self._loop = loop
        if self._path is not None and self._timer is None:
            self._timer = loop.call_later(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Stop checking the file of keys."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def mint(self, *caveats: Caveat, token_id: bytes) -> str:
        """Make a token with the current root key."""
        return mint(self.keys, *caveats, token_id=token_id)

    def verify(self, token: str) -> Capability:
        """Verify a token; for a cached token this takes only a hash.

        Raises:
            CapabilityError: the token is not of this broker, or was revoked. The lease is not checked.
        """
        capability = self._find(token)
        if self.is_revoked(capability):
            raise CapabilityError("the token was revoked")
        return capability

    def is_renewal_revoked(self, token: str) -> bool:
        """Return whether a token of this broker was revoked together with all later leases of its holder."""
        if not self.has_revoked():
            return False
        try:
            capability = self._find(token)
        except CapabilityError:
            # The root key of the token is not in force any more.
            return False
        # The ids after the holder's are those of leases.
        return self.is_revoked(replace(capability, chain=capability.chain[: capability.chain.index(capability.id) + 1]))

    def _find(self, token: str) -> Capability:
        """Return a cached token, or verify it; `CapabilityError` if the token is not of this broker."""
        # A token that is too long may be an attack, so it is refused before it is hashed.
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
        """Verify the token with which a client at this address logs in.

        Raises:
            CapabilityError: the client may not log in; the message names the caveat that refuses it.
        """
        capability = self.verify(token)
        if capability.member is not None or capability.epoch is not None:
            raise CapabilityError("a token of one member is for its fetches and commits, and for no login")
        # Every client may log in and describe what it may see, so only its address and the time are checked here.
        refused = capability.refusal(
            operation=_any_operation(capability), resource_type=ResourceType.GROUP, now_ms=self.now_ms(), peer=host
        )
        if refused == Kind.NOT_AFTER.word:
            raise CapabilityError("the token's lease has ended (not_after)")
        if refused is not None:
            raise CapabilityError(f"the caveat {refused} of the token refuses this client")
        return capability

    def lifetime_ms(self, capability: Capability) -> int | None:
        """Return the remaining lifetime of a token, milliseconds; `None`: the token has no lease."""
        return None if capability.not_after_ms is None else max(1, capability.not_after_ms - self.now_ms() + 1)

    def _load(self) -> RootKeys:
        path = self._path
        if path is None:
            return RootKeys.of(os.urandom(SECRET_BYTES))
        self._stamp = _stamp(path)
        if self._stamp is not None:
            return read_keys(path)
        keys = RootKeys.of(os.urandom(SECRET_BYTES))
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
        # A cached token may have been verified by a key that is not in force any more.
        self._kept.clear()
        self.edition += 1
        log.info("event=root_keys_read file=%s", path)


class CapabilityRights(Rights):
    """The rights of a client with a token: those that its caveats allow and no ACL denies."""

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
        # Requests are logged at DEBUG.
        self.tells_requests = capability.log_level in ("TRACE", "DEBUG")
        self._authorizer: Final = authorizer
        self._now_ms: Final = now_ms
        self._whos: Final = whos_of(f"{PRINCIPAL}{capability.id}", host)
        self.host: Final = host

    @property
    def edition(self) -> int:
        """A number that changes whenever the result of `allows` may change."""
        # Only the ACLs change the result: connections of a revoked or expired token are closed.
        return 0 if self._authorizer is None else self._authorizer.edition

    def allows(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the token's holder may perform an operation on a resource."""
        if not self._leaves(operation, resource, name):
            return False
        authorizer = self._authorizer
        return authorizer is None or not authorizer.denials(self._whos, resource, name) >> operation & 1

    def allows_any(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Return whether the holder may perform an operation on at least one resource of a type (KIP-679)."""
        return self._leaves(operation, resource, None)

    def operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the bit field of the allowed operations on a resource (KIP-430)."""
        shown = OPERATIONS_OF[resource]
        return sum(1 << each for each in AclOperation if shown >> each & 1 and self.allows(each, resource, name))

    def allows_commit(self, topic: str) -> bool:
        """Return whether the holder may commit offsets of a topic: tokens have a separate operation for it."""
        if self._refusal(COMMIT, ResourceType.TOPIC, topic) is not None:
            return False
        authorizer = self._authorizer
        read = AclOperation.READ
        return authorizer is None or not authorizer.denials(self._whos, ResourceType.TOPIC, topic) >> read & 1

    def allows_partition(self, topic: str, topic_id: bytes, partition: int) -> bool:
        """Return whether the caveats about partitions allow this partition."""
        return self.capability.covers(topic_id, topic, partition)

    def _leaves(self, operation: AclOperation, resource: ResourceType, name: str | None) -> bool:
        if self._refusal(operation, resource, name) is None:
            return True
        # A member of a group needs the right to read, or only to commit.
        is_of_member = operation is AclOperation.READ and resource is ResourceType.GROUP
        return is_of_member and self._refusal(COMMIT, resource, name) is None

    def _refusal(self, operation: int, resource: ResourceType, name: str | None) -> str | None:
        return self.capability.refusal(
            operation=operation, resource_type=resource, name=name, now_ms=self._now_ms(), peer=self.host
        )


def _any_operation(capability: Capability) -> int:
    """Return one operation that the caveats allow."""
    operations = capability.operations
    return AclOperation.DESCRIBE if not operations else (operations & -operations).bit_length() - 1


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Return inode, size and modification time of a file; `None` if `stat` fails."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
