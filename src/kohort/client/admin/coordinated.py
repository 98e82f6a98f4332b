"""Questions about many groups: one request for those of a coordinator, again for those whose coordinator has moved.

Laws: every group ends once, with an answer or the reason why it has none; what goes wrong with one leaves the others
alone. A group that is named twice is asked about once.
Source: Kafka's Admin (describeConsumerGroups and its like); KIP-699, KIP-709.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kohort.client.actions import Endpoint
from kohort.client.admin.questions import GRACE_S, Question, Questions
from kohort.client.admin.requests.admin_machine import CoordinatorAt, CoordinatorsAsked, MovedError, may_pass
from kohort.client.admin.requests.groupid import check_group_id
from kohort.client.admin.requests.groups import Row
from kohort.client.arguments import to_names
from kohort.client.coordinator_lookup import MOVED
from kohort.client.steps import Pause
from kohort.errors import BrokerError, BrokersUnreachableError, ErrorCode, KohortError, KohortTimeoutError
from kohort.wire.schema import Message

R = TypeVar("R", bound=Message)
T = TypeVar("T")

#: Groups in one request: a coordinator answers the first while it reads the next.
_AT_A_TIME: Final = 100
#: Before those are asked about again whose coordinator has moved or is not ready, seconds.
_PAUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry(Generic[R, T]):
    """What is asked about groups.

    `build` makes the request about some of them and `read` takes the response about them apart, group -> row; `doing`
    says what is done, as in "describing group orders". Of several groups at once versions from `several_since` know.
    """

    doing: str
    build: Callable[[list[str]], Message]
    expected: type[R]
    read: Callable[[R, list[str]], Mapping[str, Row[T]]]
    several_since: int | None = None
    #: It takes groups away: one that is not there when it is asked for again is away.
    removes: bool = False
    max_version: int | None = None

    def question(self, groups: list[str], coordinator: Endpoint) -> Question[R]:
        """About groups that this broker coordinates."""
        several = len(groups) > 1
        return Question(
            request=self.build(groups),
            expected=self.expected,
            during=f"{self.doing} {len(groups)} groups" if several else f"{self.doing} group {groups[0]}",
            # What a row says is that group's alone.
            codes=lambda _: (),
            target=CoordinatorAt(endpoint=coordinator),
            min_version=self.several_since if several else None,
            max_version=self.max_version,
        )


@dataclass(slots=True)
class _Answers(Generic[T]):
    """What is known so far; every group is in `found` or in `left`."""

    found: dict[str, T | KohortError]
    #: group -> why it has to be asked about again; `None` where it has not been.
    left: dict[str, KohortError | None]
    #: Coordinators that turned out not to be it.
    lost: dict[str, Endpoint]
    #: Those that know of one group at a time only.
    single: set[Endpoint]

    def put(self, group: str, value: T | KohortError) -> None:
        """The end for one group."""
        self.found[group] = value
        del self.left[group]

    def put_off(self, group: str, why: KohortError) -> None:
        """It has to be asked about again; what has failed first says more than that time is up."""
        if not (isinstance(why, KohortTimeoutError) and isinstance(self.left[group], KohortTimeoutError)):
            self.left[group] = why


class CoordinatorQuestions:
    """Questions to the coordinators of groups."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._host = questions.host

    async def ask_about(self, groups: Iterable[str], inquiry: Inquiry[R, T]) -> dict[str, T | KohortError]:
        """What is said of each group, or why nothing is.

        Raises:
            BrokersUnreachableError: nobody answers.
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
        """One round: everybody who is left."""
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
        """Coordinator -> groups; what is no group's id, or may not be looked up, ends here."""
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
    """Ids of groups, each once.

    Raises:
        TypeError: these are none, or one text.
        ConfigError: one of them cannot be a group's id.
    """
    names = to_names(groups, "groups")
    for name in names:
        check_group_id(name)
    return list(dict.fromkeys(names))


def _note_rows(
    answers: _Answers[T],
    inquiry: Inquiry[R, T],
    endpoint: Endpoint,
    groups: list[str],
    rows: Mapping[str, Row[T]],
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
        error = BrokerError(code, _texts(group).get(code, row.message), during=during)
        if not may_pass(code):
            answers.put(group, error)
            continue
        answers.left[group] = error
        if code in MOVED:
            answers.lost[group] = endpoint


def _texts(group: str) -> dict[ErrorCode, str]:
    return {
        ErrorCode.GROUP_ID_NOT_FOUND: f"there is no group {group}",
        ErrorCode.NON_EMPTY_GROUP: "it still has members; stop them first",
    }
