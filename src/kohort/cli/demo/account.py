"""The account of a demo run: what each member did, each rebalance, and whether every record was counted.

Laws: a record that was processed twice is excused only by the kill, and each by itself: the killed member processed it
first and had not committed it, another one processed it after that, and nobody a third time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.cli.demo.rebalances import Rebalance
from kohort.cli.output import print_table


class Span(NamedTuple):
    """Records of one poll: `first` to `last` offset, both included; `at`: when it was written down, seconds."""

    partition: int
    first: int
    last: int
    at: float


@dataclass(kw_only=True)
class MemberAccount:
    """What one member wrote down: `spans` in order; `committed`: partition -> the offset behind its last commit."""

    name: str
    fate: str = "left"
    records: int = 0
    owned: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)


class Doubled(NamedTuple):
    """How many records two members processed, first the one, then the other, with no kill that explains it."""

    first: str
    then: str
    records: int


@dataclass(frozen=True, kw_only=True)
class Count:
    """`distinct` records processed, `excused` ones twice because of the kill, `doubled` without that."""

    distinct: int
    excused: int
    doubled: tuple[Doubled, ...]

    @property
    def duplicates(self) -> int:
        """How often a record was processed that had been processed before."""
        return self.excused + sum(row.records for row in self.doubled)


@dataclass(kw_only=True)
class Account:
    """Everything that the demo says at its end; `complaints` is empty if it adds up."""

    produced: int = 0
    killed: str = ""
    members: list[MemberAccount] = field(default_factory=list)
    rebalances: list[Rebalance] = field(default_factory=list)
    counted: int = 0
    duplicates: int = 0
    missing: int = 0
    spark_rows: list[tuple[str, int, float]] = field(default_factory=list)
    spark_counted: int | None = None
    spark_committed: int | None = None
    spark_seconds: float | None = None
    picture: str | None = None
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)


def count_records(members: Sequence[MemberAccount], ends: Mapping[int, int], *, killed: str) -> Count:
    """Go through all that was processed, in the order of time.

    Args:
        members: with their spans and commits.
        ends: partition -> number of records in it; offsets start at 0 and have no gaps.
        killed: the member whose uncommitted records somebody else has to process again.
    """
    #: Who processed each record last.
    seen: dict[int, list[str | None]] = {partition: [None] * end for partition, end in ends.items()}
    committed = next((member.committed for member in members if member.name == killed), {})
    excused = 0
    doubled: dict[tuple[str, str], int] = {}
    spans = sorted(((span, member.name) for member in members for span in member.spans), key=lambda row: row[0].at)
    for span, name in spans:
        owners = seen[span.partition]
        for offset in range(span.first, span.last + 1):
            earlier = owners[offset]
            if earlier == killed != name and offset >= committed.get(span.partition, 0):
                excused += 1
            elif earlier is not None:
                doubled[earlier, name] = doubled.get((earlier, name), 0) + 1
            owners[offset] = name
    distinct = sum(owner is not None for owners in seen.values() for owner in owners)
    rows = tuple(Doubled(first, then, records) for (first, then), records in doubled.items())
    return Count(distinct=distinct, excused=excused, doubled=rows)


def check(account: Account, ends: Mapping[int, int]) -> None:
    """Fill in the counts and the complaints; only a kill may double records, and only those of the killed member."""
    count = count_records(account.members, ends, killed=account.killed)
    account.counted, account.duplicates = count.distinct, count.duplicates
    account.missing = account.produced - count.distinct
    if sum(ends.values()) != account.produced:
        account.complaints.append(f"the topic has {sum(ends.values())} records, {account.produced} were acknowledged")
    if account.missing:
        account.complaints.append(f"{records(account.missing)} processed by nobody")
    for row in count.doubled:
        account.complaints.append(
            f"{records(row.records)} processed by {row.first} and again by {row.then}, "
            f"which the kill of {account.killed} does not explain"
        )


def check_spark(account: Account) -> None:
    """Spark counted each record once and committed all of them."""
    if account.spark_counted != account.produced:
        account.complaints.append(f"Spark counted {account.spark_counted} records, {account.produced} were produced")
    if account.spark_committed != account.produced:
        account.complaints.append(f"Spark's group committed {account.spark_committed} records, not {account.produced}")


def print_account(account: Account) -> None:
    """Tables for a person."""
    print("\nWhat each member processed")
    rows = [(member.name, f"{member.records:,}", member.fate) for member in account.members]
    print_table(("MEMBER", "RECORDS", "END"), rows, empty="no members")
    print("\nEach rebalance, from the group's history")
    steps = [(step.epoch, step.cause, step.duration) for step in account.rebalances]
    print_table(("EPOCH", "CAUSE", "DURATION"), steps, empty="none seen")
    if account.spark_rows:
        print("\nSpark: departures and mean delay by carrier")
        shown = [(carrier, f"{flights:,}", f"{delay:.1f} min") for carrier, flights, delay in account.spark_rows]
        print_table(("CARRIER", "DEPARTURES", "MEAN DELAY"), shown, empty="none")
    print(f"\n{account.produced:,} produced, {account.counted:,} processed by the group, {account.missing:,} missing")
    print(_twice(account))
    if account.spark_counted is not None:
        print(
            f"{account.spark_counted:,} counted by Spark in {account.spark_seconds:.1f} s, "
            f"{account.spark_committed:,} committed to its group"
        )
    if account.picture:
        print(f"picture: {account.picture}")
    print(f"done in {account.seconds:.0f} s" + ("" if account.complaints else ": everything adds up"))


def records(count: int) -> str:
    """`1 record was`, `2 records were`."""
    return f"{count:,} record was" if count == 1 else f"{count:,} records were"


def _twice(account: Account) -> str:
    if not account.duplicates:
        return "0 twice: the kill did not fall between a poll and its commit"
    if account.complaints:
        return f"{account.duplicates:,} twice"
    them = "it" if account.duplicates == 1 else "them"
    return f"{account.duplicates:,} twice: {account.killed} was killed before it committed {them}"
