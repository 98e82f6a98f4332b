"""A query as a member of its group: its state, its partitions, its open batch, and its commits.

Nothing here waits or talks to a broker. Spark's calls are generators: they yield a `Request` and are sent its result.
The group's events arrive by `on_...`. `member/thread.py` connects both to a consumer, the simulation to a simulated
one.

Laws: a batch reads a partition only after a commit that announces the batch to the group, with the query's name
(`lineage.py`) and the offset read so far. A revoked partition is not planned again, and is kept until the batch that
reads it is finished and committed. A span that another query has planned and may still finish is not planned. A query
leaves its group for good only when it has no open batch and its position is committed.
Source: KIP-848, reconciliation of the member; KIP-345; P2 to P4; measured order of Spark's calls.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Final

from kohort.errors import InvariantViolation
from kohort.ids import TopicPartition
from kohort.spark.checkpoint import BatchState
from kohort.spark.member import requests
from kohort.spark.member.lineage import Holder, Known, Ledger, Place, build_claims, find_place, is_last_holder, trim
from kohort.spark.offsets import QueryOffset, Span

#: How long the first plan waits after an empty assignment, since partitions may follow; milliseconds.
_FIRST_WORD_MS: Final = 3_000


class Membership:
    """One query in one group.

    Args:
        name: the query's; the same for the life of its checkpoint.
        waits: whether to wait for batches that may be unfinished, of this query and of others (`inDoubt=wait`).
        follows_orders: whether to follow offsets that were set from outside (`externalOffsets=follow`).
        join_patience_ms: how long a plan waits for an assignment.
        doubt_patience_ms: how long a plan waits for the open batch of another query that is still in the group.
    """

    def __init__(
        self, name: str, *, waits: bool, join_patience_ms: int, doubt_patience_ms: int, follows_orders: bool = True
    ) -> None:
        self.name = name
        self.state = State.JOINING
        #: Whether the trigger is AvailableNow: such a run waits until it owns a partition.
        self.is_bounded = False
        #: Whether to give up all partitions and plan no more batches.
        self.is_draining = False
        #: Assigned partitions that are not given up.
        self.owned: set[TopicPartition] = set()
        #: Subset of `owned`: revoked partitions, which are not given up yet.
        self.wanted_back: set[TopicPartition] = set()
        #: The spans of the open batch.
        self.flight: dict[TopicPartition, Span] = {}
        #: Lines for the log.
        self.notes: list[str] = []
        self._waits = waits
        self._follows_orders = follows_orders
        self._join_patience_ms = join_patience_ms
        self._uncertain = UncertainBatches(name, self.notes, waits=waits, patience_ms=doubt_patience_ms)
        #: Owned partitions that are being planned at this moment: a revocation of these waits, too.
        self._picking: set[TopicPartition] = set()
        #: Owned partitions of a finished batch that is not committed yet: their revocation waits as well.
        self._due: set[TopicPartition] = set()
        #: partition -> its state in this query's checkpoint.
        self._known: dict[TopicPartition, Known] = {}
        #: The same for topics that were recreated since.
        self._outdated: dict[TopicPartition, Known] = {}
        #: partition of the open batch -> this query's entry in the chain of holders.
        self._taken: dict[TopicPartition, Holder] = {}
        #: partition whose offset was set from outside into a repeated batch -> the rest of the batch, and its holder.
        self._heeded: dict[TopicPartition, tuple[Span, Holder]] = {}
        #: partition -> its last commit; for owned partitions only, to which no other query commits.
        self._ledgers: dict[TopicPartition, Ledger] = {}
        #: Partitions, perhaps not owned, for which the group may lack this query's position.
        self._unsettled: set[TopicPartition] = set()
        #: Partitions that are not owned, in which this query has read offsets that its checkpoint does not have.
        self._lost: set[TopicPartition] = set()
        #: Whether the commits for all partitions were fetched, which is done once in a process.
        self._has_looked = False
        #: Whether the query has ever joined the group: errors after that may be transient.
        self.has_ever_joined = False
        self._has_ever_owned = False
        #: Whether a plan has waited for partitions in vain; the next plan waits only after some were assigned.
        self._has_waited = False

    def claimed(self) -> dict[TopicPartition, tuple[int, int, int, int]]:
        """Return start and end of each span of the open batch, with the query's entry in the chain of holders."""
        return {
            each: (*span, self._taken[each].since, self._taken[each].orders)
            for each, span in self.flight.items()
            if span.size > 0 and each in self._taken
        }

    # -- the group ----------------------------------------------------------------------------------------------------

    @property
    def is_joined(self) -> bool:
        """Whether the group has sent this query an assignment."""
        return self.state in ASSIGNED

    @property
    def is_open(self) -> bool:
        """Whether a batch was planned and is not known to be finished."""
        return self.state in OPEN

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Add newly assigned partitions, perhaps none."""
        self.owned.update(partitions)
        self.has_ever_joined = True
        if partitions:
            self._has_ever_owned, self._has_waited = True, False
        if not self.is_joined and self.state not in ENDING:
            self._move(Step.ASSIGNED)

    def on_wanted_back(self, partitions: Collection[TopicPartition]) -> None:
        """Note revoked partitions, to be given up as soon as `may_give_up` allows."""
        self.wanted_back.update(partitions)
        if self.state is State.PLANNED and not self.flight.keys().isdisjoint(partitions):
            self._move(Step.WANTED_BACK)

    def may_give_up(self, partitions: Collection[TopicPartition]) -> bool:
        """Return whether no batch needs these partitions any more, or the query ends anyway."""
        if self.state in ENDING:
            return True
        return all(kept.isdisjoint(partitions) for kept in (self.flight.keys(), self._picking, self._due))

    def on_given_up(self, partitions: Collection[TopicPartition]) -> None:
        """Note that these partitions were given up."""
        self._forget(partitions)
        if self.state is State.GIVING_UP and self.wanted_back.isdisjoint(self.flight):
            # They were given up during the batch, because it took longer than the group waits.
            self._move(Step.GIVEN_UP)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Drop partitions after a fence; the group may have assigned them to others already."""
        self._forget(partitions)
        if self.is_joined:
            self._move(Step.LOST)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        self.owned.difference_update(partitions)
        self.wanted_back.difference_update(partitions)
        self._due.difference_update(partitions)
        # The group may count this query as their holder until its position is committed.
        self._unsettled.update(partitions)
        for partition in partitions:
            self._ledgers.pop(partition, None)

    # -- Spark's calls ------------------------------------------------------------------------------------------------

    def plan(self, start: QueryOffset, now_ms: int, *, renewed: Collection[str] = ()) -> requests.Steps[requests.Plan]:
        """Commit the position at `start`, and plan the next batch.

        `renewed`: topics that were recreated since `start`.

        Raises:
            NoAssignment: the group sent no assignment in time; or a bounded run got no partition.
        """
        self._finish(start, renewed)
        deadline_ms = now_ms + self._join_patience_ms
        while True:
            yield from self._settle(self._unsettled | (self._due & self.wanted_back))
            now_ms = yield from self._wait_for_assignment(now_ms, deadline_ms)
            if not self._has_looked:
                yield from self._look_at_everything()
            if self.is_draining:
                yield from self._settle(set(self._due))
            readable = set() if self.is_draining else self.owned - self.wanted_back
            self._picking = readable
            try:
                plan = yield from self._pick(readable, now_ms, is_last=now_ms >= deadline_ms)
            finally:
                self._picking = set()
            if plan is not None:
                return plan
            now_ms = yield requests.Wait()

    def resume(
        self, start: QueryOffset, end: QueryOffset, now_ms: int, *, renewed: Collection[str] = ()
    ) -> requests.Steps[dict[TopicPartition, Span]]:
        """Return the spans still to be read in a batch that an earlier run has planned.

        The batch is read whether or not the group assigns its partitions to this query: another owner waits for the
        batch while this query is a member of the group.

        Raises:
            NoAssignment: the group sent no assignment in time.
        """
        self._finish(start, {*renewed, *start.outdated_by(end)})
        spans = end.following(start)
        taken = {each: Holder(self.name, since, end.orders.get(each, 0)) for each, since in end.since.items()}
        self._open({each: span for each, span in spans.items() if span.size and each.topic not in renewed}, taken)
        yield from self._wait_for_assignment(now_ms, now_ms + self._join_patience_ms, is_enough=True)
        found: dict[TopicPartition, Ledger] = yield requests.Fetch(tuple(sorted(self.flight)))
        left = {each: trim(span, found.get(each), taken.get(each)) for each, span in self.flight.items()}
        for each, span in self.flight.items():
            ledger = found.get(each)
            if ledger is not None and not ledger.chain and each in taken and span.start <= ledger.offset <= span.end:
                self._heeded[each] = (Span(ledger.offset, span.end), taken[each])
        found = self._heed(found)
        claims = {
            each: replace(found[each], offset=span.start, planned=span.end)
            for each, span in left.items()
            if each in self.owned and each in taken and is_last_holder(found.get(each), taken[each])
            # The sink's transaction has committed the end of this very batch: others go on behind it.
            if not found[each].offset == found[each].planned == self.flight[each].end
        }
        # No claim changes, unless the checkpoint is an older copy: then the committed offsets go back with it.
        yield from self._tell({each: claim for each, claim in claims.items() if claim != found[each]})
        self.flight = {each: span for each, span in left.items() if span.size > 0}
        gone = {each: span if each.topic in renewed else Span(span.start, span.start) for each, span in spans.items()}
        return {**gone, **left}

    def finish_open(self) -> requests.Steps[bool]:
        """Commit the finished open batch before Spark's next call; return whether that succeeded."""
        if self.state is State.IN_DOUBT:
            return False
        for partition, span in self.flight.items():
            if partition in self._taken:
                holder = self._taken[partition]
                self._known[partition] = Known(holder.since, span.end, holder.orders)
        self._close_batch()
        return (yield from self._settle(self._due | self._unsettled))

    def take_back(self) -> requests.Steps[bool]:
        """Cancel a planned batch that Spark's log does not have; return whether that is committed."""
        self._close_batch()
        return (yield from self._settle(self._due | self._unsettled))

    def part(self, batch: BatchState) -> requests.Steps[bool]:
        """Commit all positions as the query ends; return whether to leave the group for good.

        `batch`: the state of the open batch in Spark's checkpoint, if that can be read.
        """
        if self.is_open and batch is BatchState.FINISHED:
            yield from self.finish_open()
        elif self.is_open and batch is BatchState.UNWRITTEN:
            yield from self.take_back()
        if self.is_joined and not self._has_looked:
            # An earlier run may have left commits to correct, and this run ends before its first plan.
            yield from self._look_at_everything()
        is_settled = yield from self._settle(self._unsettled | self.owned)
        goes = is_settled and not self.is_open
        self.on_ending()
        return goes or not self._waits

    def on_ending(self) -> None:
        """Note that the query ends."""
        if self.state not in ENDING:
            self._move(Step.ENDING)

    def on_left(self) -> None:
        """Note that the group has been left."""
        if self.state in ENDING and self.state is not State.LEFT:
            self._move(Step.LEFT)

    # -- a batch ends -------------------------------------------------------------------------------------------------

    def _finish(self, start: QueryOffset, renewed: Collection[str]) -> None:
        for partition, span in start.spans.items():
            self._known[partition] = Known(start.since.get(partition), span.end, start.orders.get(partition, 0))
        self._close_batch()
        self._outdated = {each: self._known.pop(each) for each in set(self._known) if each.topic in renewed}
        for partition in self._outdated.keys() & self._ledgers.keys():
            del self._ledgers[partition]

    def _close_batch(self) -> None:
        if self.state in OPEN:
            self._move(Step.FINISHED)
        self._due |= self.flight.keys() & self.owned
        self._unsettled |= self.flight.keys() - self.owned
        self.flight, self._taken = {}, {}

    def _open(self, flight: dict[TopicPartition, Span], taken: Mapping[TopicPartition, Holder]) -> None:
        self.flight, self._taken = flight, dict(taken)
        if flight and self.state not in ENDING:
            self._move(Step.PLANNED)
            if not self.wanted_back.isdisjoint(flight):
                self._move(Step.WANTED_BACK)

    def _settle(self, partitions: Iterable[TopicPartition]) -> requests.Steps[bool]:
        """Commit the position, with no batch planned, in partitions of which this query is the last holder."""
        asked = tuple(sorted(each for each in partitions if each not in self.flight))
        if not asked or not self.is_joined:
            return not asked
        found: dict[TopicPartition, Ledger] = yield requests.Fetch(asked)
        news: dict[TopicPartition, Ledger] = {}
        for partition, ledger in self._heed(found).items():
            known = self._known.get(partition)
            if ledger.holder != self.name:
                continue
            offset = known.end if known is not None and known.is_of(ledger.chain[-1]) else ledger.offset
            settled = replace(ledger, offset=offset, planned=None)
            if settled != found[partition]:
                news[partition] = settled
        is_taken = yield from self._tell(news)
        if is_taken:
            self._due.difference_update(asked)
            self._unsettled.difference_update(asked)
        return is_taken

    def _tell(self, ledgers: dict[TopicPartition, Ledger]) -> requests.Steps[bool]:
        ours = {partition: ledger for partition, ledger in ledgers.items() if partition in self.owned}
        theirs = {partition: ledger for partition, ledger in ledgers.items() if partition not in ours}
        are_taken = True
        for request, said in ((requests.Commit(ours), ours), (requests.LeaveNotes(theirs), theirs)):
            if not said:
                continue
            is_taken: bool = yield request
            for partition, ledger in said.items():
                self._ledgers.pop(partition, None)
                if is_taken and partition in ours and partition in self.owned:
                    self._ledgers[partition] = ledger
                    self._heeded.pop(partition, None)
            if is_taken:
                self._due.difference_update(said)
            else:
                self._unsettled.update(said)
                are_taken = False
        return are_taken

    def _heed(self, found: Mapping[TopicPartition, Ledger]) -> dict[TopicPartition, Ledger]:
        """Enter this query as holder where a repeated batch has reached an offset set from outside."""
        return {each: self._heed_one(each, ledger) for each, ledger in found.items()}

    def _heed_one(self, partition: TopicPartition, ledger: Ledger) -> Ledger:
        heeded = self._heeded.get(partition)
        if ledger.chain or heeded is None or partition not in self.owned:
            return ledger
        span, holder = heeded
        return replace(ledger, chain=(holder,)) if span.start <= ledger.offset <= span.end else ledger

    # -- a batch begins -----------------------------------------------------------------------------------------------

    def _wait_for_assignment(self, now_ms: int, deadline_ms: int, *, is_enough: bool = False) -> requests.Steps[int]:
        """Wait for an assignment; a bounded run waits for a partition, unless an empty one `is_enough`."""
        began_ms = now_ms
        while not self._is_settled(now_ms - began_ms, is_enough=is_enough):
            if now_ms >= deadline_ms:
                break
            now_ms = yield requests.Wait()
            # Partitions that are revoked meanwhile are committed, so that they can be given up.
            yield from self._settle(self._due & self.wanted_back)
        if not self.is_joined:
            raise requests.NoAssignment(is_joined=False)
        if not is_enough:
            self._has_waited = not self.owned - self.wanted_back
            if self.is_bounded and not self._has_ever_owned:
                raise requests.NoAssignment(is_joined=True)
        return now_ms

    def _is_settled(self, waited_ms: int, *, is_enough: bool) -> bool:
        if not self.is_joined:
            return False
        if is_enough or self._has_waited or self.owned - self.wanted_back:
            return True
        return not self.is_bounded and (self._has_ever_owned or waited_ms >= _FIRST_WORD_MS)

    def _look_at_everything(self) -> requests.Steps[None]:
        """Fetch once the state that an earlier run of this query left in the group, for all partitions."""
        everything: list[TopicPartition] = yield requests.Existing()
        found: dict[TopicPartition, Ledger] = yield requests.Fetch(tuple(everything))
        mine = {each for each, ledger in found.items() if any(holder.name == self.name for holder in ledger.chain)}
        # If this query is the last holder, another one may be about to take over, and only then a loss is visible.
        self._lost = {
            each for each in mine if found[each].holder == self.name or self._find_lost(each, found[each]) is not None
        }
        doubted = {each for each in mine if found[each].holder == self.name and found[each].planned is not None}
        yield from self._settle(doubted - self.owned)
        self._has_looked = True

    def _find_lost(self, partition: TopicPartition, ledger: Ledger | None) -> Place | None:
        return find_place(ledger, self.name, self._known.get(partition), is_owned=False)

    def _pick(
        self, readable: set[TopicPartition], now_ms: int, *, is_last: bool
    ) -> requests.Steps[requests.Plan | None]:
        """Try once to plan a batch; `None` if the assignment has changed meanwhile, or the plan must wait."""
        wanted = sorted((readable | self._lost) - self._ledgers.keys())
        fetched: dict[TopicPartition, Ledger] = (yield requests.Fetch(tuple(wanted))) if wanted else {}
        found = self._heed({**self._ledgers, **fetched})
        held = yield from self._uncertain.find_held(found, readable & found.keys(), now_ms)
        if held and held == readable and self.is_bounded and not is_last:
            return None
        outdated = {each: known for each, known in self._outdated.items() if each not in found or not found[each].chain}
        places: requests.Places = {
            each: find_place(
                found.get(each),
                self.name,
                self._known.get(each, outdated.get(each)),
                is_owned=True,
                follows_orders=self._follows_orders and each not in self._outdated,
            )
            for each in sorted(readable - held)
        }
        for each in sorted(self._lost - readable):
            place = self._find_lost(each, found.get(each))
            if place is not None:
                places[each] = place
            elif each not in found or found[each].holder != self.name:
                self._lost.discard(each)
        spans: dict[TopicPartition, Span] = yield requests.Choose(places)
        claims, taken = build_claims(self.name, places, spans, found)
        if not readable <= self.owned:
            return None
        if not (yield from self._tell(claims)) or not readable <= self.owned:
            self._unsettled |= claims.keys()
            return None
        self._due -= readable - held
        external = self._tell_orders(found, places)
        self._open({each: span for each, span in spans.items() if span.size > 0}, taken)
        left = {**self._outdated, **self._known}
        others = {each: Span(known.end, known.end) for each, known in left.items() if each not in spans}
        kept = {
            each: Holder(self.name, known.since, known.orders)
            for each, known in left.items()
            if known.since is not None
        }
        return requests.Plan(spans=spans, others=others, taken={**kept, **taken}, external=external)

    def _tell_orders(
        self, found: Mapping[TopicPartition, Ledger], places: requests.Places
    ) -> dict[TopicPartition, Span]:
        """Log offsets that were set from outside; return the span by which each moves the query."""
        moved: dict[TopicPartition, Span] = {}
        for partition, place in places.items():
            ledger, known = found.get(partition), self._known.get(partition)
            if place is None or ledger is None or ledger.chain or known is None or ledger.offset == known.end:
                continue
            if place.start != known.end:
                moved[partition] = Span(known.end, place.start)
            start, other = place.start, ledger.offset if place.start == known.end else known.end
            self.notes.append(
                f"{partition} goes on at offset {start} and not at {other}: its group's offset was set from outside"
            )
        return moved

    def _move(self, step: Step) -> None:
        new = TRANSITIONS.get((self.state, step))
        if new is None:
            raise InvariantViolation(f"a query that is {self.state.value} cannot take the step {step.value}")
        self.state = new


# Only `Membership._move` changes the state, by the table of transitions; a pair that is not in it is a bug. A batch is
# open from its plan until it is known to be finished. While it is open its partitions are given up only by force, and a
# query that leaves the group then leaves as a static member that will come back.
class State(Enum):
    """The state of a query in its group."""

    #: The group has sent no assignment, or all partitions were lost; no batch is open.
    JOINING = "joining"
    #: The assignment is known; no batch is open.
    OWNING = "owning"
    #: A batch is open.
    PLANNED = "planned"
    #: A batch is open, and the group has revoked partitions that it reads.
    GIVING_UP = "giving up"
    #: All partitions were lost while a batch was open.
    FENCED = "fenced"
    #: An earlier run has left a batch open, and the group has sent no assignment yet.
    IN_DOUBT = "in doubt"
    #: The query ends with nothing open: its partitions are free at once.
    LEAVING = "leaving"
    #: The query ends with a batch open: its partitions wait for its return.
    AWAY = "away"
    #: The query has left the group, or has failed to reach it.
    LEFT = "left"


class Step(Enum):
    """An event in the life of a query."""

    ASSIGNED = "assigned"
    PLANNED = "planned"
    FINISHED = "finished"
    WANTED_BACK = "wanted back"
    GIVEN_UP = "given up"
    LOST = "lost"
    ENDING = "ending"
    LEFT = "left"


_S = State
#: States with a batch that is not known to be finished.
OPEN: Final = frozenset({_S.PLANNED, _S.GIVING_UP, _S.FENCED, _S.IN_DOUBT, _S.AWAY})
#: States in which the query's partitions are known.
ASSIGNED: Final = frozenset({_S.OWNING, _S.PLANNED, _S.GIVING_UP})
#: States in which the query ends, or has ended.
ENDING: Final = frozenset({_S.LEAVING, _S.AWAY, _S.LEFT})

TRANSITIONS: Final[dict[tuple[State, Step], State]] = {
    (_S.JOINING, Step.ASSIGNED): _S.OWNING,
    (_S.OWNING, Step.LOST): _S.JOINING,
    # A batch of an earlier run is resumed before the group has sent an assignment.
    (_S.JOINING, Step.PLANNED): _S.IN_DOUBT,
    (_S.IN_DOUBT, Step.ASSIGNED): _S.PLANNED,
    (_S.IN_DOUBT, Step.FINISHED): _S.JOINING,
    (_S.OWNING, Step.PLANNED): _S.PLANNED,
    (_S.PLANNED, Step.FINISHED): _S.OWNING,
    # Revoked partitions stay with the batch, unless that takes too long.
    (_S.PLANNED, Step.WANTED_BACK): _S.GIVING_UP,
    (_S.GIVING_UP, Step.FINISHED): _S.OWNING,
    (_S.GIVING_UP, Step.GIVEN_UP): _S.PLANNED,
    # Fenced.
    (_S.PLANNED, Step.LOST): _S.FENCED,
    (_S.GIVING_UP, Step.LOST): _S.FENCED,
    (_S.FENCED, Step.ASSIGNED): _S.PLANNED,
    (_S.FENCED, Step.FINISHED): _S.JOINING,
    # The end.
    (_S.JOINING, Step.ENDING): _S.LEAVING,
    (_S.OWNING, Step.ENDING): _S.LEAVING,
    **{(state, Step.ENDING): _S.AWAY for state in (_S.PLANNED, _S.GIVING_UP, _S.FENCED, _S.IN_DOUBT)},
    (_S.AWAY, Step.FINISHED): _S.LEAVING,
    (_S.LEAVING, Step.LEFT): _S.LEFT,
    (_S.AWAY, Step.LEFT): _S.LEFT,
}


# A planned batch is left to its query while that is a member (a static member that is away remains one until its
# session ends, KIP-345), for a bounded time. Another query then reads it, and logs which offsets may be read twice.
class UncertainBatches:
    """The open batches of other queries, and how long the query of that name has waited for them.

    Args:
        told: a list to which lines for the log are added.
        patience_ms: how long to wait for a query that is still a member.
    """

    def __init__(self, name: str, told: list[str], *, waits: bool, patience_ms: int) -> None:
        self._name = name
        self._told = told
        self._waits = waits
        self._patience_ms = patience_ms
        #: partition -> since when it is held back, milliseconds.
        self._held_since: dict[TopicPartition, int] = {}

    def find_held(
        self, found: dict[TopicPartition, Ledger], readable: set[TopicPartition], now_ms: int
    ) -> requests.Steps[set[TopicPartition]]:
        """Find the partitions in which another query has an open batch that it may still finish.

        Notes that the other query has committed meanwhile replace its ledgers in `found`.
        """
        doubted = {each for each in readable if found[each].doubt is not None and found[each].holder != self._name}
        for name in sorted({found[each].holder or "" for each in doubted}):
            asked = tuple(sorted(each for each in doubted if found[each].holder == name))
            notes: dict[TopicPartition, Ledger] = yield requests.ReadNotes(name, asked)
            for partition, note in notes.items():
                if (note.chain, note.count) == (found[partition].chain, found[partition].count):
                    found[partition] = note
                    doubted.discard(partition)
        names: Collection[str] = (yield requests.Names()) if doubted and self._waits else ()
        held: set[TopicPartition] = set()
        for partition in sorted(doubted):
            holder, doubt = found[partition].holder, found[partition].doubt
            assert doubt is not None
            began_ms = self._held_since.setdefault(partition, now_ms)
            if holder in names and now_ms < began_ms + self._patience_ms:
                held.add(partition)
            else:
                self._told.append(
                    f"offsets {doubt.start} to {doubt.end - 1} of {partition} may be read twice: {holder} has planned "
                    "them and did not come back"
                )
        self._held_since = {each: began for each, began in self._held_since.items() if each in held}
        return held
