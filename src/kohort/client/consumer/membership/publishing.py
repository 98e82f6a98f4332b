"""The metadata that a member publishes to its group, and the metadata that other members publish.

Both are sent with heartbeats, in kohort's own tagged fields, which other coordinators ignore.

Laws: the application's latest metadata counts. It is sent until a coordinator has accepted it, and again in every full
heartbeat after a failure. The members' metadata is delivered when it is complete.
Source: requirement G10; docs/reference/private-protocol.md.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kohort.client.consumer import application_events as events
from kohort.client.core.refusals import refused
from kohort.client.core.requests import Requests
from kohort.errors import ErrorCode, KohortError, UnsupportedFeatureError
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse, MetadataNews

#: Publications within this time are sent as one.
COALESCED_MS: Final = 50
_DURING: Final = "publishing metadata"


class Said(NamedTuple):
    """The metadata fields of one heartbeat; `number` is that of the publication sent last, in it or before it."""

    number: int
    metadata: bytes | None
    watched_version: int


class MembershipMetadata:
    """One consumer's published metadata, and that of the other members."""

    def __init__(self, requests: Requests, *, group_id: str) -> None:
        self._requests: Final = requests
        self._group_id: Final = group_id
        #: The application's latest metadata, `None` before the first; and the number of its publications.
        self._metadata: bytes | None = None
        self._number = 0
        #: Numbers of the publications that were sent, and accepted, last.
        self._sent = 0
        self._taken = 0
        #: When the latest was sent.
        self._sent_ms = 0
        self._watches = False
        self._has_asked = False
        #: Version up to which the others' metadata are known; and these: member id -> its name and its metadata.
        self._version = 0
        self._members: dict[str, tuple[str, bytes]] = {}
        self._is_classic = False
        self._was_refused = False

    @property
    def due_ms(self) -> int | None:
        """When a heartbeat has to publish metadata or ask for it; `None`: not before an event."""
        if self._watches and not self._has_asked:
            return 0
        return self._sent_ms + COALESCED_MS if self._number > self._sent else None

    @property
    def is_used(self) -> bool:
        """Whether the consumer publishes or watches metadata, for which it needs heartbeats."""
        return self._watches or self._metadata is not None

    def take(self, event: events.Publication) -> None:
        """Note the application's metadata to publish, or its request to watch the others' metadata."""
        match event:
            case events.MetadataPublished(metadata=metadata):
                self._metadata = metadata
                self._number += 1
            case events.MetadataWatched():
                self._watches = True
        if self._is_classic:
            self._tell_lack()

    def fall_back_to_classic(self) -> None:
        """Report to the application that the classic protocol cannot publish metadata."""
        self._is_classic = True
        if self._watches or self._metadata is not None:
            self._tell_lack()

    def say(self, now_ms: int, *, is_full: bool) -> Said:
        """Build the metadata fields of the next heartbeat; `is_full`: a full heartbeat repeats the metadata."""
        is_said = self._metadata is not None and (is_full or self._number > self._sent)
        if is_said:
            self._sent, self._sent_ms = self._number, now_ms
        self._has_asked = self._watches
        return Said(self._sent, self._metadata if is_said else None, self._version if self._watches else -1)

    def on_answer(self, said: Said, response: ConsumerGroupHeartbeatResponse | None) -> None:
        """Read the response to a heartbeat, `None` without one: the publication was accepted, or is sent again."""
        if response is None or response.error_code:
            self._sent, self._has_asked = self._taken, False
            if response is not None and said.metadata is not None:
                self._check_refused(ErrorCode.of(response.error_code), response.error_message)
            return
        if response.metadata_news is not None:
            self._taken = max(self._taken, said.number)
            self._note(response.metadata_news)
        # A coordinator that accepts metadata always returns updates, even empty ones.
        elif said.metadata is not None or said.watched_version == 0:
            self._tell_lack()

    def take_refusal(self) -> bool:
        """Return whether the last heartbeat was refused because of its metadata, and reset that."""
        was_refused, self._was_refused = self._was_refused, False
        return was_refused

    def _check_refused(self, code: ErrorCode, message: str | None) -> None:
        if code is not ErrorCode.POLICY_VIOLATION:
            return
        self._was_refused = True
        self._tell(refused(code, message, during=_DURING))
        # The publication before the refused one stays.
        self._metadata = None
        self._sent = self._taken = self._number

    def _note(self, news: MetadataNews) -> None:
        if not self._watches:
            return
        # All members follow, not only those that have changed.
        if news.is_whole:
            self._members.clear()
        for each in news.members:
            if each.metadata is None:
                self._members.pop(each.member_id, None)
            else:
                self._members[each.member_id] = each.instance_id or each.member_id, bytes(each.metadata)
        self._version = news.version
        if not news.has_more and (news.members or news.is_whole):
            self._requests.deliver(events.PublishedSeen(published=dict(self._members.values())))

    def _tell_lack(self) -> None:
        self._metadata, self._watches, self._has_asked = None, False, False
        self._sent = self._taken = self._number
        why = "the members speak the classic protocol" if self._is_classic else "its coordinator is none of kohort's"
        self._tell(
            UnsupportedFeatureError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the group {self._group_id} has no metadata that members publish: {why}; Apache Kafka has none",
                during=_DURING,
            )
        )

    def _tell(self, error: KohortError) -> None:
        self._requests.deliver(events.Trouble(error=error, is_fatal=False))
