"""The news that a member gets beside its heartbeats, with answers to fetches and commits.

Laws: news are taken in the order in which the coordinator decided them, by their numbers, whichever way they came. News
that come while a list of owned partitions is on its way count when that is answered: another member may have the
partitions that the list leaves out by then. An answer to a request from before the coordinator was lost is ignored.
Nothing is sent to a broker that is not kohort's. After a refusal a heartbeat is sent at once, whatever is under way,
and no record is handed out until its answer.
Source: requirement H10; docs/reference/private-protocol.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kohort.client.core.actions import Lane
from kohort.ids import TopicId
from kohort.wire.messages.consumer_group_heartbeat import TopicPartitions
from kohort.wire.messages.membership import MemberNews, MemberWord


class Hearer(Protocol):
    """The member that takes the news."""

    def say(self) -> MemberWord | None:
        """Return the member's assignment as it knows it; `None`: no membership, or a doubtful one."""
        ...

    def has_list_to_say(self) -> bool:
        """Return whether a list of owned partitions is due or on its way."""
        ...

    def take_news(self, news: MemberNews, now_ms: int) -> None:
        """Take news from the coordinator that are newer than all before."""
        ...

    def take_refusal(self, news: MemberNews, lane: Lane, now_ms: int) -> None:
        """Take the news, by the connection `lane`, that a heartbeat would be refused."""
        ...


class Hearing:
    """The way of news from fetches and commits to the member, and of its word back.

    Args:
        is_wanted: whether the member takes news this way.
    """

    __slots__ = ("_heard", "_is_heard", "_is_wanted", "_number", "_said", "_word", "era", "hearer")

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        #: The member; `None` without one.
        self.hearer: Hearer | None = None
        #: Rises when a coordinator is found: answers to requests of an earlier era are ignored.
        self.era = 0
        #: Whether the coordinator is kohort's, and has answered.
        self._is_heard = False
        #: Number of the latest news that were taken, by whichever way.
        self._number = 0
        #: News that came while a list of owned partitions was on its way.
        self._heard: MemberNews | None = None
        #: The latest word of the member.
        self._word: MemberWord | None = None
        #: Member id, epoch and assignment in it.
        self._said: tuple[str, int, dict[TopicId, Sequence[int]]] | None = None

    @property
    def is_on(self) -> bool:
        """Whether assignments are to be numbered."""
        return self._is_wanted and self._is_heard

    def begin(self) -> None:
        """Begin to take news, because a coordinator of kohort's has answered."""
        if not self._is_heard:
            self._is_heard = True
            self._word = None
            self.era += 1

    def lose(self) -> None:
        """Forget the coordinator, which may be another one by now."""
        self._is_heard = False
        self._number = 0
        self._heard = None

    def takes(self, number: int) -> bool:
        """Return whether news of that number are newer than all before, and note it; 0 is no number."""
        if 0 < number <= self._number:
            return False
        self._number = max(number, self._number)
        return True

    def build_word(
        self, group_id: str, member_id: str, epoch: int, known: Mapping[TopicId, Sequence[int]]
    ) -> MemberWord:
        """Build the member's word of its assignment; the same object while that does not change."""
        what = member_id, epoch, dict(known)
        if self._word is None or what != self._said:
            rows = [TopicPartitions(topic_id=each, partitions=sorted(known[each])) for each in sorted(known)]
            self._word = MemberWord(group_id=group_id, member_id=member_id, member_epoch=epoch, topic_partitions=rows)
            self._said = what
        return self._word

    def say(self) -> MemberWord | None:
        """Return the member's word for a request to the coordinator; `None`: none is due."""
        if not (self._is_wanted and self._is_heard) or self.hearer is None or self._heard is not None:
            return None
        return self.hearer.say()

    def hear(self, news: MemberNews | None, *, era: int, lane: Lane, now_ms: int) -> None:
        """Take the news that came with an answer, by the connection `lane`, to a request of `era`."""
        if news is None or not self._is_wanted:
            return
        if news.error_code:
            # It names its epoch, so its era does not matter: a member that is cut off cannot tell where its coordinator
            # is.
            if self.hearer is not None and news.number > self._number:
                self.hearer.take_refusal(news, lane, now_ms)
        elif era == self.era and self.is_on:
            self._weigh(news, now_ms)

    def on_said(self, now_ms: int) -> None:
        """Take news that have waited for the answer to a heartbeat."""
        heard, self._heard = self._heard, None
        if heard is not None:
            self._weigh(heard, now_ms)

    def _weigh(self, news: MemberNews, now_ms: int) -> None:
        hearer = self.hearer
        if hearer is None or news.number <= self._number:
            return
        if hearer.has_list_to_say():
            # Kept until the list is answered: the coordinator may give the partitions that it leaves out to others.
            self._heard = news
        elif self.takes(news.number):
            hearer.take_news(news, now_ms)
