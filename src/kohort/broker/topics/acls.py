"""The access control lists of a broker: stored in the catalog, in force in the authorizer.

Laws: an entry is in force once the catalog's file has it, and again after a restart. Entries are put in force in the
order in which their changes were written. A change is reported once all of its entries are in force. One turn of the
loop puts at most `ENTRIES_PER_TURN` entries in force. The number and the bytes of all entries are bounded.
Source: Apache Kafka's AclControlManager and StandardAuthorizer, whose entries are in its metadata log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kohort.broker.access.authorization import Authorization
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.topics.topic_operations import Outcome, Wanted
from kohort.errors import ConfigError, ErrorCode, Refused, StorageError
from kohort.security.access_control import AclOperation, AclPermission, PatternType, ResourceType
from kohort.security.authorizer import Acl, Authorizer
from kohort.storage.catalog import AclRow
from kohort.storage.topics import TopicChanges, TopicPlan

log = logging.getLogger("kohort.broker.access")

#: The most entries of all lists together, and the most bytes of their names, principals and hosts.
MOST_ENTRIES: Final = 100_000
MOST_BYTES: Final = 16 << 20
#: Entries that one request may add or remove, as in Apache Kafka.
MOST_CHANGED: Final = 10_000
#: Entries that are put in force in one turn of the loop; one takes about 10 us.
ENTRIES_PER_TURN: Final = 500
#: The concern of all changes of entries. No topic has this name, so such a change waits for no change of a topic.
_CONCERN: Final = "/acls"


class AccessControlLists:
    """The access control entries of a broker, and their changes."""

    def __init__(self, settings: BrokerSettings, changes: TopicChanges, loop: asyncio.AbstractEventLoop) -> None:
        """Put the catalog's entries in force, if the options enable an authorizer."""
        self._changes: Final = changes
        self.authorization: Final = Authorization(authorizer_of(settings))
        self._loop: Final = loop
        #: Changes to be put in force, in order: entries to remove, entries to add, the report of the change.
        self._due: Final[deque[tuple[deque[Acl], deque[Acl], Callable[[], None]]]] = deque()
        rows = changes.catalog.acls
        self._bytes = sum(map(_size, rows))
        #: The edition of the entries of which connections were last notified.
        self._told = 0
        if self.authorization.authorizer is not None:
            self.authorization.authorizer.change(added=map(_acl, rows))
            self._told = self.authorization.authorizer.edition
            _warn(settings, self.authorization.authorizer)

    def addition(self, acls: Sequence[Acl], done: Callable[[Outcome], None]) -> Wanted:
        """Build the change that adds entries; existing entries stay."""
        added: list[Acl] = []

        def plan() -> TopicPlan:
            known = self._changes.catalog.acls
            added.extend(acl for acl in dict.fromkeys(acls) if acl not in known)
            self._check_room(len(known), added)
            made = self._changes.plan_acls(added=added)
            made.settle = lambda _: self._put_in_force((), added, lambda: done(None))
            return made

        return Wanted(concern=_CONCERN, plan=plan, done=lambda why: done(why) if why is not None else None)

    def removal(self, acls: Iterable[Acl], done: Callable[[Outcome], None]) -> Wanted:
        """Build the change that removes entries; entries that do not exist any more are ignored."""
        removed: list[Acl] = []

        def plan() -> TopicPlan:
            known = self._changes.catalog.acls
            removed.extend(acl for acl in dict.fromkeys(acls) if acl in known)
            made = self._changes.plan_acls(removed=removed)
            made.settle = lambda _: self._put_in_force(removed, (), lambda: done(None))
            return made

        return Wanted(concern=_CONCERN, plan=plan, done=lambda why: done(why) if why is not None else None)

    def _check_room(self, count: int, added: Sequence[Acl]) -> None:
        if len(added) > MOST_CHANGED:
            raise Refused(ErrorCode.POLICY_VIOLATION, f"{len(added)} entries at once; {MOST_CHANGED} are allowed")
        if count + len(added) > MOST_ENTRIES:
            text = f"this broker would have {count + len(added)} ACLs; {MOST_ENTRIES} are allowed"
            raise Refused(ErrorCode.POLICY_VIOLATION, text)
        if self._bytes + sum(map(_size, added)) > MOST_BYTES:
            raise Refused(ErrorCode.POLICY_VIOLATION, f"the names in all ACLs would have more than {MOST_BYTES} bytes")

    def _put_in_force(self, removed: Sequence[Acl], added: Sequence[Acl], done: Callable[[], None]) -> None:
        self._bytes += sum(map(_size, added)) - sum(map(_size, removed))
        self._due.append((deque(removed), deque(added), done))
        if len(self._due) == 1:
            self._go_on()

    def _go_on(self) -> None:
        """Put the next entries in force; report the changes that are complete."""
        authorizer, left = self.authorization.authorizer, ENTRIES_PER_TURN
        reports: list[Callable[[], None]] = []
        while self._due:
            removed, added, done = self._due[0]
            # Removals and additions are taken separately: a change may remove an entry and add it again.
            taken = _take(removed, left), _take(added, left)
            if authorizer is not None:
                authorizer.change(removed=taken[0], added=taken[1])
            left -= len(taken[0]) + len(taken[1])
            if removed or added:
                break
            self._due.popleft()
            reports.append(done)
            if left <= 0:
                break
        if reports:
            if authorizer is not None and authorizer.edition != self._told:
                # Connections are notified before the response: from now on, removed rights end what they allowed.
                self._told = authorizer.edition
                self.authorization.changed()
            for report in reports:
                report()
        if self._due:
            self._loop.call_soon(self._go_on)


def authorizer_of(settings: BrokerSettings) -> Authorizer | None:
    """Return the authorizer that the options enable; `None` if every client may do everything."""
    name = settings.values["authorizer.class.name"]
    # A listener with logins enables the authorizer by default: without rights a login would be of no use.
    is_on = any(each.has_login for each in settings.listeners) if name is None else bool(name)
    if not is_on:
        return None
    return Authorizer(
        super_users=super_users_of(settings.values["super.users"]),
        allows_by_default=settings.values["allow.everyone.if.no.acl.found"],
    )


def super_users_of(text: str) -> list[str]:
    """Parse `super.users`: principals with semicolons, since names of certificates have commas.

    >>> super_users_of("User:alice; User:CN=ops,O=Example")
    ['User:alice', 'User:CN=ops,O=Example']
    """
    users = [part.strip() for part in text.split(";") if part.strip()]
    for user in users:
        kind, colon, name = user.partition(":")
        if not (kind and colon and name):
            raise ConfigError(
                f"super.users cannot have {user!r}: principals with semicolons are expected, like 'User:{name or kind}'"
            )
    return users


def _warn(settings: BrokerSettings, authorizer: Authorizer) -> None:
    """Log one line if no client of the broker can do anything."""
    if authorizer.super_users or authorizer.allows_by_default or len(authorizer):
        return
    words = "no client may do anything: ACLs are enforced, and there is no super user and no ACL"
    listeners = ",".join(each.name for each in settings.listeners)
    advice = "set super.users=User:NAME to a user that gives rights to others (kohort acl add)"
    log.warning("event=no_rights listeners=%s reason=%r action=%r", listeners, words, advice)


def _acl(row: AclRow) -> Acl:
    resource, pattern, name, principal, host, operation, permission = row
    try:
        return Acl(
            ResourceType(resource), PatternType(pattern), name, principal, host,
            AclOperation(operation), AclPermission(permission),
        )  # fmt: skip
    except ValueError as why:
        # An unknown entry may deny something, so it must not be ignored.
        raise StorageError(f"the catalog has an entry of the access lists with a {why}; upgrade kohort") from None


def _size(row: AclRow) -> int:
    return sum(len(text) if text.isascii() else len(text.encode()) for text in row[2:5])


def _take(acls: deque[Acl], most: int) -> list[Acl]:
    return [acls.popleft() for _ in range(min(most, len(acls)))]
