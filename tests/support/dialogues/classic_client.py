"""A stock client of the classic protocol in dialogue with a coordinator: it joins, syncs, heartbeats and commits."""

from __future__ import annotations

from kohort.coordinator import commands
from kohort.coordinator.classic.state import ClassicGroupState
from kohort.coordinator.commands import Refusal
from kohort.errors import ErrorCode
from kohort.wire.embedded import decode_assignment, encode_assignment, encode_subscription
from support.dialogues.coordinator_dialogue import Answer, GroupDialogue

REBALANCE_MS = 30_000
SESSION_MS = 10_000


class ClassicClient:
    """A member that speaks as kafka-python, librdkafka and Java do; "cooperative" keeps what it owns while it joins."""

    def __init__(
        self,
        world: GroupDialogue,
        name: str,
        *,
        cooperative: bool = False,
        instance_id: str | None = None,
        topics: tuple[str, ...] = ("t",),
        protocols: tuple[str, ...] = ("range",),
        session_timeout_ms: int = SESSION_MS,
    ) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.topics = topics
        self.protocols = protocols
        self.session_timeout_ms = session_timeout_ms
        #: How often a process of this member was started.
        self.starts = 1
        self.cooperative = cooperative
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[int, ...] = ()
        self.joining: Answer | None = None
        self.syncing: Answer | None = None

    def start_again(self) -> None:
        """A new process of the same member: it knows nothing, but perhaps its instance."""
        self.starts += 1
        self.member_id, self.generation, self.owned = "", -1, ()
        self.joining = self.syncing = None

    def join(self) -> Answer:
        """JoinGroup, twice where the first answer only hands out the id; one at a time."""
        if self.joining is not None and (self.joining.is_parked or self._has_news(self.joining.body)):
            return self.joining
        if self.joining is not None and isinstance(self.joining.body, commands.JoinGroupReply):
            # Also of an answer that came too late it has learnt its id.
            self.member_id = self.joining.body.member_id
        owned = {"t": self.owned} if self.cooperative and self.owned else None
        self.joining = self.world.ask(
            commands.JoinGroup(
                cause=self.world.cause(),
                request=self.world.request(),
                group_id="g",
                member_id=self.member_id,
                fresh_member_id=f"{self.name}-id" if self.starts == 1 else f"{self.name}-id-{self.starts}",
                client_id=self.name,
                client_host="/127.0.0.1",
                session_timeout_ms=self.session_timeout_ms,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type="consumer",
                protocols=tuple(
                    (name, encode_subscription(self.topics, owned_partitions=owned)) for name in self.protocols
                ),
                instance_id=self.instance_id,
                requires_known_member_id=True,
                supports_skip_assignment=True,
                reason="the test says so",
            )
        )
        body = self.joining.body
        if isinstance(body, commands.JoinGroupReply) and body.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = body.member_id
            return self.join()
        return self.joining

    def _has_news(self, body: object) -> bool:
        """Whether that is an answer which it has not read, of a generation that is not over."""
        if not isinstance(body, commands.JoinGroupReply) or body.error != ErrorCode.NONE:
            return False
        group = self.world.shard.groups.classic.get("g")
        is_over = (
            group is None
            or group.state is ClassicGroupState.PREPARING_REBALANCE
            or body.generation_id != group.generation
        )
        return not is_over and (body.generation_id, body.member_id) != (self.generation, self.member_id)

    def learn_generation(self) -> commands.JoinGroupReply:
        """Read the answer to the join."""
        assert self.joining is not None
        reply = self.joining.body_as(commands.JoinGroupReply)
        assert reply.error == ErrorCode.NONE
        self.generation, self.member_id = reply.generation_id, reply.member_id
        return reply

    def sync(self, plan: dict[str, tuple[int, ...]] | None = None) -> Answer:
        """SyncGroup; the leader's carries what each member id shall own."""
        self.syncing = self.world.ask(
            commands.SyncGroup(
                cause=self.world.cause(),
                request=self.world.request(),
                group_id="g",
                generation_id=self.generation,
                member_id=self.member_id,
                instance_id=self.instance_id,
                assignments={name: encode_assignment({"t": found}) for name, found in (plan or {}).items()},
            )
        )
        return self.syncing

    def learn_assignment(self) -> tuple[int, ...]:
        """Read the answer to the sync."""
        assert self.syncing is not None
        reply = self.syncing.body_as(commands.SyncGroupReply)
        assert reply.error == ErrorCode.NONE
        self.owned = decode_assignment(reply.assignment).partitions.get("t", ())
        return self.owned

    def heartbeat(self) -> ErrorCode:
        """Heartbeat; the error code of its answer."""
        answer = self.world.ask(
            commands.Heartbeat(
                cause=self.world.cause(),
                request=self.world.request(),
                group_id="g",
                generation_id=self.generation,
                member_id=self.member_id,
                instance_id=self.instance_id,
            )
        )
        return answer.body.code if isinstance(answer.body, Refusal) else ErrorCode.NONE

    def commit(self, partition: int, offset: int) -> ErrorCode:
        """OffsetCommit of one partition; the error code of its answer."""
        answer = self.world.commit(
            {partition: offset}, member_id=self.member_id, epoch=self.generation, instance_id=self.instance_id
        )
        return answer.body.code if isinstance(answer.body, Refusal) else answer.errors()[0]


def rebalance(*members: ClassicClient, plan: dict[str, tuple[int, ...]]) -> None:
    """Everybody rejoins, the first one leads and hands out `plan` (by client name)."""
    for member in members:
        member.join()
    for member in members:
        member.learn_generation()
    for member in reversed(members):
        member.sync({f"{name}-id": found for name, found in plan.items()})
    for member in members:
        member.learn_assignment()
