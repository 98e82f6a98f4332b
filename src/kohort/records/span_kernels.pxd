# C types for span_kernels.py, and the parts that Python has no words for; plain Python has them in span_parts.py.
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy

from kohort.records.build_kernels cimport murmur_of, put_field, put_fields, put_number

@cython.final
cdef class SpanColumn:
    cdef const unsigned char[::1] data
    cdef const long long[::1] offsets
    cdef const unsigned char[::1] validity
    cdef Py_ssize_t first
    cdef bint has_gaps

    @cython.locals(place=Py_ssize_t)
    cpdef Py_ssize_t length(self, Py_ssize_t row) noexcept

    @cython.locals(length=Py_ssize_t)
    cpdef object cut(self, Py_ssize_t row)

    cpdef SpanColumn part(self, Py_ssize_t start)

cdef inline const char *start_of(SpanColumn column, Py_ssize_t row) noexcept:
    return <const char *>&column.data[0] + column.offsets[column.first + row]

cdef inline bytes cut_bytes(const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t length):
    return PyBytes_FromStringAndSize(<const char *>&data[0] + start if length > 0 else NULL, length)

cdef inline unsigned int hash_of(SpanColumn column, Py_ssize_t row) noexcept:
    return murmur_of(<const unsigned char *>start_of(column, row), column.length(row))

cdef inline Py_ssize_t put_row(
        bytearray out, Py_ssize_t at, long long time, long long index, SpanColumn keys, SpanColumn values,
        SpanColumn tails, bytes tail, Py_ssize_t row) noexcept:
    cdef const char *key = NULL
    cdef const char *rest = PyBytes_AS_STRING(tail)
    cdef Py_ssize_t key_length = -1
    cdef Py_ssize_t rest_length = PyBytes_GET_SIZE(tail)
    if keys is not None:
        key = start_of(keys, row)
        key_length = keys.length(row)
    if tails is not None:
        rest = start_of(tails, row)
        rest_length = tails.length(row)
    return put_fields(
        <unsigned char *>PyByteArray_AS_STRING(out), at, time, index, key, key_length, start_of(values, row),
        values.length(row), rest, rest_length)

cdef inline Py_ssize_t put_count(bytearray out, Py_ssize_t at, long long count) noexcept:
    cdef unsigned char *base = <unsigned char *>PyByteArray_AS_STRING(out)
    return put_number(base + at, count) - base

cdef inline Py_ssize_t put_field_of(bytearray out, Py_ssize_t at, SpanColumn column, Py_ssize_t row) noexcept:
    cdef unsigned char *base = <unsigned char *>PyByteArray_AS_STRING(out)
    return put_field(base + at, start_of(column, row), column.length(row)) - base

cdef inline Py_ssize_t put_bytes(bytearray out, Py_ssize_t at, bytes piece) noexcept:
    memcpy(PyByteArray_AS_STRING(out) + at, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
    return at + PyBytes_GET_SIZE(piece)

@cython.locals(row=Py_ssize_t, place=Py_ssize_t, number=Py_ssize_t)
cpdef bint spread_spans(
    SpanColumn keys, const long long[::1] partitions, Py_ssize_t count, Py_ssize_t turn, int[::1] homes,
    long long[::1] bounds, long long[::1] order)

@cython.locals(total=Py_ssize_t, begin=Py_ssize_t, row=Py_ssize_t, size=Py_ssize_t)
cpdef tuple measure_spans(
    SpanColumn keys, SpanColumn values, SpanColumn tails, const long long[::1] rows, Py_ssize_t position, Py_ssize_t stop,
    Py_ssize_t overhead_bytes, Py_ssize_t limit_bytes)

@cython.locals(latest=cython.longlong, time=cython.longlong, index=cython.longlong, row=Py_ssize_t)
cpdef tuple write_spans(
    SpanColumn keys, SpanColumn values, const long long[::1] times, SpanColumn tails, bytes tail,
    const long long[::1] rows, Py_ssize_t position, Py_ssize_t stop, long long base_time, bytearray out, Py_ssize_t at)

@cython.locals(row=Py_ssize_t)
cpdef Py_ssize_t first_longer(SpanColumn column, Py_ssize_t count, Py_ssize_t limit_bytes)

@cython.locals(at=Py_ssize_t, header=Py_ssize_t, row=Py_ssize_t, _=Py_ssize_t)
cpdef Py_ssize_t write_tails(
    const long long[::1] counts, SpanColumn names, SpanColumn contents, bytes more, Py_ssize_t more_count,
    bytearray out, long long[::1] ends)
