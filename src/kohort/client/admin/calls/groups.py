"""The admin client's calls about groups.

A call about many groups sends each coordinator requests for its groups, and asks again for groups whose coordinator has
moved.

Laws: every group gets one result, a value or an error. An error of one group does not affect the others. A group that
is named twice is asked for once.
Source: Kafka's Admin (describeConsumerGroups and its like); KIP-699, KIP-709.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from kohort.base.values import value
from kohort.client.admin.admin_machine import CoordinatorAt, CoordinatorsAsked, MovedError, Question, may_pass
from kohort.client.admin.questions import GRACE_S, Calls, Outcome, Questions, answered, check
from kohort.client.admin.results import groups as results
from kohort.client.admin.results import topics as topic_results
from kohort.client.admin.results.groups import GroupDescription, GroupHistory, Row, check_group_id
from kohort.client.arguments import to_names
from kohort.client.core.actions import Endpoint
from kohort.client.core.coordinator_lookup import MOVED
from kohort.client.steps import Pause
from kohort.errors import BrokerError, BrokersUnreachableError, ErrorCode, KohortError, KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.wire.messages import consumer_group_describe, delete_groups, describe_groups, offset_fetch
from kohort.wire.messages.group_history import GroupHistoryRequest, GroupHistoryResponse
from kohort.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kohort.wire.schema import Message

if TYPE_CHECKING:
    from kohort.journal.explain.explanation import GroupExplanation

R = TypeVar("R", bound=Message)
T = TypeVar("T")

#: Groups in one request: a coordinator answers the first while it reads the next.
_AT_A_TIME: Final = 100
_TEXTS: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no group {}",
    ErrorCode.NON_EMPTY_GROUP: "it still has members; stop them first",
}
#: Pause before the groups are asked for again whose coordinator has moved or is not ready, seconds.
_PAUSE_S: Final = 0.1


@value
class Inquiry(Generic[R, T]):
    """A kind of request about groups: how it is built, and how its response is read.

    `build` makes the request for a list of groups, and `read` finds the row of each group in the response; `doing` is
    as in "describing group orders". Versions from `several_since` on may name several groups.
    """

    doing: str
    build: Callable[[list[str]], Message]
    expected: type[R]
    read: Callable[[R, list[str]], Mapping[str, Row[T]]]
    several_since: int | None = None
    #: Whether it deletes groups: a group that is missing at a second attempt has been deleted by the first.
    removes: bool = False
    max_version: int | None = None

    def question(self, groups: list[str], coordinator: Endpoint) -> Question[R]:
        """Build the request for groups that the broker at `coordinator` coordinates."""
        several = len(groups) > 1
        return Question(
            self.build(groups),
            self.expected,
            during=f"{self.doing} {len(groups)} groups" if several else f"{self.doing} group {groups[0]}",
            # The code of a row concerns that group alone.
            codes=lambda _: (),
            target=CoordinatorAt(endpoint=coordinator),
            min_version=self.several_since if several else None,
            max_version=self.max_version,
        )


@value(kw_only=False, frozen=False)
class _Answers(Generic[T]):
    """The results so far; every group is in `found` or in `left`."""

    found: dict[str, T | KohortError]
    #: group -> the error for which it is asked about again; `None` before the first attempt.
    left: dict[str, KohortError | None]
    #: group -> the broker that has turned out not to be its coordinator.
    lost: dict[str, Endpoint]
    #: Coordinators that accept one group in a request only.
    single: set[Endpoint]

    def put(self, group: str, value: T | KohortError) -> None:
        """Note the result of a group."""
        self.found[group] = value
        del self.left[group]

    def put_off(self, group: str, why: KohortError) -> None:
        """Note that a group has to be asked about again, with the latest error; of two timeouts, the first."""
        if not (isinstance(why, KohortTimeoutError) and isinstance(self.left[group], KohortTimeoutError)):
            self.left[group] = why


class CoordinatorQuestions:
    """Sends requests about groups to their coordinators, and again until each group has a result."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._host = questions.host

    async def ask_about(self, groups: Iterable[str], inquiry: Inquiry[R, T]) -> dict[str, T | KohortError]:
        """Return the result of each group, a value or an error.

        Raises:
            BrokersUnreachableError: no broker can be reached.
        """
        names = to_groups(groups)
        answers: _Answers[T] = _Answers({}, dict.fromkeys(names), {}, set())
        deadline_ms = self._host.deadline_ms(self._questions.timeout_s)
        while True:
            await self._ask_coordinators(answers, inquiry, deadline_ms)
            if not answers.left:
                return {name: answers.found[name] for name in names}
            if self._host.now_ms() >= deadline_ms:
                for name, why in list(answers.left.items()):
                    answers.put(name, why or KohortTimeoutError(f"{inquiry.doing} group {name} took too long"))
            else:
                await Pause(_PAUSE_S)

    async def _ask_coordinators(self, answers: _Answers[T], inquiry: Inquiry[R, T], deadline_ms: int) -> None:
        """Ask the coordinators once for all groups that have no result yet."""
        asked: list[tuple[Endpoint, list[str]]] = []
        for endpoint, groups in (await self._find_coordinators(answers, deadline_ms)).items():
            size = 1 if endpoint in answers.single else _AT_A_TIME
            asked += [(endpoint, groups[at : at + size]) for at in range(0, len(groups), size)]
        questions = [inquiry.question(groups, endpoint) for endpoint, groups in asked]
        responses = await self._questions.ask_all(questions, deadline_ms=deadline_ms)
        for (endpoint, groups), response in zip(asked, responses, strict=True):
            match response:
                case BrokersUnreachableError():
                    raise response
                case MovedError():
                    for group in groups:
                        answers.put_off(group, response.why)
                        answers.lost[group] = endpoint
                case BrokerError() if response.code is ErrorCode.UNSUPPORTED_VERSION and len(groups) > 1:
                    answers.single.add(endpoint)
                case KohortTimeoutError():
                    for group in groups:
                        answers.put_off(group, response)
                case KohortError():
                    for group in groups:
                        answers.put(group, response)
                case _:
                    _note_rows(answers, inquiry, endpoint, groups, inquiry.read(response, groups))

    async def _find_coordinators(self, answers: _Answers[T], deadline_ms: int) -> dict[Endpoint, list[str]]:
        """Find the groups of each coordinator; a group whose coordinator cannot be looked up gets the error."""
        places = await self._coordinators(tuple(answers.left), answers.lost, deadline_ms)
        answers.lost = {}
        by_coordinator: dict[Endpoint, list[str]] = {}
        for group, place in places.items():
            if isinstance(place, Endpoint):
                by_coordinator.setdefault(place, []).append(group)
            elif place.retriable:
                answers.put_off(group, place)
            else:
                answers.put(group, place)
        return by_coordinator

    async def _coordinators(
        self, groups: tuple[str, ...], lost: Mapping[str, Endpoint], deadline_ms: int
    ) -> Mapping[str, Endpoint | KohortError]:
        if not groups:
            return {}
        ticket: Future[object] = Future()
        self._host.post(CoordinatorsAsked(ticket=ticket, deadline_ms=deadline_ms, groups=groups, lost=dict(lost)))
        found = await Pause(self._questions.timeout_s + GRACE_S, ticket)
        assert isinstance(found, dict)
        return found


def to_groups(groups: object) -> list[str]:
    """Check group ids, and remove duplicates.

    Raises:
        TypeError: `groups` is a single text, or not a list of texts.
        ConfigError: a text cannot be a group id.
    """
    names = to_names(groups, "groups")
    for name in names:
        check_group_id(name)
    return list(dict.fromkeys(names))


def _note_rows(
    answers: _Answers[T], inquiry: Inquiry[R, T], endpoint: Endpoint, groups: list[str], rows: Mapping[str, Row[T]]
) -> None:
    for group in groups:
        row = rows.get(group)
        during = f"{inquiry.doing} group {group}"
        if row is None:
            text = f"the coordinator {endpoint} said nothing of it"
            answers.put(group, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, text, during=during))
            continue
        code = ErrorCode.of(row.code)
        is_away = inquiry.removes and isinstance(answers.left[group], KohortTimeoutError)
        if code is ErrorCode.NONE or (is_away and code is ErrorCode.GROUP_ID_NOT_FOUND):
            answers.put(group, row.value)
            continue
        error = BrokerError(code, _TEXTS[code].format(group) if code in _TEXTS else row.message, during=during)
        if not may_pass(code):
            answers.put(group, error)
            continue
        answers.left[group] = error
        if code in MOVED:
            answers.lost[group] = endpoint


_OFFSETS: Final = Inquiry(
    doing="looking up the offsets of",
    build=results.offsets_request,
    expected=offset_fetch.OffsetFetchResponse,
    read=results.read_offsets,
    several_since=8,
    # Later versions know topics by id only.
    max_version=9,
)
_DELETE: Final = Inquiry(
    doing="deleting",
    build=lambda groups: delete_groups.DeleteGroupsRequest(groups_names=groups),
    expected=delete_groups.DeleteGroupsResponse,
    read=results.read_deletions,
    removes=True,
)

#: Pages of the topic `__group_journal` that are read without `whole`; a page has a thousand rows of all groups.
_USUAL_PAGES: Final = 20
#: Rows about the broker; before a group's first row they do not concern the group.
_OF_BROKER: Final = frozenset({"broker_started", "broker_stopped", "journal_gap"})


class GroupCalls(Calls):
    """The calls about groups of both protocols: list, describe, offsets, delete."""

    def __init__(self, questions: Questions) -> None:
        super().__init__(questions)
        self._coordinators = CoordinatorQuestions(questions)

    async def list_groups(
        self, states: Collection[str] | None = None, types: Collection[str] | None = None
    ) -> list[results.GroupListing]:
        """List the groups by name, if wanted only those of some `states` or `types` ("classic", "consumer")."""
        request = ListGroupsRequest(states_filter=list(states or ()), types_filter=list(types or ()))
        responses = await self._questions.ask_brokers(Question(request, ListGroupsResponse, during="listing groups"))
        found = {row.group_id: results.GroupListing.of(row) for response in responses for row in response.groups}
        return [found[name] for name in sorted(found)]

    async def summarize_groups(self) -> list[results.GroupSummary]:
        """Return the number of members and the lag of every group, by name.

        Each broker gets a few requests, however many groups there are. A group deleted meanwhile is left out.
        """
        listed = {row.group_id: row for row in await self.list_groups()}
        described = {name: each for name, each in (await self.describe_groups(listed)).items() if not _is_gone(each)}
        committed = await self.list_group_offsets(described)
        ends = await self._ends({partition for each in committed.values() for partition in answered(each)})
        return [
            results.summary(listed[name], len(answered(each).members), answered(committed[name]), ends)
            for name, each in described.items()
        ]

    async def describe_group(self, group: str, *, include_authorized_operations: bool = False) -> GroupDescription:
        """Describe one group of either protocol.

        Args:
            include_authorized_operations: also return the operations on it that the caller may perform.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND.
        """
        check_group_id(group)
        found = await self.describe_groups([group], include_authorized_operations=include_authorized_operations)
        return answered(found[group])

    async def describe_groups(
        self, groups: Iterable[str], *, include_authorized_operations: bool = False
    ) -> dict[str, GroupDescription | KohortError]:
        """Describe groups of either protocol, in the order of `groups`; a group that fails has an error as its value.

        Each coordinator gets a few requests, however many groups there are.

        Args:
            groups: group ids.
            include_authorized_operations: also return the operations on them that the caller may perform.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     _ = admin.create_topic("orders", 1)
        ...     admin.alter_group_offsets("billing", {kohort.TopicPartition("orders", 0): 0})
        ...     for group, found in admin.describe_groups(["billing", "biling"]).items():
        ...         print(group, found.message if isinstance(found, kohort.errors.BrokerError) else found.state)
        billing Empty
        biling there is no group biling

        Raises:
            BrokersUnreachableError: no broker can be reached.
            TypeError: `groups` is a single text, or not a list of texts.
        """
        names = to_groups(groups)
        with_operations = {"include_authorized_operations": include_authorized_operations}
        consumer = Inquiry(
            doing="describing",
            build=lambda groups: consumer_group_describe.ConsumerGroupDescribeRequest(
                group_ids=groups, **with_operations
            ),
            expected=consumer_group_describe.ConsumerGroupDescribeResponse,
            read=results.read_consumer_groups,
        )
        classic = Inquiry(
            doing="describing",
            build=lambda groups: describe_groups.DescribeGroupsRequest(groups=groups, **with_operations),
            expected=describe_groups.DescribeGroupsResponse,
            read=results.read_classic_groups,
        )
        found = await self._coordinators.ask_about(names, consumer)
        left = [name for name, each in found.items() if _is_classic(each)]
        former = await self._coordinators.ask_about(left, classic)
        return {**found, **former}

    async def group_offsets(self, group: str) -> list[results.GroupOffset]:
        """Return committed offset and lag of each partition that a group has committed or owns, sorted."""
        check_group_id(group)
        return answered((await self.groups_offsets([group]))[group])

    async def groups_offsets(self, groups: Iterable[str]) -> dict[str, list[results.GroupOffset] | KohortError]:
        """Return the `group_offsets` of several groups, in the order of `groups`; a group that fails has an error.

        Raises:
            BrokersUnreachableError: no broker can be reached.
            TypeError: `groups` is a single text, or not a list of texts.
        """
        described = await self.describe_groups(groups)
        committed = await self.list_group_offsets(described)
        partitions: set[TopicPartition] = set()
        members: dict[str, tuple[results.MemberDescription, ...]] = {}
        found: dict[str, list[results.GroupOffset] | KohortError] = {}
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
            found[name] = results.group_offsets(those, answered(committed[name]), ends)
        return found

    async def list_group_offsets(self, groups: Iterable[str]) -> dict[str, results.Committed | KohortError]:
        """Return the committed offsets of groups by partition, in the order of `groups`; a failed group has an error.

        Each coordinator gets a few requests, however many groups there are. A group that does not exist has no offsets.

        >>> import kohort
        >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        ...     _ = admin.create_topic("orders", 1)
        ...     first = kohort.TopicPartition("orders", 0)
        ...     admin.alter_group_offsets("billing", {first: kohort.OffsetAndMetadata(7, "by hand")})
        ...     admin.list_group_offsets(["billing"])["billing"][first].metadata
        'by hand'

        Raises:
            BrokersUnreachableError: no broker can be reached.
            TypeError: `groups` is a single text, or not a list of texts.
        """
        return await self._coordinators.ask_about(groups, _OFFSETS)

    async def group_history(self, group: str, *, after: int | None = None, whole: bool = False) -> GroupHistory:
        """Read a group's history: the coordinator's inputs, its decisions, and the changes of state they caused.

        Args:
            group: group id.
            after: only rows in the broker's memory with a higher `sequence`, to continue an earlier call.
            whole: read all rows that the broker has. By default: those in its memory, and the rows of the group among
                the latest 20,000 of the topic `__group_journal`.

        Raises:
            UnsupportedFeatureError: the broker is not kohort's; Apache Kafka keeps no history.
        """
        during = f"reading the history of group {group}"

        async def ask(request: GroupHistoryRequest) -> GroupHistoryResponse:
            page = await self._questions.ask_own(
                request, GroupHistoryResponse, group=group, feature="keeps a history of groups", during=during
            )
            check(page, during)
            return page

        return await read_history(ask, group, after=after, whole=whole)

    async def explain_group(self, group: str, *, whole: bool = False, member: str | None = None) -> GroupExplanation:
        """Explain a group in sentences: the cause of each rebalance, the moves between members, and slow members.

        The explanation is computed from the broker's history of the group, and covers no more than that. `whole`: read
        all of the history, as for `group_history`. `member`: return only this one in `members`; its name as in the
        sentences, or its id.

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
            NotInHistoryError: the history has no such member.
            UnsupportedFeatureError: the broker is not kohort's.
        """
        from kohort.journal.explain.explaining import explain

        found = await self.group_history(group, whole=whole)
        is_known = any(event.event != "refused" for event in found.events)
        if not is_known and all(row.group_id != group for row in await self.list_groups()):
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}", during=f"explaining {group}")
        told = explain(group, found.events, now_ms=int(time.time() * 1_000), is_complete=found.is_complete)
        told = replace(told, has_older=found.has_older, held_by=found.held_by)
        return told if member is None else replace(told, members=(told.member(member),))

    async def delete_groups(self, names: Iterable[str]) -> None:
        """Delete empty groups and their offsets.

        Raises:
            BrokerError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, if one group is named.
            PartlyDoneError: of several groups some were not deleted; `done` and `failed` say which.
            TypeError: `names` is a single text, or not a list of texts.
        """
        ends = await self._coordinators.ask_about(names, _DELETE)
        Outcome.of("deleting groups", ends).settle()

    async def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        metadata = await self._questions.metadata({partition.topic for partition in partitions})
        return await self._questions.offsets(partitions, topic_results.LATEST, metadata)


async def read_history(
    ask: Callable[[GroupHistoryRequest], Awaitable[GroupHistoryResponse]], group: str, *, after: int | None, whole: bool
) -> GroupHistory:
    """Read all pages of a group's history as one: those in the broker's memory, and older ones of `__group_journal`.

    Laws: each row is returned once. Of a row that is both in the broker's memory and in the topic, the one in memory is
    returned, which is newer.
    """
    events: list[results.HistoryEvent] = []
    while True:
        page = await ask(
            GroupHistoryRequest(group_id=group, after_sequence=events[-1].sequence if events else after or 0)
        )
        events += map(results.history_event, page.rows)
        if not page.has_more:
            break
    is_complete, older_offset = page.is_complete, page.older_offset
    held_by = tuple(map(results.holding_transaction, page.held_by))
    if after is None:
        known = {event.sequence: event for event in events}
        pages = 0
        while older_offset >= 0 and (whole or pages < _USUAL_PAGES):
            older = await ask(GroupHistoryRequest(group_id=group, before_offset=older_offset))
            for row in older.rows:
                known.setdefault(row.sequence, results.history_event(row))
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
        held_by=held_by,
    )


def _is_gone(found: object) -> bool:
    return isinstance(found, BrokerError) and found.code is ErrorCode.GROUP_ID_NOT_FOUND


def _is_classic(found: object) -> bool:
    """Return whether the error means that the group may be a classic one, or that the broker knows no others."""
    return _is_gone(found) or (isinstance(found, BrokerError) and found.code is ErrorCode.UNSUPPORTED_VERSION)
