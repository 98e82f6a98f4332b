# C types for build_kernels.py, and the parts that Python has no words for; plain Python has them in build_parts.py.
cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.string cimport memcpy

cdef extern from "Python.h":
    void PyObject_GC_UnTrack(void *)
    void PyObject_GC_Track(void *)
    int PyObject_GC_IsTracked(object)

cdef extern from *:
    """
    #define object_new(kind, arguments, names) (((PyTypeObject *)(kind))->tp_new((PyTypeObject *)(kind), arguments, names))
    """
    object object_new(type, tuple, PyObject *)

cdef inline Py_ssize_t number_size(long long number) noexcept:
    cdef unsigned long long rest = (<unsigned long long>number << 1) ^ <unsigned long long>(number >> 63)
    cdef Py_ssize_t size = 1
    while rest > 0x7F:
        rest >>= 7
        size += 1
    return size

cdef inline unsigned char *put_number(unsigned char *out, long long number) noexcept:
    cdef unsigned long long rest = (<unsigned long long>number << 1) ^ <unsigned long long>(number >> 63)
    while rest > 0x7F:
        out[0] = <unsigned char>(rest & 0x7F | 0x80)
        out += 1
        rest >>= 7
    out[0] = <unsigned char>rest
    return out + 1

cdef inline unsigned char *put_field(unsigned char *out, const char *field, Py_ssize_t length) noexcept:
    out = put_number(out, length)
    if length > 0:
        memcpy(out, field, length)
        out += length
    return out

# What one record takes that has these fields; a length of -1 is a field that is missing.
cdef inline Py_ssize_t body_size(
        long long time, long long index, Py_ssize_t key_length, Py_ssize_t value_length, Py_ssize_t tail_length) noexcept:
    return (1 + number_size(time) + number_size(index) + number_size(key_length) + number_size(value_length)
            + (key_length if key_length > 0 else 0) + (value_length if value_length > 0 else 0) + tail_length)

cdef inline Py_ssize_t put_fields(
        unsigned char *base, Py_ssize_t position, long long time, long long index, const char *key,
        Py_ssize_t key_length, const char *value, Py_ssize_t value_length, const char *tail,
        Py_ssize_t tail_length) noexcept:
    cdef unsigned char *out = put_number(
        base + position, body_size(time, index, key_length, value_length, tail_length))
    out[0] = 0
    out = put_number(out + 1, time)
    out = put_number(out, index)
    out = put_field(out, key, key_length)
    out = put_field(out, value, value_length)
    memcpy(out, tail, tail_length)
    return out + tail_length - base

cdef inline Py_ssize_t put_record(
        bytearray out, Py_ssize_t position, long long time, long long index, bytes key, bytes value, bytes tail) except -1:
    return put_fields(
        <unsigned char *>PyByteArray_AS_STRING(out), position, time, index,
        NULL if key is None else PyBytes_AS_STRING(key), -1 if key is None else PyBytes_GET_SIZE(key),
        NULL if value is None else PyBytes_AS_STRING(value), -1 if value is None else PyBytes_GET_SIZE(value),
        PyBytes_AS_STRING(tail), PyBytes_GET_SIZE(tail))

cdef inline unsigned int murmur(bytes data) noexcept:
    cdef const unsigned char *at = <const unsigned char *>PyBytes_AS_STRING(data)
    cdef Py_ssize_t length = PyBytes_GET_SIZE(data)
    return murmur_of(at, length)

cdef inline unsigned int murmur_of(const unsigned char *at, Py_ssize_t length) noexcept:
    cdef unsigned int m = 0x5BD1E995
    cdef unsigned int value = 0x9747B28C ^ <unsigned int>length
    cdef unsigned int word
    while length >= 4:
        word = at[0] | (<unsigned int>at[1] << 8) | (<unsigned int>at[2] << 16) | (<unsigned int>at[3] << 24)
        word *= m
        word ^= word >> 24
        word *= m
        value = (value * m) ^ word
        at += 4
        length -= 4
    if length == 3:
        value ^= <unsigned int>at[2] << 16
    if length >= 2:
        value ^= <unsigned int>at[1] << 8
    if length >= 1:
        value ^= at[0]
        value *= m
    value ^= value >> 13
    value *= m
    return value ^ (value >> 15)

cdef inline object new_hidden(type kind):
    cdef object record = object_new(kind, (), NULL)
    PyObject_GC_UnTrack(<void *>record)
    return record

cdef inline void show(object record):
    if not PyObject_GC_IsTracked(record):
        PyObject_GC_Track(<void *>record)

cpdef unsigned int murmur2(bytes data)

@cython.locals(latest=cython.longlong, time=cython.longlong, at=Py_ssize_t, place=cython.longlong, tail=bytes)
cpdef tuple write_records(
    list records, long long index, long long base_time, bytearray out, Py_ssize_t position, object encode_headers)

cpdef object new_record(type kind, object topic, object key, object value, object timestamp_ms, object size_bytes)
cpdef show_record(object record)

@cython.locals(row=Py_ssize_t, number=Py_ssize_t, key=bytes, spread=list)
cpdef list spread_rows(list keys, list partitions, Py_ssize_t stop, Py_ssize_t count, Py_ssize_t turn)

@cython.locals(total=Py_ssize_t, begin=Py_ssize_t, row=Py_ssize_t, size=Py_ssize_t, value=bytes, key=bytes, tail=bytes)
cpdef tuple measure_rows(
    list keys, list values, list tails, list rows, Py_ssize_t position, Py_ssize_t stop, Py_ssize_t overhead_bytes,
    Py_ssize_t limit_bytes)

@cython.locals(latest=cython.longlong, time=cython.longlong, index=cython.longlong, row=Py_ssize_t, key=bytes)
cpdef tuple write_rows(
    list keys, list values, list times, list tails, bytes tail, list rows, Py_ssize_t position, Py_ssize_t stop,
    long long base_time, bytearray out, Py_ssize_t at)

@cython.locals(place=Py_ssize_t)
cpdef Py_ssize_t first_unfit(list payloads, Py_ssize_t limit_bytes)
