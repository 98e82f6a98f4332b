# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False, cdivision=True
# ruff: noqa: PLR0917 - kernels take their arrays by position, as a compiled call does
"""Chains of moves over several classes: they even out loads further than single moves, or undo moves.

In a chain each member gives a partition to another subscriber of its class, which gives one of another class to a third
member, and so on. Only the loads of the first and the last member change. `balance_kernels` defines class and edge.

Laws: every array is of C ints (typecode "i"). No chain makes loads less even. Work is bounded by `budget[0]`, which
each visited edge reduces. A result after the budget is used up is no worse than the input.
Source: convex cost flow: shortest augmenting paths, then cancelling of negative cycles (Klein 1967).
"""

from __future__ import annotations

from array import array

#: A member or class from which no chain leads to a smaller load.
SETTLED = -1


def even_out_by_chains(
    bounds: array[int],
    subscribers: array[int],
    classes: array[int],
    firsts: array[int],
    edges: array[int],
    shares: array[int],
    kept: array[int],
    loads: array[int],
    budget: array[int],
) -> int:
    """Even out loads along chains of newly assigned partitions; return the number of chains.

    On return no such chain leads to a member with a load smaller by 2 or more. The largest loads go first.
    """
    count = len(loads)
    level = _largest(loads)
    heads = array("i", [-1]) * (level + 1)
    after = array("i", bytes(4 * count))
    before = array("i", bytes(4 * count))
    for m in range(count - 1, -1, -1):
        _link(heads, after, before, loads[m], m)
    seen = array("i", bytes(4 * count))
    seen_class = array("i", bytes(4 * (len(bounds) - 1)))
    into = array("i", bytes(4 * count))
    via = array("i", bytes(4 * (len(bounds) - 1)))
    queue = array("i", bytes(4 * (count + 1)))
    chains = 0
    stamp = 0
    while level > 1 and budget[0] > 0:
        giver = heads[level]
        if giver < 0:
            level -= 1
            continue
        _unlink(heads, after, before, level, giver)
        # Loads that a failed search has seen are about as large as its first one: a later search finds nothing there.
        if seen[giver] == SETTLED:
            continue
        stamp += 1
        taker = _find_chain(
            bounds, subscribers, classes, firsts, edges, shares, kept, loads, giver, level - 1, stamp, seen,
            seen_class, into, via, queue, budget
        )  # fmt: skip
        if taker < 0:
            continue
        chains += 1
        _unlink(heads, after, before, loads[taker], taker)
        _follow_chain(subscribers, classes, shares, into, via, giver, taker)
        loads[giver] -= 1
        loads[taker] += 1
        _link(heads, after, before, loads[giver], giver)
        _link(heads, after, before, loads[taker], taker)
    return chains


def _find_chain(
    bounds: array[int],
    subscribers: array[int],
    classes: array[int],
    firsts: array[int],
    edges: array[int],
    shares: array[int],
    kept: array[int],
    loads: array[int],
    giver: int,
    limit: int,
    stamp: int,
    seen: array[int],
    seen_class: array[int],
    into: array[int],
    via: array[int],
    queue: array[int],
    budget: array[int],
) -> int:
    """Find the nearest member with a load below `limit`; -1: none, and the nodes seen become SETTLED."""
    seen[giver] = stamp
    queue[0] = giver
    tail = 1
    at = 0
    work = budget[0]
    while at < tail and work > 0:
        m = queue[at]
        at += 1
        work -= firsts[m + 1] - firsts[m]
        for place in range(firsts[m], firsts[m + 1]):
            edge = edges[place]
            c = classes[edge]
            if shares[edge] <= kept[edge] or seen_class[c] == stamp or seen_class[c] == SETTLED:
                continue
            seen_class[c] = stamp
            via[c] = edge
            work -= bounds[c + 1] - bounds[c]
            for e in range(bounds[c], bounds[c + 1]):
                other = subscribers[e]
                if seen[other] == stamp or seen[other] == SETTLED:
                    continue
                seen[other] = stamp
                into[other] = e
                if loads[other] < limit:
                    budget[0] = work
                    return other
                queue[tail] = other
                tail += 1
    budget[0] = work
    if at < tail:
        return -1
    for at in range(tail):
        m = queue[at]
        seen[m] = SETTLED
        for place in range(firsts[m], firsts[m + 1]):
            if shares[edges[place]] > kept[edges[place]]:
                seen_class[classes[edges[place]]] = SETTLED
    return -1


def _follow_chain(
    subscribers: array[int],
    classes: array[int],
    shares: array[int],
    into: array[int],
    via: array[int],
    giver: int,
    taker: int,
) -> None:
    """Pass one partition on from each member of a chain to the next."""
    m = taker
    while m != giver:
        shares[into[m]] += 1
        edge = via[classes[into[m]]]
        shares[edge] -= 1
        m = subscribers[edge]


def _link(heads: array[int], after: array[int], before: array[int], level: int, m: int) -> None:
    """Put a member at the head of the list of its load."""
    head = heads[level]
    after[m] = head
    before[m] = -1
    if head >= 0:
        before[head] = m
    heads[level] = m


def _unlink(heads: array[int], after: array[int], before: array[int], level: int, m: int) -> None:
    """Take a member out of the list of its load."""
    if before[m] >= 0:
        after[before[m]] = after[m]
    else:
        heads[level] = after[m]
    if after[m] >= 0:
        before[after[m]] = before[m]


def improve(
    bounds: array[int],
    subscribers: array[int],
    classes: array[int],
    firsts: array[int],
    edges: array[int],
    shares: array[int],
    kept: array[int],
    loads: array[int],
    weight: int,
    price: int,
    budget: array[int],
) -> int:
    """Reduce `weight` times the sum of squared loads, plus `price` per move; return the number of changes.

    Only a partition that leaves its former owner is a move. Each change is a cycle of negative cost among members,
    classes and one extra node, the pool, at which one chain ends and another begins.
    """
    count = 0
    while budget[0] > 0 and _cancel_cycle(
        bounds, subscribers, classes, firsts, edges, shares, kept, loads, weight, price, budget
    ):  # fmt: skip
        count += 1
    return count


def _cancel_cycle(
    bounds: array[int],
    subscribers: array[int],
    classes: array[int],
    firsts: array[int],
    edges: array[int],
    shares: array[int],
    kept: array[int],
    loads: array[int],
    weight: int,
    price: int,
    budget: array[int],
) -> bool:
    """Find one cycle of negative cost and make its moves; return whether there was one."""
    count = len(loads)
    # Nodes: members, then classes, then the pool.
    pool = count + len(bounds) - 1
    costs = array("q", bytes(8 * (pool + 1)))
    parents = array("i", [-1]) * (pool + 1)
    through = array("i", bytes(4 * (pool + 1)))
    queued = array("i", bytes(4 * (pool + 1)))
    queue = array("i", bytes(4 * (pool + 1)))
    # Where the queue begins, how many are in it, the node that closed a cycle.
    state = array("i", [0, 0, -1])
    budget[0] -= pool
    for m in range(count):
        # What it saves to take one partition from the member.
        _relax(pool, m, -weight * (2 * loads[m] - 1), -1, costs, parents, through, queued, queue, state)
    while state[1] > 0 and state[2] < 0 and budget[0] > 0:
        node = queue[state[0]]
        state[0] = state[0] + 1 if state[0] < pool else 0
        state[1] -= 1
        queued[node] = 0
        if node < count:
            budget[0] -= firsts[node + 1] - firsts[node]
            for place in range(firsts[node], firsts[node + 1]):
                e = edges[place]
                if shares[e] > kept[e]:
                    _relax(node, count + classes[e], 0, e, costs, parents, through, queued, queue, state)
                elif shares[e] > 0:
                    _relax(node, count + classes[e], price, e, costs, parents, through, queued, queue, state)
            _relax(node, pool, weight * (2 * loads[node] + 1), -1, costs, parents, through, queued, queue, state)
        elif node < pool:
            c = node - count
            budget[0] -= bounds[c + 1] - bounds[c]
            for e in range(bounds[c], bounds[c + 1]):
                cost = -price if shares[e] < kept[e] else 0
                _relax(node, subscribers[e], cost, e, costs, parents, through, queued, queue, state)
    if state[2] < 0:
        return False
    _go_round(state[2], count, pool, shares, loads, parents, through)
    return True


def _relax(
    node: int,
    other: int,
    cost: int,
    edge: int,
    costs: array[int],
    parents: array[int],
    through: array[int],
    queued: array[int],
    queue: array[int],
    state: array[int],
) -> None:
    """Make `node` the parent of `other` if that is the cheaper path, and note a cycle in `state`."""
    if costs[node] + cost >= costs[other] or state[2] >= 0:
        return
    ancestor = node
    while ancestor >= 0 and ancestor != other:
        ancestor = parents[ancestor]
    costs[other] = costs[node] + cost
    parents[other] = node
    through[other] = edge
    if ancestor == other:
        state[2] = other
    elif not queued[other]:
        queued[other] = 1
        place = state[0] + state[1]
        if place >= len(queue):
            place -= len(queue)
        queue[place] = other
        state[1] += 1


def _go_round(
    start: int,
    count: int,
    pool: int,
    shares: array[int],
    loads: array[int],
    parents: array[int],
    through: array[int],
) -> None:
    """Make the moves of all chains in the cycle through `start`."""
    node = start
    while True:
        parent = parents[node]
        if node == pool:
            loads[parent] += 1
        elif node >= count:
            shares[through[node]] -= 1
        elif parent == pool:
            loads[node] -= 1
        else:
            shares[through[node]] += 1
        node = parent
        if node == start:
            return


def _largest(loads: array[int]) -> int:
    found = 0
    for m in range(len(loads)):
        found = max(found, loads[m])
    return found
