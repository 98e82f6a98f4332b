"""The assignor of a simulated classic leader: round robin if eager, sticky if cooperative.

Laws: a cooperative plan never gives a partition to one member while another says that it owns it; it is left out until
that member has given it up (KIP-429). Members of an older generation own nothing (KIP-792).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.wire.embedded import Subscription

#: (topic, number)
Partition = tuple[str, int]


def plan_eager(
    subscriptions: Mapping[str, Subscription], partitions: Sequence[Partition]
) -> dict[str, list[Partition]]:
    """Assign each partition to the next member that subscribes to its topic."""
    plan: dict[str, list[Partition]] = {member_id: [] for member_id in sorted(subscriptions)}
    turn = 0
    for partition in partitions:
        takers = [member_id for member_id in plan if partition[0] in subscriptions[member_id].topics]
        if takers:
            plan[takers[turn % len(takers)]].append(partition)
            turn += 1
    return plan


def plan_cooperative(
    subscriptions: Mapping[str, Subscription], partitions: Sequence[Partition]
) -> dict[str, list[Partition]]:
    """Balance the partitions with few moves; a partition that moves gets no owner in this round."""
    claims = _claims(subscriptions)
    plan: dict[str, list[Partition]] = {member_id: [] for member_id in sorted(subscriptions)}
    most = -(-len(partitions) // max(len(plan), 1))
    free: list[Partition] = []
    for partition in partitions:
        owner = claims.get(partition)
        if owner is not None and partition[0] in subscriptions[owner].topics and len(plan[owner]) < most:
            plan[owner].append(partition)
        else:
            free.append(partition)
    for partition in free:
        takers = [member_id for member_id in plan if partition[0] in subscriptions[member_id].topics]
        if not takers:
            continue
        taker = min(takers, key=lambda member_id: len(plan[member_id]))
        plan[taker].append(partition)
    _even_out(plan, subscriptions)
    return {
        member_id: [partition for partition in found if claims.get(partition, member_id) == member_id]
        for member_id, found in plan.items()
    }


def _claims(subscriptions: Mapping[str, Subscription]) -> dict[Partition, str]:
    """Return the owner that claims each partition; of two, the one of the younger generation."""
    claims: dict[Partition, str] = {}
    for member_id, subscription in sorted(subscriptions.items(), key=lambda item: (item[1].generation_id, item[0])):
        for topic, numbers in subscription.owned_partitions.items():
            for number in numbers:
                claims[topic, number] = member_id
    return claims


def _even_out(plan: dict[str, list[Partition]], subscriptions: Mapping[str, Subscription]) -> None:
    """Move single partitions from the fullest member to the emptiest, while that helps."""
    for _ in range(sum(map(len, plan.values()))):
        emptiest = min(plan, key=lambda member_id: len(plan[member_id]))
        fullest = max(plan, key=lambda member_id: len(plan[member_id]))
        if len(plan[fullest]) - len(plan[emptiest]) < 2:
            return
        movable = [found for found in plan[fullest] if found[0] in subscriptions[emptiest].topics]
        if not movable:
            return
        plan[fullest].remove(movable[-1])
        plan[emptiest].append(movable[-1])
