# C types for submission_kernels.py. Nothing here has a body: the .py is the whole source and runs without this file.
cimport cython

from kohort.records.build_kernels cimport murmur2, new_record, show_record

cdef class Submissions:
    cdef object _records
    cdef Py_ssize_t _queued_bytes
    cdef public Py_ssize_t wake_bytes
    cdef bint _is_open
    cdef public bint is_watched
    cdef bint _is_called
    cdef object _permission
    cdef public Py_ssize_t begun_at

    @cython.locals(taken=list)
    cpdef list take(self)

    @cython.locals(due=Py_ssize_t)
    cpdef bint add(self, object record, Py_ssize_t size) except -1

cdef class BufferSpace:
    cdef public Py_ssize_t limit_bytes
    cdef public Py_ssize_t held_bytes
    cdef public bint is_shut
    cdef object _guard

    cpdef bint try_reserve(self, Py_ssize_t size) except -1
    cdef bint _try_reserve(self, Py_ssize_t size) noexcept
    cpdef hold(self, Py_ssize_t size)

@cython.final
cdef class PlainRecords:
    cdef type _kind
    cdef Submissions _submissions
    cdef BufferSpace _space
    cdef set _topics
    cdef Py_ssize_t _overhead_bytes
    cdef Py_ssize_t _limit_bytes
    cdef object _clock
    cdef object _wake

    @cython.locals(size=Py_ssize_t, extra=Py_ssize_t, now_ns=cython.longlong, found=tuple)
    cpdef object submit(
        self, object topic, object value, object key, object partition, object timestamp_ms, object headers,
        object on_delivery)

@cython.locals(size=Py_ssize_t, pieces=list, pairs=tuple)
cpdef tuple encode_pairs(object headers)

cpdef object encoded(str text)

@cython.locals(
    stop=Py_ssize_t, size=Py_ssize_t, number=Py_ssize_t, latest=Py_ssize_t, held=Py_ssize_t, placed=list, key=bytes)
cpdef tuple place(
    list records, Py_ssize_t start, str topic, list filling, Py_ssize_t count, Py_ssize_t turn, Py_ssize_t turn_bytes,
    Py_ssize_t batch_bytes, Py_ssize_t limit_bytes)

cdef Py_ssize_t home_of(
    object partition, bytes key, Py_ssize_t count, Py_ssize_t turn, Py_ssize_t turn_bytes) except -2
