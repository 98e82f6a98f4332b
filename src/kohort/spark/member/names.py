"""Names of queries in a group: a query's own, those of the group's members, and a name used twice.

Source: KIP-345; a name is a member's `group.instance.id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from kohort.client.options import ADMIN_OPTIONS
from kohort.errors import KohortError

if TYPE_CHECKING:
    from kohort.client.admin.admin import Admin
    from kohort.client.admin.results.groups import MemberDescription


class QueryName:
    """The name of a query in its group, in one process.

    Args:
        given: the user's name for a new query; if it is `None` a name is generated.
    """

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._name: str | None = None

    def take(self, stored: str | None) -> str:
        """Return the name stored in the query's checkpoint, or for a new query the given or generated one.

        Spark asks for the initial offset twice, and before it repeats a query's first batch, whose end has the name.
        """
        self._name = stored or self._name or self._given or f"kohort-{uuid4().hex[:8]}"
        return self._name


class NameTakenError(KohortError):
    """Another running query has the name that is stored in this query's checkpoint."""

    def __init__(self, name: str, group_id: str) -> None:
        super().__init__(name, group_id)
        self.name = name
        self.group_id = group_id

    def __str__(self) -> str:
        return (
            f"{self.name} of group {self.group_id} is another query that runs: two queries were started with copies "
            "of one checkpoint; give one of them a checkpointLocation of its own"
        )


class HolderWatch:
    """The signs of life of the member that holds a query's name, while the query waits for it.

    A killed process holds its name until its session ends, and a query that was started with another copy of the
    checkpoint holds it as long as it runs. Only the latter gives signs of life after this query has begun to wait.
    A query that is just being stopped gives none for long, so it takes two of them, some seconds apart.

    Args:
        now_s: the time at which the query begins to wait, seconds.
    """

    def __init__(self, now_s: float) -> None:
        self._due_s = now_s + _LOOK_S
        #: Later signs count.
        self._after_s = now_s
        self._signs = 0

    def is_due(self, now_s: float) -> bool:
        """Return whether to look at the group again; if so the next look is due a while later."""
        is_due = now_s >= self._due_s
        if is_due:
            self._due_s = now_s + _LOOK_S
        return is_due

    def note_sign(self, from_s: float, to_s: float) -> bool:
        """Note that the holder was alive at a time between the two; return whether it is sure that it lives on."""
        # The same heartbeat is seen by several looks.
        if from_s > self._after_s:
            self._signs += 1
            self._after_s = to_s + _APART_S
        return self._signs >= _SIGNS


#: Seconds between two looks at the group; between two signs of life; and how many of them are enough.
_LOOK_S: Final = 1.0
_APART_S: Final = 1.5
_SIGNS: Final = 2
#: How long a look waits for the group.
_PATIENCE_MS: Final = "2000"


def find_holder(client: Mapping[str, str], group_id: str, name: str) -> MemberDescription | None:
    """Return the member of a group that holds a name; `None` if there is none, or the group does not answer in time.

    Args:
        client: as for `find_names`.
    """
    try:
        with _admin_of({**client, "default.api.timeout.ms": _PATIENCE_MS}) as admin:
            members = admin.describe_group(group_id).members
    except KohortError:
        return None
    return next((member for member in members if member.instance_id == name), None)


def find_names(client: Mapping[str, str], group_id: str) -> set[str]:
    """Return the names of the group's members, including static members that are away for a while.

    Args:
        client: settings; those that an admin client does not have are ignored.
    """
    with _admin_of(client) as admin:
        members = admin.describe_group(group_id).members
    return {member.instance_id for member in members if member.instance_id is not None}


def _admin_of(client: Mapping[str, str]) -> Admin:
    # Most queries never look at their group, and begin a tenth of a second earlier without this import.
    from kohort.client.admin.admin import Admin

    return Admin.from_config({option.name: client[option.name] for option in ADMIN_OPTIONS if option.name in client})
