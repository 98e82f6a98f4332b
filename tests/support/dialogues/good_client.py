"""A client of the consumer protocol as the KIP describes it, and what clients together must never believe."""

from __future__ import annotations

from collections.abc import Sequence

from kohort.coordinator import commands
from kohort.coordinator.commands import Refusal
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from support.dialogues.coordinator_dialogue import GroupDialogue


class Client:
    """A member that does what KIP-848 asks of it; answers may get lost on their way to it.

    Args:
        dialogue: the coordinator that it talks to.
        name: its member id.
        topics: what it names; `regex`: what it subscribes to by pattern.
        instance_id: its static name.
    """

    def __init__(
        self,
        dialogue: GroupDialogue,
        name: str,
        *,
        topics: Sequence[str] = ("t",),
        regex: str | None = None,
        instance_id: str | None = None,
    ) -> None:
        self.dialogue = dialogue
        self.name = name
        self.topics = tuple(topics)
        self.regex = regex
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: dict[TopicId, tuple[int, ...]] = {}
        self.has_to_report = False
        self.missed_an_answer = True

    def forget(self) -> None:
        """Be a new process, which owns nothing and knows nothing."""
        self.epoch, self.owned, self.missed_an_answer = 0, {}, True

    def step(self, *, is_lost: bool = False) -> None:
        """Heartbeat once, and believe the answer unless it is lost."""
        full = self.missed_an_answer or self.epoch == 0
        owned = {} if self.epoch == 0 else self.owned if full or self.has_to_report else None
        answer = self.dialogue.ask(
            commands.ConsumerGroupHeartbeat(
                cause=self.dialogue.cause(),
                request=self.dialogue.request(),
                group_id="g",
                member_id=self.name,
                member_epoch=self.epoch,
                client_id="c",
                client_host="h",
                rebalance_timeout_ms=60_000 if full else -1,
                instance_id=self.instance_id,
                subscribed_topic_names=self.topics if full else None,
                subscribed_topic_regex=(self.regex or "") if full else None,
                topic_partitions=owned,
            )
        )
        self.missed_an_answer = is_lost
        if is_lost:
            return
        self.has_to_report = False
        if isinstance(answer.body, Refusal):
            assert answer.body.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
            self.epoch, self.owned = 0, {}
            return
        reply = answer.body_as(commands.ConsumerGroupHeartbeatReply)
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.has_to_report = reply.assignment != self.owned
            self.owned = reply.assignment


def check_owners(clients: Sequence[Client]) -> None:
    """NoDoubleClientAssignment: no two clients believe to own one partition."""
    seen: dict[tuple[TopicId, int], str] = {}
    for client in clients:
        for topic_id, partitions in client.owned.items():
            for partition in partitions:
                other = seen.setdefault((topic_id, partition), client.name)
                assert other == client.name, f"{other} and {client.name} both own partition {partition}"
