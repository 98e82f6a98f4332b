# C types for balance_kernels.py. Nothing here has a body: the .py is the whole source and runs without this file.
cimport cython

@cython.locals(member_count=Py_ssize_t, c=cython.int, e=cython.int, m=cython.int, places=cython.int[::1])
cpdef void index_members(
    const int[::1] bounds, const int[::1] subscribers, int[::1] classes, int[::1] firsts, int[::1] edges) except *

@cython.locals(edge_of=cython.int[::1], previous=cython.int, at=Py_ssize_t, c=cython.int, low=cython.int,
               e=cython.int, partition=cython.int, m=cython.int)
cpdef void tally(
    int[::1] owner, const int[::1] spans, const int[::1] bounds, const int[::1] subscribers, int[::1] shares,
    int[::1] free, int[::1] loads) except *

@cython.locals(moved=Py_ssize_t, e=Py_ssize_t)
cpdef Py_ssize_t count_moved(const int[::1] shares, const int[::1] kept) except -1

@cython.locals(waiting=cython.int[::1], at=Py_ssize_t, c=cython.int, stop=Py_ssize_t, e=cython.int, span=Py_ssize_t,
               partition=cython.int, m=cython.int, count=Py_ssize_t)
cpdef void settle(
    int[::1] owner, const int[::1] spans, const int[::1] bounds, const int[::1] subscribers, const int[::1] shares,
    int[::1] rest) except *

@cython.locals(turn=Py_ssize_t, left=Py_ssize_t, span=Py_ssize_t, partition=cython.int, m=cython.int)
cdef void _deal_class(
    int[::1] owner, const int[::1] spans, Py_ssize_t at, Py_ssize_t stop, int[::1] rest, int[::1] waiting,
    Py_ssize_t count) noexcept

@cython.locals(level=cython.longlong, top=cython.longlong, middle=cython.longlong, e=cython.int)
cpdef void fill(
    int low, int high, const int[::1] subscribers, int[::1] shares, int[::1] loads, long long count) noexcept

@cython.locals(least=cython.int, most=cython.int, e=cython.int, load=cython.int, bottom=cython.int, top=cython.int,
               middle=cython.int, moves=cython.longlong)
cpdef long long even_out(
    int low, int high, const int[::1] subscribers, int[::1] shares, int[::1] loads, int tolerance) except -1

@cython.locals(room=cython.longlong, e=cython.int, load=cython.int)
cdef long long _room(int low, int high, const int[::1] subscribers, const int[::1] loads, long long level) noexcept

@cython.locals(surplus=cython.longlong, e=cython.int, more=cython.longlong)
cdef long long _surplus(
    int low, int high, const int[::1] subscribers, const int[::1] shares, const int[::1] loads,
    long long level) noexcept

@cython.locals(e=cython.int, m=cython.int, more=cython.longlong)
cdef void _raise(
    int low, int high, const int[::1] subscribers, int[::1] shares, int[::1] loads, long long level,
    long long extra) noexcept

@cython.locals(level=cython.longlong, top=cython.longlong, middle=cython.longlong, extra=cython.longlong,
               e=cython.int, m=cython.int, less=cython.longlong)
cdef void _lower(
    int low, int high, const int[::1] subscribers, int[::1] shares, int[::1] loads, long long most,
    long long count) noexcept
