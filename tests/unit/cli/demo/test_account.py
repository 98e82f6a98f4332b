"""The demo's account: every record counted, and only a kill excuses a record that was processed twice."""

from __future__ import annotations

import pytest

from kohort.cli.demo.account import Account, MemberAccount, Rebalance, check, check_spark, count_records, print_account

ENDS = {0: 10, 1: 5}


def member(name: str, *spans: tuple[int, int, int]) -> MemberAccount:
    return MemberAccount(name=name, records=sum(last - first + 1 for _, first, last in spans), spans=list(spans))


def checked(*members: MemberAccount, produced: int = 15, killed: str = "c") -> Account:
    account = Account(produced=produced, members=list(members))
    check(account, ENDS, killed=killed)
    return account


def test_records_are_counted_once_whoever_processed_them() -> None:
    assert count_records([member("a", (0, 0, 9)), member("b", (1, 0, 2), (1, 3, 4))], ENDS) == (15, 0, set())


def test_a_record_processed_twice_names_both_members() -> None:
    assert count_records([member("a", (0, 0, 6)), member("b", (0, 5, 9))], ENDS) == (10, 2, {"a", "b"})


def test_a_record_doubled_by_one_member_names_only_it() -> None:
    assert count_records([member("a", (0, 0, 6), (0, 6, 6))], ENDS) == (7, 1, {"a"})


def test_a_whole_account_has_no_complaints() -> None:
    account = checked(member("a", (0, 0, 9)), member("b", (1, 0, 4)))
    assert (account.counted, account.missing, account.duplicates, account.complaints) == (15, 0, 0, [])


def test_a_record_that_nobody_processed_is_a_complaint() -> None:
    account = checked(member("a", (0, 0, 9)), member("b", (1, 1, 4)))
    assert account.missing == 1
    assert account.complaints == ["1 records were processed by nobody"]


def test_a_topic_that_lost_records_is_a_complaint() -> None:
    account = checked(member("a", (0, 0, 9)), member("b", (1, 0, 4)), produced=16)
    assert "the topic has 15 records, 16 were acknowledged" in account.complaints


def test_the_killed_member_excuses_duplicates() -> None:
    account = checked(member("c", (0, 0, 6)), member("a", (0, 4, 9)), member("b", (1, 0, 4)))
    assert (account.duplicates, account.complaints) == (3, [])


def test_duplicates_without_the_killed_member_are_a_complaint() -> None:
    account = checked(member("b", (0, 0, 6)), member("a", (0, 4, 9), (1, 0, 4)))
    assert account.complaints == ["3 records were doubled without a kill that explains it: ['a', 'b']"]


@pytest.mark.parametrize(
    ("counted", "committed", "complaints"), [(15, 15, 0), (14, 15, 1), (15, 14, 1), (None, None, 2)]
)
def test_spark_counts_and_commits_each_record(counted: int | None, committed: int | None, complaints: int) -> None:
    account = Account(produced=15, spark_counted=counted, spark_committed=committed)
    check_spark(account)
    assert len(account.complaints) == complaints


def test_the_account_is_printed_with_its_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    account = checked(member("a", (0, 0, 9)), member("b", (1, 0, 4)))
    account.rebalances.append(Rebalance(epoch=2, cause="member joined", seconds=0.25))
    print_account(account)
    shown = capsys.readouterr().out
    assert "15 records produced, 15 processed by the group, 0 missing, 0 twice" in shown
    assert "member joined" in shown
    assert shown.endswith(": everything adds up\n")


def test_a_wrong_account_claims_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    print_account(checked(member("a", (0, 0, 9))))
    assert "adds up" not in capsys.readouterr().out
