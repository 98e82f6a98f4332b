"""A query as a member of its group: its state, its partitions, its open batch, and its commits.

Nothing here waits or talks to a broker. Spark's calls are generators that yield what they need (`Request`) and get the
answer sent; the group's events come in by `on_...`. `member/thread.py` runs both against a consumer, the simulation
against simulated ones.

Laws: a partition is planned only after a commit that tells the group so, with the planner's name (`lineage.py`) and the
offset read so far. A partition that the group wants back is not planned again, and stays until the batch that reads it
is finished and committed. A span that another query has planned and may yet finish is not planned. A query ends in its
group for good only when no batch of it is open and the group knows its position.
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

#: How long the first plan waits for more than an empty assignment, which may be the group's first word, milliseconds.
_FIRST_WORD_MS: Final = 3_000


class Membership:
    """One query in one group.

    Args:
        name: of the query; the same for as long as its checkpoint lives.
        waits: whether batches in doubt, of this query and of others, are waited for (`inDoubt=wait`).
        follows_orders: whether offsets are followed that were set from outside (`externalOffsets=follow`).
        join_patience_ms: how long a plan waits for an assignment.
        doubt_patience_ms: how long it waits for a batch of a query that is in the group.
    """

    def __init__(
        self, name: str, *, waits: bool, join_patience_ms: int, doubt_patience_ms: int, follows_orders: bool = True
    ) -> None:
        self.name = name
        self.state = State.JOINING
        #: Whether the run ends where the topics end now: then it waits until it owns something.
        self.is_bounded = False
        #: Everything is to be given up; nothing is planned any more.
        self.is_draining = False
        #: Partitions that the group has given to us and that we have not given back.
        self.owned: set[TopicPartition] = set()
        #: Subset of `owned`: the group wants them back.
        self.wanted_back: set[TopicPartition] = set()
        #: The spans of the open batch.
        self.flight: dict[TopicPartition, Span] = {}
        #: Sentences for the log.
        self.notes: list[str] = []
        self._waits = waits
        self._follows_orders = follows_orders
        self._join_patience_ms = join_patience_ms
        self._uncertain = UncertainBatches(name, self.notes, waits=waits, patience_ms=doubt_patience_ms)
        #: Owned partitions that are being planned at this moment: a revocation of these waits, too.
        self._picking: set[TopicPartition] = set()
        #: Owned partitions of a finished batch of which the group has not heard yet: these wait as well.
        self._due: set[TopicPartition] = set()
        #: partition -> what this query's checkpoint says of it.
        self._known: dict[TopicPartition, Known] = {}
        #: The same of topics that were made anew since.
        self._outdated: dict[TopicPartition, Known] = {}
        #: partition of the open batch -> the holder as which this query has taken it.
        self._taken: dict[TopicPartition, Holder] = {}
        #: partition of a batch that is repeated -> offsets from outside that are followed by that, and its holder.
        self._heeded: dict[TopicPartition, tuple[Span, Holder]] = {}
        #: partition -> the last commit; of owned partitions only, for there no other query commits.
        self._ledgers: dict[TopicPartition, Ledger] = {}
        #: Partitions, perhaps not owned, of which the group may lack this query's position.
        self._unsettled: set[TopicPartition] = set()
        #: Partitions that are not ours and of which we have read what our checkpoint does not have.
        self._lost: set[TopicPartition] = set()
        #: The whole topics have been looked at, once in a process.
        self._has_looked = False
        #: Whether the query has ever joined the group: errors after that may be transient.
        self.has_ever_joined = False
        self._has_ever_owned = False
        #: A plan has waited for partitions in vain; the next one waits again only after we have owned some.
        self._has_waited = False

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
        """Take partitions that the group assigns in addition, perhaps none."""
        self.owned.update(partitions)
        self.has_ever_joined = True
        if partitions:
            self._has_ever_owned, self._has_waited = True, False
        if not self.is_joined and self.state not in ENDING:
            self._move(Step.ASSIGNED)

    def on_wanted_back(self, partitions: Collection[TopicPartition]) -> None:
        """Note partitions that the group wants back, to be given up as soon as `may_give_up` allows."""
        self.wanted_back.update(partitions)
        if self.state is State.PLANNED and not self.flight.keys().isdisjoint(partitions):
            self._move(Step.WANTED_BACK)

    def may_give_up(self, partitions: Collection[TopicPartition]) -> bool:
        """Whether nothing of these is being read or planned, or everything ends anyway."""
        if self.state in ENDING:
            return True
        return all(kept.isdisjoint(partitions) for kept in (self.flight.keys(), self._picking, self._due))

    def on_given_up(self, partitions: Collection[TopicPartition]) -> None:
        """Note partitions that were given up to the group."""
        self._forget(partitions)
        if self.state is State.GIVING_UP and self.wanted_back.isdisjoint(self.flight):
            # The group did not want to wait any longer.
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
        # They may be ours in the group's eyes until it knows how far we came.
        self._unsettled.update(partitions)
        for partition in partitions:
            self._ledgers.pop(partition, None)

    # -- Spark's calls ------------------------------------------------------------------------------------------------

    def plan(self, start: QueryOffset, now_ms: int, *, renewed: Collection[str] = ()) -> requests.Steps[requests.Plan]:
        """Tell the group the position at `start`, and pick the next batch.

        `renewed`: topics that were recreated since `start`.

        Raises:
            NoAssignment: the group has given nothing in time.
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
        """Return the spans still to be read of a batch that an earlier run has planned.

        The batch is read whether or not the group assigns its partitions to this query: their owner waits for it
        while it is a member of the group.

        Raises:
            NoAssignment: the group has given nothing in time.
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
        }
        # The same as before, unless the checkpoint is an older copy: then the group goes back with it.
        yield from self._tell({each: claim for each, claim in claims.items() if claim != found[each]})
        self.flight = {each: span for each, span in left.items() if span.size > 0}
        gone = {each: span if each.topic in renewed else Span(span.start, span.start) for each, span in spans.items()}
        return {**gone, **left}

    def finish_open(self) -> requests.Steps[bool]:
        """Finish the open batch without Spark's next call; return whether the group has taken it."""
        if self.state is State.IN_DOUBT:
            return False
        for partition, span in self.flight.items():
            if partition in self._taken:
                holder = self._taken[partition]
                self._known[partition] = Known(holder.since, span.end, holder.orders)
        self._close_batch()
        return (yield from self._settle(self._due | self._unsettled))

    def take_back(self) -> requests.Steps[bool]:
        """Drop a planned batch that Spark has not written into its log, so that none of it is in doubt."""
        self._close_batch()
        return (yield from self._settle(self._due | self._unsettled))

    def part(self, batch: BatchState) -> requests.Steps[bool]:
        """Tell the group the position everywhere as the query ends; return whether to leave for good.

        `batch`: how far Spark is with the open batch, as far as that can be found out.
        """
        if self.is_open and batch is BatchState.FINISHED:
            yield from self.finish_open()
        elif self.is_open and batch is BatchState.UNWRITTEN:
            yield from self.take_back()
        if self.is_joined and not self._has_looked:
            # The run before us has left something, perhaps, and we end before our first plan.
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
        """Commit the position, without a plan, of partitions that this query was the last to hold."""
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
        """Count this query as holder of each offset set from outside that a repeated batch has reached."""
        return {each: self._heed_one(each, ledger) for each, ledger in found.items()}

    def _heed_one(self, partition: TopicPartition, ledger: Ledger) -> Ledger:
        heeded = self._heeded.get(partition)
        if ledger.chain or heeded is None or partition not in self.owned:
            return ledger
        span, holder = heeded
        return replace(ledger, chain=(holder,)) if span.start <= ledger.offset <= span.end else ledger

    # -- a batch begins -----------------------------------------------------------------------------------------------

    def _wait_for_assignment(self, now_ms: int, deadline_ms: int, *, is_enough: bool = False) -> requests.Steps[int]:
        """Return when the assignment is known; a bounded run waits for a partition unless an empty one `is_enough`."""
        began_ms = now_ms
        while not self._is_settled(now_ms - began_ms, is_enough=is_enough):
            if now_ms >= deadline_ms:
                break
            now_ms = yield requests.Wait()
            # Partitions that the group wants back meanwhile are given up.
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
        # Where this query was the last holder, another one may be about to take over; what was lost shows then.
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
        """Try once to pick spans; `None` if the group has changed meanwhile, or has to be waited for."""
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
        """Note the offsets set from outside, and return the span by which each moves the query."""
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


# A state changes in `Membership._move` alone, by the table of transitions; a pair that is not in it is a bug. A batch
# is open from its plan until it is known to be finished. While one is open nothing is given up but by force, and a
# query that leaves then leaves as one that comes back.
class State(Enum):
    """The state of a query in its group."""

    #: The group has given no assignment (any more); no batch is open.
    JOINING = "joining"
    #: The assignment is known; no batch is open.
    OWNING = "owning"
    #: A batch is open.
    PLANNED = "planned"
    #: A batch is open, and the group wants partitions back that it reads.
    GIVING_UP = "giving up"
    #: The group took everything while a batch was open.
    FENCED = "fenced"
    #: An earlier run has left a batch open, and the group has given no assignment yet.
    IN_DOUBT = "in doubt"
    #: The query ends with nothing open: its partitions are free at once.
    LEAVING = "leaving"
    #: The query ends with a batch open: its partitions wait for its return.
    AWAY = "away"
    #: The group has been told, or could not be told.
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
#: The query ends, or has ended.
ENDING: Final = frozenset({_S.LEAVING, _S.AWAY, _S.LEFT})

TRANSITIONS: Final[dict[tuple[State, Step], State]] = {
    (_S.JOINING, Step.ASSIGNED): _S.OWNING,
    (_S.OWNING, Step.LOST): _S.JOINING,
    # A batch of an earlier run is planned before the group has said a word.
    (_S.JOINING, Step.PLANNED): _S.IN_DOUBT,
    (_S.IN_DOUBT, Step.ASSIGNED): _S.PLANNED,
    (_S.IN_DOUBT, Step.FINISHED): _S.JOINING,
    (_S.OWNING, Step.PLANNED): _S.PLANNED,
    (_S.PLANNED, Step.FINISHED): _S.OWNING,
    # The group wants partitions back: they stay with the batch, unless that takes too long.
    (_S.PLANNED, Step.WANTED_BACK): _S.GIVING_UP,
    (_S.GIVING_UP, Step.FINISHED): _S.OWNING,
    (_S.GIVING_UP, Step.GIVEN_UP): _S.PLANNED,
    # Cut off.
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


# A planned batch is left to its query while that is in the group, or away for a while (KIP-345: it keeps its name until
# its session ends), and for a bounded time. A query that takes it then logs which offsets may be read twice.
class UncertainBatches:
    """The open batches of other queries for which the query of that name waits.

    Args:
        told: where sentences for the log go.
        patience_ms: how long it waits for a query that is still a member.
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

        The notes that the other query has left meanwhile go into `found`.
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
