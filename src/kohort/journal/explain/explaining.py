"""Explanation of a group from its rows: triggers of rebalances, moves of partitions, slow members.

A rebalance of the consumer protocol begins with the first change since the latest target. It ends when no member has
partitions to revoke or waits for any. Of a classic rebalance the coordinator's rows state begin and end. A partition
belongs to a member from the row that grants it until the row that takes it away.

Laws: pure; rows come in order. Unnamed members and partitions are counted. Missing information is not guessed: if the
first rows of a group are missing, the first owner of a partition is unknown. A crash may have lost rows, so no
conclusion spans it; the state after the restart is reported as found. A row of an unknown event changes nothing.
Source: requirement J2; `coordinator/journal_events/`, which writes the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from kohort.journal.explain import sentences
from kohort.journal.explain.explanation import Gap, GroupExplanation, Trigger
from kohort.journal.explain.group_state import FollowedMember, FollowedRebalance, OpenMove, OwnershipTimeline, Silence
from kohort.journal.explain.rebalances import FollowedRebalances
from kohort.journal.words import MemberNames, Partition, ToldRow, name_principal, read_partitions, show_principal

#: Reason for the removal of a process that another one replaces.
_RETURNED: Final = "static member returned"
#: Assignor whose members keep the rest of their partitions in a rebalance (KIP-429).
_COOPERATIVE: Final = "cooperative-sticky"
#: Assignors whose members give all up before they join again.
_EAGER: Final = frozenset({"range", "roundrobin", "sticky"})
_GIVEN_UP: Final = "it gave it up when it was asked to"
_ALL_GIVEN_UP: Final = "it gave all up to join again"


def explain(
    group_id: str, rows: Iterable[ToldRow], *, now_ms: int | None = None, is_complete: bool = True
) -> GroupExplanation:
    """Explain a group by its history.

    Args:
        rows: of that group, oldest first.
        now_ms: time up to which open events have lasted, milliseconds since 1970; `None`: that of the latest row.
        is_complete: whether no older row is missing.
    """
    rows = list(rows)
    names = MemberNames()
    # All rows first: a member's short name must not change on the way.
    names.learn(rows)
    followed = _Explainer(group_id, names)
    for row in rows:
        followed.read(row)
    latest_ms = rows[-1].time_ms if rows else 0
    return replace(followed.result(max(latest_ms, now_ms or 0)), is_complete=is_complete)


class _Explainer:
    """Reader of one group's rows, in order."""

    def __init__(self, group_id: str, names: MemberNames) -> None:
        self._group_id: Final = group_id
        self._names: Final = names
        self._members: dict[str, FollowedMember] = {}
        self._rebalances: Final = FollowedRebalances()
        self._holdings = OwnershipTimeline()
        #: Partition -> the move that brought it to its member.
        self._arrivals: dict[Partition, OpenMove] = {}
        self._is_gone = False
        #: The input of the present rows, the members that they concern, and its reason.
        self._cause = -1
        self._about: list[FollowedMember] = []
        self._said = ""
        self._silences: list[Silence] = []
        #: The unknown time of a broker's crash, and the members that were found after it.
        self._gap: Gap | None = None
        self._confirmed: set[str] = set()
        #: Number of members without a name in the rows.
        self._unnamed = 0
        #: End of the wait of a static group's new members, ms; `None`: none wait.
        self._window_ms: int | None = None

    def read(self, row: ToldRow) -> None:
        """Read the next row."""
        # Rows of one input belong together: members and reasons of earlier rows explain the later ones.
        if row.cause != self._cause:
            self._cause, self._about, self._said, self._silences = row.cause, [], "", []
            if self._holdings.given_up and self._rebalances.open is None:
                # It has joined a generation that goes on.
                self._holdings.give_back(row.time_ms)
        if row.event in ("JoinGroup", "LeaveGroup"):
            self._said = row.details.get("reason", "")
        reader = _READERS.get(row.event)
        if reader is not None:
            self._is_gone = False
            reader(self, row)
            if row.event != "member_found":
                # The way to a found state is not known.
                self._close_if_at_rest(row.time_ms)

    # Members.

    def _member(self, member_id: str) -> FollowedMember:
        member = self._members.get(member_id)
        if member is None:
            member = self._members[member_id] = FollowedMember(member_id=member_id, name=self._names.of(member_id))
        return member

    def _joined(self, row: ToldRow) -> None:
        member = self._member(row.member_id)
        # The member came with its group from the other protocol, and has not joined.
        if row.event == "member_kept":
            return
        # A cooperative member joins again once it has given up the partitions that the leader took from it.
        if row.event == "member_rejoined" and member.asked_since_ms is not None:
            self._let_go(member, member.asked, row.time_ms, _GIVEN_UP)
            self._delay(member, "give up", member.asked_since_ms, row.time_ms)
            member.asked, member.asked_since_ms = {}, None
        if row.event == "member_rejoined" and not _EAGER.isdisjoint(row.details.get("protocols", "").split(",")):
            for partition in self._holdings.give_up(member.name, row.time_ms, _ALL_GIVEN_UP):
                self._forget_arrival(partition)
        self._about.append(member)
        member.joined_ms = row.time_ms if member.joined_ms is None else member.joined_ms
        member.is_new = self._window_ms is not None and row.event == "member_joined"
        if self._rebalances.open is not None:
            self._rebalances.open.joined[member.member_id] = row.time_ms
        if row.event == "member_joined":
            self._add_late_trigger(row, "member joined")

    def _removed(self, row: ToldRow) -> None:
        reason, now_ms = row.details.get("reason", ""), row.time_ms
        member = self._member(row.member_id)
        if "silent_ms" in row.details:
            self._silences.append(_silence_of(member.name, row))
        by = _sender_of(row)
        end = sentences.say_trigger(reason, (member.name,), "", by) if reason else ""
        held = [*self._holdings.of(member.name), *self._holdings.given_up_by(member.name)]
        self._let_go(member, held, now_ms, end)
        self._holdings.explain(member.name, end)
        ended = name_principal(sentences.ENDS.get(reason, ""), by) if reason in sentences.ENDS else ""
        self._heard(member, now_ms, end=ended)
        if member.asked_since_ms is not None:
            self._delay(member, "give up", member.asked_since_ms, now_ms, end=ended)
        # A replaced process is no member that left: its instance goes on.
        if reason == _RETURNED:
            self._came_back(member, now_ms)
        del self._members[row.member_id]
        if reason != _RETURNED:
            self._about.append(member)
            self._add_late_trigger(row, reason)

    def _replaced(self, row: ToldRow) -> None:
        former = self._members.pop(row.details.get("former", ""), None)
        member = self._member(row.member_id)
        self._about.append(member)
        latest = self._rebalances.open
        if latest is not None:
            latest.joined[member.member_id] = row.time_ms
        if former is not None:
            member.settled = former.settled
            self._holdings.rename(former.name, member.name)

    def _went_away(self, row: ToldRow) -> None:
        member = self._member(row.member_id)
        released = read_partitions(row.details.get("released", ""))[0]
        self._let_go(member, released, row.time_ms, f"{member.name} left for a while")
        member.away_since_ms = row.time_ms - int(row.details.get("silent_ms", 0))
        # Others do not wait for a member that is away.
        member.waits_since_ms = member.asked_since_ms = member.planned_since_ms = None
        member.asked = {}

    def _came_back(self, member: FollowedMember, now_ms: int) -> None:
        since_ms, member.away_since_ms = member.away_since_ms, None
        if since_ms is not None:
            self._delay(member, "come back", since_ms, now_ms)

    def _connection(self, row: ToldRow) -> None:
        said = "its connection was lost" if row.event == "connection_lost" else "it was connected again"
        self._member(row.member_id).meanwhile.append(said)

    def _refused(self, row: ToldRow) -> None:
        member = self._members.get(row.member_id)
        if member is not None:
            times, error = f" {row.times} times" if row.times > 1 else "", row.details.get("error", "")
            is_told = (row.details.get("api"), error) == ("Heartbeat", "REBALANCE_IN_PROGRESS")
            member.meanwhile.append(f"told{times} that the group rebalances" if is_told else f"refused{times}: {error}")

    def _meanwhile(self, row: ToldRow) -> None:
        did = row.details.get("did", "")
        self._member(row.member_id).meanwhile.append(f"{row.times} {did if row.times > 1 else did.removesuffix('s')}")

    # Members with fewer partitions than others, though the group is at rest.

    def _window(self, row: ToldRow) -> None:
        is_open = row.event == "window_opened"
        self._window_ms = int(row.details.get("ends_ms", row.time_ms)) if is_open else None
        for member in self._members.values():
            # Only members that joined with the row that opened the window wait for it.
            member.is_new = is_open and member in self._about

    def _short(self, row: ToldRow) -> None:
        member, latest = self._member(row.member_id), self._rebalances.latest
        member.short = dict(row.details)
        if latest is not None:
            latest.short[member.name] = member.short

    def _forget_short(self) -> None:
        for member in self._members.values():
            member.short = {}

    # A crash.

    def _crashed(self, row: ToldRow) -> None:
        if row.details.get("before") == "crashed":
            self._gap = Gap(began_ms=int(row.details.get("last_ms", row.time_ms)), ended_ms=row.time_ms)
            self._confirmed = set()
            for member in self._members.values():
                # The awaited event may have come.
                member.planned_since_ms, member.meanwhile = None, []

    def _found_member(self, row: ToldRow) -> None:
        member = self._member(row.member_id)
        self._confirmed.add(member.member_id)
        held, unnamed = read_partitions(row.details.get("held", ""))
        end = "the broker crashed, and what came then is not known"
        # Unnamed partitions may be among the ones that the row does not list.
        gone = [] if unnamed else [each for each in self._holdings.of(member.name) if each not in held]
        self._let_go(member, gone, row.time_ms, end, is_found=True)
        for partition in held:
            if self._holdings.of_partition(partition) != member.name:
                self._holdings.give(member.name, partition, row.time_ms)
        is_settled = row.details.get("state", "STABLE") == "STABLE"
        member.settled = int(row.details.get("epoch", -1)) if is_settled else -1
        if is_settled:
            member.asked, member.asked_since_ms, member.waits_since_ms = {}, None, None

    def _found(self, row: ToldRow) -> None:
        """Start from the group that a restart found; members missing there have left, if it names all."""
        details, gap = row.details, self._gap
        count = int(details.get("members", 0))
        self._unnamed = max(0, count - len(self._confirmed))
        # With unnamed members, a member without a row may still be there.
        gone = (
            [] if self._unnamed else [each for each in self._members.values() if each.member_id not in self._confirmed]
        )
        for member in gone:
            end = "the broker crashed: when it left, and why, is not known"
            self._let_go(member, self._holdings.of(member.name), row.time_ms, end, is_found=True)
            del self._members[member.member_id]
        if gap is not None:
            self._gap = replace(gap, gone=tuple(member.name for member in gone))
        self._holdings.given_up.clear()
        number, latest = int(details.get("epoch", 0)), self._rebalances.latest
        # The end of the open rebalance may be in the lost rows.
        if latest is not None and latest.ended_ms is None:
            self._rebalances.cut(row.time_ms if gap is None else gap.began_ms)
        if latest is None or latest.number != number or latest.is_cut:
            latest = self._begin(row.time_ms, details.get("protocol", "consumer"))
            latest.number = latest.first_number = number
            latest.is_found = True
            if details.get("rest"):
                latest.computed_ms = latest.ended_ms = row.time_ms
                latest.is_at_rest = True

    # Partitions.

    def _assigned(self, row: ToldRow) -> None:
        # Any new assignment shows that the member is back and has been told.
        member, details, now_ms = self._member(row.member_id), row.details, row.time_ms
        self._came_back(member, now_ms)
        self._heard(member, now_ms)
        latest = self._rebalances.latest
        # A cooperative member gives up what its leader takes from it, and joins again after that.
        is_cooperative = latest is not None and latest.protocol == "classic" and latest.assignor == _COOPERATIVE
        if not is_cooperative:
            self._gave_up(row)
        self._ask_back(member, details.get("released" if is_cooperative else "asked_back", ""), now_ms)
        gained, unnamed = read_partitions(details.get("gained", ""))
        for partition in gained:
            move = self._arrivals[partition] = self._holdings.give(member.name, partition, now_ms)
            if latest is not None:
                latest.moves[partition] = move
        # Partitions that the member has without a move that brought them.
        for partition in read_partitions(details.get("held", ""))[0]:
            self._holdings.give(member.name, partition, now_ms)
        state = details.get("state", "STABLE")
        member.settled = int(details.get("epoch", -1)) if state == "STABLE" else -1
        # Only UNREVOKED_PARTITIONS means that the member still has partitions to revoke.
        if state != "UNREVOKED_PARTITIONS" and member.asked_since_ms is not None and not is_cooperative:
            self._delay(member, "give up", member.asked_since_ms, now_ms)
            member.asked, member.asked_since_ms = {}, None
        member.waits_since_ms = (member.waits_since_ms or now_ms) if state == "UNRELEASED_PARTITIONS" else None
        if latest is not None and details.keys() & {"gained", "asked_back", "released", "held"}:
            latest.touched.add(member.member_id)
            latest.unnamed += unnamed
            # A late row of a rebalance that seemed over: it ends later.
            if latest.ended_ms is not None and not latest.is_overtaken and not latest.is_at_rest:
                latest.ended_ms = now_ms

    def _gave_up(self, row: ToldRow) -> None:
        member, latest, end = self._member(row.member_id), self._rebalances.latest, ""
        if row.event == "assignment_changed":
            is_classic = latest is not None and latest.protocol == "classic"
            end = "the leader gave it to another" if is_classic else _GIVEN_UP
        self._let_go(member, read_partitions(row.details.get("released", ""))[0], row.time_ms, end)

    def _let_go(
        self, member: FollowedMember, partitions: Iterable[Partition], now_ms: int, end: str, *, is_found: bool = False
    ) -> None:
        latest = self._rebalances.latest if member.asked else self._rebalances.open
        for partition in partitions:
            asked_ms = member.asked.get(partition)
            self._forget_arrival(partition)
            move = self._holdings.take(member.name, partition, now_ms, end=end, asked_ms=asked_ms)
            if move is not None:
                move.is_found = is_found
            if move is not None and latest is not None:
                latest.moves[partition] = move

    def _forget_arrival(self, partition: Partition) -> None:
        arrival = self._arrivals.pop(partition, None)
        # The new owner lost the partition again before it read from it.
        if arrival is not None and arrival.read_again_ms is None:
            arrival.is_over = True

    def _ask_back(self, member: FollowedMember, text: str, now_ms: int) -> None:
        asked, unnamed = read_partitions(text)
        if not asked and not unnamed:
            return
        if member.asked_since_ms is None:
            member.asked_since_ms, member.meanwhile = now_ms, []
        member.asked.update(dict.fromkeys(asked, now_ms))
        latest = self._rebalances.latest
        if latest is not None:
            latest.moves.update({partition: OpenMove(giver=member.name, asked_ms=now_ms) for partition in asked})

    def _moved(self, row: ToldRow) -> None:
        latest, details = self._rebalances.latest, row.details
        if latest is None:
            return
        taker, giver = self._member(row.member_id).name, self._names.of(details.get("from", ""))
        for partition in read_partitions(details.get("partitions", ""))[0]:
            move = latest.moves.setdefault(partition, OpenMove(giver=giver, taker=taker, granted_ms=row.time_ms))
            # The move may have begun in rows that are gone.
            move.giver = move.giver or giver
            move.learn(details)

    def _read_again(self, row: ToldRow) -> None:
        taker, reader = self._member(row.member_id).name, self._names.of(row.details.get("from", ""))
        for partition in read_partitions(row.details.get("partitions", ""))[0]:
            move = self._arrivals.get(partition)
            if move is not None and move.taker == taker:
                move.read_again(row.details, reader, row.time_ms)
                self._holdings.now[partition].unread = move

    # Rebalances.

    def _add_trigger(self, rebalance: FollowedRebalance, row: ToldRow, trigger: str, why: str = "") -> None:
        # A conversion of the group is reported by both protocols.
        if rebalance.trigger_cause == row.cause and rebalance.triggers and rebalance.triggers[-1].trigger == trigger:
            # One input, reported with the rows of two protocols: the later ones know the members.
            rebalance.triggers.pop()
        members = tuple(dict.fromkeys(member.name for member in self._about))
        why = why or self._names.within(self._said)
        sentence = sentences.say_trigger(trigger, members, why, _sender_of(row))
        rebalance.triggers.append(
            Trigger(time_ms=row.time_ms, trigger=trigger, members=members, why=why, sentence=sentence)
        )
        rebalance.trigger_cause = row.cause
        rebalance.silences += self._silences
        self._silences = []
        for member in self._about:
            rebalance.joined[member.member_id] = row.time_ms

    def _add_late_trigger(self, row: ToldRow, trigger: str) -> None:
        """Add a join or leave as trigger to the classic rebalance in whose join phase it happens."""
        latest = self._rebalances.open
        if latest is not None and latest.protocol == "classic" and latest.number is None:
            self._add_trigger(latest, row, trigger)
            self._about = []

    def _bumped(self, row: ToldRow) -> None:
        epoch, latest = int(row.details.get("epoch", 0)), self._rebalances.open
        # After its target is computed, a rebalance is answered: the next change begins another one.
        if latest is None or latest.protocol != "consumer" or latest.computed_ms is not None:
            latest = self._begin(row.time_ms, "consumer")
            latest.first_number = epoch
        latest.number = epoch
        self._forget_short()
        self._add_trigger(latest, row, row.details.get("trigger", ""))

    def _began(self, row: ToldRow) -> None:
        why = "" if self._about else self._names.within(row.details.get("why", ""))
        self._add_trigger(self._begin(row.time_ms, "classic"), row, row.details.get("trigger", ""), why)
        self._about = []

    def _begin(self, now_ms: int, protocol: str) -> FollowedRebalance:
        return self._rebalances.begin(now_ms, protocol, self._holdings.loose)

    def _computed(self, row: ToldRow) -> None:
        self._rebalances.compute(row)
        for member in self._members.values():
            # A member that still has partitions to revoke is named once more.
            member.former_plan_ms, member.planned_since_ms, member.planned = member.planned_since_ms, None, ()

    def _planned(self, row: ToldRow) -> None:
        member = self._member(row.member_id)
        member.planned = read_partitions(row.details.get("partitions", ""))[0]
        member.planned_since_ms = member.former_plan_ms or row.time_ms
        reach = row.details.get("heartbeat")
        member.is_held = None if reach is None else reach == "held"
        member.meanwhile = []

    def _generation(self, row: ToldRow) -> None:
        latest = self._rebalances.open
        if latest is None or latest.protocol != "classic":
            latest = self._begin(row.time_ms, "classic")
        self._forget_short()
        latest.number = latest.first_number = int(row.details.get("generation", 0))
        latest.computed_ms, latest.leader = row.time_ms, row.member_id
        latest.assignor = row.details.get("protocol", "")
        # The members that set the rebalance off have joined already; the others had to rejoin.
        newcomers = {name for trigger in latest.triggers for name in trigger.members}
        late = [self._members[each] for each in latest.joined if each in self._members]
        late = [member for member in late if member.name not in newcomers]
        if late:
            slowest = max(late, key=lambda member: latest.joined[member.member_id])
            self._delay(slowest, "join again", latest.began_ms, latest.joined[slowest.member_id])

    def _converted(self, row: ToldRow) -> None:
        self._holdings.give_back(row.time_ms)
        self._rebalances.overtake(row.time_ms)

    def _at_rest(self, row: ToldRow) -> None:
        self._holdings.give_back(row.time_ms)
        latest = self._rebalances.latest
        if latest is None or latest.is_overtaken or latest.is_at_rest:
            return
        if latest.protocol == "consumer":
            # The row may tell the rest of an older epoch, while a newer rebalance is open.
            latest.is_at_rest = int(row.details.get("epoch", 0)) >= (latest.number or 0)
            if latest.is_at_rest and latest.ended_ms is None:
                self._rebalances.let_go(row.time_ms)
            latest.ended_ms = row.time_ms if latest.is_at_rest else latest.ended_ms
            return
        if latest.ended_ms is not None:
            return
        if latest.number is None:
            latest.number = latest.first_number = int(row.details.get("generation", 0))
        if latest.leader in self._members and latest.computed_ms is not None:
            self._delay(self._members[latest.leader], "share out", latest.computed_ms, row.time_ms)
        latest.computed_ms = latest.computed_ms or row.time_ms
        latest.ended_ms = row.time_ms

    def _close_if_at_rest(self, now_ms: int) -> None:
        latest = self._rebalances.open
        if latest is None or latest.protocol != "consumer" or latest.computed_ms is None:
            return
        members = self._members.values()
        is_waited_for = [each.asked_since_ms is not None or each.waits_since_ms is not None for each in members]
        # Others still wait for a member, or for the pace: the group is not at rest.
        if any(is_waited_for) or latest.held_back is not None:
            return
        number = latest.number or 0
        is_everybody_there = all(each.settled >= number or each.away_since_ms is not None for each in members)
        # Members without a change have no row: the number of changed ones tells when all are through.
        if is_everybody_there or len(latest.touched) >= latest.changed:
            latest.ended_ms = now_ms

    def _forgotten(self, row: ToldRow) -> None:
        for member in self._members.values():
            self._let_go(member, self._holdings.of(member.name), row.time_ms, "the group was gone")
        latest = self._rebalances.open
        if latest is not None:
            latest.ended_ms = row.time_ms
        self._members, self._is_gone, self._unnamed = {}, True, 0
        # A later group with this id has no owners from this one.
        self._holdings.loose.clear()
        self._holdings.given_up.clear()

    # Members that others wait for.

    def _heard(self, member: FollowedMember, now_ms: int, *, end: str = "") -> None:
        """Note that a member has received its revocation, or has left: others no longer wait for that."""
        since_ms, member.planned_since_ms = member.planned_since_ms, None
        # A member that was told at once kept no others waiting.
        if since_ms is not None and now_ms > since_ms:
            self._delay(member, "hear", since_ms, now_ms, end=end)

    def _delay(self, member: FollowedMember, what: str, began_ms: int, ended_ms: int, *, end: str = "") -> None:
        latest, meanwhile, member.meanwhile = self._rebalances.latest, member.meanwhile, []
        if latest is not None:
            partitions = {"give up": member.asked, "hear": member.planned}.get(what, ())
            is_held = member.is_held if what == "hear" else None
            latest.delays.append(
                sentences.build_delay(
                    member.name, what, began_ms, ended_ms, end=end, partitions=partitions, meanwhile=meanwhile,
                    is_held=is_held,
                )
            )  # fmt: skip

    # The end.

    def result(self, now_ms: int) -> GroupExplanation:
        """Build the explanation from the rows."""
        latest, rebalances = self._rebalances.open, self._rebalances.all
        members = sentences.build_standings(self._members.values(), self._holdings, self._window_ms, now_ms=now_ms)
        now = sentences.build_waits(self._members.values(), latest, self._holdings, self._names, now_ms=now_ms)
        return GroupExplanation(
            group_id=self._group_id,
            is_gone=self._is_gone,
            rebalances=tuple(
                sentences.build_rebalance(each, after, now_ms=now_ms)
                for each, after in zip(rebalances, [*rebalances[1:], None], strict=False)
            ),
            owners=tuple(
                sentences.build_ownership(each, now_ms=now_ms)
                for each in sorted(self._holdings.all, key=lambda each: (each.partition, each.began_ms))
            ),
            now=tuple(now),
            summary="the group is gone"
            if self._is_gone
            else sentences.say_now(
                now,
                latest,
                waiting=[each.name for each in self._members.values() if each.waits_since_ms is not None],
                members=len(self._members) + self._unnamed,
                gap=self._gap,
                short=[each.sentence for each in members if each.is_short],
            ),
            gap=self._gap,
            members=tuple(members),
        )


def _sender_of(row: ToldRow) -> str:
    return show_principal(row.details.get("principal", ""), row.details.get("label", ""))


def _silence_of(name: str, row: ToldRow) -> Silence:
    details = row.details
    disconnected = details.get("disconnected_ms")
    return Silence(
        member=name,
        began_ms=row.time_ms - int(details["silent_ms"]),
        noticed_ms=row.time_ms,
        disconnected_ms=None if disconnected is None else int(disconnected),
        session_ms=int(details.get("session_ms", 0)),
        is_lost=details.get("reason") == "connection lost",
        by_fetch=details.get("heard_by") == "fetch",
    )


#: Event -> function that reads its row; other rows change nothing.
_READERS: Final[dict[str, Callable[[_Explainer, ToldRow], None]]] = {
    "member_joined": _Explainer._joined,
    "member_rejoined": _Explainer._joined,
    "member_kept": _Explainer._joined,
    "subscription_changed": lambda self, row: self._about.append(self._member(row.member_id)),
    "member_changed": lambda self, row: self._about.append(self._member(row.member_id)),
    "member_removed": _Explainer._removed,
    "member_replaced": _Explainer._replaced,
    "member_away": _Explainer._went_away,
    "member_offline": _Explainer._went_away,
    "member_back": lambda self, row: self._came_back(self._member(row.member_id), row.time_ms),
    "connection_lost": _Explainer._connection,
    "connection_back": _Explainer._connection,
    "refused": _Explainer._refused,
    "assignment_changed": _Explainer._assigned,
    "assignment_released": _Explainer._gave_up,
    "epoch_bumped": _Explainer._bumped,
    "target_computed": _Explainer._computed,
    "revocation_planned": _Explainer._planned,
    "moves_waiting": lambda self, row: self._rebalances.hold_back(row),
    "moves_begun": lambda self, row: self._rebalances.let_begin(row),
    "configs_changed": lambda self, row: self._rebalances.change_pace(row),
    "partitions_moved": _Explainer._moved,
    "partitions_read": _Explainer._read_again,
    "meanwhile": _Explainer._meanwhile,
    "assignor_asked": lambda self, row: self._rebalances.ask_assignor(row),
    "assignor_failed": lambda self, row: self._rebalances.ask_assignor(row),
    "rebalance_began": _Explainer._began,
    "generation_began": _Explainer._generation,
    "group_at_rest": _Explainer._at_rest,
    "group_converted": _Explainer._converted,
    "group_forgotten": _Explainer._forgotten,
    "broker_started": _Explainer._crashed,
    "member_found": _Explainer._found_member,
    "group_found": _Explainer._found,
    "window_opened": _Explainer._window,
    "window_closed": _Explainer._window,
    "share_short": _Explainer._short,
}
