"""Rows of a group's history as the coordinator words them, written as a dialogue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kohort.client.admin.results.groups import HistoryEvent
from kohort.pipelines.fact import Fact, Kind
from kohort.pipelines.following import Follower
from kohort.pipelines.replaying import Replay


@dataclass
class GroupRows:
    """Tells rows to `read`, one after the other; `at` is the time, milliseconds."""

    read: Callable[[HistoryEvent], None]
    at: int = 1_000
    epoch: int = 1
    sequence: int = 0
    rows: list[HistoryEvent] = field(default_factory=list)

    def row(self, event: str, member_id: str = "", *, times: int = 1, **details: object) -> HistoryEvent:
        self.sequence += 1
        told = HistoryEvent(
            sequence=self.sequence,
            time_ms=self.at,
            last_time_ms=self.at,
            times=times,
            cause=1,
            origin=1,
            kind="transition",
            event=event,
            member_id=member_id,
            details={name: str(value) for name, value in details.items() if value not in (None, "")},
        )
        self.rows.append(told)
        self.read(told)
        return told

    def after(self, ms: int) -> GroupRows:
        self.at += ms
        return self

    def joins(
        self,
        member_id: str,
        *,
        topics: str = "orders",
        instance: str = "",
        client: str | None = None,
        alone: bool = True,
    ) -> None:
        """A member without partitions yet; not `alone`: another comes before an assignment is computed."""
        client = member_id if client is None else client
        self.row("member_joined", member_id, client=client, instance=instance, topics=topics, host="/10.0.0.1")
        self.bumped("member joined", is_computed=alone)
        self.row("assignment_changed", member_id, epoch=self.epoch - 1, state="STABLE")

    def bumped(self, trigger: str, *, is_computed: bool = True) -> None:
        self.epoch += 1
        self.row("epoch_bumped", epoch=self.epoch, trigger=trigger)
        self.row("target_computed", epoch=self.epoch if is_computed else self.epoch - 1, members_changed=1)

    def settles(self, member_id: str, *, gained: str = "", released: str = "") -> None:
        self.row(
            "assignment_changed", member_id, epoch=self.epoch, state="STABLE", gained=gained, released=released
        )  # fmt: skip

    def gives_back(self, member_id: str, asked_back: str) -> None:
        self.row(
            "assignment_changed", member_id, epoch=self.epoch - 1, state="UNREVOKED_PARTITIONS", asked_back=asked_back
        )  # fmt: skip

    def waits(self, member_id: str) -> None:
        self.row("assignment_changed", member_id, epoch=self.epoch, state="UNRELEASED_PARTITIONS")

    def goes(self, member_id: str, reason: str, *, released: str = "", instance: str = "") -> None:
        if released:
            self.row("assignment_released", member_id, released=released)
        self.row("member_removed", member_id, reason=reason, instance=instance)
        if reason != "static member returned":
            self.bumped(reason)


@dataclass
class Followed:
    """A group whose rows are followed: `tell` them, then look at `facts`."""

    follower: Follower = field(default_factory=lambda: Follower("billing"))
    told: list[Fact] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tell = GroupRows(self.follower.read)

    def facts(self, kind: Kind) -> list[Fact]:
        """Those that are over by now."""
        self.told += self.follower.take()
        return [fact for fact in self.told if fact.kind == kind]

    def open(self, kind: Kind) -> list[Fact]:
        """Those that are not."""
        return [fact for fact in self.follower.finish() if fact.kind == kind and fact.ended_ms is None]

    def two_members(self) -> GroupRows:
        """ada has orders-0 and orders-1, bob orders-2; at rest."""
        tell = self.tell
        tell.joins("ada")
        tell.after(100).settles("ada", gained="orders-0 orders-1 orders-2")
        tell.after(900).joins("bob")
        tell.after(50).gives_back("ada", "orders-2")
        tell.after(50).waits("bob")
        tell.after(200).settles("ada", released="orders-2")
        tell.after(100).settles("bob", gained="orders-2")
        return tell.after(1_000)


def replay(assignors: list[str], **partitions: int) -> tuple[GroupRows, Replay]:
    """A group whose assignments are asked of assignors."""
    from kohort.assign.assignors import built_in

    chosen = [found for found in map(built_in, assignors) if found is not None]
    replayed = Replay("billing", chosen, partitions)
    return GroupRows(replayed.read), replayed
