"""The SASL mechanisms of a listener, and the users that log in with them.

Laws: a mechanism without users or keys is an error at the start, which names the option to set. A login is checked by
the users of that moment: a changed file is read again, and if it cannot be read the users stay. The removal of a user
from the file is reported, so that its connections are closed.
Source: Apache Kafka's `sasl.enabled.mechanisms` and its login modules.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from kohort.base.options import Password
from kohort.broker.access.capabilities import Capabilities
from kohort.broker.access.jwks import Jwks, token_rules
from kohort.broker.options.listeners import ListenerSettings
from kohort.broker.scheduling import BlockingWork
from kohort.errors import ConfigError
from kohort.security.bearer_server import BearerServer
from kohort.security.jaas import parse_jaas_users
from kohort.security.jwt import TokenRules
from kohort.security.plain_users import PasswordHash, PlainUsers, read_users
from kohort.security.sasl_server import AdmitToken, PlainServer, ServerExchange, Success
from kohort.security.scram import HASHES
from kohort.security.scram_server import Decoys, ScramCredential, ScramServer
from kohort.storage.catalog import Catalog, ScramUser

log = logging.getLogger("kohort.broker.access")

PLAIN: Final = "PLAIN"
BEARER: Final = "OAUTHBEARER"
#: The interval at which the broker checks whether a file of users has changed.
LOOK_SECONDS: Final = 1.0
#: Users of the catalog, at most, after which decoys of unknown users are modelled.
_SHOWN_USERS: Final = 2_000


class Mechanisms:
    """The mechanisms that one listener offers."""

    def __init__(
        self,
        listener: ListenerSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        catalog: Callable[[], Catalog],
        threads: BlockingWork,
        on_gone: Callable[[Collection[str]], None],
        capabilities: Capabilities,
    ) -> None:
        """Read the users and options of each mechanism; raise `ConfigError` if something is missing.

        `on_gone` is called with the names of users that were taken out of the listener's file.
        """
        values = listener.values
        self._capabilities: Final = capabilities if values["sasl.capability.tokens.enable"] else None
        #: The names of the mechanisms, in the order sent to clients.
        self.names: Final[list[str]] = list(dict.fromkeys(values["sasl.enabled.mechanisms"]))
        self._makers: Final[dict[str, Callable[[AdmitToken | None], ServerExchange]]] = {}
        self._file: _UsersFile | None = None
        self._jwks: Jwks | None = None
        self._catalog: Final = catalog
        for name in self.names:
            if name == PLAIN:
                self._file = _UsersFile(listener, loop=loop, threads=threads, on_gone=on_gone)
                self._makers[name] = partial(_plain_server, self._file)
            elif name in HASHES:
                self._makers[name] = partial(_scram_server, name, _ScramUsers(name, catalog))
            else:
                assert name == BEARER, "the options allow no other"
                self._jwks = Jwks.of(loop, values)
                self._makers[name] = partial(_bearer_server, self._jwks, token_rules(values), now_ms)
        if self._capabilities is not None and {PLAIN, BEARER} & {*self.names}:
            # Users mint tokens with the file of keys, so the file is made at the first start.
            capabilities.prepare()

    def start(self) -> None:
        """Begin to check the file of users, and to fetch keys."""
        if self._file is not None:
            self._file.start()
        if self._jwks is not None:
            self._jwks.start()

    def stop(self) -> None:
        """Stop checking the file of users, and fetching keys."""
        if self._file is not None:
            self._file.stop()
        if self._jwks is not None:
            self._jwks.stop()

    def lacks_users(self) -> bool:
        """Return whether the listener offers only SCRAM and there is no SCRAM user."""
        is_scram = all(name in HASHES for name in self.names)
        return is_scram and not any(mechanism in self.names for _, mechanism in self._catalog().scram_users)

    def knows(self, name: str, username: str) -> bool:
        """Return whether a user still exists; called after its check, during which it may have been removed."""
        if name == PLAIN:
            return self._file is not None and username in self._file.users.names
        return name not in HASHES or (username, name) in self._catalog().scram_users

    def exchange(self, name: str, host: str) -> ServerExchange | None:
        """Begin an exchange with a client at this address; `None` if the mechanism is not offered."""
        maker, capabilities = self._makers.get(name), self._capabilities
        if maker is None:
            return None

        def admit(token: str) -> Success:
            assert capabilities is not None, "the listener takes tokens"
            capability = capabilities.admit(token, host)
            return Success(capability.id, lifetime_ms=capabilities.lifetime_ms(capability), capability=capability)

        return maker(None if capabilities is None else admit)


class _ScramUsers:
    """The users of one SCRAM mechanism."""

    def __init__(self, mechanism: str, catalog: Callable[[], Catalog]) -> None:
        self._mechanism: Final = mechanism
        self._catalog: Final = catalog
        #: The users after which `_decoys` are modelled, as the catalog had them.
        self._seen: Mapping[tuple[str, str], ScramUser] | None = None
        self._decoys: Decoys | None = None

    def credential(self, name: str) -> ScramCredential:
        """Return the credential of a user, or a decoy for the name of no user."""
        catalog = self._catalog()
        if self._decoys is None or self._seen is not catalog.scram_users:
            self._seen = catalog.scram_users
            known = (_credential(user) for (_, how), user in self._seen.items() if how == self._mechanism)
            self._decoys = Decoys(self._mechanism, catalog.login_secret, islice(known, _SHOWN_USERS))
        # The decoy is made for every name, so that the time taken does not show whether the user exists.
        decoy = self._decoys.credential(name)
        user = catalog.scram_users.get((name, self._mechanism))
        return decoy if user is None else _credential(user)


def _plain_server(users: _UsersFile, admit: AdmitToken | None) -> PlainServer:
    return PlainServer(users.verify, recognises=users.recognises, admit=admit)


def _bearer_server(jwks: Jwks, rules: TokenRules, now_ms: Callable[[], int], admit: AdmitToken | None) -> BearerServer:
    return BearerServer(jwks, rules, now_ms, admit=admit)


def _scram_server(mechanism: str, users: _ScramUsers, admit: AdmitToken | None) -> ScramServer:
    # SCRAM never sends the password, so the password can be no token.
    del admit
    return ScramServer(mechanism, users.credential, nonce=secrets.token_urlsafe(24))


def _credential(user: ScramUser) -> ScramCredential:
    return ScramCredential(user.salt, user.stored_key, user.server_key, user.iterations)


class _UsersFile:
    """The users of PLAIN: those of a file, which may change, and those of a JAAS config."""

    def __init__(
        self,
        listener: ListenerSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        threads: BlockingWork,
        on_gone: Callable[[Collection[str]], None],
    ) -> None:
        values = listener.values
        self._loop: Final = loop
        self._threads: Final = threads
        self._on_gone: Final = on_gone
        self._path: Final[str | None] = values["sasl.plain.users.file"] or None
        self._listed: Final = _listed_users(values)
        if self._path is None and not self._listed:
            raise ConfigError(
                f"listener {listener.name} offers PLAIN, and has no users: set sasl.plain.users.file to a file made by "
                f"kohort user add --file, or listener.name.{listener.name.lower()}.plain.sasl.jaas.config"
            )
        #: Inode, size and modification time of the file that was read, to detect a changed file.
        self._stamp = _stamp(self._path)
        #: The users in force; they are replaced as a whole.
        self.users = PlainUsers({} if self._path is None else read_users(self._path), passwords=self._listed)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to check whether the file has changed."""
        if self._path is not None and self._timer is None:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def stop(self) -> None:
        """Stop checking the file."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def verify(self, name: str, password: bytes) -> bool:
        """Return whether a user has this password now; called in a thread."""
        users = self.users
        is_right = users.verify(name, password)
        # The file may have been read again during the hash iterations. The present password counts.
        return is_right and (users is self.users or self.users.verify(name, password))

    def recognises(self, name: str, password: bytes) -> bool:
        """Return whether a user is known to have this password without hash iterations."""
        return self.users.recognises(name, password)

    def _look(self) -> None:
        path, found = self._path, _stamp(self._path)
        assert path is not None
        if found == self._stamp:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
            return
        self._stamp = found
        self._threads.submit(lambda: read_users(path), self._on_read)

    def _on_read(self, read: Mapping[str, PasswordHash] | Exception) -> None:
        if self._timer is None:
            return
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
        if isinstance(read, Exception):
            log.error(
                "event=users_unread file=%s reason=%r action='the users stay as they were'", self._path, str(read)
            )
            return
        before, self.users = self.users.names, PlainUsers(read, passwords=self._listed)
        gone = before - self.users.names
        log.info("event=users_read file=%s users=%d gone=%d", self._path, len(read), len(gone))
        if gone:
            self._on_gone(gone)


def _listed_users(values: Mapping[str, Any]) -> dict[str, str]:
    given = values.get("plain.sasl.jaas.config") or values["sasl.jaas.config"]
    return parse_jaas_users(given.value) if isinstance(given, Password) else {}


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    """Return inode, size and modification time of a file; `None` if `stat` fails."""
    try:
        found = os.stat(path or "")
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
