"""DescribeGroups of a classic group."""

from __future__ import annotations

from kohort.coordinator.listing import describe
from kohort.errors import ErrorCode


def test_unknown_group_is_dead(dialogue):
    described = describe(None, "orders")
    assert (described.error, described.state, described.members) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead", ())
    assert described.group_id == "orders"


def test_stable_group_shows_everything(dialogue):
    dialogue.stable("a", "b")

    described = describe(dialogue.group, "orders")

    assert (described.error, described.state) == (ErrorCode.NONE, "Stable")
    assert (described.protocol_type, described.protocol_name) == ("consumer", "range")
    first, second = described.members
    assert (first.member_id, first.metadata, first.assignment) == ("a", b"range: t", b"a")
    assert (second.client_id, second.client_host, second.instance_id) == ("client of b", "/127.0.0.1", None)


def test_group_in_a_rebalance_shows_who_is_there_but_not_what_they_own(dialogue):
    dialogue.stable("a", "b")
    dialogue.join("a")

    described = describe(dialogue.group, "orders")

    assert (described.state, described.protocol_name) == ("PreparingRebalance", "")
    assert [(m.member_id, m.metadata, m.assignment) for m in described.members] == [("a", b"", b""), ("b", b"", b"")]
    dialogue.join("b")
    assert describe(dialogue.group, "orders").state == "CompletingRebalance"


def test_empty_group_has_nobody(dialogue):
    dialogue.stable("a")
    dialogue.leave("a")
    described = describe(dialogue.group, "orders")
    assert (described.state, described.protocol_type, described.members) == ("Empty", "consumer", ())
