"""The admin client's calls about the configs of groups."""

from __future__ import annotations

from collections.abc import Mapping

from kohort.client.admin.core import configs as shapes
from kohort.client.admin.door import AdminDoor, check
from kohort.client.admin.results import GroupConfig
from kohort.wire.messages.describe_configs import DescribeConfigsResponse
from kohort.wire.messages.incremental_alter_configs import IncrementalAlterConfigsResponse


class ConfigCalls(AdminDoor):
    """What groups are set to."""

    def describe_group_configs(self, group: str) -> list[GroupConfig]:
        """What a group is set to, by itself or by the broker, by name; the group need not exist."""
        during = f"describing the configs of group {group}"
        response = self._ask(
            shapes.describe_request(group),
            DescribeConfigsResponse,
            during=during,
            codes=lambda response: [result.error_code for result in response.results],
        )
        for result in response.results:
            check(result.error_code, result.error_message, during)
        return shapes.group_configs(response)

    def alter_group_configs(self, group: str, changes: Mapping[str, object], *, validate_only: bool = False) -> None:
        """Set configs of a group, which need not exist, or take them back with `None`; all of them or none.

        Raises:
            BrokerError: INVALID_CONFIG with what is allowed, ...
        """
        during = f"altering the configs of group {group}"
        response = self._ask(
            shapes.alter_request(group, changes, validate_only=validate_only),
            IncrementalAlterConfigsResponse,
            during=during,
            codes=lambda response: [result.error_code for result in response.responses],
        )
        for result in response.responses:
            check(result.error_code, result.error_message, during)
