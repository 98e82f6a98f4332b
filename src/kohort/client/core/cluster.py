"""The client's metadata of the cluster: brokers, topics, partitions and their leaders.

Laws: one Metadata request at a time. Before the first answer, a round in which every address fails is reported, once
per round. The metadata never go back to an older leader epoch of a topic, nor to a former topic of the same name.
Source: Kafka's Metadata API; `BrokersUnreachableError` within a second is a requirement of kohort's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final

from kohort.base.values import value
from kohort.client.core.actions import Endpoint, Lane
from kohort.client.core.requests import Answer, Failure, RequestFailed, Requests, message_of
from kohort.errors import AdvertisedAddressError, AuthenticationError, BrokersUnreachableError, ErrorCode, NotKafkaError
from kohort.ids import ZERO_TOPIC_ID, TopicId, TopicPartition
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic

#: Failures which show that no broker listens at an address.
_NOT_THERE: Final = (Failure.UNREACHABLE, Failure.NO_BROKER)


@value
class PartitionInfo:
    """One partition as last seen; `leader_id` -1: it has no leader now, `leader_epoch` -1: unknown."""

    leader_id: int
    leader_epoch: int


@value
class TopicInfo:
    """One topic as last seen; with an `error` other than NONE it has no partitions."""

    name: str
    topic_id: TopicId
    error: ErrorCode
    is_internal: bool
    #: partition -> its leader, ascending.
    partitions: Mapping[int, PartitionInfo]


class Cluster:
    """The brokers and topics, and the Metadata requests that keep them up to date.

    Args:
        bootstrap: addresses to start from, at least one.
        on_change: called with the time after each Metadata response.
        on_unreachable: called with the error and the time: if every address has failed before the first response, and
            if all addresses named in a response have failed before one of them was reached.
    """

    def __init__(
        self,
        requests: Requests,
        *,
        bootstrap: Sequence[Endpoint],
        max_age_ms: int,
        on_change: Callable[[int], None],
        on_unreachable: Callable[[BrokersUnreachableError, int], None],
    ) -> None:
        assert bootstrap, "no address to start from"
        self._requests = requests
        self._bootstrap: Final = tuple(bootstrap)
        #: Longest time between two answers.
        self._max_age_ms = max_age_ms
        #: Whether a request for a missing topic may create it.
        self.may_create = False
        self._on_change = on_change
        self._on_unreachable = on_unreachable
        #: node id -> address, from the last answer.
        self.brokers: dict[int, Endpoint] = {}
        self.controller_id = -1
        self.cluster_id: str | None = None
        #: name -> topic, for the wanted topics that an answer has named.
        self.topics: dict[str, TopicInfo] = {}
        #: id -> name, of the topics above; and the function that looks an id up, `None`: no response has had the id.
        self._names: dict[bytes, str] = {}
        self.topic_name: Final[Callable[[bytes], str | None]] = self._names.get
        #: name -> ids of the latest topic of that name, and of the one before.
        self._ids: dict[str, tuple[TopicId, TopicId]] = {}
        self._wanted: set[str] = set()
        #: Whether every topic is followed, not only the wanted ones.
        self._follows_all = False
        #: Whether `topics` has every topic of the cluster.
        self.knows_all = False
        #: Whether the request in flight is for every topic.
        self._asks_all = False
        #: Number of answers; 0: no broker has answered yet.
        self.generation = 0
        #: When to send the next request; `None` until a topic is wanted.
        self._due_ms: int | None = None
        self._in_flight = False
        #: Whether a topic was asked for after the request in flight had been built.
        self._is_stale = False
        #: Failed rounds or incomplete responses in a row; index of the address to ask next.
        self._attempts = self._cursor = 0
        #: The broker that the request in flight was sent to.
        self._asked = bootstrap[0]
        #: (address, failure) of the present round.
        self._round: list[tuple[Endpoint, RequestFailed]] = []
        #: The latest failure of a request; `None`: the last one was answered.
        self.trouble: str | None = None
        #: The broker of the latest answer to any request.
        self._answered: Endpoint | None = None
        #: Whether a broker was reached under an address that an answer has named.
        self.is_reached = False
        #: Address without a broker at the last attempt -> its failure, since `forget_absent`.
        self._absent: dict[Endpoint, RequestFailed] = {}
        #: Wakes this part of the machine: a request may be due.
        self.wake: Callable[[], None] = lambda: None
        requests.on_end = self._on_any_end

    # -- metadata -----------------------------------------------------------------------------------------------

    def topic_id(self, name: str) -> TopicId:
        """Return the id of a topic; zero if unknown."""
        topic = self.topics.get(name)
        return ZERO_TOPIC_ID if topic is None else topic.topic_id

    def known_id(self, name: str) -> TopicId | None:
        """Return a topic's id: zero if brokers report none, `None` if the topic is unknown or does not exist yet."""
        topic = self.topics.get(name)
        return None if topic is None or topic.error.retriable else topic.topic_id

    def partitions_of(self, name: str) -> list[TopicPartition]:
        """Return the partitions of a topic, ascending; none if it is unknown."""
        topic = self.topics.get(name)
        return [] if topic is None else [TopicPartition(name, partition) for partition in topic.partitions]

    def is_hidden(self, name: str) -> bool:
        """Return whether this client is not authorized to describe the topic, at present."""
        topic = self.topics.get(name)
        return topic is not None and topic.error is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def leader_of(self, partition: TopicPartition) -> Endpoint | None:
        """Return the address of a partition's leader; `None` if it is unknown or there is none."""
        info = self.partition(partition)
        return None if info is None else self.brokers.get(info.leader_id)

    def partition(self, partition: TopicPartition) -> PartitionInfo | None:
        """Return the leader and epoch of a partition as last seen; `None` if unknown."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)

    def any_endpoint(self) -> Endpoint:
        """Return the address for requests that any broker can answer; it changes after a failure."""
        candidates = self._candidates()
        return candidates[self._cursor % len(candidates)]

    @property
    def is_cut_off(self) -> bool:
        """Whether all addresses that the brokers have named have failed, and none was ever reached."""
        named = self.brokers.values()
        return not self.is_reached and bool(named) and all(endpoint in self._absent for endpoint in named)

    def find_desertion(self) -> BrokersUnreachableError | None:
        """Return an error if every address has failed since `forget_absent`, otherwise `None`."""
        candidates = self._candidates()
        if any(endpoint not in self._absent for endpoint in candidates):
            return None
        return _unreachable([(endpoint, self._absent[endpoint]) for endpoint in candidates])

    def forget_absent(self) -> None:
        """Forget failed addresses, so that `find_desertion` waits for new attempts."""
        self._absent.clear()

    # -- wanted topics ------------------------------------------------------------------------------------------

    def want(self, topics: Iterable[str], now_ms: int, *, and_all: bool = False) -> None:
        """Keep metadata of exactly these topics, with `and_all` of all others too; request unknown ones at once."""
        wanted = set(topics)
        is_same = wanted == self._wanted and and_all == self._follows_all
        if is_same and (self._in_flight or self._due_ms is not None):
            return
        is_more = and_all and not self._follows_all
        self._wanted, self._follows_all = wanted, and_all
        if not and_all:
            self.knows_all = False
            self._forget([name for name in self.topics if name not in wanted])
        if self._due_ms is None or is_more or any(name not in self.topics for name in wanted):
            self.refresh(now_ms)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._names.pop(self.topics.pop(name).topic_id, None)
            self._ids.pop(name, None)

    def also_want(self, topics: Iterable[str], now_ms: int) -> None:
        """Keep metadata of these topics, too."""
        self.want(self._wanted.union(topics), now_ms)

    def want_no_more(self, topics: Set[str], now_ms: int) -> None:
        """Keep metadata of these topics no longer."""
        self.want(self._wanted - topics, now_ms)

    @property
    def next_generation(self) -> int:
        """The `generation` of the first response to a request that is sent from now on."""
        return self.generation + (2 if self._in_flight else 1)

    def refresh(self, now_ms: int) -> None:
        """Send a request as soon as possible: at once, or after the pause of a failure."""
        if self._in_flight:
            self._is_stale = True
        elif self._attempts == 0 or self._due_ms is None:
            self._due_ms = now_ms
            self.wake()

    def refresh_now(self, now_ms: int) -> None:
        """Send a request at once, without the pause after an incomplete response, since the wanted topics changed."""
        if self._in_flight:
            self._is_stale = True
        else:
            self._due_ms = now_ms
            self.wake()

    def refresh_soon(self, now_ms: int) -> None:
        """Send a request after one pause, for errors that last until leaders are elected."""
        if not self._in_flight:
            due = now_ms + self._requests.retry.delay_ms(self._attempts)
            self._due_ms = due if self._due_ms is None else min(self._due_ms, due)
            self.wake()

    def next_deadline(self) -> int | None:
        """Return when `work` has a request to send."""
        return None if self._in_flight else self._due_ms

    def work(self, now_ms: int) -> None:
        """Send a metadata request when one is due."""
        if self._in_flight or self._due_ms is None or now_ms < self._due_ms:
            return
        self._in_flight, self._is_stale, self._asks_all = True, False, self._follows_all
        request = MetadataRequest(
            topics=None if self._asks_all else [MetadataRequestTopic(name=name) for name in sorted(self._wanted)],
            allow_auto_topic_creation=self.may_create,
        )
        # Version 0 would read an empty list as "all topics".
        self._asked = self.any_endpoint()
        self._requests.send(self._asked, Lane.CONTROL, request, self._on_answer, min_version=1)

    # -- answers ------------------------------------------------------------------------------------------------

    def _on_answer(self, answer: Answer, now_ms: int) -> None:
        self._in_flight = False
        response = message_of(answer, MetadataResponse)
        if response is None:
            assert isinstance(answer, RequestFailed)
            self._on_failure(answer, now_ms)
            return
        self._round.clear()
        self.trouble = None
        self.generation += 1
        had_names = bool(self.brokers)
        self.brokers = {broker.node_id: Endpoint(broker.host, broker.port) for broker in response.brokers}
        # The broker that has answered is asked first again; a bootstrap address only where named ones have failed.
        is_named = self._asked in self.brokers.values()
        candidates = self._candidates()
        self._cursor = candidates.index(self._asked) if is_named or (had_names and self._asked in candidates) else 0
        self.controller_id = response.controller_id
        self.cluster_id = response.cluster_id
        for topic in response.topics:
            if topic.name in self._wanted or self._follows_all:
                self._learn(topic)
        if self._asks_all:
            self._note_missing({topic.name for topic in response.topics})
        if self._is_settled():
            self._attempts = 0
            self._due_ms = now_ms if self._is_stale else now_ms + self._max_age_ms
        else:
            self._due_ms = now_ms if self._is_stale else now_ms + self._requests.retry.delay_ms(self._attempts)
            self._attempts += 1
        self._on_change(now_ms)

    def _note_missing(self, found: Set[str | None]) -> None:
        """Note the wanted topics that a list of every topic lacks: they do not exist."""
        self.knows_all = self._follows_all
        self._forget([name for name in self.topics if name not in found])
        for name in self._wanted - found:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            self._put(TopicInfo(name=name, topic_id=ZERO_TOPIC_ID, error=error, is_internal=False, partitions={}))

    def _learn(self, topic: MetadataResponseTopic) -> None:
        assert topic.name is not None
        old = self.topics.get(topic.name)
        error = ErrorCode.of(topic.error_code)
        if error is not ErrorCode.NONE:
            # While a leader is being elected, the partitions stay known.
            if old is None or error is not ErrorCode.LEADER_NOT_AVAILABLE:
                self._put(
                    TopicInfo(name=topic.name, topic_id=ZERO_TOPIC_ID, error=error, is_internal=False, partitions={})
                )
            return
        if self._is_former(topic.name, TopicId(topic.topic_id)):
            return
        known = old.partitions if old is not None and old.topic_id == topic.topic_id else {}
        partitions: dict[int, PartitionInfo] = {}
        for each in sorted(topic.partitions, key=lambda partition: partition.partition_index):
            seen = known.get(each.partition_index)
            new = PartitionInfo(leader_id=each.leader_id, leader_epoch=each.leader_epoch)
            # A broker that lags behind may name a former leader.
            is_older = seen is not None and 0 <= new.leader_epoch < seen.leader_epoch
            partitions[each.partition_index] = seen if is_older and seen is not None else new
        self._put(
            TopicInfo(
                name=topic.name,
                topic_id=TopicId(topic.topic_id),
                error=error,
                is_internal=topic.is_internal,
                partitions=partitions,
            )
        )

    def _is_former(self, name: str, topic_id: TopicId) -> bool:
        """Return whether a topic is gone, because another one was seen under its name since."""
        last, former = self._ids.get(name, (ZERO_TOPIC_ID, ZERO_TOPIC_ID))
        if topic_id in (ZERO_TOPIC_ID, last):
            return False
        if topic_id != former:
            # A new topic of that name was made: the one before is a former topic from now on.
            self._ids[name] = topic_id, last
        return topic_id == former

    def _put(self, topic: TopicInfo) -> None:
        old = self.topics.get(topic.name)
        if old is not None:
            self._names.pop(old.topic_id, None)
        self.topics[topic.name] = topic
        if topic.topic_id != ZERO_TOPIC_ID:
            self._names[topic.topic_id] = topic.name

    def _is_settled(self) -> bool:
        """Return whether every wanted topic is there with all its leaders, or refused for good."""
        for name in self._wanted:
            topic = self.topics.get(name)
            if topic is None or topic.error.retriable:
                return False
            if any(partition.leader_id not in self.brokers for partition in topic.partitions.values()):
                return False
        return True

    def _on_any_end(self, to: Endpoint, answer: Answer, now_ms: int) -> None:
        """Read from the end of any request whether the login and the named addresses work."""
        if isinstance(answer, RequestFailed) and answer.failure is Failure.NOT_AUTHENTICATED:
            # Reported each time, whichever broker refuses the login: it does not pass by itself.
            self._on_unreachable(AuthenticationError([(str(to), _reason(to, answer))]), now_ms)
            return
        is_named = to in self.brokers.values()
        if not isinstance(answer, RequestFailed):
            was_cut_off = not self.is_reached and self.is_cut_off
            self._absent.pop(to, None)
            self._answered = to
            self.is_reached |= is_named
            if was_cut_off and is_named:
                self._on_change(now_ms)
        elif answer.failure in _NOT_THERE:
            self._absent[to] = answer
            # After the first answer a round of failures is reported until a named address was reached. From then on an
            # absent broker is only tried again.
            if is_named and self.is_cut_off:
                assert self._answered is not None, "a broker has named it"
                attempts = [(str(each), _reason(each, self._absent[each])) for each in self.brokers.values()]
                self._on_unreachable(AdvertisedAddressError(str(self._answered), attempts), now_ms)

    def _on_failure(self, answer: RequestFailed, now_ms: int) -> None:
        candidates = self._candidates()
        endpoint = candidates[self._cursor % len(candidates)]
        self._round.append((endpoint, answer))
        self.trouble = f"{endpoint}: {_reason(endpoint, answer)}"
        # The next request goes to the next address.
        self._cursor += 1
        # The round goes on without a pause, since another address may answer.
        if len(self._round) < len(candidates):
            self._due_ms = now_ms
            return
        tried, self._round = self._round, []
        self._due_ms = now_ms + self._requests.retry.delay_ms(self._attempts)
        self._attempts += 1
        # `_on_any_end` has reported a failed login already.
        is_told = any(failed.failure is Failure.NOT_AUTHENTICATED for _, failed in tried)
        if self.generation == 0 and not is_told:
            self._on_unreachable(_unreachable(tried), now_ms)

    def _candidates(self) -> list[Endpoint]:
        # Brokers that an answer has named come before the bootstrap addresses.
        known = [self.brokers[node] for node in sorted(self.brokers)]
        return [*known, *(endpoint for endpoint in self._bootstrap if endpoint not in known)]


def _unreachable(tried: Sequence[tuple[Endpoint, RequestFailed]]) -> BrokersUnreachableError:
    are_open = all(failed.failure is Failure.NO_BROKER for _, failed in tried)
    kind = NotKafkaError if are_open else BrokersUnreachableError
    return kind([(str(endpoint), _reason(endpoint, failed)) for endpoint, failed in tried])


def _reason(address: object, failed: RequestFailed) -> str:
    # Some details begin with the address, for readers that do not get it otherwise.
    return failed.detail.removeprefix(f"{address}: ") or failed.failure.value
