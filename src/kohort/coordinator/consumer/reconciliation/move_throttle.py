"""Move throttle: only so many moves begin per second, so that load shifts gradually to new owners.

A token bucket holds `group.moves.burst` moves and is filled at `group.moves.per.second`. No move waits for another one
to end. Unowned partitions are not throttled, and neither are those of a member that leaves or fails.

Laws: in any interval no more moves begin than burst and rate allow. A decision with new targets defers all its moves;
one deadline begins them, in their order. While moves are paused, none begins. A changed config applies at once.
Source: requirement H4; users@kafka 2014-07-18 (one partition per second).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from math import ceil
from operator import attrgetter
from typing import Final

from kohort.base.values import value
from kohort.coordinator import model, topics
from kohort.coordinator.commands import LEAVE_STATIC_EPOCH, LogsMeasured
from kohort.coordinator.consumer.reconciliation.effective_target import MovesBegun, MovesHeldBack
from kohort.coordinator.decision import Additions, Arm, Decision, Effect, MeasureLogs, TimerKey
from kohort.coordinator.model import (
    NO_WEIGHTS,
    ConsumerGroup,
    GroupsState,
    Place,
    ThrottleProgress,
    WaitingMove,
    Weights,
)
from kohort.coordinator.records.types import MemberTargetSet, Record, VolatileRecord
from kohort.coordinator.settings import GroupSettings

#: Moves per second of the slowest pace.
_SLOWEST: Final = 0.001


def hold_back(
    group: ConsumerGroup,
    image: topics.TopicImage,
    settings: GroupSettings,
    records: Collection[Record],
    gone: Collection[str] = (),
    *,
    now_ms: int,
) -> Additions:
    """Defer the moves that the targets in `records` need; `gone`: removed members."""
    if not (settings.has_paced_moves or group.waiting):
        return [], []
    targets = {record.member_id: record.partitions for record in records if isinstance(record, MemberTargetSet)}
    # A waiting move whose taker has the same target still waits.
    takers = {place: move.taker for place, move in group.waiting.items() if move.taker not in targets}
    takers.update(
        ((topic_id, partition), member_id)
        for member_id, target in targets.items()
        for topic_id, partitions in target.items()
        for partition in partitions
    )
    waiting = {
        place: WaitingMove(keeper=keeper, taker=taker)
        for place, taker in takers.items()
        # A removed member has no partition to keep, and a partition that returns to its owner needs no move.
        if (keeper := _keeper(group, place)) is not None and keeper not in gone and keeper != taker
    }
    return _build_held_back(group, image, waiting, now_ms=now_ms)


def hold_open(group: ConsumerGroup, image: topics.TopicImage, *, now_ms: int) -> Additions:
    """Defer all moves of which the old owner does not know: after a new throttle config or a restart."""
    waiting = {
        (topic_id, partition): WaitingMove(keeper=keeper, taker=member_id)
        for member_id, target in group.targets.items()
        for topic_id, partitions in target.items()
        for partition in partitions
        if (keeper := _holder(group, (topic_id, partition))) is not None and keeper != member_id
    }
    return _build_held_back(group, image, waiting, now_ms=now_ms)


def decide_begin(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> Decision | None:
    """Begin the deferred moves that are due; `None` if there are no deferred moves."""
    if not group.waiting or settings.group_moves_paused:
        # The command that ends the pause arms the deadline again.
        return None
    # Where the taker is no member any more, the next target decides about the partition.
    ready = (place for place, move in group.waiting.items() if move.taker in group.members)
    rate = settings.group_moves_per_second
    # Without a pace all waiting moves begin at once.
    if rate <= 0:
        return Decision(
            (MovesBegun(group_id=group.group_id, places=tuple(ready), throttle=ThrottleProgress(0.0, 0.0)),)
        )
    gap_ms = 1_000 / max(rate, _SLOWEST)
    paced_until_ms = now_ms + max(0.0, _used_ms(group, gap_ms, now_ms=now_ms))
    full_ms = now_ms + settings.group_moves_burst * gap_ms
    # A clock counts whole milliseconds, and a fraction has no exact half.
    places = tuple(islice(ready, max(0, int((full_ms - paced_until_ms) / gap_ms + 1e-6))))
    # Some begin and some wait: now the order matters, and the shell has to measure the logs first.
    if 0 < len(places) < len(group.waiting) and not is_order_known(group, settings, now_ms=now_ms):
        return Decision((), (MeasureLogs(group.group_id, tuple(group.waiting)),))
    paced_until_ms += len(places) * gap_ms
    effects: tuple[Effect, ...] = ()
    if len(places) < len(group.waiting):
        # The next deadline is the time at which the bucket holds a whole move again.
        effects = (Arm(moves_key(group.group_id), max(now_ms + 1, ceil(paced_until_ms + gap_ms - full_ms + now_ms))),)
    if not places:
        return Decision((), effects)
    begun = MovesBegun(group_id=group.group_id, places=places, throttle=ThrottleProgress(paced_until_ms, gap_ms))
    return Decision((begun,), effects)


def change_pace(
    group: ConsumerGroup, image: topics.TopicImage, old: GroupSettings, new: GroupSettings, *, now_ms: int
) -> Additions:
    """Apply changed throttle configs to all moves that have not begun."""
    pace_of = attrgetter("group_moves_per_second", "group_moves_burst", "group_moves_paused", "group_moves_order")
    if pace_of(old) == pace_of(new):
        return [], []
    records: list[Record] = []
    if old.group_moves_order != new.group_moves_order:
        # Another order needs another measurement.
        records = [MovesWeighed(group_id=group.group_id, weights=NO_WEIGHTS)] if group.waiting else []
    if new.has_paced_moves and not old.has_paced_moves:
        records += hold_open(group, image, now_ms=now_ms)[0]
    return records, [Arm(moves_key(group.group_id), now_ms)] if records or group.waiting else []


def _build_held_back(
    group: ConsumerGroup, image: topics.TopicImage, waiting: dict[Place, WaitingMove], *, now_ms: int
) -> Additions:
    if waiting == group.waiting:
        return [], []
    ordered = {place: waiting[place] for place in sort_moves(group, image, waiting)}
    record = MovesHeldBack(group_id=group.group_id, waiting=ordered)
    # A deadline that is set already stands: a new target does not fill the bucket sooner.
    return [record], [Arm(moves_key(group.group_id), now_ms, if_absent=True)] if waiting else []


def _keeper(group: ConsumerGroup, place: Place) -> str | None:
    """Return the owner of a partition that does not have to revoke it yet; `None` if there is none."""
    holder = _holder(group, place)
    # The owner of a waiting move keeps the partition already.
    if holder is None or place in group.waiting:
        return holder
    topic_id, partition = place
    return holder if partition in group.targets.get(holder, model.NO_TARGET).get(topic_id, ()) else None


def _holder(group: ConsumerGroup, place: Place) -> str | None:
    topic_id, partition = place
    member = group.members.get(group.holders.get(topic_id, {}).get(partition, ""))
    if (
        # A member that is away uses no partition, and one pending revocation has begun to move.
        member is None
        or member.member_epoch == LEAVE_STATIC_EPOCH
        or partition not in member.assigned.get(topic_id, {})
    ):
        return None
    return member.member_id


def _used_ms(group: ConsumerGroup, gap_ms: float, *, now_ms: int) -> float:
    """Return how far the begun moves are ahead of the rate, as time at `gap_ms` per move, ms."""
    until_ms, counted_gap_ms = group.throttle
    if not counted_gap_ms:
        return 0.0
    # Under a new pace the lead is worth as many moves as before.
    return (until_ms - now_ms) * gap_ms / counted_gap_ms


# Order of waiting moves: by name, by largest lag or by size.
#
# The shell measures the partitions on request. The request is made where a move is about to begin and others wait, and
# not again within some seconds: moves that begin meanwhile keep the known order.
#
# Laws: an order decides only which move comes first. Partitions of unknown weight come last, and the name decides
# between equals.
# Source: requirement H4.

#: Time for which a measurement counts, ms.
WEIGHED_FOR_MS: Final = 5_000
#: The order without a measurement.
BY_NAME: Final = "name"


@value
class MovesWeighed(VolatileRecord):
    """Weights of the deferred moves; a move with a larger weight begins earlier."""

    weights: Weights


def moves_key(group_id: str) -> TimerKey:
    """Return the timer key of the deadline at which the next moves begin."""
    return TimerKey("moves", group_id)


def is_order_known(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> bool:
    """Return whether the order of deferred moves is up to date: by name, or by recent weights."""
    weighed_ms = group.weights.weighed_ms
    return settings.group_moves_order == BY_NAME or 0 < weighed_ms <= now_ms < weighed_ms + WEIGHED_FOR_MS


def decide_measured(groups: GroupsState, command: LogsMeasured, settings: GroupSettings, *, now_ms: int) -> Decision:
    """Set the weights of deferred moves from measured lags or sizes, and begin those that are due."""
    group = groups.consumer.get(command.group_id)
    if group is None or not group.waiting:
        return Decision()
    by_id = groups.image.by_id
    committed = groups.offsets.get(group.group_id, {})
    weights: dict[Place, int] = {}
    for place in group.waiting:
        extent, topic = command.extents.get(place), by_id.get(place[0])
        if extent is None or topic is None:
            continue
        if settings.group_moves_order == "size":
            weights[place] = extent.size_bytes
        else:
            commit = committed.get(topic.name, {}).get(place[1])
            read = extent.start_offset if commit is None else max(extent.start_offset, commit.offset)
            weights[place] = max(0, extent.end_offset - read)
    record = MovesWeighed(group_id=group.group_id, weights=Weights(weights, now_ms))
    return Decision((record,), (Arm(moves_key(group.group_id), now_ms),))


def apply_weighed(groups: GroupsState, record: MovesWeighed) -> None:
    """Set the weights and sort the deferred moves by them."""
    group = groups.consumer.get(record.group_id)
    if group is None:
        return
    group.weights = record.weights
    group.waiting = {place: group.waiting[place] for place in sort_moves(group, groups.image, group.waiting)}


def sort_moves(group: ConsumerGroup, image: topics.TopicImage, places: Iterable[Place]) -> list[Place]:
    """Return the moves in the order in which they begin."""
    names = {topic_id: topic.name for topic_id, topic in image.by_id.items()}
    weights = group.weights.of
    return sorted(places, key=lambda place: (-weights.get(place, -1), names.get(place[0], ""), place))
