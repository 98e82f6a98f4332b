# C types for kernels.py. Nothing here has a body: the .py is the whole source and runs without this file.
cimport cython

@cython.locals(count=Py_ssize_t, partition=Py_ssize_t, member=cython.int, free=Py_ssize_t)
cpdef Py_ssize_t count_loads(const int[::1] owner, int[::1] loads) except -1

@cython.locals(partition=Py_ssize_t, found=cython.int)
cpdef int largest(const int[::1] owner) except -2

@cython.locals(member=Py_ssize_t, load=cython.int, total=cython.longlong)
cpdef long long sum_above(const int[::1] loads, int level) except -1

@cython.locals(member=Py_ssize_t, load=cython.int, total=cython.longlong)
cpdef long long sum_below(const int[::1] loads, int level) except -1

@cython.locals(member=Py_ssize_t)
cpdef void lower_to(int[::1] loads, int level, Py_ssize_t extra) noexcept

@cython.locals(member=Py_ssize_t)
cpdef void raise_to(int[::1] loads, int level, Py_ssize_t extra) noexcept

@cython.locals(member=Py_ssize_t)
cpdef void subtract(int[::1] loads, const int[::1] others) noexcept

@cython.locals(partition=Py_ssize_t, member=cython.int, free=Py_ssize_t)
cpdef Py_ssize_t keep_at_most(int[::1] owner, int[::1] limits) except -1

@cython.locals(waiting=cython.int[::1], count=Py_ssize_t, member=cython.int, at=Py_ssize_t, left=Py_ssize_t,
               partition=Py_ssize_t)
cpdef void deal(int[::1] owner, int[::1] wants) except *

@cython.locals(at=Py_ssize_t, count=Py_ssize_t, partition=Py_ssize_t)
cpdef void deal_in_turns(
    int[::1] owner, Py_ssize_t start, Py_ssize_t stop, const int[::1] receivers, Py_ssize_t first) noexcept

@cython.locals(count=Py_ssize_t, quota=Py_ssize_t, extra=Py_ssize_t, partition=Py_ssize_t, at=Py_ssize_t,
               end=Py_ssize_t)
cpdef void deal_ranges(int[::1] owner, Py_ssize_t start, Py_ssize_t stop, const int[::1] receivers) noexcept

@cython.locals(count=Py_ssize_t, partition=Py_ssize_t, member=cython.int)
cpdef void drop_strangers(
    int[::1] owner, Py_ssize_t start, Py_ssize_t stop, const unsigned char[::1] is_subscriber) noexcept

@cython.locals(count=Py_ssize_t, partition=Py_ssize_t, member=cython.int)
cpdef Py_ssize_t find_stranger(
    const int[::1] owner, Py_ssize_t start, Py_ssize_t stop, const unsigned char[::1] is_subscriber) except -2

@cython.locals(moves=Py_ssize_t, partition=Py_ssize_t, old=cython.int)
cpdef Py_ssize_t count_moves(const int[::1] before, const int[::1] after) except -1

@cython.locals(count=Py_ssize_t, partition=Py_ssize_t, old=cython.int, new=cython.int)
cpdef void find_changed(const int[::1] before, const int[::1] after, unsigned char[::1] changed) noexcept

@cython.locals(member=cython.int, topic=Py_ssize_t, start=Py_ssize_t, count=Py_ssize_t, partitions=tuple,
               partition=Py_ssize_t)
cpdef void gather(list targets, dict topics, list starts, list counts, int[::1] owner) except *

@cython.locals(member_count=Py_ssize_t, wanted=cython.uchar[::1],
               sizes=cython.int[::1], member=Py_ssize_t, flat=Py_ssize_t,
               total=Py_ssize_t, places=cython.int[::1], slots=cython.int[::1], topic=Py_ssize_t, start=Py_ssize_t,
               count=Py_ssize_t, partition=Py_ssize_t)
cpdef sort_by_owner(const int[::1] owner, list starts, list counts, int[::1] firsts, int[::1] topics)

@cython.locals(groups=dict, topic=cython.int, end=Py_ssize_t, single=tuple, partitions=list, at=Py_ssize_t)
cpdef dict group_by_topic(
    const int[::1] found, const int[::1] topics, list topic_ids, Py_ssize_t first, Py_ssize_t stop, dict singles)
