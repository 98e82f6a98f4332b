"""A group whose members' heartbeats may be held, written as a dialogue."""

from __future__ import annotations

from typing import Any

from kohort.coordinator import commands, delayed_heartbeats
from support.dialogues.coordinator_dialogue import Answer, GroupDialogue, Owned
from support.dialogues.mixed_dialogue import ClassicClient, MixedDialogue

#: What a member that was told the ordinary interval of 5 s bears.
HOLD_MS = 4_000


class HoldDialogue(GroupDialogue):
    """A `GroupDialogue` with the broker's part of it: news are told, and what a member says comes behind its hold."""

    def beat(self, member_id: str, *, owned: Owned | None = None, **fields: Any) -> Answer:
        """A heartbeat of a client that bears it, at the epoch that the coordinator knows."""
        held = self.shard.held(self.group_id, member_id)
        if held is not None:
            self.release(held)
        epoch = fields.pop("epoch", None)
        fields.setdefault("hold_ms", HOLD_MS)
        epoch = self.member(member_id).member_epoch if epoch is None else epoch
        answer = self.heartbeat(member_id, epoch=epoch, owned=owned, **fields)
        self.tell_news()
        return answer

    def held(self) -> set[str]:
        """Whose heartbeat is held."""
        return set(self.shard.groups.holds.get(self.group_id, {}))

    def release(self, held: commands.AnyHeartbeat, *, is_cut: bool = False) -> None:
        """Something of the client comes that the hold is in the way of; `is_cut`: it is no heartbeat."""
        self._commit(held, self.shard.decide_answer(held, now_ms=self.now_ms, is_cut=is_cut))

    def close(self, member_id: str) -> None:
        """The connection of a held heartbeat is closed."""
        held = self.shard.held(self.group_id, member_id)
        assert held is not None
        self._commit(held, delayed_heartbeats.drop(held))

    def advance(self, ms: int) -> None:
        super().advance(ms)
        self.tell_news()

    def at_rest(self, **members: Owned) -> None:
        """`stable`, and everybody has said what it owns since."""
        self.stable(**members)
        for member_id, owned in members.items():
            self.beat(member_id, owned=owned, hold_ms=0)


class ClassicHoldDialogue(HoldDialogue, MixedDialogue):
    """The same of classic members."""

    beat = MixedDialogue.beat  # type: ignore[assignment]

    def wait(self, client: ClassicClient, *, hold_ms: int = HOLD_MS, counts_requests: bool = False) -> Answer:
        """A heartbeat of a client that bears it."""
        former = self.shard.held(self.group_id, client.member_id)
        if former is not None:
            self.release(former)
        answer = self.ask(
            commands.Heartbeat(
                cause=self.cause(),
                request=self.request(),
                group_id=self.group_id,
                generation_id=client.generation,
                member_id=client.member_id,
                instance_id=client.instance_id,
                hold_ms=hold_ms,
                counts_requests=counts_requests,
            )
        )
        self.tell_news()
        return answer
