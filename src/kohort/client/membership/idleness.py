"""The warning for a member without partitions: one line that says why it has none.

Laws: said once for as long as it lasts; a member that waits for others to give up their partitions is none.
Source: the commonest surprise of groups: members beyond the number of partitions stand by.
"""

from __future__ import annotations

from typing import Final

from kohort.client.actions import Endpoint, Lane
from kohort.client.events import RequestFailed
from kohort.client.requests import Answer, Requests
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse

#: A rebalance may take so long before the member is warned.
_PATIENCE_MS: Final = 3_000


class Idleness:
    """Watches whether one member has partitions to read.

    Args:
        requests: sends the question to the coordinator, and takes the warning.
        group_id: its group.
        is_classic: whether the group is described by DescribeGroups.
    """

    def __init__(self, requests: Requests, *, group_id: str, is_classic: bool) -> None:
        self._requests = requests
        self._group_id = group_id
        self._is_classic = is_classic
        #: When the member was first found without partitions; `None` while it has some.
        self._since_ms: int | None = None
        #: Whether the warning was given; until the member has had partitions again.
        self._is_settled = False

    def next_deadline(self) -> int | None:
        """Return when to ask the coordinator for the group's members."""
        return None if self._since_ms is None or self._is_settled else self._since_ms + _PATIENCE_MS

    def on_tick(self, now_ms: int, *, partition_count: int, coordinator: Endpoint | None) -> None:
        """Look at a member at rest that holds no partition of `partition_count`; 0: it holds some, or moves."""
        if not partition_count:
            self._since_ms, self._is_settled = None, False
        elif self._since_ms is None or coordinator is None:
            self._since_ms = now_ms
        elif not self._is_settled and now_ms >= self._since_ms + _PATIENCE_MS:
            self._is_settled = True
            self._ask(coordinator, partition_count)

    def _ask(self, coordinator: Endpoint, partition_count: int) -> None:
        def then(answer: Answer, _: int) -> None:
            if self._since_ms is not None:
                self._tell(answer, partition_count)

        request = (
            DescribeGroupsRequest(groups=[self._group_id])
            if self._is_classic
            else ConsumerGroupDescribeRequest(group_ids=[self._group_id])
        )
        self._requests.send(coordinator, Lane.CONTROL, request, then)

    def _tell(self, answer: Answer, partition_count: int) -> None:
        partitions = "1 partition" if partition_count == 1 else f"{partition_count} partitions"
        why = f"others have the {partitions}"
        if not isinstance(answer, RequestFailed):
            response = answer.message
            assert isinstance(response, ConsumerGroupDescribeResponse | DescribeGroupsResponse)
            member_count = sum(len(group.members) for group in response.groups if group.error_code == 0)
            if 0 < member_count <= partition_count:
                # A rebalance is still on its way: there is a partition for every member.
                return
            if member_count:
                why = f"{member_count} members share {partitions}"
        self._requests.warn(f"no partition for this member of group {self._group_id}: {why}")
