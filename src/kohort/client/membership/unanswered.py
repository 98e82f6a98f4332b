"""The part of a KIP-848 member that deals with failed and refused heartbeats.

Laws: after any failure the next heartbeat is a full one. A refused heartbeat prolongs no session. A failure that may
pass is tried again, after longer and longer pauses. A failure that cannot pass ends the membership with its reason.
Source: KIP-848; reactions to errors as in Apache Kafka 4.3.
"""

from __future__ import annotations

from kohort.client.actions import Endpoint
from kohort.client.coordinator_lookup import BUSY, MOVED
from kohort.client.events import Failure, RequestFailed
from kohort.client.membership import consumer_requests
from kohort.client.membership.heldnames import may_be_released
from kohort.client.membership.reconciling import ReconcilingMember
from kohort.client.membership.states import MemberState
from kohort.errors import ErrorCode

#: The coordinator does not know this member (any more): the member joins again with epoch 0.
FENCED = frozenset({ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND})
#: Refusals that may pass without the member changing anything.
_TROUBLED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED})


def explain_fence(code: ErrorCode, message: str | None) -> str:
    """Say why the coordinator has fenced the member."""
    return f"{code.name}{f': {message}' if message else ''}"


class UnansweredMember(ReconcilingMember):
    """A member that reacts to failed heartbeats; its subclass sends them."""

    #: Whether the next heartbeat names every field; so until a full one has been answered well.
    _is_full: bool = True
    #: When the next heartbeat is due.
    _due_ms: int = 0
    _version: int = 1
    _attempts: int = 0
    #: When the `group.instance.id` was first found held by another member; `None` while it is not.
    _held_since_ms: int | None = None

    def _on_failure(self, answer: RequestFailed, endpoint: Endpoint, now_ms: int) -> None:
        if answer.failure is Failure.UNSUPPORTED and self.state is MemberState.JOINING:
            # Version 0 of ConsumerGroupHeartbeat has no patterns, so only a list of topics can step down to it.
            if self._version > 0 and self.pattern is None:
                self._version = 0
                self._due_ms = now_ms
            else:
                missing = "patterns" if self.pattern is not None else "it"
                self._host.fall_back_to_classic(f"the broker does not know {missing}", now_ms)
            return
        self._lookup.lost(endpoint, now_ms)
        self._retry_all(now_ms)

    def _on_error(self, code: ErrorCode, message: str | None, endpoint: Endpoint, sent_ms: int, now_ms: int) -> None:
        is_joining = self.state is MemberState.JOINING
        if self._host.publishing.take_refusal():
            self._retry_all(now_ms)
        elif code in MOVED:
            self._lookup.lost(endpoint, now_ms)
            self._retry_all(now_ms)
        elif code in BUSY or code in _TROUBLED:
            if code in _TROUBLED:
                self._host.on_trouble(
                    consumer_requests.explain_trouble(code, message, self.group_id, self.topics), is_fatal=False
                )
            elif code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # A loaded coordinator gives its members a whole session from the end of the loading on.
                self._on_heard(sent_ms)
            self._retry_all(now_ms)
        elif code is ErrorCode.UNSUPPORTED_VERSION and is_joining:
            self._host.fall_back_to_classic(message or "the broker does not offer the consumer protocol", now_ms)
        elif code is ErrorCode.UNRELEASED_INSTANCE_ID and is_joining and self._may_be_released(now_ms):
            self._retry_all(now_ms)
        elif code in FENCED and not is_joining:
            self._lose(explain_fence(code, message), now_ms)
        elif code in FENCED and code is not ErrorCode.GROUP_ID_NOT_FOUND:
            # Epoch 0 joins whatever was before. The coordinator may know so after one pause.
            self._retry_all(now_ms)
        else:
            self._refuse(code, message, now_ms)

    @property
    def is_name_held(self) -> bool:
        return self._held_since_ms is not None

    def _may_be_released(self, now_ms: int) -> bool:
        if self._held_since_ms is None:
            self._held_since_ms = now_ms
        return may_be_released(self._held_since_ms, self._requests, self._settings, now_ms)

    def _retry_all(self, now_ms: int) -> None:
        """Send a full heartbeat after a pause: the coordinator may have missed any earlier field."""
        self._is_full = True
        self._due_ms = now_ms + self._retry.delay_ms(self._attempts)
        self._attempts += 1
