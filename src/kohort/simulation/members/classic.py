"""A classic member as Java's, librdkafka's and kafka-python's consumers behave, eager or cooperative.

Eager: it revokes everything before JoinGroup. Cooperative: JoinGroup lists the owned partitions, which it still reads.
It revokes those that the new assignment lacks, and rejoins so that others get them. The leader assigns.

Source: Java's `ConsumerCoordinator` and `AbstractCoordinator`; KIP-394, KIP-429.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kohort.coordinator import commands
from kohort.coordinator.decision import ReplyBody
from kohort.errors import ErrorCode
from kohort.simulation.members.process import MemberProcess, MemberWorld, Owned, Wire
from kohort.simulation.scenario import MemberSettings
from kohort.wire import embedded

#: The answer of a heartbeat is waited for at least so long, as a part of the session: longer than a broker holds it (a
#: quarter), and short enough for another one. Java's waits 30 s, librdkafka's for the whole session.
_BEATS_PER_SESSION: Final = 2

#: Clients that bear a held heartbeat: one that counts its session from the answers, and one from its requests.
CLASSIC_SOFTWARE: Final = ("librdkafka", "kohort")


class ClassicMember(MemberProcess):
    """One process with one classic member."""

    knows_topic_ids = False

    def __init__(
        self,
        world: MemberWorld,
        name: str,
        group_id: str,
        *,
        topics: tuple[str, ...],
        settings: MemberSettings,
        is_cooperative: bool,
        requires_known_member_id: bool,
        instance_id: str | None = None,
    ) -> None:
        # Heartbeats of a client that does not name its software, as old ones do not, are never held.
        software = world.random.choice(CLASSIC_SOFTWARE) if requires_known_member_id else ""
        wire = Wire(world.network, name, software=software)
        super().__init__(world, name, group_id, topics=topics, settings=settings, instance_id=instance_id, wire=wire)
        self.is_cooperative = is_cooperative
        self._requires_known_member_id = requires_known_member_id
        self.generation = -1
        self.is_leader = False
        self._latest_join: commands.JoinGroup | None = None
        #: Between the first thought of rejoining and the new assignment.
        self.is_rejoining = False
        #: Number of the latest join; answers to older ones are void.
        self._round = 0
        #: Number of the chain of heartbeats; an older one ends.
        self._chain = 0
        #: The leader's last plan: the subscribed topics, and their partitions as it knew them.
        self._planned_topics: tuple[str, ...] = ()
        self._planned_with: list[Partition] = []

    def start(self) -> None:
        """Start the process, which also refreshes its topic metadata now and then."""
        super().start()
        self.later(1_000, self._refresh_metadata)

    def start_again(self) -> None:
        """Start a new process, which has no member id yet."""
        self.member_id, self.generation = "", -1
        self._round += 1
        self._chain += 1
        super().start_again()

    def join(self) -> None:
        """Revoke the partitions that must be revoked before a join, then send JoinGroup."""
        self._round += 1
        number = self._round
        self.is_rejoining = True
        if self.is_cooperative or not self.owned:
            self._send_join(number)
            return
        delay_ms = self.draw_callback_ms()
        self.tell(f"revokes everything, which takes {delay_ms} ms")
        self.commit(self.owned)

        def done() -> None:
            if self._round == number:
                self.commit(self.owned)
                self.give_up(set(self.owned))
                self._send_join(number)

        self.later(delay_ms, done)

    def leave(self) -> None:
        """Commit, revoke everything, send LeaveGroup once, and end."""
        self.tell("closes")
        self.commit(self.owned)
        self.give_up(set(self.owned))
        self.is_leaving = True
        self._round += 1
        self._chain += 1
        if not self.member_id or self.instance_id is not None:
            # A static member ends without LeaveGroup: its successor takes its place.
            self.later(self.settings.request_timeout_ms, self.end)
            return
        leaving = commands.LeavingMember(member_id=self.member_id)
        command = self.build(commands.LeaveGroup, members=(leaving,), client_id=self.name)
        self.ask(command, lambda _: self.end(), self.end)

    def subscribe(self, topics: tuple[str, ...]) -> None:
        """Subscribe to other topics, and rejoin."""
        self.tell("subscribes to", topics)
        self.topics = topics
        self.join()

    @property
    def is_valid(self) -> bool:
        """Whether the member has a generation."""
        return self.generation >= 0

    def build_fetch(self, partitions: tuple[tuple[str, int], ...]) -> commands.FetchOffsets:
        """Build an OffsetFetch, which names no member before version 9."""
        return self.build(commands.FetchOffsets, partitions=partitions)

    def build_commit(self, offsets: tuple[commands.OffsetToCommit, ...]) -> commands.CommitOffsets:
        """Build an OffsetCommit with the generation."""
        return self.build(
            commands.CommitOffsets,
            member_id=self.member_id,
            generation_or_member_epoch=self.generation,
            instance_id=self.instance_id,
            offsets=offsets,
            is_member_epoch_aware=False,
        )

    def on_commit_refused(self, code: ErrorCode) -> None:
        """Handle a refused commit."""
        # A commit may be the first request that tells a member that it is none any more.
        if not self.is_rejoining and not self.is_leaving:
            self._on_error(code)

    def patience_ms(self) -> int:
        """Return how long the member waits for a response, ms."""
        usual_ms = self.settings.request_timeout_ms
        # Answers come in the order of the requests: while JoinGroup is parked, so are those behind it.
        return usual_ms + self.settings.rebalance_timeout_ms if self.is_rejoining else usual_ms

    def may_send_again(self, command: commands.GroupCommand) -> bool:
        """Return whether a request may be repeated; a JoinGroup only if it is the latest."""
        if isinstance(command, commands.JoinGroup):
            # A static member without an id would take its own place.
            return command is self._latest_join
        return super().may_send_again(command)

    # Join.

    def _send_join(self, number: int) -> None:
        self._chain += 1
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owned):
            owned.setdefault(topic, []).append(partition)
        metadata = embedded.encode_subscription(self.topics, owned_partitions=owned, generation_id=self.generation)
        names = ("cooperative-sticky",) if self.is_cooperative else ("range", "roundrobin")
        command = self.build(
            commands.JoinGroup,
            member_id=self.member_id,
            instance_id=self.instance_id,
            fresh_member_id="",
            client_id=self.name,
            client_host="/10.0.0.1",
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=self.settings.rebalance_timeout_ms,
            protocol_type="consumer",
            protocols=tuple((name, metadata) for name in names),
            requires_known_member_id=self._requires_known_member_id,
        )
        self._latest_join = command
        self.ask(
            command,
            lambda body: self._on_joined(number, body),
            lambda: self._again(number),
            timeout_ms=self.settings.rebalance_timeout_ms + 5_000,
        )

    def _again(self, number: int) -> None:
        """Join again after the connection broke, unless another round has begun since."""
        if self._round == number:
            self.join()

    def _on_joined(self, number: int, body: ReplyBody) -> None:
        if self._round != number:
            return
        if isinstance(body, commands.Refusal):
            self._on_error(body.code)
            return
        assert isinstance(body, commands.JoinGroupReply), body
        if body.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = body.member_id
            self._send_join(number)
        elif body.error != ErrorCode.NONE:
            self._on_error(body.error)
        else:
            self.member_id = body.member_id
            self.generation = body.generation_id
            self.is_leader = body.leader == body.member_id
            self._begin_heartbeats()
            if self.is_leader:
                self._plan_for_all(number, body)
            else:
                self._send_sync(number, {})

    def _plan_for_all(self, number: int, reply: commands.JoinGroupReply) -> None:
        """Compute the assignment of all members as leader, which may take the assignor a while."""
        delay_ms = self.draw_callback_ms()

        def send() -> None:
            if self._round == number:
                self._send_sync(number, self._plan(reply))

        self.later(delay_ms, send)

    def _plan(self, reply: commands.JoinGroupReply) -> dict[str, bytes]:
        subscriptions = {member.member_id: embedded.decode_subscription(member.metadata) for member in reply.members}
        self._planned_topics = tuple({topic for found in subscriptions.values() for topic in found.topics})
        self._planned_with = self.world.topics.partitions_of(self._planned_topics)
        build = plan_cooperative if self.is_cooperative else plan_eager
        plan = build(subscriptions, self._planned_with)
        self.tell("plans", plan)
        blobs: dict[str, bytes] = {}
        for member_id, partitions in plan.items():
            by_topic: dict[str, list[int]] = {}
            for topic, partition in partitions:
                by_topic.setdefault(topic, []).append(partition)
            blobs[member_id] = embedded.encode_assignment(by_topic)
        return blobs

    # Sync.

    def _send_sync(self, number: int, assignments: dict[str, bytes]) -> None:
        command = self.build(
            commands.SyncGroup,
            generation_id=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
            protocol_type="consumer",
            assignments=assignments,
        )
        self.ask(
            command,
            lambda body: self._on_synced(number, body),
            lambda: self._again(number),
            timeout_ms=self.settings.rebalance_timeout_ms + 5_000,
        )

    def _on_synced(self, number: int, body: ReplyBody) -> None:
        if self._round != number:
            return
        if isinstance(body, commands.Refusal):
            self._on_error(body.code)
            return
        assert isinstance(body, commands.SyncGroupReply), body
        if body.error != ErrorCode.NONE:
            self._on_error(body.error)
            return
        found = embedded.decode_assignment(body.assignment).partitions
        assigned = {(topic, partition) for topic, partitions in found.items() for partition in partitions}
        revoked = self.owned - assigned
        if self.instance_id is not None and self.generation > self.synced_generation + 1:
            # The others went on without it, as they may with a static member: what it has lost is theirs already.
            self.give_up(revoked)
        self.synced_generation = self.generation
        self.is_rejoining = False
        if not revoked:
            self.gain(assigned - self.owned)
            return
        assert self.is_cooperative, "an eager member owns nothing while it joins"
        self._revoke(number, revoked, assigned)

    def _revoke(self, number: int, revoked: set[Owned], assigned: set[Owned]) -> None:
        delay_ms = self.draw_callback_ms()
        self.tell(f"revokes, which takes {delay_ms} ms:", revoked)
        self.is_rejoining = True
        self.commit(revoked)

        def done() -> None:
            if self._round == number:
                self.commit(revoked)
                self.give_up(revoked)
                self.gain(assigned - self.owned)
                self.join()

        self.later(delay_ms, done)

    # Staying.

    def _begin_heartbeats(self) -> None:
        self._chain += 1
        chain = self._chain
        self.later(self.settings.heartbeat_interval_ms, lambda: self._heartbeat(chain))

    def _heartbeat(self, chain: int) -> None:
        if self._chain != chain:
            return
        command = self.build(
            commands.Heartbeat,
            generation_id=self.generation,
            member_id=self.member_id,
            instance_id=self.instance_id,
        )

        def again() -> None:
            self._heartbeat(chain)

        def on_reply(body: ReplyBody) -> None:
            if self._chain != chain:
                return
            code = body.code if isinstance(body, commands.Refusal) else ErrorCode.NONE
            # While the application gives partitions up the member stays alive, and knows already.
            is_known = code == ErrorCode.REBALANCE_IN_PROGRESS and self.is_rejoining
            if code == ErrorCode.NONE or is_known:
                self.later(self.settings.heartbeat_interval_ms, again)
            else:
                self._on_error(code)

        patience_ms = max(self.patience_ms(), self.settings.session_timeout_ms // _BEATS_PER_SESSION)
        self.ask(command, on_reply, again, timeout_ms=patience_ms)

    def _on_error(self, code: ErrorCode) -> None:
        self.tell("is refused:", code)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.generation = -1
            self._round += 1
            self._chain += 1
            self.lose_all()
            self.join()
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self.on_instance_fenced()
        elif code.retriable:
            self._round += 1
            number = self._round
            self.later(self.settings.retry_backoff_ms, lambda: self._again(number))
        else:
            self.on_fatal(code)

    def _refresh_metadata(self) -> None:
        """Rejoin as leader if the topics have changed since the last assignment."""
        if self.is_leader and not self.is_rejoining and not self.is_leaving:
            topics = (*self._planned_topics, *self.topics)
            if self.world.topics.partitions_of(tuple(dict.fromkeys(topics))) != self._planned_with:
                self.tell("sees that topics changed")
                self.join()
        self.later(1_000, self._refresh_metadata)


# The assignor of a simulated classic leader: round robin if eager, sticky if cooperative.
#
# Laws: a cooperative plan never gives a partition to one member while another says that it owns it; it is left out
# until that member has given it up (KIP-429). Members of an older generation own nothing (KIP-792).

#: (topic, number)
Partition = tuple[str, int]


def plan_eager(
    subscriptions: Mapping[str, embedded.Subscription], partitions: Sequence[Partition]
) -> dict[str, list[Partition]]:
    """Assign each partition to the next member that subscribes to its topic."""
    plan: dict[str, list[Partition]] = {member_id: [] for member_id in sorted(subscriptions)}
    turn = 0
    for partition in partitions:
        takers = [member_id for member_id in plan if partition[0] in subscriptions[member_id].topics]
        if takers:
            plan[takers[turn % len(takers)]].append(partition)
            turn += 1
    return plan


def plan_cooperative(
    subscriptions: Mapping[str, embedded.Subscription], partitions: Sequence[Partition]
) -> dict[str, list[Partition]]:
    """Balance partitions with few moves; a partition that moves gets no owner before the next round."""
    claims = _claims(subscriptions)
    plan: dict[str, list[Partition]] = {member_id: [] for member_id in sorted(subscriptions)}
    most = -(-len(partitions) // max(len(plan), 1))
    free: list[Partition] = []
    for partition in partitions:
        owner = claims.get(partition)
        if owner is not None and partition[0] in subscriptions[owner].topics and len(plan[owner]) < most:
            plan[owner].append(partition)
        else:
            free.append(partition)
    for partition in free:
        takers = [member_id for member_id in plan if partition[0] in subscriptions[member_id].topics]
        if not takers:
            continue
        taker = min(takers, key=lambda member_id: len(plan[member_id]))
        plan[taker].append(partition)
    _even_out(plan, subscriptions)
    return {
        member_id: [partition for partition in found if claims.get(partition, member_id) == member_id]
        for member_id, found in plan.items()
    }


def _claims(subscriptions: Mapping[str, embedded.Subscription]) -> dict[Partition, str]:
    """Return partition -> member that lists it as owned; of two, the one with the newer generation."""
    claims: dict[Partition, str] = {}
    for member_id, subscription in sorted(subscriptions.items(), key=lambda item: (item[1].generation_id, item[0])):
        for topic, numbers in subscription.owned_partitions.items():
            for number in numbers:
                claims[topic, number] = member_id
    return claims


def _even_out(plan: dict[str, list[Partition]], subscriptions: Mapping[str, embedded.Subscription]) -> None:
    """Move single partitions from the fullest member to the emptiest, while that helps."""
    for _ in range(sum(map(len, plan.values()))):
        emptiest = min(plan, key=lambda member_id: len(plan[member_id]))
        fullest = max(plan, key=lambda member_id: len(plan[member_id]))
        if len(plan[fullest]) - len(plan[emptiest]) < 2:
            return
        movable = [found for found in plan[fullest] if found[0] in subscriptions[emptiest].topics]
        if not movable:
            return
        plan[fullest].remove(movable[-1])
        plan[emptiest].append(movable[-1])
