"""A coordinator in a test to which members of both protocols speak about one group.

`ClassicClient` is a classic member as stock clients are: it knows its id, its generation and what it owns, and says so
in the blobs of the consumer protocol. An eager one gives up everything before it joins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kohort.coordinator import commands
from kohort.coordinator.commands import Done, Refusal
from kohort.errors import ErrorCode
from kohort.wire import embedded
from support.dialogues.coordinator_dialogue import Answer, GroupDialogue, Owned


def subscription(
    topics: Sequence[str] = ("t",),
    *,
    owned: Owned = (),
    generation: int = -1,
    rack_id: str | None = None,
    version: int = 3,
) -> bytes:
    """The metadata of a classic consumer; bare partitions are of topic "t"."""
    named = owned if isinstance(owned, Mapping) else {"t": owned}
    return embedded.encode_subscription(
        topics,
        owned_partitions={name: list(partitions) for name, partitions in named.items() if partitions},
        generation_id=generation,
        rack_id=rack_id,
        version=version,
    )


def assignment(owned: Owned, *, user_data: bytes | None = None) -> bytes:
    """What a leader gives to a member."""
    named = owned if isinstance(owned, Mapping) else {"t": owned}
    return embedded.encode_assignment({name: list(found) for name, found in named.items()}, user_data=user_data)


class MixedDialogue(GroupDialogue):
    """A `GroupDialogue` that also speaks the classic protocol."""

    def join(
        self,
        member_id: str = "",
        *,
        fresh: str = "",
        protocols: Iterable[tuple[str, bytes]] = (("range", subscription()),),
        **fields: Any,
    ) -> Answer:
        """JoinGroup; `fresh` is the id that a member gets which has none."""
        fields.setdefault("group_id", self.group_id)
        fields.setdefault("client_id", f"client-{member_id or fresh}")
        fields.setdefault("client_host", "/127.0.0.1")
        fields.setdefault("session_timeout_ms", 10_000)
        fields.setdefault("rebalance_timeout_ms", self.rebalance_timeout_ms)
        fields.setdefault("protocol_type", "consumer")
        return self.ask(
            commands.JoinGroup(
                cause=self.cause(),
                request=self.request(),
                member_id=member_id,
                fresh_member_id=fresh or f"fresh-{self.cause()}",
                protocols=tuple(protocols),
                **fields,
            )
        )

    def sync(
        self, member_id: str, generation: int, assignments: Mapping[str, Owned | bytes] | None = None, **f: Any
    ) -> Answer:
        """SyncGroup; a leader says what each member gets, ready-made or not."""
        blobs = {
            name: owned if isinstance(owned, bytes) else assignment(owned)
            for name, owned in (assignments or {}).items()
        }
        f.setdefault("assignments", blobs)
        f.setdefault("group_id", self.group_id)
        return self.ask(
            commands.SyncGroup(
                cause=self.cause(), request=self.request(), generation_id=generation, member_id=member_id, **f
            )
        )

    def beat(self, member_id: str, generation: int, **fields: Any) -> ErrorCode:
        """Heartbeat, which is answered at once."""
        fields.setdefault("group_id", self.group_id)
        answer = self.ask(
            commands.Heartbeat(
                cause=self.cause(), request=self.request(), generation_id=generation, member_id=member_id, **fields
            )
        )
        assert isinstance(answer.body, Done | Refusal), answer.body
        return answer.body.code if isinstance(answer.body, Refusal) else ErrorCode.NONE

    def leave_group(self, *members: str | commands.LeavingMember) -> list[ErrorCode]:
        """LeaveGroup; one outcome for each."""
        leaving = tuple(
            m if isinstance(m, commands.LeavingMember) else commands.LeavingMember(member_id=m) for m in members
        )
        answer = self.ask(
            commands.LeaveGroup(cause=self.cause(), request=self.request(), group_id=self.group_id, members=leaving)
        )
        return [code for _, code in answer.body_as(commands.LeaveGroupReply).members]

    def client(self, name: str, **options: Any) -> ClassicClient:
        """A classic client; see `ClassicClient`."""
        return ClassicClient(self, name, **options)

    def classic_group(self, **members: Owned) -> dict[str, ClassicClient]:
        """A Stable classic group in which members own that, by name; the first leads."""
        return self.rebalance(*(self.client(name) for name in members), shares=members)

    def rebalance(self, *clients: ClassicClient, shares: Mapping[str, Owned]) -> dict[str, ClassicClient]:
        """Let classic clients join and sync as one classic generation; the leader gives `shares`."""
        for client in clients:
            if not client.send_join().is_parked:
                client.receive_join()
        if any(client.waiting is not None and client.waiting.is_parked for client in clients):
            # Whose generation came to its end when the others joined joins again.
            for client in clients:
                if client.waiting is None:
                    client.send_join()
        for client in clients:
            if client.waiting is not None:
                client.receive_join()
        assert len({client.generation for client in clients}) == 1
        syncs = [(client, client.send_sync(shares if client.is_leader else {})) for client in clients]
        for client, answer in syncs:
            client.receive_sync(answer)
        self.new_records()
        return {client.name: client for client in clients}

    def settle_all(self, *clients: ClassicClient) -> None:
        """Members of both protocols do what good clients do until nothing changes."""
        for _ in range(20):
            before = self.shard.state_digest()
            if self.group_id in self.shard.groups.consumer:
                self.settle_consumers()
            for client in clients:
                client.step()
            if self.shard.state_digest() == before and not any(client.has_to_join for client in clients):
                return
        raise AssertionError("the group does not come to rest")

    def settle_consumers(self) -> None:
        """One heartbeat of each member that speaks the consumer protocol."""
        self.fire_due()
        for member in list(self.group.members.values()):
            if member.classic is None and member.member_epoch >= 0:
                self.report(member)


class ClassicClient:
    """One classic member. `is_eager`: gives up everything before it joins; else only what an assignment lacks."""

    def __init__(
        self,
        dialogue: MixedDialogue,
        name: str,
        *,
        is_eager: bool = False,
        topics: Sequence[str] = ("t",),
        instance_id: str | None = None,
        version: int = 3,
        protocol: str = "range",
        member_id: str = "",
    ) -> None:
        self.dialogue = dialogue
        self.name = name
        self.is_eager = is_eager
        self.topics = topics
        self.instance_id = instance_id
        self.version = version
        self.protocol = protocol
        self.member_id = member_id
        self.generation = -1
        #: What it believes to own, partitions of each topic.
        self.owned: dict[str, tuple[int, ...]] = {}
        self.is_leader = False
        self.has_to_join = True
        #: Its JoinGroup that is under way.
        self.waiting: Answer | None = None

    @property
    def partitions(self) -> list[int]:
        """What it owns of topic "t"."""
        return list(self.owned.get("t", ()))

    def send_join(self) -> Answer:
        """JoinGroup, as the client is."""
        if self.is_eager:
            self.owned = {}
        blob = subscription(self.topics, owned=self.owned, generation=self.generation, version=self.version)
        self.waiting = self.dialogue.join(
            self.member_id, fresh=self.name, protocols=[(self.protocol, blob)], instance_id=self.instance_id
        )
        return self.waiting

    def receive_join(self) -> commands.JoinGroupReply:
        """Take the answer of the JoinGroup that is under way."""
        assert self.waiting is not None
        reply: commands.JoinGroupReply = self.waiting.body_as(commands.JoinGroupReply)
        assert reply.error == ErrorCode.NONE, reply
        self.waiting = None
        self.member_id, self.generation = reply.member_id, reply.generation_id
        self.is_leader = reply.leader == reply.member_id
        return reply

    def send_sync(self, shares: Mapping[str, Owned | bytes] | None = None) -> Answer:
        """SyncGroup; a leader says what each member gets."""
        return self.dialogue.sync(self.member_id, self.generation, shares, instance_id=self.instance_id)

    def receive_sync(self, answer: Answer) -> dict[str, tuple[int, ...]]:
        """Take over an assignment; a cooperative client that loses something by it joins again."""
        reply = answer.body_as(commands.SyncGroupReply)
        if reply.error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.has_to_join = True
            return self.owned
        assert reply.error == ErrorCode.NONE, reply
        found = {
            name: tuple(sorted(own)) for name, own in embedded.decode_assignment(reply.assignment).partitions.items()
        }
        lost = any(set(own) - set(found.get(name, ())) for name, own in self.owned.items())
        self.has_to_join = lost and not self.is_eager
        self.owned = found
        return found

    def rejoin(self) -> list[int]:
        """JoinGroup and SyncGroup as a follower; what it owns of "t" then."""
        self.send_join()
        self.receive_join()
        self.receive_sync(self.send_sync())
        return self.partitions

    def beat(self) -> ErrorCode:
        """Heartbeat, and what follows from its answer."""
        code = self.dialogue.beat(self.member_id, self.generation, instance_id=self.instance_id)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.has_to_join = True
        return code

    def step(self) -> None:
        """What the client does next: join where it has to, else heartbeat; only in a KIP-848 group."""
        if self.has_to_join:
            self.rejoin()
        else:
            assert self.beat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)

    def commit(self, offsets: Mapping[int | tuple[str, int], int]) -> Answer:
        """OffsetCommit in its generation, by a version without member epochs."""
        return self.dialogue.commit(
            offsets,
            member_id=self.member_id,
            epoch=self.generation,
            instance_id=self.instance_id,
            is_member_epoch_aware=False,
        )
