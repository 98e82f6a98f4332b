"""The admin client's calls about static groups: their members have names, and keep their partitions while offline.

Laws: a call about a group that does not exist, or is in the other mode, changes nothing and raises an error. Only
configs can be set for a group before it exists.
Source: KIP-345 as drafted (enableStaticMembership, enableDynamicMembership, forceRebalance); requirement S3.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Final

from kohort.base import VERSION
from kohort.client.admin.admin_machine import Coordinator, Question
from kohort.client.admin.calls.configs import ConfigCalls
from kohort.client.admin.calls.groups import GroupCalls
from kohort.client.admin.questions import Calls, Questions
from kohort.client.admin.results.groups import DYNAMIC, MODE, STATIC, TOKEN, check_group_id, static_changes
from kohort.client.core.broker_version import software_of
from kohort.errors import BrokerError, ErrorCode, UnsupportedFeatureError
from kohort.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.wire.private import SOFTWARE_NAME

#: Apache Kafka's error codes for configs of groups: before 3.8 it has none, later some brokers do not support them.
_NO_CONFIGS: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION)


class MembershipCalls(Calls):
    """The calls about static groups, as KIP-345 drafted them."""

    def __init__(self, questions: Questions) -> None:
        super().__init__(questions)
        self._groups = GroupCalls(questions)
        self._configs = ConfigCalls(questions)

    async def enable_static_membership(
        self,
        group: str,
        registration_timeout: int | timedelta | None = None,
        expansion_timeout: int | timedelta | None = None,
    ) -> None:
        """Make a group static: offline members keep their partitions, and new members are admitted together.

        From then on every member needs a name (`group.instance.id`, `member.name`). If the group is static already,
        its timeouts are changed. A group that does not exist yet can be made static by `alter_group_configs`.

        Args:
            group: id of a group of either protocol.
            registration_timeout: how long an offline member keeps its partitions; milliseconds, or a `timedelta`.
                `None` means the group's present config, else the broker's, 30 minutes by default.
            expansion_timeout: how long new members wait, counted from the first of them, for one rebalance that assigns
                partitions to all of them; milliseconds, a `timedelta` or `None`, 5 minutes by default.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     _ = admin.create_topic("orders", 1)
        ...     admin.alter_group_offsets("billing", {kohort.TopicPartition("orders", 0): 0})
        ...     admin.enable_static_membership("billing", registration_timeout=900_000)
        ...     admin.describe_group("billing").is_static
        True

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND; INVALID_CONFIG: a timeout is out of the broker's bounds, or members have no
                names; the message lists their ids.
            ConfigError: a timeout is negative.
            UnsupportedFeatureError: the broker is not kohort's.
        """
        changes = static_changes(registration_timeout, expansion_timeout)
        await self._mode_of(group, "making group {} static")
        await self._configs.alter_group_configs(group, changes)

    async def enable_dynamic_membership(self, group: str) -> None:
        """Make a static group dynamic: a member that misses its session timeout loses its partitions again.

        Clients need no change and keep their names; the session of each member begins anew.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND; INVALID_REQUEST: the group is dynamic already.
            UnsupportedFeatureError: the broker is not kohort's.
        """
        await self._check_static(group, "making group {} dynamic", "it is dynamic already")
        await self._configs.alter_group_configs(group, {MODE: DYNAMIC})

    async def force_rebalance(self, group: str) -> None:
        """Make a static group assign its partitions anew, to the members that are online or wait for admission.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND; INVALID_REQUEST: the group is dynamic.
            UnsupportedFeatureError: the broker is not kohort's.
        """
        why = "it is dynamic, and rebalances by itself whenever something changes"
        await self._check_static(group, "forcing a rebalance of group {}", why)
        await self._configs.alter_group_configs(group, {TOKEN: os.urandom(8).hex()})

    async def _check_static(self, group: str, doing: str, otherwise: str) -> None:
        if await self._mode_of(group, doing) != STATIC:
            text = f"the membership of group {group} is not static: {otherwise}"
            raise BrokerError(ErrorCode.INVALID_REQUEST, text, during=doing.format(group))

    async def _mode_of(self, group: str, doing: str) -> str:
        """Return the mode of an existing group: "static" or "dynamic"."""
        during = doing.format(group)
        check_group_id(group)
        try:
            configs = await self._configs.describe_group_configs(group)
        except BrokerError as why:
            # An empty name is no group's, whatever the broker is.
            if why.code not in _NO_CONFIGS or not group:
                raise
            configs = []
        mode = next((config.value for config in configs if config.name == MODE), None)
        if mode is None:
            software = await self._software(group, during)
            text = f"only kohort's broker keeps static groups: the coordinator is {software} and has no {MODE}"
            raise UnsupportedFeatureError(ErrorCode.UNSUPPORTED_VERSION, text, during=during)
        await self._groups.describe_group(group)
        return mode

    async def _software(self, group: str, during: str) -> str:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=VERSION)
        target = Coordinator(group_id=group)
        return software_of(
            await self._ask(Question(request, ApiVersionsResponse, target=target, during=during, min_version=3))
        )
