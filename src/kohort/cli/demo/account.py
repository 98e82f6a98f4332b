"""The account of a demo run: each member, each rebalance, and whether every record was counted.

Laws: a record that was processed twice is excused only by the kill, and each record by itself: the killed member
processed it first and had not committed it, another member processed it after that, and no member a third time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.cli.output import print_table
from kohort.journal.explain.explanation import GroupRebalance
from kohort.journal.words import show_clock


class Span(NamedTuple):
    """The records of one poll: `first` to `last` offset, both included; `at`: when, seconds."""

    partition: int
    first: int
    last: int
    at: float


@dataclass(kw_only=True)
class MemberAccount:
    """One member's account: `spans` in order; `committed`: partition -> end of its last commit."""

    name: str
    fate: str = "left"
    records: int = 0
    owned: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)


class Count(NamedTuple):
    """`distinct` records processed; those processed again: `excused` by the kill, `doubled` without it.

    `doubled`: (member, the next member) -> how many records.
    """

    distinct: int
    excused: int
    doubled: dict[tuple[str, str], int]


@dataclass(kw_only=True)
class QueryAccount:
    """One streaming query's account."""

    name: str
    records: int = 0
    batches: int = 0
    #: How its runs ended.
    ends: list[str] = field(default_factory=list)
    #: Numbers of batches that may or may not have been finished, because the reader was killed.
    in_doubt: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class SparkAccount:
    """The Spark part of the account."""

    produced: int = 0
    queries: list[QueryAccount] = field(default_factory=list)
    rebalances: list[GroupRebalance] = field(default_factory=list)
    counted: int = 0
    #: Records that were read twice.
    duplicates: int = 0
    #: Of those, the ones that are in no batch in doubt.
    doubled: int = 0
    committed: int = 0
    rows: list[tuple[str, int, float]] = field(default_factory=list)
    picture: str | None = None
    report: str | None = None
    seconds: float = 0.0


@dataclass(kw_only=True)
class Account:
    """The demo's final account; `complaints` is empty if it adds up. `spark`: `None` without Spark."""

    produced: int = 0
    killed: str = ""
    members: list[MemberAccount] = field(default_factory=list)
    rebalances: list[GroupRebalance] = field(default_factory=list)
    counted: int = 0
    duplicates: int = 0
    missing: int = 0
    spark: SparkAccount | None = None
    without_spark: str | None = None
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)


def count_records(members: Sequence[MemberAccount], ends: Mapping[int, int], *, killed: str) -> Count:
    """Go through all that was processed, in the order of time.

    Args:
        members: with their spans and commits.
        ends: partition -> number of records in it; offsets start at 0 and have no gaps.
        killed: the member whose uncommitted records other members have to process again.
    """
    #: The member that processed each record last.
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
    return Count(distinct, excused, doubled)


def check(account: Account, ends: Mapping[int, int]) -> None:
    """Fill in counts and complaints; only the kill may double records, and only the killed member's."""
    count = count_records(account.members, ends, killed=account.killed)
    account.counted, account.duplicates = count.distinct, count.excused + sum(count.doubled.values())
    account.missing = account.produced - count.distinct
    if sum(ends.values()) != account.produced:
        account.complaints.append(f"the topic has {sum(ends.values())} records, {account.produced} were acknowledged")
    if account.missing:
        account.complaints.append(f"{records(account.missing)} processed by no member")
    for (first, then), again in count.doubled.items():
        both = f"{records(again)} processed by {first} and again by {then}"
        account.complaints.append(f"{both}, which the kill of {account.killed} does not explain")


def check_spark(account: Account, spark: SparkAccount) -> None:
    """Check that every record was read and committed, and twice only in a batch that was in doubt."""
    if spark.counted != spark.produced:
        account.complaints.append(f"the Spark queries read {spark.counted} records, {spark.produced} were produced")
    if spark.committed != spark.produced:
        account.complaints.append(
            f"the Spark queries committed {spark.committed} records, {spark.produced} were produced"
        )
    if spark.doubled:
        account.complaints.append(f"{records(spark.doubled)} read twice by the Spark queries with no batch in doubt")


def records(count: int) -> str:
    """Format a count: `1 record was`, `2 records were`."""
    return f"{count:,} record was" if count == 1 else f"{count:,} records were"


def print_account(account: Account) -> None:
    """Print the account as tables."""
    spark = account.spark
    print("\nWhat each member processed")
    rows = [(member.name, f"{member.records:,}", member.fate) for member in account.members]
    print_table(("MEMBER", "RECORDS", "END"), rows, empty="no members")
    _print_rebalances("Each rebalance, as the broker explains it", account.rebalances)
    if spark is not None:
        print("\nWhat each Spark query read")
        read = [(row.name, f"{row.records:,}", str(row.batches), ", ".join(row.ends)) for row in spark.queries]
        print_table(("QUERY", "RECORDS", "BATCHES", "ENDS"), read, empty="no queries")
        _print_rebalances("Each rebalance of the queries' group, as the broker explains it", spark.rebalances)
        print("\nSpark: departures and mean delay by carrier")
        shown = [(carrier, f"{flights:,}", f"{delay:.1f} min") for carrier, flights, delay in spark.rows]
        print_table(("CARRIER", "DEPARTURES", "MEAN DELAY"), shown, empty="none")
    print(f"\n{account.produced:,} produced, {account.counted:,} processed by the group, {account.missing:,} missing")
    if not account.duplicates:
        print("0 twice: the kill did not fall between a poll and its commit")
    else:
        them = "it" if account.duplicates == 1 else "them"
        excuse = "" if account.complaints else f": {account.killed} was killed before it committed {them}"
        print(f"{account.duplicates:,} twice{excuse}")
    if spark is not None:
        _print_spark(spark)
    print(f"done in {account.seconds:.0f} s" + ("" if account.complaints else ": everything adds up"))


def _print_rebalances(title: str, rebalances: Sequence[GroupRebalance]) -> None:
    """Print the rebalances in the words of `kohort group why`."""
    print(f"\n{title}")
    for rebalance in rebalances:
        print(f"{show_clock(rebalance.began_ms)}  {rebalance.sentence}")


def _print_spark(spark: SparkAccount) -> None:
    missing = spark.produced - spark.counted
    print(f"{spark.produced:,} in the end, {spark.counted:,} read by the Spark queries, {missing:,} missing")
    if not spark.duplicates:
        print("0 twice: no other query has read a batch that was in doubt")
    else:
        excuse = "" if spark.doubled else ": in the batch of a killed reader that was not back before its session ended"
        print(f"{spark.duplicates:,} twice{excuse}")
    for name, path in (("picture", spark.picture), ("report of both groups", spark.report)):
        if path:
            print(f"{name}: {path}")
