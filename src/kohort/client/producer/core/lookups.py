"""What the application asks about the cluster: the partitions of a topic, and whether a broker is there.

Laws: every question ends once; asking creates no topic. Whether a broker is there is answered by what happens after the
question alone, and it is not once each address has been tried.
Source: Kafka's `partitionsFor`; aiokafka's `start`.
"""

from __future__ import annotations

from kohort.client.cluster import Cluster
from kohort.client.producer.core.producer_events import ConnectAsked, PartitionsAsked
from kohort.client.refusals import refused
from kohort.client.requests import Requests
from kohort.errors import BrokersUnreachableError, ErrorCode, KohortTimeoutError


class Lookups:
    """Questions of one producer that were not answered."""

    def __init__(self, requests: Requests, cluster: Cluster) -> None:
        self._requests = requests
        self._cluster = cluster
        self._open: list[PartitionsAsked] = []
        #: (generation of the cluster's picture that answers, question).
        self._connects: list[tuple[int, ConnectAsked]] = []

    def ask(self, asked: PartitionsAsked, now_ms: int) -> None:
        """One more."""
        self._open.append(asked)
        self._cluster.also_want([asked.topic], now_ms)

    def connect(self, asked: ConnectAsked, now_ms: int) -> None:
        """Is a broker there?"""
        self._connects.append((self._cluster.next_generation, asked))
        self._cluster.forget_absent()
        self._cluster.refresh_now(now_ms)

    def fail_connects(self, error: BrokersUnreachableError) -> None:
        """There is none, or none that lets this client in."""
        for _, asked in self._connects:
            self._requests.fail(asked.ticket, error)
        self._connects.clear()

    def topics(self) -> set[str]:
        """What is asked about."""
        return {asked.topic for asked in self._open}

    def deadlines(self) -> list[int]:
        """When they are too late."""
        return [asked.deadline_ms for asked in self._open] + [asked.deadline_ms for _, asked in self._connects]

    def on_tick(self, now_ms: int) -> None:
        """Answer what can be answered."""
        self._open = [asked for asked in self._open if not self._answer(asked, now_ms)]
        if self._connects and (desertion := self._cluster.find_desertion()):
            self.fail_connects(desertion)
        self._connects = [entry for entry in self._connects if not self._answer_connect(*entry, now_ms)]

    def _answer_connect(self, generation: int, asked: ConnectAsked, now_ms: int) -> bool:
        is_answered = self._cluster.generation >= generation
        if is_answered and self._cluster.is_reached:
            self._requests.complete(asked.ticket)
        elif now_ms >= asked.deadline_ms:
            self._requests.fail(asked.ticket, lateness("no broker has answered in time", self._cluster))
        else:
            if is_answered:
                # An address to start from has answered; one that it names has to, too.
                self._cluster.refresh_soon(now_ms)
            return False
        return True

    def _answer(self, asked: PartitionsAsked, now_ms: int) -> bool:
        topic = self._cluster.topics.get(asked.topic)
        if topic is not None and (topic.partitions or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self._requests.complete(asked.ticket, list(topic.partitions))
        elif topic is not None and not topic.error.retriable and topic.error is not ErrorCode.NONE:
            during = f"looking up topic {asked.topic}"
            error = refused(topic.error, during=during, operation="write", name=asked.topic)
            self._requests.fail(asked.ticket, error)
        elif now_ms >= asked.deadline_ms:
            text = f"the partitions of {asked.topic} are not known in time"
            self._requests.fail(asked.ticket, lateness(text, self._cluster))
        else:
            return False
        return True


def lateness(text: str, cluster: Cluster) -> KohortTimeoutError:
    """What was not done in time, and why, if that is known."""
    return KohortTimeoutError(text if cluster.trouble is None else f"{text}: {cluster.trouble}")
