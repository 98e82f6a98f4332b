"""The account of a demo run: what each member did, each rebalance, and whether every record was counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kohort.cli.output import print_table


@dataclass(kw_only=True)
class MemberAccount:
    """What one member wrote down. `spans`: (partition, first offset, last offset) of each poll, in order."""

    name: str
    member_id: str = ""
    fate: str = "left"
    records: int = 0
    owned: list[int] = field(default_factory=list)
    spans: list[tuple[int, int, int]] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Rebalance:
    """From the first sign of a new group epoch until every member was at it, seconds, and what set it off."""

    epoch: int
    cause: str
    seconds: float


@dataclass(kw_only=True)
class Account:
    """Everything that the demo says at its end; `complaints` is empty if it adds up."""

    produced: int = 0
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


def count_records(members: Sequence[MemberAccount], ends: Mapping[int, int]) -> tuple[int, int, set[str]]:
    """(distinct records processed, duplicates, names of the members that a duplicate was shared with).

    Args:
        members: with their spans.
        ends: partition -> number of records in it; offsets start at 0 and have no gaps.
    """
    seen: dict[int, list[str | None]] = {partition: [None] * end for partition, end in ends.items()}
    duplicates, involved = 0, set()
    for member in members:
        for partition, first, last in member.spans:
            owners = seen[partition]
            for offset in range(first, last + 1):
                earlier = owners[offset]
                if earlier is not None:
                    duplicates += 1
                    involved |= {earlier, member.name}
                owners[offset] = member.name
    distinct = sum(owner is not None for owners in seen.values() for owner in owners)
    return distinct, duplicates, involved


def check(account: Account, ends: Mapping[int, int], *, killed: str) -> None:
    """Fill in the counts and the complaints; only a kill may double records, and only those of the killed member."""
    distinct, duplicates, involved = count_records(account.members, ends)
    account.counted, account.duplicates = distinct, duplicates
    account.missing = account.produced - distinct
    if sum(ends.values()) != account.produced:
        account.complaints.append(f"the topic has {sum(ends.values())} records, {account.produced} were acknowledged")
    if account.missing:
        account.complaints.append(f"{account.missing} records were processed by nobody")
    if duplicates and killed not in involved:
        account.complaints.append(
            f"{duplicates} records were doubled without a kill that explains it: {sorted(involved)}"
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
    print("\nEach rebalance")
    steps = [(step.epoch, step.cause, f"{step.seconds:.2f} s") for step in account.rebalances]
    print_table(("EPOCH", "CAUSE", "DURATION"), steps, empty="none seen")
    if account.spark_rows:
        print("\nSpark: departures and mean delay by carrier")
        shown = [(carrier, f"{flights:,}", f"{delay:.1f} min") for carrier, flights, delay in account.spark_rows]
        print_table(("CARRIER", "DEPARTURES", "MEAN DELAY"), shown, empty="none")
    print(
        f"\n{account.produced:,} records produced, {account.counted:,} processed by the group, "
        f"{account.missing} missing, {account.duplicates:,} twice (where the kill allows it)"
    )
    if account.spark_counted is not None:
        print(
            f"{account.spark_counted:,} counted by Spark in {account.spark_seconds:.1f} s, "
            f"{account.spark_committed:,} committed to its group"
        )
    if account.picture:
        print(f"picture: {account.picture}")
    print(f"done in {account.seconds:.0f} s" + ("" if account.complaints else ": everything adds up"))
