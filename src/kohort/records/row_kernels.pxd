# C types for row_kernels.py, and the few parts that Python has no words for; plain Python has them in row_parts.py.
cimport cython
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8

cdef extern from "Python.h":
    object PyType_GenericAlloc(type, Py_ssize_t)
    void PyObject_GC_UnTrack(void *)

cdef long long LAST_MICROSECOND_MS
cdef Py_ssize_t TABLE_WIDTH, ATTRIBUTES, LEADER_EPOCH, ROW_STOP
cdef Py_ssize_t SPAN_WIDTH, KEY, KEY_LENGTH, VALUE, VALUE_LENGTH
cdef Py_ssize_t HEADER_WIDTH, HEADER_KEY, HEADER_KEY_LENGTH, HEADER_VALUE, HEADER_VALUE_LENGTH

cdef inline void _put(object row, Py_ssize_t index, object field):
    Py_INCREF(field)
    PyTuple_SET_ITEM(row, index, field)

cdef inline object new_row(
    type kind, object topic, object partition, object offset, object time, object time_kind, object key, object value,
    object headers, object epoch):
    cdef object row = PyType_GenericAlloc(kind, 9)
    # Nothing in it can refer back to it: the collector need not walk over what an application reads.
    PyObject_GC_UnTrack(<PyObject *>row)
    _put(row, 0, topic)
    _put(row, 1, partition)
    _put(row, 2, offset)
    _put(row, 3, time)
    _put(row, 4, time_kind)
    _put(row, 5, key)
    _put(row, 6, value)
    _put(row, 7, headers)
    _put(row, 8, epoch)
    return row

cdef inline object new_bytes(const unsigned char[::1] region, Py_ssize_t start, Py_ssize_t length):
    if length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>&region[0] + start, length)

cdef inline object new_text(const unsigned char[::1] region, Py_ssize_t start, Py_ssize_t length):
    return PyUnicode_DecodeUTF8(<const char *>&region[0] + start, length, "replace")

cdef inline bytearray new_array(Py_ssize_t size_bytes):
    return PyByteArray_FromStringAndSize(NULL, size_bytes)

cpdef bytearray blank(Py_ssize_t size_bytes)

@cython.locals(count=Py_ssize_t, row=Py_ssize_t)
cpdef Py_ssize_t to_microseconds(const long long[::1] times, long long[::1] out)

@cython.locals(with_headers=cython.bint, batch_stop=Py_ssize_t, time=cython.longlong, span=Py_ssize_t)
cpdef build_rows(
    type kind, object topic, object partition, const unsigned char[::1] region, const long long[::1] table,
    Py_ssize_t batch, const long long[::1] offsets, const long long[::1] timestamps, const int[::1] spans,
    const int[::1] header_offsets, const int[::1] header_spans, Py_ssize_t row, Py_ssize_t stop,
    list rows)

@cython.locals(header=Py_ssize_t, at=Py_ssize_t, pairs=list)
cdef tuple _headers(const unsigned char[::1] region, const int[::1] spans, Py_ssize_t first, Py_ssize_t stop)
