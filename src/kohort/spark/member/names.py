"""Names of queries in a group: those present, and names that another query already bears.

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
        given: the user's name for a new query; `None`: a name is generated.
    """

    def __init__(self, given: str | None) -> None:
        self._given = given
        self._name: str | None = None

    def take(self, stored: str | None) -> str:
        """Return the name in the query's checkpoint, or for a new query this process's own.

        Spark asks for the initial offset twice, and before it repeats a query's first batch, whose end has the name.
        """
        self._name = stored or self._name or self._given or f"kohort-{uuid4().hex[:8]}"
        return self._name


class NameTakenError(KohortError):
    """Another query bears the name that stands in this one's checkpoint."""

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
    """Return names of the group's members, those that are away for a while included.

    Args:
        client: settings of the connection, and perhaps others.
    """
    settings = {option.name: client[option.name] for option in ADMIN_OPTIONS if option.name in client}
    with Admin.from_config(settings) as admin:
        members = admin.describe_group(group_id).members
    return {member.instance_id for member in members if member.instance_id is not None}
