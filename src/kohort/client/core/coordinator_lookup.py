"""The group's coordinator: its lookup, and the updates and grants in its responses to fetches and commits.

Laws: one lookup at a time. A failure of the coordinator is followed by a new lookup, after growing pauses. Updates are
applied in the order in which the coordinator decided them, by their numbers, on whichever connection they arrive. No
private field is sent to a broker that is not kohort's. After a refusal a heartbeat is sent at once, and no record is
handed out until it has succeeded. A token is never shown: not in a log, an exception or a `repr`.
Source: Kafka's FindCoordinator API; requirements H5, H7 and H10; docs/reference/private-protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.cluster import Cluster
from kohort.client.core.refusals import refused
from kohort.client.core.requests import Answer, Requests, message_of
from kohort.errors import ErrorCode, KohortError
from kohort.ids import TopicId
from kohort.wire.messages.consumer_group_heartbeat import OwnershipGrant, TopicPartitions
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.messages.membership import KnownMembership, MembershipUpdate

#: Codes after which the coordinator has to be looked up again.
MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
#: Codes after which the same coordinator is asked again, after a pause.
BUSY: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT})


class KeyType(IntEnum):
    """The kind of coordinator that FindCoordinator looks up."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorLookup:
    """Finds the coordinator of one group, or of one transactional id.

    Args:
        group_id: the group, or the transactional id.
        operation: the right that the caller needs.
        hears: whether the member accepts updates in responses other than those to heartbeats.
    """

    def __init__(
        self,
        requests: Requests,
        cluster: Cluster,
        *,
        group_id: str,
        on_refused: Callable[[KohortError, int], None],
        key_type: KeyType = KeyType.GROUP,
        operation: str = "read",
        hears: bool = False,
    ) -> None:
        self._requests = requests
        self._cluster = cluster
        self._group_id = group_id
        self._key_type: Final = key_type
        self._operation = operation
        #: Called with the error and the time when the group may not be looked up at all.
        self._on_refused = on_refused
        #: The coordinator's updates in responses other than those to heartbeats.
        self.updates: Final = ReceivedUpdates(is_wanted=hears)
        #: Address of the coordinator; `None` while it is not known.
        self.endpoint: Endpoint | None = None
        #: When to send the lookup; `None`: no part needs it, or the address is known.
        self._due_ms: int | None = None
        self._in_flight = False
        self._attempts = 0
        #: Wakes this part of the machine: a request may be due.
        self.wake: Callable[[], None] = lambda: None

    def need(self, now_ms: int) -> Endpoint | None:
        """Return the coordinator; start a lookup if it is not known."""
        if self.endpoint is None and not self._in_flight and self._due_ms is None:
            self._due_ms = now_ms
            self.wake()
        return self.endpoint

    def lost(self, endpoint: Endpoint, now_ms: int) -> None:
        """Look the coordinator up again after a pause, because that broker has failed or is not the coordinator."""
        if self.endpoint == endpoint:
            self.endpoint = None
            self.updates.lose()
            self._requests.wake_all()
            self._due_ms = now_ms + self._requests.retry.delay_ms(self._attempts)
            self._attempts += 1

    def works(self) -> None:
        """Reset the pauses, because the coordinator has responded without an error."""
        self._attempts = 0

    def next_deadline(self) -> int | None:
        """Return when `work` has a request to send."""
        return None if self._in_flight else self._due_ms

    def work(self, now_ms: int) -> None:
        """Send a FindCoordinator request when one is due."""
        if self._in_flight or self._due_ms is None or now_ms < self._due_ms:
            return
        self._in_flight, self._due_ms = True, None
        request = FindCoordinatorRequest(key=self._group_id, key_type=self._key_type, coordinator_keys=[self._group_id])
        # Version 0 knows groups only.
        lowest = None if self._key_type is KeyType.GROUP else 1
        self._requests.send(self._cluster.any_endpoint(), Lane.CONTROL, request, self._on_answer, min_version=lowest)

    def _on_answer(self, answer: Answer, now_ms: int) -> None:
        self._in_flight = False
        response = message_of(answer, FindCoordinatorResponse)
        if response is None:
            # The cluster goes on with another broker, and reports if none answers.
            self._cluster.refresh(now_ms)
            self._again(now_ms)
            return
        found = response.coordinators[0] if response.coordinators else response
        code = ErrorCode.of(found.error_code)
        if code is ErrorCode.NONE:
            self.endpoint = Endpoint(found.host, found.port)
        elif code.retriable:
            self._again(now_ms)
        else:
            during = f"looking for the coordinator of {self._group_id}"
            error = refused(code, found.error_message, during=during, operation=self._operation, name=self._group_id)
            self._on_refused(error, now_ms)

    def _again(self, now_ms: int) -> None:
        self._due_ms = now_ms + self._requests.retry.delay_ms(self._attempts)
        self._attempts += 1


class UpdatedMember(Protocol):
    """The member of a group, as the receiver of membership updates."""

    @property
    def interval_ms(self) -> int:
        """The coordinator's heartbeat interval; 0 if it is not known."""
        ...

    def say(self) -> KnownMembership | None:
        """Return the member's id, epoch and assignment, for a request; `None` without a certain membership."""
        ...

    def has_list_to_say(self) -> bool:
        """Return whether a list of owned partitions has to be sent, or awaits its response."""
        ...

    def take_news(self, news: MembershipUpdate, sent_ms: int, now_ms: int) -> None:
        """Apply an update that is newer than all before; `sent_ms`: when the request was sent that it answers."""
        ...

    def on_counted(self, sent_ms: int) -> None:
        """Note that the coordinator has answered a fetch, sent at `sent_ms`, that named the member."""
        ...

    def take_refusal(self, news: MembershipUpdate, lane: Lane, now_ms: int) -> None:
        """React to an update, on connection `lane`, by which the coordinator would refuse a heartbeat."""
        ...


class HeldGrant(NamedTuple):
    """The coordinator's token for the member's partitions, at one epoch."""

    token: str
    epoch: int
    partitions: Mapping[TopicId, frozenset[int]]
    #: When the request was sent to whose response it belongs, and when its lease is over.
    since_ms: int
    until_ms: int

    def __repr__(self) -> str:
        return f"HeldGrant(epoch={self.epoch}, until_ms={self.until_ms})"


class ReceivedUpdates:
    """Passes updates from fetch and commit responses to the member, and builds the requests' tag `member`."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        #: The member; `None` without one.
        self.member: UpdatedMember | None = None
        #: Increases when a coordinator is found: responses to requests of an earlier era are ignored.
        self.era = 0
        #: Whether the coordinator is kohort's, and has answered.
        self.is_heard = False
        #: Number of the latest update that was applied, from any response.
        self._number = 0
        #: An update received while a list of owned partitions awaited its response, and when its request was sent.
        self.waiting: tuple[MembershipUpdate, int] | None = None
        #: The member's grant; `None` if it has none, and as far as it knows needs none.
        self.grant: HeldGrant | None = None
        #: Whether the lease of the grant is over: the member fetches nothing until it is renewed.
        self.is_lapsed = False
        #: Number of grants that were accepted, plus those dropped.
        self.grants = 0
        #: When a fetch that names the member was last sent to the coordinator, or answered by it.
        self.fetched_ms = 0
        #: What requests say of the member: its id, epoch and assignment.
        self._word: KnownMembership | None = None
        #: Member id, epoch and assignment in it.
        self._said: tuple[str, int, dict[TopicId, Sequence[int]]] | None = None

    @property
    def is_on(self) -> bool:
        """Whether updates are used: they are wanted, and the coordinator is kohort's."""
        return self._is_wanted and self.is_heard

    def begin(self) -> None:
        """Begin to accept updates, because a coordinator of kohort's has responded."""
        self.is_heard = True
        self._word = None
        self.era += 1

    def lose(self) -> None:
        """Forget the coordinator, since the group may have another one by now."""
        self.is_heard = False
        self._number = 0
        self.waiting = None

    def takes(self, number: int) -> bool:
        """Return whether the update of that number is newer than all before, and note it; 0 means no number."""
        if 0 < number <= self._number:
            return False
        self._number = max(number, self._number)
        return True

    def build_word(
        self, group_id: str, member_id: str, epoch: int, known: Mapping[TopicId, Sequence[int]]
    ) -> KnownMembership:
        """Build the tag `member` of requests; it stays one object until id, epoch or assignment change."""
        what = member_id, epoch, dict(known)
        if self._word is None or what != self._said:
            rows = [TopicPartitions(topic_id=each, partitions=sorted(known[each])) for each in sorted(known)]
            self._word = KnownMembership(
                group_id=group_id, member_id=member_id, member_epoch=epoch, topic_partitions=rows
            )
            self._said = what
        return self._word

    def say(self) -> KnownMembership | None:
        """Return the tag `member` for the next request; `None` if it has none."""
        if not (self._is_wanted and self.is_heard) or self.member is None or self.waiting is not None:
            return None
        return self.member.say()

    def hear(self, news: MembershipUpdate | None, *, era: int, lane: Lane, sent_ms: int, now_ms: int) -> None:
        """Apply an update in a response on connection `lane`; `era` and `sent_ms` are those of its request."""
        if news is None or not self._is_wanted:
            return
        if news.error_code:
            # It names its epoch, so its era does not matter: a member that is cut off cannot tell where its coordinator
            # is.
            if self.member is not None and news.number > self._number:
                self.member.take_refusal(news, lane, now_ms)
        elif era == self.era and self.is_on:
            self._weigh(news, sent_ms, now_ms)

    def on_said(self, now_ms: int) -> None:
        """Apply the update that has waited for the response to a heartbeat."""
        heard, self.waiting = self.waiting, None
        if heard is not None:
            self._weigh(*heard, now_ms)

    def _weigh(self, news: MembershipUpdate, sent_ms: int, now_ms: int) -> None:
        member = self.member
        if member is None or news.number <= self._number:
            return
        if news.assignment is None:
            # A grant for the member's present partitions; it does not make a waiting update out of date.
            member.take_news(news, sent_ms, now_ms)
        elif member.has_list_to_say():
            # Kept until the list is answered: the coordinator may assign partitions that the list omits to others.
            self.waiting = news, sent_ms
        elif self.takes(news.number):
            member.take_news(news, sent_ms, now_ms)

    # -- the grant ----------------------------------------------------------------------------------------------------

    def hold(
        self,
        told: OwnershipGrant,
        known: Mapping[TopicId, Sequence[int]],
        *,
        epoch: int,
        since_ms: int,
        until_ms: int,
    ) -> None:
        """Store a grant for these partitions, or extend the lease of the present one."""
        held = self.grant
        if held is not None and held.token == told.token:
            # Several connections return the same grant; the lease counts from each one's request. It may have come
            # before the assignment that it is of, and covers no partition which that takes away.
            covered = {each: found.intersection(known.get(each, ())) for each, found in held.partitions.items()}
            self.is_lapsed = self.is_lapsed and until_ms <= held.until_ms
            self.grant = held._replace(partitions=covered, until_ms=max(until_ms, held.until_ms))
        # A delayed response may carry an older grant.
        elif held is None or epoch >= held.epoch:
            self.grants += 1
            partitions = {topic_id: frozenset(each) for topic_id, each in known.items()}
            self.grant = HeldGrant(told.token, epoch, partitions, since_ms, until_ms)
            self.is_lapsed = False

    def drop(self) -> None:
        """Forget the grant."""
        self.grants += self.grant is not None
        self.grant, self.is_lapsed = None, False

    def on_fetched(self, sent_ms: int, now_ms: int) -> None:
        """Note the coordinator's response to a fetch, sent at `sent_ms`, that named the member."""
        self.fetched_ms = now_ms
        if self.member is not None:
            self.member.on_counted(sent_ms)
