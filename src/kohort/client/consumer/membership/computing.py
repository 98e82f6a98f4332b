"""Local assignors of a member: describe them to the coordinator, and compute assignments on request.

The coordinator requests a computation in the response to a heartbeat. The member fetches the data of the group. The
application's assignor runs in the application's thread. Then the member sends the result, repeatedly if necessary.

Laws: one computation runs at a time; a new request replaces the one before. Nothing here waits for the application.
Source: KIP-848 as drafted (ConsumerGroupPrepareAssignment, ConsumerGroupInstallAssignment).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kohort.assign.interface import Assignable, AssignableMember
from kohort.assign.ownership import PartitionSpace
from kohort.assign.subscribers import subscribers_by_topic
from kohort.client.consumer.application_events import AssignmentSaid, ComputationDone, ComputationWanted
from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.coordinator_lookup import BUSY, MOVED, CoordinatorLookup
from kohort.client.core.requests import Answer, Requests, message_of
from kohort.client.local_assignors import LocalAssignor
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.wire.messages import consumer_group_install_assignment as install
from kohort.wire.messages import consumer_group_prepare_assignment as prepare
from kohort.wire.messages.consumer_group_heartbeat import ClientAssignor, ConsumerGroupHeartbeatResponse

#: The reason in a heartbeat with which the application requests a computation.
_WANTED: Final = 1
#: The error of a member with local assignors at a broker that is not kohort's.
NOT_OFFERED: Final = (
    "assignors that members run (group.local.assignors) are of kohort's brokers, and this is none: leave the option "
    "out, and choose one of the broker's by group.remote.assignor"
)
#: Error code for an assignor that raised, or returned no valid assignment.
FAILED: Final = 1


class _Result(NamedTuple):
    """A computed assignment to be sent; if `error` is not 0, `owners` and `said` are empty."""

    group_epoch: int
    error: int
    owners: Sequence[int]
    said: Sequence[tuple[str, int, bytes]]


class AssignmentComputation:
    """The computations of one member."""

    def __init__(
        self,
        requests: Requests,
        lookup: CoordinatorLookup,
        assignors: tuple[LocalAssignor, ...],
        *,
        group_id: str,
        timeout_ms: int,
        on_begun: Callable[[int], None],
    ) -> None:
        self._requests = requests
        self._lookup = lookup
        #: The local assignors in the order of preference; without any, the coordinator requests no computation.
        self._assignors: Final = assignors
        self._group_id: Final = group_id
        #: The time for which a result is sent again if the coordinator does not accept it at once.
        self._timeout_ms: Final = timeout_ms
        #: Called with the present time when the coordinator knows that this member computes. The response to a
        #: heartbeat that is sent then has the assignment of the result.
        self._on_begun = on_begun
        #: Metadata by assignor; empty until the application has given them.
        self._metadata: tuple[bytes, ...] = ()
        self._is_wanted = False
        #: Whether the next heartbeat has the assignors' metadata.
        self.has_news = False
        #: The number of the present computation. The fields below are its phases: fetching the group's data, assigning,
        #: sending the result.
        self._number = 0
        self._preparing: int | None = None
        self._group_epoch: int | None = None
        self._result: _Result | None = None
        self._is_bringing = False
        self._due_ms = 0
        self._until_ms = 0
        self._attempts = 0

    # -- heartbeat fields ---------------------------------------------------------------------------------------------

    def describe(self, metadata: tuple[bytes, ...], *, is_wanted: bool) -> None:
        """Take the metadata of the local assignors; `is_wanted`: also request a new assignment."""
        if self._assignors:
            self.has_news = self.has_news or is_wanted or metadata != self._metadata
            self._metadata = metadata
            self._is_wanted = self._is_wanted or is_wanted

    def take_words(self, *, is_full: bool) -> list[ClientAssignor] | None:
        """Build the assignors' field of the next heartbeat; `None`: nothing has changed."""
        if not self._assignors or not (is_full or self.has_news):
            return None
        reason = _WANTED if self._is_wanted else 0
        self.has_news = self._is_wanted = False
        metadata = self._metadata or (b"",) * len(self._assignors)
        return [
            ClientAssignor(
                name=each.name,
                minimum_version=each.minimum_version,
                maximum_version=each.maximum_version,
                reason=reason,
                metadata_version=each.version,
                metadata_bytes=told,
            )
            for each, told in zip(self._assignors, metadata, strict=True)
        ]

    def on_told(self, response: ConsumerGroupHeartbeatResponse, endpoint: Endpoint, member: tuple[str, int]) -> None:
        """Take a request to compute from a heartbeat response; `member`: id and epoch in that response."""
        said = response.client_assignment
        if said is not None:
            told = AssignmentSaid(error=said.error, version=said.metadata_version, metadata=bytes(said.metadata_bytes))
            self._requests.deliver(told)
        if response.should_compute_assignment and self._assignors and self._preparing is None:
            self._prepare(endpoint, *member)

    def forget(self) -> None:
        """Drop the computation, because the membership has ended or a new computation begins."""
        self._number += 1
        self._preparing = self._group_epoch = self._result = None
        self._is_bringing = False

    # -- computing ----------------------------------------------------------------------------------------------------

    def _prepare(self, endpoint: Endpoint, member_id: str, epoch: int) -> None:
        self.forget()
        number = self._preparing = self._number

        def then(answer: Answer, now_ms: int) -> None:
            if self._preparing != number:
                return
            self._preparing = None
            response = message_of(answer, prepare.ConsumerGroupPrepareAssignmentResponse)
            # Without a response, or after an error, the next heartbeat response repeats the request if necessary.
            if response is not None and response.error_code == ErrorCode.NONE:
                self._group_epoch = response.group_epoch
                group = read_group(response)
                wanted = ComputationWanted(number=number, assignor=response.assignor_name, group=group)
                self._requests.deliver(wanted)
                self._on_begun(now_ms)

        request = prepare.ConsumerGroupPrepareAssignmentRequest(
            group_id=self._group_id, member_id=member_id, member_epoch=epoch
        )
        # Not on the heartbeats' connection: there the request would wait for a delayed heartbeat, or end its delay.
        self._requests.send(endpoint, Lane.CONTROL, request, then)

    def on_computed(self, done: ComputationDone, now_ms: int) -> None:
        """Take the result of the application's assignor."""
        if self._group_epoch is None or done.number != self._number:
            return
        group_epoch, self._group_epoch = self._group_epoch, None
        if done.error:
            self._requests.warn(f"the assignment of group {self._group_id} could not be computed here: {done.error}")
            # The coordinator then requests the computation of another member.
            self._result = _Result(group_epoch, FAILED, (), ())
        else:
            version = {each.name: each.maximum_version for each in self._assignors}.get(done.assignor, 0)
            said = [(member_id, version, told) for member_id, told in sorted(done.said.items())]
            self._result = _Result(group_epoch, 0, done.owner, said)
        self._attempts, self._due_ms, self._until_ms = 0, now_ms, now_ms + self._timeout_ms

    def speak(self, member: tuple[str, int], now_ms: int) -> None:
        """Send the computed assignment when it is due; `member`: the present id and epoch."""
        result = self._result
        if result is None or self._is_bringing or now_ms < self._due_ms:
            return
        if now_ms >= self._until_ms:
            # By now the coordinator has requested the computation of another member.
            self._result = None
            return
        endpoint = self._lookup.need(now_ms)
        if endpoint is None:
            return
        number = self._number
        member_id, epoch = member

        def then(answer: Answer, now_ms: int) -> None:
            if self._number == number:
                self._on_brought(answer, endpoint, now_ms)

        request = install.ConsumerGroupInstallAssignmentRequest(
            group_id=self._group_id,
            member_id=member_id,
            member_epoch=epoch,
            group_epoch=result.group_epoch,
            error=result.error,
            owners=list(result.owners),
            members=[
                install.AssignmentToInstall(member_id=each, metadata_version=version, metadata_bytes=told)
                for each, version, told in result.said
            ],
        )
        self._is_bringing = True
        self._requests.send(endpoint, Lane.CONTROL, request, then)

    def next_deadline(self) -> int | None:
        """Return the time at which `speak` has a result to send, ms; `None`: it has none."""
        if self._result is None or self._is_bringing or self._lookup.endpoint is None:
            return None
        return min(self._due_ms, self._until_ms)

    def _on_brought(self, answer: Answer, endpoint: Endpoint, now_ms: int) -> None:
        self._is_bringing = False
        response = message_of(answer, install.ConsumerGroupInstallAssignmentResponse)
        code = None if response is None else ErrorCode.of(response.error_code)
        if code is None or code in MOVED:
            self._lookup.lost(endpoint, now_ms)
        # Any other code is final: the result was installed, or never will be.
        elif code not in BUSY and code is not ErrorCode.STALE_MEMBER_EPOCH:
            self._result = None
            if code is not ErrorCode.NONE and response is not None:
                self._requests.warn(
                    f"the assignment that was computed for group {self._group_id} was not taken: "
                    f"{response.error_message or code.name}"
                )
            return
        # After STALE_MEMBER_EPOCH, the response to a heartbeat in flight has the new epoch.
        self._due_ms = now_ms + self._requests.retry.delay_ms(self._attempts)
        self._attempts += 1


def read_group(response: prepare.ConsumerGroupPrepareAssignmentResponse) -> Assignable:
    """Build the assignor's input from the coordinator's response, as a broker builds it for its assignors."""
    names = tuple(topic.topic_name for topic in response.topics)
    wanted = [tuple(names[place] for place in each.topics) for each in response.subscriptions]
    by_topic = subscribers_by_topic([wanted[member.subscription] for member in response.members])
    return Assignable(
        space=PartitionSpace((TopicId(topic.topic_id), topic.partitions) for topic in response.topics),
        topic_names=names,
        members=tuple(
            AssignableMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                metadata=bytes(member.metadata_bytes),
                metadata_version=member.metadata_version,
                reason=member.reason,
            )
            for member in response.members
        ),
        subscribers=tuple(by_topic[name] for name in names),
        owner=array("i", response.owners),
        max_moves=response.max_moves,
        imbalance=response.imbalance,
    )
