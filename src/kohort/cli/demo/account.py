"""The account of a demo run: each member, each rebalance, and whether every record was counted.

Laws: only the kill explains that a record was processed twice, and it is checked for each record: the killed member
processed it first and had not committed it, another member processed it after that, and no member a third time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.cli.output import print_table
from kohort.journal.explain.explanation import GroupRebalance
from kohort.journal.words import show_clock


class Span(NamedTuple):
    """The records of one poll: offsets `first` to `last`, both included; `at`: time of the poll, seconds."""

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


@dataclass(kw_only=True)
class QueryAccount:
    """One streaming query's account."""

    name: str
    records: int = 0
    batches: int = 0
    #: The end of each of its runs, as text.
    ends: list[str] = field(default_factory=list)
    #: Numbers of batches that may or may not have been finished, because the reader was killed.
    in_doubt: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class TotalsAccount:
    """The carriers' totals in a topic, as readers of committed records see them, after two kills of their query."""

    departures: int = 0
    batches: int = 0
    #: Totals of a carrier in a batch that are there again.
    doubled: int = 0


@dataclass(kw_only=True)
class SparkAccount:
    """The Spark part of the account."""

    produced: int = 0
    queries: list[QueryAccount] = field(default_factory=list)
    rebalances: list[GroupRebalance] = field(default_factory=list)
    counted: int = 0
    #: Records that were read twice.
    duplicates: int = 0
    #: The number of these that are in no batch in doubt, and so unexplained.
    doubled: int = 0
    committed: int = 0
    totals: TotalsAccount = field(default_factory=TotalsAccount)
    #: (carrier, departures, mean delay in minutes), most departures first.
    rows: list[tuple[str, int, float]] = field(default_factory=list)
    picture: str | None = None
    report: str | None = None
    seconds: float = 0.0


@dataclass(kw_only=True)
class CopyAccount:
    """The copy of the records, made in transactions by a process that was killed in one, and by the next process."""

    killed: str
    #: Records of the original; and of the copy, as readers of committed records see it, and as all others do.
    records: int = 0
    committed: int = 0
    written: int = 0
    #: Partitions whose copy has other records, or in another order.
    differing: list[int] = field(default_factory=list)


@dataclass(kw_only=True)
class Account:
    """The demo's final account; `complaints` is empty if all counts agree.

    `copy`, `spark`: `None` without that part.
    """

    produced: int = 0
    killed: str = ""
    members: list[MemberAccount] = field(default_factory=list)
    rebalances: list[GroupRebalance] = field(default_factory=list)
    counted: int = 0
    duplicates: int = 0
    missing: int = 0
    copy: CopyAccount | None = None
    spark: SparkAccount | None = None
    without_spark: str | None = None
    seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)


def check(account: Account, ends: Mapping[int, int]) -> None:
    """Count the processed records in the order of time; add complaints that the kill does not explain.

    `ends`: partition -> number of records in it; offsets start at 0 and have no gaps.
    """
    killed = account.killed
    #: The member that processed each record last.
    seen: dict[int, list[str | None]] = {partition: [None] * end for partition, end in ends.items()}
    committed = next((member.committed for member in account.members if member.name == killed), {})
    #: (Member, the next member) -> records that both processed, without the kill.
    doubled: Counter[tuple[str, str]] = Counter()
    spans = [(span, member.name) for member in account.members for span in member.spans]
    for span, name in sorted(spans, key=lambda row: row[0].at):
        owners = seen[span.partition]
        for offset in range(span.first, span.last + 1):
            earlier, owners[offset] = owners[offset], name
            account.duplicates += earlier is not None
            is_excused = earlier == killed != name and offset >= committed.get(span.partition, 0)
            if earlier is not None and not is_excused:
                doubled[earlier, name] += 1
    account.counted = sum(owner is not None for owners in seen.values() for owner in owners)
    account.missing = account.produced - account.counted
    if sum(ends.values()) != account.produced:
        account.complaints.append(f"the topic has {sum(ends.values())} records, {account.produced} were acknowledged")
    if account.missing:
        account.complaints.append(f"{_records(account.missing)} processed by no member")
    account.complaints += [
        f"{_records(again)} processed by {first} and again by {then}, which the kill of {killed} does not explain"
        for (first, then), again in doubled.items()
    ]


def check_spark(account: Account, spark: SparkAccount) -> None:
    """Check that every record was read and committed, and read twice only in a batch in doubt."""
    account.complaints += [
        f"the Spark queries {verb} {count} records, {spark.produced} were produced"
        for verb, count in (("read", spark.counted), ("committed", spark.committed))
        if count != spark.produced
    ]
    if spark.totals.departures != spark.produced or spark.totals.doubled:
        account.complaints.append(
            f"the totals in the topic are of {spark.totals.departures} records, {spark.produced} were produced; "
            f"{spark.totals.doubled} totals are there twice"
        )
    if spark.doubled:
        account.complaints.append(f"{_records(spark.doubled)} read twice by the Spark queries with no batch in doubt")


def check_copy(account: Account, copy: CopyAccount) -> None:
    """Check that the copy has each record once, in its order."""
    if copy.committed != copy.records:
        account.complaints.append(f"the copy has {copy.committed} records, the original {copy.records}")
    account.complaints += [f"the copy of partition {number} has other records" for number in copy.differing]


def _records(count: int) -> str:
    return f"{count:,} record was" if count == 1 else f"{count:,} records were"


def print_account(account: Account) -> None:
    """Print the account as tables and sentences."""
    spark = account.spark
    members = [(member.name, f"{member.records:,}", member.fate) for member in account.members]
    _print_part("What each member processed", ("MEMBER", "RECORDS", "END"), members)
    _print_rebalances("Each rebalance, as the broker explains it", account.rebalances)
    if spark is not None:
        queries = [(row.name, f"{row.records:,}", str(row.batches), ", ".join(row.ends)) for row in spark.queries]
        _print_part("What each Spark query read", ("QUERY", "RECORDS", "BATCHES", "ENDS"), queries)
        _print_rebalances("Each rebalance of the queries' group, as the broker explains it", spark.rebalances)
        carriers = [(carrier, f"{flights:,}", f"{delay:.1f} min") for carrier, flights, delay in spark.rows]
        title = "Spark: departures and mean delay by carrier"
        _print_part(title, ("CARRIER", "DEPARTURES", "MEAN DELAY"), carriers)
    print(f"\n{account.produced:,} produced, {account.counted:,} processed by the group, {account.missing:,} missing")
    them = "it" if account.duplicates == 1 else "them"
    excuse = "" if account.complaints else f": {account.killed} was killed before it committed {them}"
    never = ": the kill did not fall between a poll and its commit"
    print(f"{account.duplicates:,} twice{excuse if account.duplicates else never}")
    copy = account.copy
    if copy is not None:
        lost = f"{copy.written - copy.committed:,} of its last transaction are never shown"
        print(f"{copy.committed:,} of {copy.records:,} copied in transactions: {copy.killed} was killed, {lost}")
    if spark is not None:
        missing = spark.produced - spark.counted
        print(f"{spark.produced:,} in the end, {spark.counted:,} read by the Spark queries, {missing:,} missing")
        excuse = "" if spark.doubled else ": in the batch of a killed reader that was not back before its session ended"
        never = ": no other query has read a batch that was in doubt"
        print(f"{spark.duplicates:,} twice{excuse if spark.duplicates else never}")
        totals = spark.totals
        story = f"{totals.batches} transactions, of which readers see each once: their query was killed twice"
        print(f"{totals.departures:,} in the carriers' totals, written to a topic in {story}")
        for name, path in (("picture", spark.picture), ("report of both groups", spark.report)):
            if path:
                print(f"{name}: {path}")
    print(f"done in {account.seconds:.0f} s" + ("" if account.complaints else ": everything adds up"))


def _print_part(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{title}")
    print_table(columns, rows, empty="none")


def _print_rebalances(title: str, rebalances: Sequence[GroupRebalance]) -> None:
    """Print the rebalances in the words of `kohort group why`."""
    print(f"\n{title}", *(f"{show_clock(each.began_ms)}  {each.sentence}" for each in rebalances), sep="\n")
