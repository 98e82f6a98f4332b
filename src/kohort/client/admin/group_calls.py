"""The admin client's calls about groups."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kohort.client.actions import Endpoint
from kohort.client.admin.coordinated import CoordinatorQuestions, Inquiry, to_groups
from kohort.client.admin.partial_results import Outcome
from kohort.client.admin.questions import Question, Questions, answered, check
from kohort.client.admin.requests import groups as shapes
from kohort.client.admin.requests import topics as topic_shapes
from kohort.client.admin.requests.groupid import check_group_id
from kohort.client.admin.results.groups import (
    GroupDescription,
    GroupHistory,
    GroupListing,
    GroupOffset,
    GroupSummary,
    HistoryEvent,
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

#: Pages of the topic that are read unless all of them are: a thousand rows of all groups each.
_USUAL_PAGES: Final = 20
#: Rows that tell of the broker: in front of a group's first row they tell nothing of it.
_OF_BROKER: Final = frozenset({"broker_started", "broker_stopped", "journal_gap"})


class GroupCalls:
    """Groups of both protocols: list, describe, offsets, delete."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._coordinators = CoordinatorQuestions(questions)

    async def list_groups(
        self, states: Collection[str] | None = None, types: Collection[str] | None = None
    ) -> list[GroupListing]:
        """Every group, by name; `states` and `types` ("classic", "consumer") narrow that down."""
        request = ListGroupsRequest(states_filter=list(states or ()), types_filter=list(types or ()))
        found = await self._questions.of_brokers(
            lambda metadata: self._groups_of_all(metadata, request), await self._questions.metadata(())
        )
        return [found[name] for name in sorted(found)]

    async def _groups_of_all(self, metadata: MetadataResponse, request: ListGroupsRequest) -> dict[str, GroupListing]:
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
        for response in await self._questions.ask_each(questions):
            check(response.error_code, None, "listing groups")
            found.update((group.group_id, shapes.listing(group)) for group in response.groups)
        return found

    async def summarize_groups(self) -> list[GroupSummary]:
        """Every group with members and lag, by name; a few requests to each broker, however many groups there are.

        A group that goes meanwhile is left out.
        """
        listed = {row.group_id: row for row in await self.list_groups()}
        described = {name: each for name, each in (await self.describe_groups(listed)).items() if not _is_gone(each)}
        committed = await self.list_group_offsets(described)
        ends = await self._ends({partition for each in committed.values() for partition in answered(each)})
        return [
            shapes.summary(listed[name], len(answered(each).members), answered(committed[name]), ends)
            for name, each in described.items()
        ]

    async def describe_group(self, group: str, *, include_authorized_operations: bool = False) -> GroupDescription:
        """One group of either protocol.

        Args:
            include_authorized_operations: also what the caller may do with it.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND.
        """
        check_group_id(group)
        found = await self.describe_groups([group], include_authorized_operations=include_authorized_operations)
        return answered(found[group])

    async def describe_groups(
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
        found = await self._coordinators.ask_about(names, new)
        classic = await self._coordinators.ask_about(
            [name for name, each in found.items() if _is_classic(each)], former
        )
        return {**found, **classic}

    async def group_offsets(self, group: str) -> list[GroupOffset]:
        """Where a group stands: every partition that it has committed or that a member owns, by topic and partition."""
        check_group_id(group)
        return answered((await self.groups_offsets([group]))[group])

    async def groups_offsets(self, groups: Iterable[str]) -> dict[str, list[GroupOffset] | KohortError]:
        """Where groups stand, in the order asked: of each what `group_offsets` tells, or why that is not known.

        Raises:
            BrokersUnreachableError: nobody answers.
            TypeError: `groups` is one text, or no ids.
        """
        described = await self.describe_groups(groups)
        committed = await self.list_group_offsets(described)
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
        ends = await self._ends(partitions)
        for name, those in members.items():
            found[name] = shapes.group_offsets(those, answered(committed[name]), ends)
        return found

    async def list_group_offsets(self, groups: Iterable[str]) -> dict[str, shapes.Committed | KohortError]:
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
        return await self._coordinators.ask_about(groups, _OFFSETS)

    async def group_history(self, group: str, *, after: int | None = None, whole: bool = False) -> GroupHistory:
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

        async def ask(request: GroupHistoryRequest) -> GroupHistoryResponse:
            page = await self._questions.ask_own(
                request, GroupHistoryResponse, group=group, feature="keeps a history of groups", during=during
            )
            check(page.error_code, page.error_message, during)
            return page

        return await _read_history(ask, group, after=after, whole=whole)

    async def explain_group(self, group: str, *, whole: bool = False, member: str | None = None) -> GroupExplanation:
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

        found = await self.group_history(group, whole=whole)
        is_known = any(event.event != "refused" for event in found.events)
        if not is_known and all(row.group_id != group for row in await self.list_groups()):
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}", during=f"explaining {group}")
        told = explain(group, found.events, now_ms=int(time.time() * 1_000), is_complete=found.is_complete)
        told = replace(told, has_older=found.has_older)
        return told if member is None else replace(told, members=(told.member(member),))

    async def delete_groups(self, names: Iterable[str]) -> None:
        """Delete empty groups and their offsets.

        Raises:
            BrokerError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, of the only one.
            PartlyDoneError: of several groups some were not deleted; `done` and `failed` say which.
            TypeError: `names` is one text, or no ids.
        """
        outcome: Outcome[str, None] = Outcome("deleting groups")
        for name, end in (await self._coordinators.ask_about(names, _DELETE)).items():
            if isinstance(end, KohortError):
                outcome.failed[name] = end
            else:
                outcome.done[name] = end
        outcome.settle()

    async def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        metadata = await self._questions.metadata({partition.topic for partition in partitions})
        return await self._questions.offsets(partitions, topic_shapes.LATEST, metadata)


async def _read_history(
    ask: Callable[[GroupHistoryRequest], Awaitable[GroupHistoryResponse]],
    group: str,
    *,
    after: int | None,
    whole: bool,
) -> GroupHistory:
    """All pages of a group's history as one: those in the broker's memory, and older ones of `__group_journal`.

    Laws: a row is there once, as it was told last. What the broker has in memory is newer than what it is asked for of
    the topic, wherever they meet.
    """
    events: list[HistoryEvent] = []
    while True:
        page = await ask(
            GroupHistoryRequest(group_id=group, after_sequence=events[-1].sequence if events else after or 0)
        )
        events += map(shapes.history_event, page.rows)
        if not page.has_more:
            break
    is_complete, older_offset = page.is_complete, page.older_offset
    if after is None:
        known = {event.sequence: event for event in events}
        pages = 0
        while older_offset >= 0 and (whole or pages < _USUAL_PAGES):
            older = await ask(GroupHistoryRequest(group_id=group, before_offset=older_offset))
            for row in older.rows:
                known.setdefault(row.sequence, shapes.history_event(row))
            is_complete, older_offset = older.is_complete, older.older_offset
            pages += 1
        events = [known[number] for number in sorted(known)]
        first = next((at for at, event in enumerate(events) if event.event not in _OF_BROKER), len(events))
        del events[:first]
    return GroupHistory(
        group_id=group,
        events=tuple(events),
        counts={row.name: row.count for row in page.counts},
        is_complete=is_complete,
        has_older=older_offset >= 0,
    )


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
