"""Order of waiting moves: by name, by largest lag or by size.

The shell measures the partitions on request. The request is made where a move is about to begin and others wait, and
not again within some seconds: moves that begin meanwhile keep the known order.

Laws: an order decides only which move comes first. Partitions of unknown weight come last, and the name decides between
equals.
Source: requirement H4.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kohort.coordinator.commands.groups import LogsMeasured
from kohort.coordinator.decision import Arm, Decision, TimerKey
from kohort.coordinator.model import ConsumerGroup, GroupsState, Place, Weights
from kohort.coordinator.records import VolatileRecord
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage

#: Time for which a measurement counts, ms.
WEIGHED_FOR_MS: Final = 5_000
#: The order without a measurement.
BY_NAME: Final = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesWeighed(VolatileRecord):
    """Weights of the waiting moves; a larger one begins earlier."""

    weights: Weights


def moves_key(group_id: str) -> TimerKey:
    """Return the key of the deadline at which the next moves begin."""
    return TimerKey("moves", group_id)


def is_order_known(group: ConsumerGroup, settings: GroupSettings, *, now_ms: int) -> bool:
    """Whether the first waiting move is the next to begin."""
    weighed_ms = group.weights.weighed_ms
    return settings.group_moves_order == BY_NAME or 0 < weighed_ms <= now_ms < weighed_ms + WEIGHED_FOR_MS


def decide_measured(groups: GroupsState, command: LogsMeasured, settings: GroupSettings, *, now_ms: int) -> Decision:
    """Weigh the waiting moves by the measured logs, and begin the first."""
    group = groups.consumer.get(command.group_id)
    if group is None or not group.waiting:
        return Decision()
    by_id = groups.image.by_id
    committed = groups.offsets.get(group.group_id, {})
    weights: dict[Place, int] = {}
    for place in group.waiting:
        extent, facts = command.extents.get(place), by_id.get(place[0])
        if extent is None or facts is None:
            continue
        if settings.group_moves_order == "size":
            weights[place] = extent.size_bytes
        else:
            commit = committed.get(facts.name, {}).get(place[1])
            read = extent.start_offset if commit is None else max(extent.start_offset, commit.offset)
            weights[place] = max(0, extent.end_offset - read)
    record = MovesWeighed(group_id=group.group_id, weights=Weights(weights, now_ms))
    return Decision((record,), (Arm(moves_key(group.group_id), now_ms),))


def apply_weighed(groups: GroupsState, record: MovesWeighed) -> None:
    """Set the weights and sort the waiting moves by them."""
    group = groups.consumer.get(record.group_id)
    if group is None:
        return
    group.weights = record.weights
    group.waiting = {place: group.waiting[place] for place in sort_moves(group, groups.image, group.waiting)}


def sort_moves(group: ConsumerGroup, image: TopicImage, places: Iterable[Place]) -> list[Place]:
    """Return the moves in the order in which they begin."""
    names = {topic_id: facts.name for topic_id, facts in image.by_id.items()}
    weights = group.weights.of
    return sorted(places, key=lambda place: (-weights.get(place, -1), names.get(place[0], ""), place))
