"""Members of a KIP-848 group on one connection that say by hand what they own, and do at once what they are told."""

from __future__ import annotations

from typing import Any

from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient


class BeatingMembers:
    """Members by their ids; nobody beats unless told so, so that a test sees each step of a move."""

    def __init__(self, client: RawClient, group_id: str) -> None:
        self._client = client
        self.group_id = group_id
        self._epochs: dict[str, int] = {}
        #: Member -> topic id -> its partitions.
        self.owned: dict[str, dict[bytes, list[int]]] = {}

    def join(self, *names: str, topics: tuple[str, ...], **fields: Any) -> None:
        """Join one after the other, and go on until nobody is told anything new."""
        fields |= {"subscribed_topic_names": list(topics), "rebalance_timeout_ms": 60_000, "topic_partitions": []}
        for name in names:
            self.owned[name] = {}
            self._beat(name, 0, **fields)
        self.settle()

    def beat(self, name: str) -> bool:
        """One heartbeat with what the member owns; whether it was told anything new."""
        partitions = [TopicPartitions(topic_id=topic, partitions=held) for topic, held in self.owned[name].items()]
        return self._beat(name, self._epochs[name], topic_partitions=partitions)

    def go_on(self, client: RawClient) -> None:
        """On another connection."""
        self._client = client

    def settle(self) -> None:
        """Beat until nobody is told anything new any more."""
        news = ["the first round"]
        while news:
            news = [name for name in self.owned if self.beat(name)]

    def leave(self, name: str) -> None:
        """End a member."""
        del self.owned[name]
        self._ask(name, -1)

    def partitions(self, name: str) -> list[int]:
        """What a member has, whatever the topic."""
        return sorted(number for held in self.owned[name].values() for number in held)

    def _beat(self, name: str, epoch: int, **fields: Any) -> bool:
        answer = self._ask(name, epoch, **fields)
        is_new = answer.member_epoch != epoch or answer.assignment is not None
        self._epochs[name] = answer.member_epoch
        if answer.assignment is not None:
            self.owned[name] = {row.topic_id: row.partitions for row in answer.assignment.topic_partitions}
        return is_new

    def _ask(self, name: str, epoch: int, **fields: Any) -> Any:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group_id, member_id=name, member_epoch=epoch, **fields)
        answer = self._client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
        assert answer.error_code == 0, answer
        return answer
