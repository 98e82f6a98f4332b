"""Names of queries in a group: a query's own, those of the group's members, and a name used twice.

Source: KIP-345; a name is a member's `group.instance.id`.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

from kohort.client.admin.admin import Admin
from kohort.client.options import ADMIN_OPTIONS
from kohort.errors import KohortError


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


def find_names(client: Mapping[str, str], group_id: str) -> set[str]:
    """Return the names of the group's members, including static members that are away for a while.

    Args:
        client: settings; those that an admin client does not have are ignored.
    """
    settings = {option.name: client[option.name] for option in ADMIN_OPTIONS if option.name in client}
    with Admin.from_config(settings) as admin:
        members = admin.describe_group(group_id).members
    return {member.instance_id for member in members if member.instance_id is not None}
