"""What a member hears beside its heartbeats: by answers to fetches and commits, from a coordinator that tells it there.

Laws: what the coordinator told is taken in the order in which it was decided, by its numbers, whichever way it came.
What is heard while a list of what is owned is on its way counts when that is answered: what the list leaves out may be
another's by then. An answer to what was asked before the coordinator was lost is not listened to. Nothing is said to a
broker that is none of kohort's. A refusal is asked about at once, whatever else is on its way, and nothing is handed
out until that is answered.
Source: requirement H10; docs/private-protocol.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kohort.client.actions import Lane
from kohort.ids import TopicId
from kohort.wire.messages.consumer_group_heartbeat import TopicPartitions
from kohort.wire.messages.membership import MemberNews, MemberWord


class Hearer(Protocol):
    """The member."""

    def say(self) -> MemberWord | None:
        """What it knows; `None` if it is no member, or not sure."""
        ...

    def has_list_to_say(self) -> bool:
        """Whether what it owns is about to be said, or on its way."""
        ...

    def take_news(self, news: MemberNews, now_ms: int) -> None:
        """The coordinator has told something that is newer than all before."""
        ...

    def take_refusal(self, news: MemberNews, lane: Lane, now_ms: int) -> None:
        """The coordinator has told, by that connection, that a heartbeat would be refused."""
        ...


class Hearing:
    """The way from fetches and commits to the member, and back.

    Args:
        is_wanted: whether anything is to be said and heard this way.
    """

    __slots__ = ("_heard", "_is_heard", "_is_wanted", "_number", "_word", "era", "hearer")

    def __init__(self, *, is_wanted: bool) -> None:
        self._is_wanted = is_wanted
        #: Who hears; `None` while nobody could.
        self.hearer: Hearer | None = None
        #: Rises when a coordinator is found: what was asked before is not listened to.
        self.era = 0
        #: Whether the coordinator is a broker of kohort's, and has answered.
        self._is_heard = False
        #: Of what was taken last, by whichever way.
        self._number = 0
        #: What was heard while a list was on its way.
        self._heard: MemberNews | None = None
        #: What was said last.
        self._word: MemberWord | None = None

    @property
    def is_on(self) -> bool:
        """Whether assignments are to be numbered."""
        return self._is_wanted and self._is_heard

    def begin(self) -> None:
        """A coordinator that is a broker of kohort's has answered."""
        if not self._is_heard:
            self._is_heard = True
            self._word = None
            self.era += 1

    def lose(self) -> None:
        """The coordinator may be another one by now."""
        self._is_heard = False
        self._number = 0
        self._heard = None

    def takes(self, number: int) -> bool:
        """Whether what has that number is newer than all before; from now on it is the latest. 0 is no number."""
        if 0 < number <= self._number:
            return False
        self._number = max(number, self._number)
        return True

    def build_word(
        self, group_id: str, member_id: str, epoch: int, known: Mapping[TopicId, Sequence[int]]
    ) -> MemberWord:
        """What a member knows: the same object as long as that is the same."""
        rows = [TopicPartitions(topic_id=each, partitions=sorted(known[each])) for each in sorted(known)]
        word = MemberWord(group_id=group_id, member_id=member_id, member_epoch=epoch, topic_partitions=rows)
        if self._word is None or word != self._word:
            self._word = word
        return self._word

    def say(self) -> MemberWord | None:
        """What to say with a request to the coordinator; `None`: nothing."""
        if not self.is_on or self.hearer is None or self._heard is not None:
            return None
        return self.hearer.say()

    def hear(self, news: MemberNews | None, *, era: int, lane: Lane, now_ms: int) -> None:
        """What came by that connection with the answer to something that was asked in that era."""
        if news is None or not self._is_wanted:
            return
        if news.error_code:
            # It says of which epoch; and whoever is cut off from its coordinator does not know where that is.
            if self.hearer is not None and news.number > self._number:
                self.hearer.take_refusal(news, lane, now_ms)
        elif era == self.era and self.is_on:
            self._weigh(news, now_ms)

    def on_said(self, now_ms: int) -> None:
        """A heartbeat was answered: perhaps nothing is on its way any more."""
        heard, self._heard = self._heard, None
        if heard is not None:
            self._weigh(heard, now_ms)

    def _weigh(self, news: MemberNews, now_ms: int) -> None:
        hearer = self.hearer
        if hearer is None or news.number <= self._number:
            return
        if hearer.has_list_to_say():
            self._heard = news
        elif self.takes(news.number):
            hearer.take_news(news, now_ms)
