"""Configs of groups as the admin client asks for them and shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kohort.client.admin.results import GroupConfig
from kohort.config import as_text
from kohort.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

GROUP_RESOURCE: Final = 32
#: Where a config value comes from: set on the group itself.
_SET_ON_GROUP: Final = 8
_SET, _DELETE = 0, 1


def describe_request(group: str) -> DescribeConfigsRequest:
    """Asks for every config of a group."""
    resource = DescribeConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configuration_keys=None)
    return DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=True)


def group_configs(response: DescribeConfigsResponse) -> list[GroupConfig]:
    """By name."""
    rows = [
        GroupConfig(name=row.name, value=row.value, is_own=row.config_source == _SET_ON_GROUP, doc=row.documentation)
        for result in response.results
        for row in result.configs
    ]
    return sorted(rows, key=lambda row: row.name)


def alter_request(group: str, changes: Mapping[str, object], *, validate_only: bool) -> IncrementalAlterConfigsRequest:
    """Sets configs; `None` takes one back."""
    rows = [
        AlterableConfig(
            name=name,
            config_operation=_DELETE if value is None else _SET,
            value=None if value is None else as_text(value),
        )
        for name, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=rows)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
