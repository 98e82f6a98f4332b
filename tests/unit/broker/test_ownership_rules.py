"""Fences beside an oracle of ten lines, for random messages of a coordinator; claims of every kind beside a broker."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from kohort.broker.fetch.claims import Claims, grant_verifier
from kohort.broker.fetch.ownership import Claim, Fence, OwnershipChange, OwnershipTable
from kohort.ids import TopicId
from kohort.security.capabilities.capability import mint
from kohort.security.capabilities.caveats import epoch, groups, member, not_after, operations, partitions
from kohort.security.capabilities.root_keys import RootKeys
from kohort.wire.messages.consumer_group_heartbeat import TopicPartitions
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.membership import KnownMembership

PLACE = (TopicId(b"t" * 16), 7)
MEMBERS = "abc"
LEASE_MS = 100


class Oracle:
    """What one partition of one group is, by the coordinator's own book."""

    def __init__(self) -> None:
        self.is_closed, self.is_kept, self.floor, self.until_ms = False, False, -1, 0
        self.formers: dict[str, int] = {}

    def close(self, member_id: str, member_epoch: int, now_ms: int) -> None:
        self.is_closed, self.is_kept, self.floor = True, True, member_epoch
        self.formers[member_id] = self.until_ms = now_ms + LEASE_MS

    def open(self, member_id: str, member_epoch: int, now_ms: int) -> None:
        self.is_closed, self.floor = False, member_epoch
        self.formers.pop(member_id, None)
        self.until_ms = now_ms + LEASE_MS

    def refuses(self, member_id: str, member_epoch: int) -> bool:
        """Whether the member must not read at that epoch."""
        return self.is_closed or member_id in self.formers or member_epoch < self.floor

    def depends_on_lease(self, member_id: str, member_epoch: int, now_ms: int) -> bool:
        """Whether nothing refuses the member but that it was an owner, if it was, in a lease that is over."""
        return not self.is_closed and member_epoch >= self.floor and self.formers.get(member_id, now_ms) <= now_ms


class Messages(RuleBasedStateMachine):
    """A coordinator moves one partition; its messages come in order, and older ones come again at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.oracle = OwnershipTable(), Oracle()
        self.now_ms, self.epoch, self.owner = 1_000, 1, "a"
        self.is_closed = False
        self.sent: list[OwnershipChange] = []

    def send(self, member_id: str, *, is_open: bool) -> None:
        change = OwnershipChange("g", member_id, self.epoch, (PLACE,), is_open, LEASE_MS, 0)
        self.sent.append(change)
        self.table.change(change, self.now_ms)

    @rule()
    @precondition(lambda self: not self.is_closed)
    def close(self) -> None:
        self.is_closed = True
        self.oracle.close(self.owner, self.epoch, self.now_ms)
        self.send(self.owner, is_open=False)

    @rule(member_id=st.sampled_from(MEMBERS))
    @precondition(lambda self: self.is_closed)
    def open(self, member_id: str) -> None:
        self.is_closed = False
        self.epoch += member_id != self.owner
        self.owner = member_id
        if self.oracle.is_kept:
            # Where nothing is closed, or no more, there is nothing to open.
            self.oracle.open(member_id, self.epoch, self.now_ms)
        self.send(member_id, is_open=True)

    @rule()
    def epochs_rise(self) -> None:
        self.epoch += 1

    @rule(data=st.data())
    def repeat(self, data: Any) -> None:
        older = [change for change in self.sent if change.epoch < self.oracle.floor] + self.sent[-1:]
        if older and self.table.of_topic(PLACE[0]):
            self.table.change(data.draw(st.sampled_from(older)), self.now_ms)

    @rule(ms=st.sampled_from([1, LEASE_MS // 2, LEASE_MS - 1, LEASE_MS]))
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms
        self.table.forget(self.now_ms)

    @invariant()
    def members_read_what_is_theirs(self) -> None:
        if not self.table.of_topic(PLACE[0]):
            assert self.now_ms >= self.oracle.until_ms, "forgotten before the last lease"
            self.oracle = Oracle()
            return
        for member_id in MEMBERS:
            for told in {-1, self.oracle.floor - 1, self.oracle.floor, self.epoch, 1 << 31}:
                refused = self.table.refuses(Claim("g", member_id, told, is_granted=True), *PLACE, self.now_ms)
                if self.oracle.depends_on_lease(member_id, told, self.now_ms) and member_id != self.owner:
                    # Its lease is over: it may be forgotten, or be remembered by a message that came again.
                    continue
                assert (refused is not None) == self.oracle.refuses(member_id, told), (member_id, told)


Messages.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestMessages = Messages.TestCase


def bug_forgotten_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    forget = OwnershipTable.forget
    monkeypatch.setattr(OwnershipTable, "forget", lambda self, now_ms: forget(self, now_ms + 1))


def bug_floor_off_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    find = Fence.find_reason

    def find_reason(self: Fence, claim: Claim, topic_id: TopicId, partition: int) -> str | None:
        return find(self, claim._replace(epoch=claim.epoch + 1), topic_id, partition)

    monkeypatch.setattr(Fence, "find_reason", find_reason)


def bug_former_not_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    opens = Fence.open

    def open_it(self: Fence, change: OwnershipChange, now_ms: int) -> bool:
        former = self.formers.get(change.member_id)
        is_changed = opens(self, change, now_ms)
        if former is not None:
            self.formers[change.member_id] = former
        return is_changed

    monkeypatch.setattr(Fence, "open", open_it)


def bug_older_message_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    opens = Fence.open

    def open_it(self: Fence, change: OwnershipChange, now_ms: int) -> bool:
        self.epoch = min(self.epoch, change.epoch)
        return opens(self, change, now_ms)

    monkeypatch.setattr(Fence, "open", open_it)


def bug_former_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    opens = Fence.open

    def open_it(self: Fence, change: OwnershipChange, now_ms: int) -> bool:
        is_changed = opens(self, change, now_ms)
        self.formers.clear()
        return is_changed

    monkeypatch.setattr(Fence, "open", open_it)


@pytest.mark.parametrize(
    "plant",
    [
        bug_forgotten_too_early,
        bug_floor_off_by_one,
        bug_former_not_lifted,
        bug_older_message_wins,
        bug_former_forgotten,
    ],
)
def test_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            Messages,
            settings=settings(
                max_examples=500,
                stateful_step_count=20,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                report_multiple_bugs=False,
            ),
        )


class Connection:
    """As much of a connection as a claim needs."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.peer_host = "10.0.0.7"


INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TOPICS = st.one_of(st.just(PLACE[0]), st.binary(min_size=16, max_size=16))
TAGS = st.builds(
    KnownMembership,
    group_id=st.one_of(st.just("g"), st.text(max_size=5)),
    member_id=st.one_of(st.sampled_from(MEMBERS), st.text(max_size=5)),
    member_epoch=INT32,
    topic_partitions=st.lists(
        st.builds(TopicPartitions, topic_id=TOPICS, partitions=st.lists(INT32, max_size=4)), max_size=4
    ),
)


@given(
    tags=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([-1, 0, 1]), st.none() | TAGS, st.none() | st.text(min_size=1)),
        max_size=9,
    )
)
@settings(max_examples=60, deadline=None)
def test_claims_of_any_client_take_away_and_are_bounded_by_connections(tags: Any) -> None:
    """A fetch without a claim reads everything, so a lie reads no more than silence does."""
    claims = Claims(grant_verifier(lambda: RootKeys.of(bytes(32))))
    table = OwnershipTable()
    table.change(OwnershipChange("g", "a", 5, (PLACE,), False, LEASE_MS, LEASE_MS), 0)
    for number, session_epoch, tag, grant in tags:
        connection: Any = Connection(number)
        message = FetchRequest(session_epoch=session_epoch, topics=[], member=tag, grant=grant)
        claim = claims.take(connection, message, tag, begins_anew=message.session_epoch <= 0)
        assert len(claims) <= 3
        if grant is not None:
            assert claim is not None and claim.is_void, "no such text is a token"
        elif tag is not None and claim is not None:
            assert claim.member == (tag.group_id, tag.member_id)
            refused = table.refuses(claim, *PLACE, 0)
            assert (refused is not None) == (tag.group_id == "g")
        elif session_epoch <= 0:
            assert claim is None
    for number in range(3):
        gone: Any = Connection(number)
        claims.forget(gone)
    assert len(claims) == 0


def test_changed_token_is_no_claim() -> None:
    """Thousands of changes of a good one: bytes changed, doubled, left out and moved."""
    keys = RootKeys.of(bytes(32))
    caveats = groups("g"), member("a"), epoch(5), operations("read"), partitions({PLACE[0]: [7]}), not_after(1 << 50)
    good = mint(keys, *caveats, token_id=bytes(16))
    claims = Claims(grant_verifier(lambda: keys))
    connection: Any = Connection(1)

    def take(grant: str) -> Claim:
        claim = claims.take(connection, FetchRequest(session_epoch=0, topics=[], grant=grant), None, begins_anew=True)
        assert claim is not None
        return claim

    assert not take(good).is_void
    random = Random(25)
    for _ in range(2_000):
        # An empty text takes a grant back.
        at, to = sorted(random.sample(range(1, len(good)), 2))
        changed = random.choice(
            [
                good[:at] + random.choice("AZaz09-_.") + good[at + 1 :],
                good[:at] + good[to:],
                good[:to] + good[at:],
                good[:at] + good[at:to][::-1] + good[to:],
                good[:at],
            ]
        )
        assert changed == good or take(changed).is_void
    claim = take(good)
    assert (claim.member, claim.epoch, claim.not_after_ms, claim.is_granted) == (("g", "a"), 5, 1 << 50, True)
