"""The admin client's calls about groups."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kohort.client.actions import Endpoint
from kohort.client.admin.core import groups as shapes
from kohort.client.admin.core import topics as topic_shapes
from kohort.client.admin.core.admin_machine import Coordinator
from kohort.client.admin.door import AdminDoor, check
from kohort.client.admin.history import read_history
from kohort.client.admin.results import (
    GroupDescription,
    GroupHistory,
    GroupListing,
    GroupOffset,
    GroupSummary,
)
from kohort.errors import BrokerError, ErrorCode
from kohort.ids import TopicPartition
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kohort.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.messages.group_history import GroupHistoryRequest, GroupHistoryResponse
from kohort.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kohort.wire.messages.metadata import MetadataResponse
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse

if TYPE_CHECKING:
    from kohort.journal.explanation import GroupExplanation


class GroupCalls(AdminDoor):
    """Groups of both protocols: list, describe, offsets, delete."""

    def list_groups(
        self, states: Collection[str] | None = None, types: Collection[str] | None = None
    ) -> list[GroupListing]:
        """Every group, by name; `states` and `types` ("classic", "consumer") narrow that down."""
        request = ListGroupsRequest(states_filter=list(states or ()), types_filter=list(types or ()))
        found = self._of_brokers(lambda metadata: self._groups_of_all(metadata, request), self._metadata(()))
        return [found[name] for name in sorted(found)]

    def _groups_of_all(self, metadata: MetadataResponse, request: ListGroupsRequest) -> dict[str, GroupListing]:
        found: dict[str, GroupListing] = {}
        for broker in metadata.brokers:
            response = self._ask(
                request,
                ListGroupsResponse,
                target=Endpoint(broker.host, broker.port),
                during="listing groups",
                codes=lambda response: [response.error_code],
            )
            check(response.error_code, None, "listing groups")
            for group in response.groups:
                found[group.group_id] = shapes.listing(group)
        return found

    def summarize_groups(self) -> list[GroupSummary]:
        """Every group with members and lag, by name; two requests a group, and one for the ends of all partitions.

        A group that goes meanwhile is left out.
        """
        rows: list[tuple[GroupListing, int, dict[TopicPartition, int]]] = []
        for row in self.list_groups():
            try:
                rows.append((row, len(self.describe_group(row.group_id).members), self._committed(row.group_id)))
            except BrokerError as why:
                if why.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
        partitions = sorted({partition for _, _, committed in rows for partition in committed})
        ends = self._ends(partitions)
        return [
            GroupSummary(
                group_id=row.group_id,
                group_type=row.group_type,
                state=row.state,
                protocol_type=row.protocol_type,
                members=members,
                lag=sum(max(0, ends[each] - offset) for each, offset in committed.items() if each in ends)
                if ends.keys() & committed.keys()
                else None,
            )
            for row, members, committed in rows
        ]

    def describe_group(self, group: str) -> GroupDescription:
        """One group of either protocol.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND.
        """
        during = f"describing group {group}"
        try:
            answer = self._ask(
                ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False),
                ConsumerGroupDescribeResponse,
                target=Coordinator(group_id=group),
                during=during,
                codes=lambda response: [row.error_code for row in response.groups],
            )
        except BrokerError as why:
            if why.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
        else:
            if ErrorCode.of(answer.groups[0].error_code) is not ErrorCode.GROUP_ID_NOT_FOUND:
                check(answer.groups[0].error_code, answer.groups[0].error_message, during)
                return shapes.from_consumer_group(answer.groups[0])
        classic = self._ask(
            DescribeGroupsRequest(groups=[group], include_authorized_operations=False),
            DescribeGroupsResponse,
            target=Coordinator(group_id=group),
            during=during,
            codes=lambda response: [row.error_code for row in response.groups],
        ).groups[0]
        if shapes.is_missing(classic):
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}", during=during)
        check(classic.error_code, classic.error_message, during)
        return shapes.from_classic_group(classic)

    def group_offsets(self, group: str) -> list[GroupOffset]:
        """Where a group stands: every partition that it has committed or that a member owns, by topic and partition."""
        owners: dict[TopicPartition, str] = {}
        try:
            for member in self.describe_group(group).members:
                owners.update(dict.fromkeys(member.assignment, member.member_id))
        except BrokerError as why:
            if why.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        committed = self._committed(group)
        partitions = sorted({*owners, *committed})
        ends = self._ends(partitions)
        return [
            GroupOffset(
                topic=partition.topic,
                partition=partition.partition,
                committed=committed.get(partition),
                end_offset=ends.get(partition, -1),
                lag=max(0, ends[partition] - committed[partition])
                if partition in committed and partition in ends
                else None,
                member_id=owners.get(partition),
            )
            for partition in partitions
        ]

    def group_history(self, group: str, *, after: int | None = None, whole: bool = False) -> GroupHistory:
        """Why the group is as it is: what came in, what its coordinator decided and what that changed.

        Args:
            group: its id.
            after: only rows with a sequence above this one, as of an earlier call, that are in the broker's memory.
            whole: all that the broker has; otherwise what is in its memory, and of the topic `__group_journal` the
                latest 20,000 rows of all groups.

        Raises:
            UnsupportedFeatureError: the broker is not one of kohort's: Apache Kafka keeps no history.
        """
        during = f"reading the history of group {group}"

        def ask(request: GroupHistoryRequest) -> GroupHistoryResponse:
            page = self._ask_own(
                request, GroupHistoryResponse, group=group, feature="keeps a history of groups", during=during
            )
            check(page.error_code, page.error_message, during)
            return page

        return read_history(ask, group, after=after, whole=whole)

    def explain_group(self, group: str, *, whole: bool = False) -> GroupExplanation:
        """Why the group is as it is, in sentences: what set each rebalance off, who gave and took what, who was slow.

        Everything is told from the broker's history of the group; where its beginning is missing, so it is here.
        `whole`: of all its history, as for `group_history`.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     _ = admin.create_topic("orders", 2)
        ...     with kohort.Consumer("orders", bootstrap_servers=broker.bootstrap_servers, group_id="billing") as one:
        ...         while not one.assignment():
        ...             _ = one.poll(0.02)
        ...     found = admin.explain_group("billing")
        ...     found.last.triggers[0].trigger, found.summary, [row.end for row in found.partition("orders", 1)]
        ('member left', 'the group has no members', ['kohort left'])

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND.
            UnsupportedFeatureError: the broker is not one of kohort's.
        """
        from kohort.journal.explaining import explain

        found = self.group_history(group, whole=whole)
        is_known = any(event.event != "refused" for event in found.events)
        if not is_known and all(row.group_id != group for row in self.list_groups()):
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}", during=f"explaining {group}")
        told = explain(group, found.events, now_ms=int(time.time() * 1_000), is_complete=found.is_complete)
        return replace(told, has_older=found.has_older)

    def delete_groups(self, names: Sequence[str]) -> None:
        """Delete empty groups and their offsets.

        Raises:
            BrokerError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND; groups named before it are deleted.
        """
        for name in names:
            during = f"deleting group {name}"
            response = self._ask(
                DeleteGroupsRequest(groups_names=[name]),
                DeleteGroupsResponse,
                target=Coordinator(group_id=name),
                during=during,
                codes=lambda response: [result.error_code for result in response.results],
            )
            for result in response.results:
                texts = {
                    ErrorCode.NON_EMPTY_GROUP: "it still has members; stop them first",
                    ErrorCode.GROUP_ID_NOT_FOUND: f"there is no group {name}",
                }
                check(result.error_code, texts.get(ErrorCode.of(result.error_code)), during)

    def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        metadata = self._metadata({partition.topic for partition in partitions})
        return self._offsets(partitions, topic_shapes.LATEST, metadata)

    def _committed(self, group: str) -> dict[TopicPartition, int]:
        # Up to version 9 topics travel by name, and older brokers take the request's own fields.
        request = OffsetFetchRequest(
            group_id=group,
            topics=None,
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None)],
            require_stable=False,
        )
        during = f"looking up the offsets of group {group}"
        response = self._ask(
            request,
            OffsetFetchResponse,
            target=Coordinator(group_id=group),
            during=during,
            codes=lambda response: [response.error_code, *(row.error_code for row in response.groups)],
            max_version=9,
        )
        code = response.groups[0].error_code if response.groups else response.error_code
        if ErrorCode.of(code) is ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        check(code, None, during)
        return shapes.committed_offsets(response)
