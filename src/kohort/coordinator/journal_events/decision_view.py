"""View of one decision for one group: its records, and the state before they are applied.

Laws: nothing is decided here, and only the journal's own memory of the group changes (`open_rebalances.py`).
Source: requirements G4 and J1.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from kohort.base.timers import TimerTable
from kohort.coordinator import delayed_heartbeats
from kohort.coordinator.classic import state as classic
from kohort.coordinator.consumer.reconciliation.track_moves import granted_epoch_of
from kohort.coordinator.decision import TimerKey
from kohort.coordinator.journal_events.open_rebalances import ClientKey, LastRead, MemberKey, OpenRebalance, Reads
from kohort.coordinator.model import ConsumerMember, GroupsState, Place
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.ids import TopicId, format_topic_id
from kohort.journal import rows, words

#: Reasons for the removal of a silent member.
LOST: Final = "connection lost"
SILENT: Final = "session timeout"
#: Records with which a group changes its protocol, if it goes on at all.
_ENDS: Final = (facts.ClassicGroupForgotten, facts.ConsumerGroupForgotten)
_BEGINS_CLASSIC: Final = (classic.ClassicGroupOpened, facts.ClassicGroupStored, classic.MemberPut)


class ConnectionEnd(NamedTuple):
    """End of a member's connection, and the last sign of life before it, ms."""

    ended_ms: int
    heard_ms: int


class DecisionView:
    """The records of one decision for one group, and the data for their entries."""

    def __init__(
        self,
        groups: GroupsState,
        group_id: str,
        records: Sequence[facts.Record],
        *,
        former_topics: Mapping[TopicId, str],
        rebalance: OpenRebalance,
        reads: Reads,
        ends: Mapping[MemberKey, ConnectionEnd],
        settings: GroupSettings,
        timers: TimerTable[TimerKey],
        now_ms: int,
    ) -> None:
        """Collect data for a group's entries from state and deadlines before the records are applied.

        `former_topics`: names of deleted topics. `rebalance`, `reads`: the group's open rebalance and the reads, which
        reporting updates.
        """
        self._groups, self.image = groups, groups.image
        self._former_topics = former_topics
        self._timers = timers
        self._reads = reads
        self._ends = ends
        self.settings = settings
        self.group_id = group_id
        self.records = records
        self.kinds = {type(record) for record in records}
        #: Trigger of the decision; reason of a new epoch without a change of the group.
        self.trigger = self.step = ""
        #: The member that computed a target of the records, "" if the broker did.
        self.computed_by = ""
        #: Pace of moves, where some wait.
        self.pace = ""
        self.rebalance = rebalance
        self.now_ms = now_ms
        #: The group before the records, in either protocol; its KIP-848 members; its configs.
        self.consumer = groups.consumer.get(group_id)
        self.classic = groups.classic.get(group_id)
        self.members: Mapping[str, ConsumerMember] = {} if self.consumer is None else self.consumer.members
        self.configs: Mapping[str, str] = groups.configs.get(group_id, {})
        #: The clock of a static group before the records; `None`: none.
        self.clock = groups.clocks.get(group_id)
        #: Member -> the process of the same instance id that it replaces.
        self.former: dict[str, str] = {}
        #: Members whose group changes its protocol: they neither join nor leave.
        self.kept: Collection[str] = () if self.kinds.isdisjoint(_ENDS) else self._find_kept()
        #: Number of records so far that are only counted.
        self.targets = self.forgotten_offsets = 0

    @property
    def goes_on_as(self) -> str:
        """Return the protocol to which the group changes, empty if it does not change or ends."""
        # A conversion is the end of one type of group and the beginning of the other in one batch.
        if facts.ClassicGroupForgotten in self.kinds and facts.ConsumerGroupEpochSet in self.kinds:
            return "consumer"
        is_classic = facts.ConsumerGroupForgotten in self.kinds and not self.kinds.isdisjoint(_BEGINS_CLASSIC)
        return "classic" if is_classic else ""

    def _find_kept(self) -> Collection[str]:
        if self.classic is not None and facts.ClassicGroupForgotten in self.kinds:
            moved = {record.member_id for record in self.records if isinstance(record, facts.ConsumerMemberSubscribed)}
            return self.classic.members.keys() & moved
        if facts.ConsumerGroupForgotten in self.kinds:
            put = [record.member.member_id for record in self.records if isinstance(record, classic.MemberPut)]
            return self.members.keys() & put
        return ()

    def transition(self, event: str, member_id: str = "", /, **details: str) -> rows.Entry:
        """Build an entry for a change; empty details are left out."""
        return rows.Entry(rows.RowKind.TRANSITION, event, self.group_id, member_id, shown(details))

    def decision(self, event: str, member_id: str = "", /, **details: str) -> rows.Entry:
        """Build an entry for a decision."""
        return rows.Entry(rows.RowKind.DECISION, event, self.group_id, member_id, shown(details))

    def arrivals(self, member_id: str, gained: Iterable[words.Partition]) -> Iterator[rows.Entry]:
        """Yield entries for partitions gained from other members, one for each passage."""
        former = self.former.get(member_id)
        gained = list(gained)
        passages = {each: self.rebalance.passages[each] for each in gained if each in self.rebalance.passages}
        expected = {each: passage.last_read for each, passage in passages.items() if passage.last_read is not None}
        # From now on the first fetch of the new owner tells until when the partition was unread.
        self._reads.expect((self.group_id, member_id), self._client_of(member_id), expected)
        for passage, partitions in self.rebalance.grant(member_id, gained, now_ms=self.now_ms, former=former):
            details = {"from": passage.giver, "partitions": words.write_partitions(partitions), **passage.details}
            yield self.transition("partitions_moved", member_id, **details, trigger=", ".join(self.rebalance.triggers))

    def let_go(
        self, member_id: str, partitions: Mapping[words.Partition, int | None], *, asked_ms: int | None = None
    ) -> dict[str, str]:
        """Note that a member has released partitions (partition -> epoch of its assignment).

        `asked_ms`: when the member was told to revoke them, if the open rebalance does not have that time.

        Returns:
            Details for a row: the time until which all of them were read.
        """
        key, passages = (self.group_id, member_id), self.rebalance.passages
        fetched_ms, committed = self._reads.fetched.get(key), self._groups.offsets.get(self.group_id, {})
        signs = None if fetched_ms is not None else self._signs(member_id)
        last_reads: dict[words.Partition, LastRead] = {}
        for partition in partitions:
            passage = passages.get(partition)
            is_asked = passage is not None and passage.giver == member_id and passage.asked_ms is not None
            told_ms = passage.asked_ms if passage is not None and is_asked else asked_ms
            if fetched_ms is not None:
                # A fetch after the request to revoke may have left the partition out.
                read_ms, is_seen = fetched_ms if told_ms is None else min(fetched_ms, told_ms), True
            elif told_ms is not None and self.trigger not in (LOST, SILENT):
                # The member was told to revoke in time: it is taken to have read until then.
                read_ms, is_seen = told_ms, False
            else:
                # The member was silent: its last sign of life, or the end of its connection, is all that is known.
                assert signs is not None
                is_seen = signs.ended_ms >= signs.heard_ms
                read_ms = max(signs) if told_ms is None else min(told_ms, max(signs))
            commit = committed.get(partition[0], {}).get(partition[1])
            # A commit shows that the member has read up to it.
            if commit is not None:
                read_ms = max(read_ms, min(commit.commit_timestamp_ms, self.now_ms))
            # One that this decision stores is known to the passage alone.
            if passage is not None and passage.giver == member_id and passage.committed_ms is not None:
                read_ms = max(read_ms, min(passage.committed_ms, self.now_ms))
            last = LastRead(reader=member_id, read_ms=read_ms, is_seen=is_seen)
            # A member that never read the partition leaves the former reader as the last one.
            last_reads[partition] = self._reads.let_go(key, partition) or last
        self.rebalance.release(member_id, partitions, now_ms=self.now_ms, last_reads=last_reads)
        earliest = min(last_reads.values(), key=lambda last: last.read_ms, default=None)
        return {} if earliest is None else {name: text for name, text in earliest.details().items() if text}

    def farewell(self, member_id: str) -> dict[str, str]:
        """Return a removed member's last signs of life, if it was removed because it was silent."""
        key = (self.group_id, member_id)
        fetched_ms, signs = self._reads.fetched.get(key, 0), self._signs(member_id)
        self._reads.forget(key)
        # Only a removal for silence is explained by signs of life.
        if self.trigger not in (LOST, SILENT):
            return {}
        silent_ms = self.now_ms - max(fetched_ms, *signs)
        heard_by = "fetch" if self.settings.counts_fetches and fetched_ms >= max(signs) else ""
        # A connection that ended before a later sign of life means nothing, and a static member is not removed for it.
        is_of_use = signs.ended_ms >= signs.heard_ms and not self.instance_of(member_id)
        ended_ms = str(self.now_ms - signs.ended_ms) if is_of_use else ""
        session_ms = str(self._session_ms_of(member_id))
        return {
            "silent_ms": str(silent_ms),
            "disconnected_ms": ended_ms,
            "session_ms": session_ms,
            "heard_by": heard_by,
        }

    def _signs(self, member_id: str) -> ConnectionEnd:
        """Return a member's last sign of life and the end of its connection; 0: end unknown."""
        end = self._ends.get((self.group_id, member_id), ConnectionEnd(0, 0))
        deadline_ms = self._timers.deadline(TimerKey("session", self.group_id, member_id))
        if deadline_ms is None and self.trigger == LOST:
            # The member's session was shortened when the connection was lost.
            return end
        # The session's deadline is always one session timeout after the last sign of life.
        heard_ms = (self.now_ms if deadline_ms is None else deadline_ms) - self._session_ms_of(member_id)
        return ConnectionEnd(end.ended_ms, heard_ms)

    def _session_ms_of(self, member_id: str) -> int:
        hosted = self.members.get(member_id)
        own = None if hosted is None else hosted.classic
        if own is not None:
            return own.session_timeout_ms
        member = None if self.classic is None else self.classic.members.get(member_id)
        return self.settings.group_consumer_session_timeout_ms if member is None else member.session_timeout_ms

    def _member(self, member_id: str) -> ConsumerMember | classic.ClassicMember | None:
        return self.members.get(member_id) or (None if self.classic is None else self.classic.members.get(member_id))

    def instance_of(self, member_id: str) -> str:
        """Return the instance id of a member, "" without one."""
        member = self._member(member_id)
        return "" if member is None else member.instance_id or ""

    def _client_of(self, member_id: str) -> ClientKey:
        """Return a member's client id and host; it may have joined by these records."""
        member = self._member(member_id)
        if member is not None:
            return member.client_id, member.client_host
        # The member may join by this very decision.
        for record in self.records:
            if isinstance(record, facts.ConsumerMemberSubscribed) and record.member_id == member_id:
                return record.client_id, record.client_host
        return "", ""

    def cost(self) -> dict[str, str]:
        """Return the durations of the rebalance that ends now, as far as its beginning is known."""
        values = self.rebalance.rest(now_ms=self.now_ms)
        return {name: str(value) for name, value in values.items()}

    def reach(self, member_id: str) -> dict[str, str]:
        """Return whether a member's heartbeat is held, so that it can be told at once, and for how long."""
        held_ms = held_for_ms(self._groups, self._timers, self.group_id, member_id, now_ms=self.now_ms)
        return {"heartbeat": "awaited"} if held_ms is None else {"heartbeat": "held", "held_ms": str(held_ms)}

    def granted(self, member: ConsumerMember | None, places: Collection[Place]) -> dict[words.Partition, int | None]:
        """Return a member's partitions by topic name -> epoch at which each was assigned."""
        epochs = [None if member is None else granted_epoch_of(member, place) for place in places]
        return dict(zip(self.named(places), epochs, strict=True))

    def named(self, places: Collection[Place]) -> list[words.Partition]:
        """Return partitions with the names of their topics."""
        if not places:
            return []
        by_id = self._groups.image.by_id
        return [
            (by_id[topic_id].name if topic_id in by_id else self._former_name(topic_id), number)
            for topic_id, number in places
        ]

    def show(self, places: Collection[Place]) -> str:
        """Format partitions for a row; empty text for no partitions."""
        return words.write_partitions(self.named(places)) if places else ""

    def _former_name(self, topic_id: TopicId) -> str:
        return self._former_topics.get(topic_id) or format_topic_id(topic_id)


def held_for_ms(
    groups: GroupsState, timers: TimerTable[TimerKey], group_id: str, member_id: str, *, now_ms: int
) -> int | None:
    """Return how long a member's heartbeat has been held, milliseconds; `None` if none is held."""
    held = groups.holds.get(group_id, {}).get(member_id)
    deadline_ms = None if held is None else timers.deadline(delayed_heartbeats.hold_key(group_id, member_id))
    return None if held is None or deadline_ms is None else now_ms - (deadline_ms - held.hold_ms)


def shown(details: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Return details as a row has them, without empty ones."""
    return tuple([each for each in details.items() if each[1]])
