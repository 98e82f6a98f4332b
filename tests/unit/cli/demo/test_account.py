"""The demo's account: every record counted; only a kill excuses a record that was processed twice, each by itself."""

from __future__ import annotations

import pytest

from kohort.cli.demo.account import (
    Account,
    MemberAccount,
    Span,
    SparkAccount,
    TotalsAccount,
    check,
    check_spark,
    print_account,
)
from kohort.journal.explain.explaining import explain
from support.dialogues.journal_rows import GroupRows

ENDS = {0: 10, 1: 5}
KILLED = "c"


def member(name: str, *spans: tuple[int, int, int, float], committed: dict[int, int] | None = None) -> MemberAccount:
    """Spans are (partition, first, last, when)."""
    records = sum(last - first + 1 for _, first, last, _ in spans)
    return MemberAccount(
        name=name, records=records, spans=[Span(*span) for span in spans], committed=dict(committed or {})
    )


def doubled(*members: MemberAccount) -> tuple[int, list[str]]:
    """How many records were processed twice, and what is said of those that the kill does not excuse."""
    account = checked(*members)
    return account.duplicates, [complaint for complaint in account.complaints if " again by " in complaint]


def unexplained(first: str, then: str) -> str:
    return f"1 record was processed by {first} and again by {then}, which the kill of {KILLED} does not explain"


def checked(*members: MemberAccount, produced: int = 15) -> Account:
    account = Account(produced=produced, killed=KILLED, members=list(members))
    check(account, ENDS)
    return account


B = member("b", (1, 0, 4, 1))


def test_records_are_counted_once_whoever_processed_them() -> None:
    account = checked(member("a", (0, 0, 9, 1)), member("b", (1, 0, 2, 1), (1, 3, 4, 2)))
    assert (account.counted, account.duplicates, account.complaints) == (15, 0, [])


def test_a_whole_account_has_no_complaints() -> None:
    account = checked(member("a", (0, 0, 9, 1)), B)
    assert (account.counted, account.missing, account.duplicates, account.complaints) == (15, 0, 0, [])


def test_a_record_that_nobody_processed_is_a_complaint() -> None:
    account = checked(member("a", (0, 0, 9, 1)), member("b", (1, 1, 4, 1)))
    assert account.missing == 1
    assert account.complaints == ["1 record was processed by no member"]


def test_a_topic_that_lost_records_is_a_complaint() -> None:
    account = checked(member("a", (0, 0, 9, 1)), B, produced=16)
    assert "the topic has 15 records, 16 were acknowledged" in account.complaints


def test_what_the_killed_one_had_not_committed_its_successor_may_process_again() -> None:
    account = checked(member(KILLED, (0, 0, 3, 1), (0, 4, 6, 2), committed={0: 4}), member("a", (0, 4, 9, 5)), B)
    assert (account.duplicates, account.complaints) == (3, [])


def test_what_the_killed_one_had_committed_is_processed_by_nobody_else() -> None:
    account = checked(member(KILLED, (0, 0, 3, 1), committed={0: 4}), member("a", (0, 2, 9, 5)), B)
    assert account.complaints == ["2 records were processed by c and again by a, which the kill of c does not explain"]


def test_five_records_of_two_others_are_a_complaint_beside_an_excused_one() -> None:
    """A kill excuses its own duplicates, not everything that happened in its run."""
    killed = member(KILLED, (1, 0, 0, 1))
    account = checked(member("a", (0, 0, 6, 1)), member("b", (0, 2, 9, 5), (1, 0, 4, 5)), killed)
    assert account.duplicates == 6
    assert account.complaints == ["5 records were processed by a and again by b, which the kill of c does not explain"]


def test_a_record_that_the_killed_one_processed_after_somebody_else_is_not_excused() -> None:
    assert doubled(member("a", (0, 0, 3, 1)), member(KILLED, (0, 3, 5, 2))) == (1, [unexplained("a", KILLED)])


def test_the_kill_excuses_one_successor_and_no_third() -> None:
    members = (member(KILLED, (0, 0, 0, 1)), member("a", (0, 0, 0, 5)), member("b", (0, 0, 0, 6)))
    assert doubled(*members) == (2, [unexplained("a", "b")])


@pytest.mark.parametrize("name", ["a", KILLED])
def test_a_member_that_processes_its_own_records_twice_is_not_excused(name: str) -> None:
    assert doubled(member(name, (0, 0, 6, 1), (0, 6, 6, 2))) == (1, [unexplained(name, name)])


def test_time_and_not_the_order_of_the_list_says_who_was_first() -> None:
    assert doubled(member("a", (0, 0, 0, 5)), member(KILLED, (0, 0, 0, 1))) == (1, [])


@pytest.mark.parametrize(
    ("counted", "committed", "doubled", "complaints"),
    [
        (15, 15, 0, []),
        (14, 15, 0, ["the Spark queries read 14 records, 15 were produced"]),
        (15, 14, 0, ["the Spark queries committed 14 records, 15 were produced"]),
        (15, 15, 1, ["1 record was read twice by the Spark queries with no batch in doubt"]),
    ],
)
def test_spark_reads_and_commits_each_record(counted: int, committed: int, doubled: int, complaints: list[str]) -> None:
    """Twice only what was in doubt."""
    account = Account(produced=9)
    found = SparkAccount(produced=15, counted=counted, committed=committed, duplicates=3, doubled=doubled)
    found.totals = TotalsAccount(departures=15)
    check_spark(account, found)
    assert account.complaints == complaints


@pytest.mark.parametrize(("departures", "doubled"), [(14, 0), (15, 1)])
def test_totals_in_the_topic_are_of_each_record_once(departures: int, doubled: int) -> None:
    account = Account()
    found = SparkAccount(produced=15, counted=15, committed=15)
    found.totals = TotalsAccount(departures=departures, doubled=doubled)
    check_spark(account, found)
    assert account.complaints == [
        f"the totals in the topic are of {departures} records, 15 were produced; {doubled} totals are there twice"
    ]


def test_the_account_is_printed_with_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    account = checked(member("a", (0, 0, 9, 1)), B)
    tell = GroupRows(lambda _: None)
    tell.row("epoch_bumped", epoch=2, trigger="topics changed")
    account.rebalances += explain("flights-readers", tell.rows).rebalances
    print_account(account)
    shown = capsys.readouterr().out
    assert "15 produced, 15 processed by the group, 0 missing\n0 twice: the kill did not fall" in shown
    assert "  the rebalance to epoch 2, because the topics changed: the target assignment is not known yet;" in shown
    assert shown.endswith(": everything adds up\n")


def test_excused_duplicates_are_said_with_their_reason(capsys: pytest.CaptureFixture[str]) -> None:
    print_account(checked(member(KILLED, (0, 0, 2, 1)), member("a", (0, 0, 9, 5)), B))
    assert "\n3 twice: c was killed before it committed them\n" in capsys.readouterr().out


def test_a_wrong_account_claims_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_account(checked(member("a", (0, 0, 9, 1))))
    assert "adds up" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("duplicates", "doubled", "says"),
    [
        (0, 0, "0 twice: no other query has read a batch that was in doubt"),
        (4, 0, "4 twice: in the batch of a killed reader that was not back before its session ended"),
        (4, 1, "4 twice"),
    ],
)
def test_what_spark_read_twice_is_said_with_its_reason(
    capsys: pytest.CaptureFixture[str], duplicates: int, doubled: int, says: str
) -> None:
    account = checked(member("a", (0, 0, 9, 1)), B)
    account.spark = SparkAccount(produced=20, counted=19, duplicates=duplicates, doubled=doubled, report="r.html")
    account.spark.totals = TotalsAccount(departures=20, batches=3)
    print_account(account)
    shown = capsys.readouterr().out
    totals = (
        "20 in the carriers' totals, written to a topic in 3 transactions, of which readers see each once: their query "
        "was killed twice"
    )
    read = f"\n20 in the end, 19 read by the Spark queries, 1 missing\n{says}\n"
    assert f"{read}{totals}\nreport of both groups: r.html\n" in shown
