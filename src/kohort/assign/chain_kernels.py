# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False, cdivision=True
# ruff: noqa: PLR0917 - kernels take their arrays by position, as a compiled call does
"""Chains of moves: what moves within one class cannot even out, and moves that turn out not to be needed.

A chain goes from a member over a class of which it has a partition to a subscriber of that class, and on from there:
each gives one and takes one, so that only the loads of its ends change. The words are those of `balance_kernels`.

Laws: every array is of C ints (typecode "i"). No chain makes loads less even. Work is bounded by `budget[0]`, counted
down by the edges looked at; what is reached before it is used up is no worse than what was there.
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
    loads: array[int],
    tolerance: int,
    budget: array[int],
) -> int:
    """Move partitions along chains until no chain ends at a load smaller by more than `tolerance`; returns how many.

    The largest loads go first. What a failed search has seen is settled: all loads in it are about as large as the
    one that it began at, so that no later search, from a smaller load, finds anything there.
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
    while level > tolerance and budget[0] > 0:
        giver = heads[level]
        if giver < 0:
            level -= 1
            continue
        _unlink(heads, after, before, level, giver)
        if seen[giver] == SETTLED:
            continue
        stamp += 1
        taker = _find_chain(
            bounds, subscribers, classes, firsts, edges, shares, loads, giver, level - tolerance, stamp, seen,
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
    """The nearest member with less than `limit` that a chain from `giver` leads to; -1, and all that it saw settled."""
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
            if shares[edge] <= 0 or seen_class[c] == stamp or seen_class[c] == SETTLED:
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
            if shares[edges[place]] > 0:
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


def save_moves(
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
    """Take back moves that loads do not need; returns how many.

    A move costs 1, its return gains 1. A round of chains that gains, and makes no load less even, is a cycle of
    negative cost among members, classes and levels: a chain may end at a member and begin anew at one that has more.
    """
    saved = 0
    while budget[0] > 0:
        gain = _cancel_cycle(bounds, subscribers, classes, firsts, edges, shares, kept, loads, budget)
        if not gain:
            break
        saved += gain
    return saved


def _cancel_cycle(
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
    """Find one cycle of negative cost and go round it; returns what it gains, 0 if there is none."""
    count = len(loads)
    most = _largest(loads)
    # Nodes: members, then classes, then levels of load up to one more than the largest.
    levels = count + len(bounds) - 1
    total = levels + most + 2
    level_firsts = array("i", bytes(4 * (most + 3)))
    by_level = array("i", bytes(4 * count))
    _sort_by_load(loads, level_firsts, by_level)
    costs = array("i", bytes(4 * total))
    parents = array("i", [-1]) * total
    through = array("i", bytes(4 * total))
    queued, queue = array("i", bytes(4 * total)), array("i", bytes(4 * total))
    # Where the queue begins, how many are in it, the node that closed a cycle.
    state = array("i", [0, 0, -1])
    budget[0] -= len(subscribers) + total
    for e in range(len(subscribers)):
        # The gain of a return is where every cycle of negative cost begins.
        if shares[e] < kept[e]:
            _relax(count + classes[e], subscribers[e], -1, e, costs, parents, through, queued, queue, state)
    while state[1] > 0 and state[2] < 0 and budget[0] > 0:
        node = queue[state[0]]
        state[0] = (state[0] + 1) % total
        state[1] -= 1
        queued[node] = 0
        if node < count:
            budget[0] -= firsts[node + 1] - firsts[node]
            for place in range(firsts[node], firsts[node + 1]):
                e = edges[place]
                if shares[e] > 0:
                    cost = 1 if shares[e] <= kept[e] else 0
                    _relax(node, count + classes[e], cost, e, costs, parents, through, queued, queue, state)
            _relax(node, levels + loads[node] + 1, 0, -1, costs, parents, through, queued, queue, state)
        elif node < levels:
            c = node - count
            budget[0] -= bounds[c + 1] - bounds[c]
            for e in range(bounds[c], bounds[c + 1]):
                cost = -1 if shares[e] < kept[e] else 0
                _relax(node, subscribers[e], cost, e, costs, parents, through, queued, queue, state)
        else:
            level = node - levels
            budget[0] -= level_firsts[level + 1] - level_firsts[level]
            for place in range(level_firsts[level], level_firsts[level + 1]):
                _relax(node, by_level[place], 0, -1, costs, parents, through, queued, queue, state)
            if level <= most:
                _relax(node, node + 1, 0, -1, costs, parents, through, queued, queue, state)
    if state[2] < 0:
        return 0
    return _go_round(state[2], count, levels, shares, kept, loads, parents, through)


def _largest(loads: array[int]) -> int:
    found = 0
    for m in range(len(loads)):
        found = max(found, loads[m])
    return found


def _sort_by_load(loads: array[int], firsts: array[int], order: array[int]) -> None:
    """Fill `order` with the members by load: those with load l from `firsts[l]` to `firsts[l + 1]`."""
    for m in range(len(loads)):
        firsts[loads[m] + 1] += 1
    for level in range(1, len(firsts)):
        firsts[level] += firsts[level - 1]
    places = array("i", firsts)
    for m in range(len(loads)):
        order[places[loads[m]]] = m
        places[loads[m]] += 1


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
    """Reach `other` from `node` if that costs less than before; notes the cycle if `other` led to `node`."""
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
    levels: int,
    shares: array[int],
    kept: array[int],
    loads: array[int],
    parents: array[int],
    through: array[int],
) -> int:
    """Carry out the chains of the cycle through `start`; returns how many moves that saves."""
    gain = 0
    node = start
    while True:
        parent = parents[node]
        edge = through[node]
        if node < count and parent >= levels:
            loads[node] -= 1
        elif node < count:
            if shares[edge] < kept[edge]:
                gain += 1
            shares[edge] += 1
        elif node < levels:
            if shares[edge] <= kept[edge]:
                gain -= 1
            shares[edge] -= 1
        elif parent < count:
            loads[parent] += 1
        node = parent
        if node == start:
            return gain
