"""The admin client's calls about groups."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kohort.client.actions import Endpoint
from kohort.client.admin.coordinated import CoordinatedDoor, Inquiry, to_groups
from kohort.client.admin.core import groups as shapes
from kohort.client.admin.core import topics as topic_shapes
from kohort.client.admin.core.groupid import check_group_id
from kohort.client.admin.door import Question, answered, check
from kohort.client.admin.history import read_history
from kohort.client.admin.partly import Outcome
from kohort.client.admin.results.groups import (
    GroupDescription,
    GroupHistory,
    GroupListing,
    GroupOffset,
    GroupSummary,
    MemberDescription,
)
from kohort.errors import BrokerError, ErrorCode, KohortError
from kohort.ids import TopicPartition
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kohort.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.messages.group_history import GroupHistoryRequest, GroupHistoryResponse
from kohort.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kohort.wire.messages.metadata import MetadataResponse
from kohort.wire.messages.offset_fetch import OffsetFetchResponse

if TYPE_CHECKING:
    from kohort.journal.why.explanation import GroupExplanation


_OFFSETS: Final = Inquiry(
    doing="looking up the offsets of",
    build=shapes.offsets_request,
    expected=OffsetFetchResponse,
    read=shapes.read_offsets,
    several_since=8,
    # Later versions know topics by id only.
    max_version=9,
)
_DELETE: Final = Inquiry(
    doing="deleting",
    build=lambda groups: DeleteGroupsRequest(groups_names=groups),
    expected=DeleteGroupsResponse,
    read=shapes.read_deletions,
    removes=True,
)


class GroupCalls(CoordinatedDoor):
    """Groups of both protocols: list, describe, offsets, delete."""

    def list_groups(
        self, states: Collection[str] | None = None, types: Collection[str] | None = None
    ) -> list[GroupListing]:
        """Every group, by name; `states` and `types` ("classic", "consumer") narrow that down."""
        request = ListGroupsRequest(states_filter=list(states or ()), types_filter=list(types or ()))
        found = self._of_brokers(lambda metadata: self._groups_of_all(metadata, request), self._metadata(()))
        return [found[name] for name in sorted(found)]

    def _groups_of_all(self, metadata: MetadataResponse, request: ListGroupsRequest) -> dict[str, GroupListing]:
        questions = [
            Question(
                request=request,
                expected=ListGroupsResponse,
                target=Endpoint(broker.host, broker.port),
                during="listing groups",
                codes=lambda response: [response.error_code],
            )
            for broker in metadata.brokers
        ]
        found: dict[str, GroupListing] = {}
        for response in self._ask_each(questions):
            check(response.error_code, None, "listing groups")
            found.update((group.group_id, shapes.listing(group)) for group in response.groups)
        return found

    def summarize_groups(self) -> list[GroupSummary]:
        """Every group with members and lag, by name; a few requests to each broker, however many groups there are.

        A group that goes meanwhile is left out.
        """
        listed = {row.group_id: row for row in self.list_groups()}
        described = {name: each for name, each in self.describe_groups(listed).items() if not _is_gone(each)}
        committed = self.list_group_offsets(described)
        ends = self._ends({partition for each in committed.values() for partition in answered(each)})
        return [
            shapes.summary(listed[name], len(answered(each).members), answered(committed[name]), ends)
            for name, each in described.items()
        ]

    def describe_group(self, group: str, *, include_authorized_operations: bool = False) -> GroupDescription:
        """One group of either protocol.

        Args:
            include_authorized_operations: also what the caller may do with it.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND.
        """
        check_group_id(group)
        found = self.describe_groups([group], include_authorized_operations=include_authorized_operations)
        return answered(found[group])

    def describe_groups(
        self, groups: Iterable[str], *, include_authorized_operations: bool = False
    ) -> dict[str, GroupDescription | KohortError]:
        """Groups of either protocol, in the order asked: of each its description, or why there is none.

        A few requests to each coordinator, however many groups there are.

        Args:
            groups: ids.
            include_authorized_operations: also what the caller may do with them.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     _ = admin.create_topic("orders", 1)
        ...     admin.alter_group_offsets("billing", {kohort.TopicPartition("orders", 0): 0})
        ...     for group, found in admin.describe_groups(["billing", "biling"]).items():
        ...         print(group, found.message if isinstance(found, kohort.errors.BrokerError) else found.state)
        billing Empty
        biling there is no group biling

        Raises:
            BrokersUnreachableError: nobody answers.
            TypeError: `groups` is one text, or no ids.
        """
        names = to_groups(groups)
        new, former = _describing(include_authorized_operations)
        found = self._ask_about(names, new)
        classic = self._ask_about([name for name, each in found.items() if _is_classic(each)], former)
        return {**found, **classic}

    def group_offsets(self, group: str) -> list[GroupOffset]:
        """Where a group stands: every partition that it has committed or that a member owns, by topic and partition."""
        check_group_id(group)
        return answered(self.groups_offsets([group])[group])

    def groups_offsets(self, groups: Iterable[str]) -> dict[str, list[GroupOffset] | KohortError]:
        """Where groups stand, in the order asked: of each what `group_offsets` tells, or why that is not known.

        Raises:
            BrokersUnreachableError: nobody answers.
            TypeError: `groups` is one text, or no ids.
        """
        described = self.describe_groups(groups)
        committed = self.list_group_offsets(described)
        partitions: set[TopicPartition] = set()
        members: dict[str, tuple[MemberDescription, ...]] = {}
        found: dict[str, list[GroupOffset] | KohortError] = {}
        for name, each in described.items():
            offsets = committed[name]
            found[name] = []
            if isinstance(each, KohortError) and not _is_gone(each):
                found[name] = each
            elif isinstance(offsets, KohortError):
                found[name] = offsets
            else:
                members[name] = () if isinstance(each, KohortError) else each.members
                partitions.update(offsets, *(member.assignment for member in members[name]))
        ends = self._ends(partitions)
        for name, those in members.items():
            found[name] = shapes.group_offsets(those, answered(committed[name]), ends)
        return found

    def list_group_offsets(self, groups: Iterable[str]) -> dict[str, shapes.Committed | KohortError]:
        """What groups have committed, in the order asked: of each its offsets by partition, or why they are not known.

        A few requests to each coordinator, however many groups there are; a group that is not there has none.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     _ = admin.create_topic("orders", 1)
        ...     first = kohort.TopicPartition("orders", 0)
        ...     admin.alter_group_offsets("billing", {first: kohort.OffsetAndMetadata(7, "by hand")})
        ...     admin.list_group_offsets(["billing"])["billing"][first].metadata
        'by hand'

        Raises:
            BrokersUnreachableError: nobody answers.
            TypeError: `groups` is one text, or no ids.
        """
        return self._ask_about(groups, _OFFSETS)

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

    def explain_group(self, group: str, *, whole: bool = False, member: str | None = None) -> GroupExplanation:
        """Why the group is as it is, in sentences: what set each rebalance off, who gave and took what, who was slow.

        Everything is told from the broker's history of the group; where its beginning is missing, so it is here.
        `whole`: of all its history, as for `group_history`. `member`: of `members` only this one, by the name that
        sentences have or by its id.

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
            NotInHistoryError: there is no such member.
            UnsupportedFeatureError: the broker is not one of kohort's.
        """
        from kohort.journal.why.explaining import explain

        found = self.group_history(group, whole=whole)
        is_known = any(event.event != "refused" for event in found.events)
        if not is_known and all(row.group_id != group for row in self.list_groups()):
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}", during=f"explaining {group}")
        told = explain(group, found.events, now_ms=int(time.time() * 1_000), is_complete=found.is_complete)
        told = replace(told, has_older=found.has_older)
        return told if member is None else replace(told, members=(told.member(member),))

    def delete_groups(self, names: Iterable[str]) -> None:
        """Delete empty groups and their offsets.

        Raises:
            BrokerError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, of the only one.
            PartlyDoneError: of several groups some were not deleted; `done` and `failed` say which.
            TypeError: `names` is one text, or no ids.
        """
        outcome: Outcome[str, None] = Outcome("deleting groups")
        for name, end in self._ask_about(names, _DELETE).items():
            if isinstance(end, KohortError):
                outcome.failed[name] = end
            else:
                outcome.done[name] = end
        outcome.settle()

    def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        metadata = self._metadata({partition.topic for partition in partitions})
        return self._offsets(partitions, topic_shapes.LATEST, metadata)

    def _committed(self, group: str) -> dict[TopicPartition, int]:
        committed = answered(self.list_group_offsets([group])[group])
        return {partition: kept.offset for partition, kept in committed.items()}


def _is_gone(found: object) -> bool:
    return isinstance(found, BrokerError) and found.code is ErrorCode.GROUP_ID_NOT_FOUND


def _is_classic(found: object) -> bool:
    """Whether it may be a classic group, or the broker knows no others."""
    return _is_gone(found) or (isinstance(found, BrokerError) and found.code is ErrorCode.UNSUPPORTED_VERSION)


def _describing(
    include_authorized_operations: bool,
) -> tuple[Inquiry[ConsumerGroupDescribeResponse, GroupDescription], Inquiry[DescribeGroupsResponse, GroupDescription]]:
    """How groups of the new protocol are described, and classic ones."""
    with_operations = {"include_authorized_operations": include_authorized_operations}
    return (
        Inquiry(
            doing="describing",
            build=lambda groups: ConsumerGroupDescribeRequest(group_ids=groups, **with_operations),
            expected=ConsumerGroupDescribeResponse,
            read=shapes.read_consumer_groups,
        ),
        Inquiry(
            doing="describing",
            build=lambda groups: DescribeGroupsRequest(groups=groups, **with_operations),
            expected=DescribeGroupsResponse,
            read=shapes.read_classic_groups,
        ),
    )
