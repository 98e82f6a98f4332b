# C types for chain_kernels.py. Nothing here has a body: the .py is the whole source and runs without this file.
cimport cython

cdef int SETTLED

@cython.locals(count=cython.int, level=cython.int, m=cython.int, heads=cython.int[::1], after=cython.int[::1],
               before=cython.int[::1], seen=cython.int[::1], seen_class=cython.int[::1], into=cython.int[::1],
               via=cython.int[::1], queue=cython.int[::1], chains=Py_ssize_t, stamp=cython.int, giver=cython.int,
               taker=cython.int)
cpdef Py_ssize_t even_out_by_chains(
    const int[::1] bounds, const int[::1] subscribers, const int[::1] classes, const int[::1] firsts,
    const int[::1] edges, int[::1] shares, const int[::1] kept, int[::1] loads, int[::1] budget) except -1

@cython.locals(tail=cython.int, at=cython.int, work=cython.int, m=cython.int, place=cython.int, edge=cython.int,
               c=cython.int, e=cython.int, other=cython.int)
cdef int _find_chain(
    const int[::1] bounds, const int[::1] subscribers, const int[::1] classes, const int[::1] firsts,
    const int[::1] edges, const int[::1] shares, const int[::1] kept, const int[::1] loads, int giver, int limit, int stamp,
    int[::1] seen, int[::1] seen_class, int[::1] into, int[::1] via, int[::1] queue, int[::1] budget) noexcept

@cython.locals(m=cython.int, edge=cython.int)
cdef void _follow_chain(
    const int[::1] subscribers, const int[::1] classes, int[::1] shares, const int[::1] into, const int[::1] via,
    int giver, int taker) noexcept

@cython.locals(head=cython.int)
cdef void _link(int[::1] heads, int[::1] after, int[::1] before, int level, int m) noexcept

cdef void _unlink(int[::1] heads, int[::1] after, int[::1] before, int level, int m) noexcept

@cython.locals(count=Py_ssize_t)
cpdef Py_ssize_t improve(
    const int[::1] bounds, const int[::1] subscribers, const int[::1] classes, const int[::1] firsts,
    const int[::1] edges, int[::1] shares, const int[::1] kept, int[::1] loads, long long weight, long long price,
    int[::1] budget) except -1

@cython.locals(count=cython.int, pool=cython.int, costs=cython.longlong[::1], parents=cython.int[::1],
               through=cython.int[::1], queued=cython.int[::1], queue=cython.int[::1], state=cython.int[::1],
               c=cython.int, m=cython.int, e=cython.int, node=cython.int, place=cython.int, cost=cython.longlong)
cdef bint _cancel_cycle(
    const int[::1] bounds, const int[::1] subscribers, const int[::1] classes, const int[::1] firsts,
    const int[::1] edges, int[::1] shares, const int[::1] kept, int[::1] loads, long long weight, long long price,
    int[::1] budget) except -1

@cython.locals(ancestor=cython.int, place=cython.int)
cdef void _relax(
    int node, int other, long long cost, int edge, long long[::1] costs, int[::1] parents, int[::1] through,
    int[::1] queued, int[::1] queue, int[::1] state) noexcept

@cython.locals(node=cython.int, parent=cython.int)
cdef void _go_round(
    int start, int count, int pool, int[::1] shares, int[::1] loads, const int[::1] parents,
    const int[::1] through) noexcept

@cython.locals(found=cython.int, m=Py_ssize_t)
cdef int _largest(const int[::1] loads) noexcept
