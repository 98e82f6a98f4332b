"""A member that has nothing to read: the one line that says why.

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

#: So long a rebalance may take before anything is said.
_PATIENCE_MS: Final = 3_000


class Idleness:
    """Watches one member.

    Args:
        is_classic: which protocol the group is described by.
    """

    def __init__(self, requests: Requests, *, group_id: str, is_classic: bool) -> None:
        self._requests = requests
        self._group_id = group_id
        self._is_classic = is_classic
        #: Since when the member has had nothing; `None` while it has something.
        self._since_ms: int | None = None
        #: Nothing more is to be said until it has had something.
        self._is_settled = False

    def next_deadline(self) -> int | None:
        """When `on_tick` has something to ask."""
        return None if self._since_ms is None or self._is_settled else self._since_ms + _PATIENCE_MS

    def on_tick(self, now_ms: int, *, partition_count: int, coordinator: Endpoint | None) -> None:
        """Look at a member at rest, which may read so many partitions and holds none; 0 if it holds any."""
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
                return
            if member_count:
                why = f"{member_count} members share {partitions}"
        self._requests.warn(f"no partition for this member of group {self._group_id}: {why}")
