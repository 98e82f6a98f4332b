"""The same as `client/admin/coordinated.py`, awaited.

Made of it by `python tools/aio_admin.py`: change it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from kohort.client.actions import Endpoint
from kohort.client.admin.coordinated import _AT_A_TIME, _PAUSE_S, Inquiry, R, T, _Answers, _note_rows, to_groups
from kohort.client.admin.core.admin_machine import CoordinatorsAsked, MovedError
from kohort.client.admin.door import GRACE_S
from kohort.client.aio.admin.door import AdminDoor
from kohort.errors import BrokerError, BrokersUnreachableError, ErrorCode, KohortError, KohortTimeoutError


class CoordinatedDoor(AdminDoor):
    """Asks the coordinators of groups."""

    async def _ask_about(self, groups: Iterable[str], inquiry: Inquiry[R, T]) -> dict[str, T | KohortError]:
        """What is said of each group, or why nothing is.

        Raises:
            BrokersUnreachableError: nobody answers.
        """
        names = to_groups(groups)
        answers: _Answers[T] = _Answers({}, dict.fromkeys(names), {}, set())
        deadline_ms = self._io.deadline_ms(self._timeout_s)
        while True:
            await self._ask_coordinators(answers, inquiry, deadline_ms)
            if not answers.left:
                return {name: answers.found[name] for name in names}
            if self._io.now_ms() >= deadline_ms:
                for name, why in list(answers.left.items()):
                    answers.put(name, why or KohortTimeoutError(f"{inquiry.doing} group {name} took too long"))
            else:
                await asyncio.sleep(_PAUSE_S)

    async def _ask_coordinators(self, answers: _Answers[T], inquiry: Inquiry[R, T], deadline_ms: int) -> None:
        """One round: everybody who is left."""
        asked: list[tuple[Endpoint, list[str]]] = []
        for endpoint, groups in (await self._find_coordinators(answers, deadline_ms)).items():
            size = 1 if endpoint in answers.single else _AT_A_TIME
            asked += [(endpoint, groups[at : at + size]) for at in range(0, len(groups), size)]
        questions = [inquiry.question(groups, endpoint) for endpoint, groups in asked]
        responses = await self._ask_all(questions, deadline_ms=deadline_ms)
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
        self._io.post(CoordinatorsAsked(ticket=ticket, deadline_ms=deadline_ms, groups=groups, lost=dict(lost)))
        found = await self._io.wait(ticket, self._timeout_s + GRACE_S)
        assert isinstance(found, dict)
        return found
