"""Names of queries in a group: who is there, and who bears a name that is another's.

Source: KIP-345; a name is a member's `group.instance.id`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.client.admin.admin import Admin
from kohort.client.options import ADMIN_OPTIONS
from kohort.errors import KohortError


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
    """Names of the group's members, those that are away for a while included.

    Args:
        client: settings of the connection, and perhaps others.
    """
    settings = {option.name: client[option.name] for option in ADMIN_OPTIONS if option.name in client}
    with Admin.from_config(settings) as admin:
        members = admin.describe_group(group_id).members
    return {member.instance_id for member in members if member.instance_id is not None}
