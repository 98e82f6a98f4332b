"""The admin client's calls that move partitions from one member of a group to another.

Source: requirement H9; users@kafka, July 2014 (SwitchPartition).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from kohort.client.admin.calls.groups import GroupCalls
from kohort.client.admin.questions import Calls, Questions, check
from kohort.client.admin.results import moves as results
from kohort.client.admin.results.moves import GroupMove, SubmittedMove
from kohort.client.core.refusals import refused
from kohort.client.steps import Pause
from kohort.errors import ErrorCode, KohortError, KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.wire.messages.describe_moves import DescribeMovesRequest, DescribeMovesResponse
from kohort.wire.messages.submit_moves import SubmitMovesRequest, SubmitMovesResponse

_FEATURE: Final = "moves partitions on request"
#: Pause between two requests, seconds: the first, and the longest.
_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 1.0


class MoveCalls(Calls):
    """The calls about moves of partitions in groups of the consumer protocol."""

    def __init__(self, questions: Questions) -> None:
        super().__init__(questions)
        self._groups = GroupCalls(questions)

    async def switch_partition(self, group: str, partition: TopicPartition, to_member: str) -> SubmittedMove:
        """Move a partition to a member; the coordinator has stored the move when this returns.

        The present owner commits and gives the partition up before the member gets it, at the group's rate of moves
        (`group.moves.per.second`): `wait_for_moves` waits for that. The move holds until members or topics of the group
        change and its assignor computes a new assignment; the assignor `external` keeps it even then.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     _ = admin.create_topic("orders", 2)
        ...     here = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing"}
        ...     with kohort.Consumer("orders", **here) as consumer:
        ...         while len(consumer.assignment()) < 2:
        ...             _ = consumer.poll(0.02)
        ...         (member,) = admin.describe_group("billing").members
        ...         move = admin.switch_partition("billing", kohort.TopicPartition("orders", 0), member.member_id)
        >>> move.is_taken, move.move_id  # it has the partition already
        (True, '')

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND, INCONSISTENT_GROUP_PROTOCOL (a classic group),
                UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_MEMBER_ID, INVALID_REQUEST (the member does not subscribe to the
                topic); nothing is changed.
            UnsupportedFeatureError: the broker is not kohort's.
        """
        (move,) = await self.submit_moves(group, {partition: to_member})
        if not move.is_taken:
            raise refused(move.code, move.message, during=f"moving {move.topic}-{move.partition} of group {group}")
        return move

    async def submit_moves(
        self, group: str, moves: Mapping[TopicPartition, str], *, validate_only: bool = False
    ) -> list[SubmittedMove]:
        """Move several partitions to members; each move is accepted or refused independently of the others.

        Args:
            group: id of a group of the consumer protocol; while its coordinator computes an assignment, the call waits.
            moves: by partition, the id of the member that is to get it; at most 10,000.
            validate_only: return the same results, but change nothing.

        Returns:
            The result of each move, in the order of `moves`.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND, INCONSISTENT_GROUP_PROTOCOL (a classic group), REBALANCE_IN_PROGRESS
                (an assignment was being computed until the timeout).
            ConfigError: there are more than 10,000 moves.
            UnsupportedFeatureError: the broker is not kohort's.
        """
        asked = results.wanted_moves(moves)
        during = f"submitting moves of group {group}"
        request = SubmitMovesRequest(group_id=group, validate_only=validate_only, moves=asked)
        pauses = _Pauses(self._questions.timeout_s)
        while True:
            response = await self._questions.ask_own(
                request, SubmitMovesResponse, group=group, feature=_FEATURE, during=during
            )
            is_changing = ErrorCode.of(response.error_code) is ErrorCode.REBALANCE_IN_PROGRESS
            if not is_changing or not await pauses.wait():
                check(response, during)
                return results.submitted_moves(asked, response)

    async def moves(self, group: str) -> list[GroupMove]:
        """List the moves in progress, by topic and partition, also those of the assignor; then finished ones.

        Finished moves are those requested by a call: the latest of each partition, latest first. The broker keeps them
        until the topic or the group is deleted, even over a restart. At most 10,000 are returned.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND, INCONSISTENT_GROUP_PROTOCOL (a classic group).
            UnsupportedFeatureError: the broker is not kohort's.
        """
        during = f"reading the moves of group {group}"
        request = DescribeMovesRequest(group_id=group)
        response = await self._questions.ask_own(
            request, DescribeMovesResponse, group=group, feature=_FEATURE, during=during
        )
        check(response, during)
        return [results.group_move(row) for row in response.moves]

    async def wait_for_moves(
        self, group: str, moves: Iterable[SubmittedMove], *, timeout_s: float | None = None
    ) -> None:
        """Wait until the members own the partitions of all accepted `moves`.

        Args:
            group: id of the group.
            moves: as returned by `submit_moves`; refused ones are ignored.
            timeout_s: seconds for all moves together; `None` means `default.api.timeout.ms`.

        Raises:
            TypeError: `moves` are not submitted moves, or the timeout is not a number.
            KohortTimeoutError: the message names a member that is waited for, and the phase of its move.
            KohortError: the group has changed, so that a partition is assigned to another member.
        """
        left: Mapping[TopicPartition, str] = results.awaited_moves(moves)
        if timeout_s is not None and (isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float)):
            raise TypeError(f"timeout_s is {timeout_s!r}; expected seconds")
        pauses = _Pauses(self._questions.timeout_s if timeout_s is None else timeout_s)
        while left:
            left = await self._still_on_their_way(group, left)
            if left and not await pauses.wait():
                raise KohortTimeoutError(await self._describe_wait(group, left))

    async def _still_on_their_way(self, group: str, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, str]:
        members = {row.member_id: row for row in (await self._groups.describe_group(group)).members}
        left: dict[TopicPartition, str] = {}
        for partition, member_id in wanted.items():
            member = members.get(member_id)
            if member is None:
                raise KohortError(f"{member_id} has left group {group} before it got {partition}")
            if partition in member.assignment:
                continue
            if partition not in member.target:
                raise KohortError(
                    f"{partition} is not to go to {member_id} any more: group {group} has changed, and its assignor "
                    "has decided anew; submit the move again"
                )
            left[partition] = member_id
        return left

    async def _describe_wait(self, group: str, wanted: Mapping[TopicPartition, str]) -> str:
        partition, member_id = next(iter(wanted.items()))
        said = f"{len(wanted)} of the moves of group {group} took too long: {partition} is to go to {member_id}"
        on_its_way = next((move for move in await self.moves(group) if (move.topic, move.partition) == partition), None)
        if on_its_way is None:
            return f"{said}, which has yet to come for it"
        return f"{said} from {on_its_way.from_member_id}, and is {on_its_way.phase}"


class _Pauses:
    """The pauses between requests: each is twice as long as the last, until the timeout."""

    def __init__(self, timeout_s: float) -> None:
        self._until = time.monotonic() + timeout_s
        self._next_s = _FIRST_PAUSE_S

    async def wait(self) -> bool:
        """Wait for one pause; return `False`, without a wait, after the timeout."""
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            return False
        await Pause(min(self._next_s, left_s))
        self._next_s = min(2 * self._next_s, _LONGEST_PAUSE_S)
        return True
