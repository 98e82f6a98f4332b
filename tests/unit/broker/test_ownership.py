"""Fences at the leader: which member of a group may read a partition, by the messages of its coordinator."""

from __future__ import annotations

import pytest

from kohort.broker.fetch.ownership import Claim, OwnershipChange, OwnershipTable, Sender
from kohort.errors import ErrorCode
from kohort.ids import TopicId

TOPIC, OTHER = TopicId(b"t" * 16), TopicId(b"u" * 16)
PLACE = (TOPIC, 0)
LEASE_MS, STOCK_MS = 3_000, 10_000
FENCED = ErrorCode.FENCED_MEMBER_EPOCH
STOCK = {each: Sender(client_id=each, host="/10.0.0.7", is_unique=True) for each in "abc"}
TOKENS = {each: Sender(principal=f"Token:{each}", client_id="rdkafka", host="/10.0.0.7") for each in "abc"}


class Leader:
    """A table, what it is told, and the answers to members of the group `g`."""

    def __init__(self) -> None:
        self.table = OwnershipTable()
        self.now_ms = 1_000
        self.told: list[tuple[TopicId, int]] = []
        self.table.on_fenced = lambda topic_id, partition: self.told.append((topic_id, partition))
        self.senders = STOCK
        self.settings: dict[str, str] = {}

    def close(self, member: str, epoch: int, group: str = "g", **more: object) -> None:
        self._tell(member, epoch, group, is_open=False, **more)

    def open(self, member: str, epoch: int, group: str = "g", **more: object) -> None:
        self._tell(member, epoch, group, is_open=True, **more)

    def _tell(self, member: str, epoch: int, group: str, **more: object) -> None:
        values: dict[str, object] = {
            "places": (PLACE,),
            "lease_ms": LEASE_MS,
            "stock_lease_ms": STOCK_MS,
            "sender": self.senders[member],
            **self.settings,
            **more,
        }
        self.table.change(OwnershipChange(group, member, epoch, **values), self.now_ms)  # type: ignore[arg-type]

    def answer(self, member: str, epoch: int, group: str = "g", *, granted: bool = False) -> ErrorCode | None:
        return self.table.refuses(Claim(group, member, epoch, is_granted=granted), *PLACE, self.now_ms)

    def answer_to(self, sender: Sender) -> ErrorCode | None:
        return self.table.refuses(sender, *PLACE, self.now_ms)

    def readers(self, **epochs: int) -> str:
        """Of these members and epochs, those that may read."""
        return "".join(member for member, epoch in epochs.items() if self.answer(member, epoch) is None)


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_nothing_is_refused_before_the_first_message(leader: Leader) -> None:
    assert leader.readers(a=-1, b=0) == "ab"
    assert len(leader.table) == 0


def test_no_member_reads_while_it_is_closed_and_only_the_new_owner_once_it_is_open(leader: Leader) -> None:
    leader.close("a", 5)
    assert leader.readers(a=5, b=6, c=99) == ""
    leader.open("b", 6)
    assert leader.readers(a=5, b=6) == "b"
    assert leader.answer("a", 5) is FENCED


def test_former_owner_is_refused_whatever_epoch_it_names(leader: Leader) -> None:
    """It goes on in the group, with later epochs, and without this partition."""
    leader.close("a", 5)
    leader.open("b", 6)
    assert leader.readers(a=6, b=6) == leader.readers(a=2**31 - 1, b=7) == "b"


def test_epochs_below_that_of_the_opening_are_refused_and_no_others(leader: Leader) -> None:
    leader.close("a", 5)
    leader.open("b", 6)
    assert [leader.answer("c", epoch) for epoch in (-1, 5, 7)] == [FENCED, FENCED, None]
    # Moves at a pace share an epoch: at that of the owner only the owner reads.
    assert leader.answer("c", 6) is FENCED
    assert leader.answer("b", 6) is None


def test_former_owner_that_gets_it_again_reads(leader: Leader) -> None:
    leader.close("a", 5)
    leader.open("b", 6)
    leader.close("b", 6)
    leader.open("a", 7)
    assert leader.readers(a=7, b=6) == leader.readers(a=7, b=7) == "a"


def test_revocation_that_is_taken_back_opens_it_for_the_same_member_at_the_same_epoch(leader: Leader) -> None:
    leader.close("a", 5)
    leader.open("a", 5)
    assert leader.readers(a=5) == "a"
    leader.close("a", 5)
    assert leader.readers(a=5) == ""


def test_opening_without_a_fence_is_not_kept_unless_it_says_so(leader: Leader) -> None:
    """After a coordinator's move the fences of before may be unknown."""
    leader.open("b", 6)
    assert len(leader.table) == 0 and leader.told == []
    leader.open("b", 6, keep=True)
    assert leader.readers(a=5, b=6) == "b"


def test_repeated_messages_change_nothing(leader: Leader) -> None:
    leader.close("a", 5)
    leader.close("a", 5)
    leader.open("b", 6)
    leader.open("b", 6)
    leader.close("a", 5)
    leader.open("a", 4)
    assert leader.told == [PLACE] * 2
    assert leader.readers(a=5, b=6) == "b"


def test_repeated_message_does_not_prolong_a_fence(leader: Leader) -> None:
    leader.close("a", 5)
    leader.now_ms += STOCK_MS - 1
    leader.close("a", 5)
    leader.now_ms += 1
    leader.table.forget(leader.now_ms)
    assert len(leader.table) == 0


def test_fence_that_comes_after_the_opening_closes_nothing_and_names_a_former_owner(leader: Leader) -> None:
    leader.open("b", 6, keep=True)
    leader.close("a", 5)
    leader.close("c", 6)
    assert leader.readers(a=6, b=6, c=6) == "b"


def test_fence_of_a_later_owner_closes_although_its_opening_was_lost(leader: Leader) -> None:
    leader.close("a", 5)
    leader.close("b", 6)
    leader.open("c", 7)
    assert leader.readers(a=7, b=7, c=7) == "c"


def test_groups_do_not_know_of_each_other(leader: Leader) -> None:
    leader.close("a", 5)
    leader.close("b", 2, group="h")
    leader.open("c", 3, group="h")
    assert leader.answer("a", 5, "h") is None and leader.answer("b", 2, "h") is FENCED
    assert leader.readers(c=3) == ""
    assert leader.answer("c", 1, "another") is None


def test_other_partition_and_topic_made_anew_are_served(leader: Leader) -> None:
    leader.close("a", 5)
    claim = Claim("g", "a", 5)
    assert leader.table.refuses(claim, TOPIC, 1, leader.now_ms) is None
    assert leader.table.refuses(claim, OTHER, 0, leader.now_ms) is None


def test_fence_is_forgotten_with_the_last_lease_and_not_before(leader: Leader) -> None:
    leader.close("a", 5, stock_lease_ms=0)
    leader.now_ms += 1_000
    leader.open("b", 6)
    leader.now_ms += LEASE_MS - 1
    leader.table.forget(leader.now_ms)
    assert leader.readers(a=5, b=6) == "b"
    leader.now_ms += 1
    leader.table.forget(leader.now_ms)
    assert len(leader.table) == 0 and leader.table.of_topic(TOPIC) is None


def test_former_owner_that_still_asks_without_a_grant_is_remembered(leader: Leader) -> None:
    leader.close("a", 5)
    leader.open("b", 6)
    for _ in range(5):
        leader.now_ms += STOCK_MS - 1
        assert leader.answer("a", 5) is FENCED
        leader.table.forget(leader.now_ms)
    leader.now_ms += STOCK_MS - 1
    assert leader.answer("a", 5, granted=True) is FENCED, "whose grant ends by itself"
    leader.now_ms += 1
    leader.table.forget(leader.now_ms)
    assert len(leader.table) == 0


def test_stock_client_is_known_by_client_id_and_host_where_all_are_checked(leader: Leader) -> None:
    leader.close("a", 5)
    assert leader.answer_to(STOCK["a"]) is None, "ours alone are checked"
    leader.settings = {"enforce": "all"}
    leader.close("a", 6)
    assert leader.answer_to(STOCK["a"]) is ErrorCode.NONE
    assert leader.answer_to(STOCK["a"]._replace(host="/10.0.0.8")) is None
    assert leader.answer_to(STOCK["b"]) is None, "which is none that is known to be of the group"


def test_client_id_and_host_of_several_members_name_none(leader: Leader) -> None:
    leader.settings, leader.senders = {"enforce": "all"}, {"a": STOCK["a"]._replace(is_unique=False)}
    leader.close("a", 5)
    assert leader.answer_to(STOCK["a"]) is None


def test_stock_client_with_a_token_is_known_by_it(leader: Leader) -> None:
    leader.senders = TOKENS
    leader.close("a", 5)
    leader.open("b", 6)
    assert leader.answer_to(TOKENS["a"]) is ErrorCode.NONE
    assert leader.answer_to(TOKENS["b"]) is None


def test_strict_group_answers_stock_clients_with_an_error(leader: Leader) -> None:
    leader.senders, leader.settings = TOKENS, {"refusal": "strict"}
    leader.close("a", 5)
    assert leader.answer_to(TOKENS["a"]) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.answer("a", 5) is FENCED


@pytest.mark.parametrize("senders", [STOCK, TOKENS])
def test_owner_is_not_starved_by_what_it_has_in_common_with_a_former_one(
    leader: Leader, senders: dict[str, Sender]
) -> None:
    """A member that was restarted has the client id, the host and perhaps the token of before."""
    leader.senders, leader.settings = {"a": senders["a"], "b": senders["a"]}, {"enforce": "all"}
    leader.close("a", 5)
    leader.open("b", 6)
    assert leader.answer_to(senders["a"]) is None


def test_group_that_enforces_no_more_opens(leader: Leader) -> None:
    leader.close("a", 5)
    leader.settings = {"enforce": "off"}
    leader.close("b", 6)
    assert leader.readers(a=5, b=6) == "ab"
    assert leader.told == [PLACE] * 2 and len(leader.table) == 0


def test_ten_thousand_partitions_and_a_hundred_thousand_moves_are_forgotten(leader: Leader) -> None:
    """Bounded by moves in one lease."""
    places = tuple((TOPIC, partition) for partition in range(10_000))
    most = 0
    for epoch in range(0, 20, 2):
        leader.close("ab"[epoch % 2], epoch, places=places)
        leader.open("ba"[epoch % 2], epoch + 1, places=places)
        most = max(most, len(leader.table))
        leader.now_ms += LEASE_MS
    assert most == 10_000
    leader.now_ms += STOCK_MS
    for _ in range(10):
        leader.table.forget(leader.now_ms)
    assert len(leader.table) == 0
