"""The coordinators of the groups that an admin client asks for; many are looked up with one request.

Laws: a group is under way once at a time. A look-up that fails is repeated after a pause that grows, and only for
groups that still need it. A broker that looks up one group at a time is asked so.
Source: Kafka's FindCoordinator API; KIP-699 (many groups at once).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from kohort.base.values import from_row
from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.requests import Answer, Failure, RequestFailed, Requests, message_of
from kohort.client.core.retry import Backoff
from kohort.errors import BrokerError, ErrorCode, KohortError, UnsupportedFeatureError
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

#: Groups that one request looks up, at most.
_MOST_GROUPS: Final = 1_000
#: The first version that looks up several.
_SEVERAL_SINCE: Final = 4
#: Requests under way at once, where each looks up one group.
_MOST_SINGLE: Final = 50


class Coordinators:
    """The known coordinators of groups, each until a call finds that it is one no more.

    Args:
        on_found: called with the group, its coordinator or the error without one, and the time.
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        *,
        retry: Backoff,
        on_found: Callable[[str, Endpoint | KohortError, int], None],
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._retry = retry
        self._on_found = on_found
        self._known: dict[str, Endpoint] = {}
        #: Groups to look up, in the order in which they were needed; a set.
        self._wanted: dict[str, None] = {}
        self._under_way: set[str] = set()
        #: Whether brokers look up several at once, as far as they have said.
        self._knows_several = True
        self._not_before_ms = 0
        #: Look-ups in a row that have failed.
        self._attempts = 0

    def need(self, group: str) -> Endpoint | None:
        """Return the coordinator of a group; begin to look it up if it is not known."""
        found = self._known.get(group)
        if found is None and group not in self._under_way:
            self._wanted[group] = None
        return found

    def lost(self, group: str, endpoint: Endpoint) -> None:
        """Forget a coordinator that does not answer, or is none."""
        if self._known.get(group) == endpoint:
            del self._known[group]

    def next_deadline(self) -> int | None:
        """Return when `on_tick` has something to do."""
        return self._not_before_ms if self._wanted and self._has_room() else None

    def on_tick(self, now_ms: int) -> None:
        """Send the look-ups that are due."""
        while self._wanted and now_ms >= self._not_before_ms and self._has_room():
            groups = list(islice(self._wanted, _MOST_GROUPS if self._knows_several else 1))
            self._ask(groups)

    def _has_room(self) -> bool:
        return self._knows_several or len(self._under_way) < _MOST_SINGLE

    def _ask(self, groups: list[str]) -> None:
        for group in groups:
            del self._wanted[group]
        self._under_way.update(groups)
        self._requests.send(
            self._cluster.any_endpoint(),
            Lane.CONTROL,
            FindCoordinatorRequest(key=groups[0], key_type=0, coordinator_keys=groups),
            lambda answer, now_ms: self._on_answer(groups, answer, now_ms),
            min_version=_SEVERAL_SINCE if len(groups) > 1 else None,
        )

    def _on_answer(self, groups: list[str], answer: Answer, now_ms: int) -> None:
        self._under_way.difference_update(groups)
        response = message_of(answer, FindCoordinatorResponse)
        if response is None:
            assert isinstance(answer, RequestFailed)
            self._on_failure(groups, answer, now_ms)
            return
        rows = {row.key: row for row in response.coordinators or [from_row(Coordinator, response, key=groups[0])]}
        found = [self._read(group, rows[group], now_ms) for group in groups if group in rows]
        if len(found) == len(groups) and all(found):
            self._attempts = 0
        else:
            self._pause(now_ms)

    def _read(self, group: str, row: Coordinator, now_ms: int) -> bool:
        """Note a coordinator; return whether its look-up is over."""
        code = ErrorCode.of(row.error_code)
        if code is ErrorCode.NONE:
            self._known[group] = Endpoint(row.host, row.port)
            self._on_found(group, self._known[group], now_ms)
            return True
        self._on_found(group, BrokerError(code, row.error_message, during=_looking_for(group)), now_ms)
        return not code.retriable

    def _on_failure(self, groups: list[str], answer: RequestFailed, now_ms: int) -> None:
        if answer.failure is not Failure.UNSUPPORTED:
            # Moves on to another broker, and reports if none answers.
            self._cluster.refresh(now_ms)
            self._pause(now_ms)
        elif len(groups) > 1:
            self._knows_several = False
        else:
            for group in groups:
                error = UnsupportedFeatureError(
                    ErrorCode.UNSUPPORTED_VERSION, answer.detail, during=_looking_for(group)
                )
                self._on_found(group, error, now_ms)

    def _pause(self, now_ms: int) -> None:
        self._not_before_ms = now_ms + self._retry.delay_ms(self._attempts)
        self._attempts += 1


def _looking_for(group: str) -> str:
    return f"looking for the coordinator of group {group}"
