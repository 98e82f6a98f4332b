"""The log line with the reason for which a consumer gets no records, once it has got none for 10 s.

Laws: a reason is logged once until records arrive again. Not logged here is what is reported elsewhere: errors that
`poll` raises, missing topics, unreachable brokers, members without partitions.
Source: silent consumers are what users of every client ask about most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kohort.client.consumer.fetch.fetch_sender import FetchSender
from kohort.client.consumer.fetch.partition_state import Reading, Readings
from kohort.client.consumer.membership.member import Member
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.cluster import Cluster
from kohort.client.core.requests import Requests
from kohort.client.options import ConsumerSettings
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition

#: Time without records before a reason is looked for, and between two looks.
PATIENCE_MS: Final = 10_000

#: What a member waits for in each state; in other states it waits for nothing, or the application has been notified.
_WAITS: Final = {
    MemberState.JOINING: "the coordinator has not let this member in yet",
    MemberState.PREPARING_REBALANCE: "it rebalances, and waits for its other members",
    MemberState.PREPARE_REVOCATION: "it rebalances, and waits for this application to poll",
    MemberState.REVOKING_PARTITION: "it rebalances, and waits for the end of this application's callback",
    MemberState.PARTITION_REVOKED: "it rebalances, and waits until the offsets of this member are committed",
    MemberState.ASSIGNING_PARTITIONS: "it waits for this application to poll, and for the end of its callback",
    MemberState.FENCED: "it has removed this member, and waits for this application to poll",
}


class Reason(NamedTuple):
    """A reason for which no records arrive; reasons of one `kind` count as the same."""

    kind: str
    text: str
    #: Whether the reason is normal, like the end of a log.
    is_normal: bool = False


class Silence:
    """Watches one consumer, and logs the reason if it gets no records."""

    def __init__(self, requests: Requests, cluster: Cluster, settings: ConsumerSettings) -> None:
        self._requests = requests
        self._cluster = cluster
        self._settings = settings
        #: When to look for a reason; `None` while there is nothing to read.
        self._due_ms: int | None = None
        #: Bytes fetched in all when new records were last seen.
        self._fetched_bytes = 0
        #: Kinds of reasons that were logged since then.
        self._told: set[str] = set()

    def next_deadline(self) -> int | None:
        """Return when to look for a reason next."""
        return self._due_ms

    def tell_skipped(self, count: int) -> None:
        """Warn of the number of records that are skipped because auto.offset.reset=latest starts at the end."""
        records = "1 older record is" if count == 1 else f"{count} older records are"
        self._requests.warn(
            f"group {self._settings.options['group_id']} starts at the end of the log; "
            f"{records} read with auto_offset_reset='earliest'"
        )

    def tell_back(self, partitions: list[TopicPartition]) -> None:
        """Log that these partitions can be read again, and clear the list."""
        if partitions:
            names = (
                str(min(partitions)) if len(partitions) == 1 else f"{min(partitions)} and {len(partitions) - 1} more"
            )
            self._requests.warn(f"{names} can be read again")
            partitions.clear()

    def watch(self, now_ms: int, member: Member | None, readings: Readings, sender: FetchSender) -> None:
        """Every 10 s check whether records have been fetched; log the reason if none have."""
        is_reached = self._cluster.generation > 0 and not self._cluster.is_cut_off
        is_member = member is not None and member.state is not MemberState.UNSUBSCRIBED
        if not (is_reached and self._settings.options["fetch_buffer_bytes"] and (is_member or readings.topics)):
            self._due_ms = None
            self._told.clear()
        elif self._due_ms is None:
            self._due_ms = now_ms + PATIENCE_MS
        elif now_ms >= self._due_ms:
            self._due_ms = now_ms + PATIENCE_MS
            self._look(member if is_member else None, readings.all(), sender)

    def _look(self, member: Member | None, readings: Sequence[Reading], sender: FetchSender) -> None:
        active = [reading for reading in readings if not reading.is_paused]
        if sender.fetched_bytes != self._fetched_bytes:
            self._fetched_bytes = sender.fetched_bytes
            self._told.clear()
            return
        # The application has records to take.
        if any(sender.buffer.held(reading.partition) for reading in active):
            return
        reason = self._reason_of_group(member) if member is not None else None
        if reason is None and readings:
            reason = self._reason_of_readings(active, sender) if active else _ALL_PAUSED
        if reason is not None and reason.kind not in self._told:
            self._told.add(reason.kind)
            # The end of a log is a warning only to a consumer that has never had a record.
            is_news = not (reason.is_normal and self._fetched_bytes)
            self._requests.warn(f"no records for {PATIENCE_MS // 1000} s: {reason.text}", is_warning=is_news)

    def _reason_of_group(self, member: Member) -> Reason | None:
        group = f"group {member.group_id}"
        for name in member.topics:
            topic = self._cluster.topics.get(name)
            if topic is not None and topic.error not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                return Reason("topic", f"the broker answers {topic.error.name} for topic {name}")
        if not member.is_coordinator_known:
            return Reason("coordinator", f"no broker says where the coordinator of {group} is")
        if member.state in _WAITS and not member.is_name_held:
            return Reason(member.state.value, f"{group}: {_WAITS[member.state]}")
        if member.pattern is not None and not member.owned and member.state is MemberState.STABLE:
            return Reason("pattern", f"{group} gives this member nothing that matches {member.pattern}")
        return None

    def _reason_of_readings(self, active: Sequence[Reading], sender: FetchSender) -> Reason | None:
        """Return the first reason that keeps any of these partitions from being read."""
        cluster = self._cluster
        active = [each for each in active if each.refusal is ErrorCode.NONE]
        leaderless = [each for each in active if each.is_readable and cluster.leader_of(each.partition) is None]
        if leaderless:
            return Reason("leader", f"{_names(leaderless)} without a leader at present")
        lost = [each for each in active if each.offset is None and not each.is_stuck]
        if lost:
            return Reason("offset", f"{_names(lost)} without an answer as to where reading begins")
        known = [each for each in active if each.is_readable and each.watermarks is not None]
        behind = [each for each in known if _missing(each) > 0]
        if behind and sender.is_full:
            limit = f"fetch.buffer.bytes ({self._settings.options['fetch_buffer_bytes']})"
            return Reason("full", f"{limit} is full of records that the application has not taken")
        if behind:
            return self._reason_of_delay(behind)
        return self._reason_of_end(known) if len(known) == len(active) else None

    def _reason_of_delay(self, behind: Sequence[Reading]) -> Reason | None:
        """Return why partitions with unread records get none, though this client asks for them."""
        if self._settings.is_read_committed and all(map(_is_held_back, behind)):
            until = "up to a transaction that is still open (read_committed)"
            return Reason("transaction", f"{_names(behind)} read {until}")
        return Reason("broker", f"{_names(behind)} not read to the end, and no broker hands out more")

    def _reason_of_end(self, known: Sequence[Reading]) -> Reason | None:
        if not known:
            return None
        older = sum(_older(each) for each in known if each.began_at_end)
        text = f"{_names(known)} read to the end"
        if older and not self._fetched_bytes:
            records = "1 older record is" if older == 1 else f"{older} older records are"
            return Reason("older", f"{text}; {records} read with auto_offset_reset='earliest'", is_normal=True)
        return Reason("end", text, is_normal=True)


_ALL_PAUSED: Final = Reason("paused", "every partition is paused; resume() goes on with them")


def _is_held_back(reading: Reading) -> bool:
    """Return whether a transaction that is still open begins at its position."""
    assert reading.watermarks is not None and reading.offset is not None
    return 0 <= reading.watermarks.last_stable_offset <= reading.offset


def _missing(reading: Reading) -> int:
    """Return the number of offsets behind its position."""
    assert reading.watermarks is not None and reading.offset is not None
    return reading.watermarks.high_watermark - reading.offset


def _older(reading: Reading) -> int:
    """Return the number of offsets before its position."""
    assert reading.watermarks is not None and reading.offset is not None
    return max(0, reading.offset - max(0, reading.watermarks.log_start_offset))


def _names(readings: Sequence[Reading]) -> str:
    """Name the first partition, and the number of the others."""
    partitions: list[TopicPartition] = sorted(reading.partition for reading in readings)
    first = str(partitions[0])
    if len(partitions) == 1:
        return f"{first} is"
    return f"{first} and {len(partitions) - 1} more are"
