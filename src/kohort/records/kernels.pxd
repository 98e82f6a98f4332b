# C types for kernels.py. Nothing here has a body: the .py is the whole source and runs without this file.
cimport cython

cdef long long INT32_LIMIT, UINT32_LIMIT, INT64_MAX
cdef Py_ssize_t TABLE_WIDTH, POSITION, END, BODY, BODY_END, BASE_OFFSET, LAST_OFFSET, RECORD_COUNT, ATTRIBUTES
cdef Py_ssize_t BASE_TIMESTAMP, MAX_TIMESTAMP, LEADER_EPOCH, CRC, ROW_STOP
cdef Py_ssize_t SPAN_WIDTH, KEY, KEY_LENGTH, VALUE, VALUE_LENGTH, HEADERS, HEADER_COUNT
cdef Py_ssize_t HEADER_WIDTH, HEADER_KEY, HEADER_KEY_LENGTH, HEADER_VALUE, HEADER_VALUE_LENGTH

@cython.locals(size=Py_ssize_t, position=Py_ssize_t, count=Py_ssize_t, length=Py_ssize_t)
cpdef Py_ssize_t count_batches(const unsigned char[::1] buffer)

@cython.locals(_index=cython.longlong, begin=Py_ssize_t, length=cython.longlong)
cpdef Py_ssize_t walk_records(
    const unsigned char[::1] region, Py_ssize_t position, Py_ssize_t end, long long count)

@cython.locals(latest=cython.longlong, found=Py_ssize_t, index=cython.longlong, begin=Py_ssize_t,
               length=cython.longlong, record_end=Py_ssize_t, timestamp_delta=cython.longlong,
               offset_delta=cython.longlong, key_length=cython.longlong, value_length=cython.longlong,
               header_count=cython.longlong, time=cython.longlong, is_missing=cython.bint)
cpdef (Py_ssize_t, long long, Py_ssize_t) check_records(
    const unsigned char[::1] region, Py_ssize_t position, Py_ssize_t end, long long first, long long stop,
    long long base_timestamp, long long earliest_ms, long long latest_ms, bint is_keyed, long long[::1] bad)

@cython.locals(size=Py_ssize_t, position=Py_ssize_t, next_offset=cython.longlong, batch=Py_ssize_t, at=Py_ssize_t, end=Py_ssize_t,
               base_offset=cython.longlong, last_delta=cython.longlong, records=cython.longlong,
               attributes=cython.int)
cpdef Py_ssize_t index_batches(const unsigned char[::1] buffer, long long[::1] table, Py_ssize_t count)

@cython.locals(batch=Py_ssize_t)
cpdef Py_ssize_t scan_records(
    const unsigned char[::1] region, long long[::1] table, Py_ssize_t first_batch, Py_ssize_t stop_batch,
    long long start_offset, Py_ssize_t row, long long[::1] offsets, long long[::1] timestamps, int[::1] spans)

@cython.locals(position=Py_ssize_t, end=Py_ssize_t, base_offset=cython.longlong, last_delta=cython.longlong,
               base_timestamp=cython.longlong, max_timestamp=cython.longlong, append_time=cython.int,
               previous_delta=cython.longlong, _index=cython.longlong, begin=Py_ssize_t, length=cython.longlong,
               record_end=Py_ssize_t, timestamp_delta=cython.longlong, offset_delta=cython.longlong,
               key_length=cython.longlong, key=Py_ssize_t, value_length=cython.longlong, value=Py_ssize_t,
               header_count=cython.longlong, headers=Py_ssize_t, span=Py_ssize_t)
cdef Py_ssize_t _scan_batch(
    const unsigned char[::1] region, long long[::1] table, Py_ssize_t at, long long start_offset, Py_ssize_t row,
    long long[::1] offsets, long long[::1] timestamps, int[::1] spans) noexcept

@cython.locals(_index=cython.longlong, length=cython.longlong)
cdef Py_ssize_t _skip_headers(
    const unsigned char[::1] region, Py_ssize_t position, Py_ssize_t end, long long count) noexcept

@cython.locals(header=Py_ssize_t, end=Py_ssize_t, row=Py_ssize_t, position=Py_ssize_t, _index=Py_ssize_t,
               key_length=cython.longlong, key=Py_ssize_t, value_length=cython.longlong, value=Py_ssize_t)
cpdef Py_ssize_t scan_headers(
    const unsigned char[::1] region, const int[::1] spans, Py_ssize_t first_row, Py_ssize_t stop_row,
    int[::1] header_offsets, int[::1] out)

@cython.locals(total=Py_ssize_t, row=Py_ssize_t, length=Py_ssize_t)
cpdef Py_ssize_t sum_lengths(const int[::1] spans, Py_ssize_t width, Py_ssize_t field, Py_ssize_t count)

@cython.locals(nulls=Py_ssize_t, row=Py_ssize_t)
cpdef Py_ssize_t count_nulls(const int[::1] spans, Py_ssize_t width, Py_ssize_t field, Py_ssize_t count)

@cython.locals(row=Py_ssize_t)
cpdef Py_ssize_t fill_validity(
    const int[::1] spans, Py_ssize_t width, Py_ssize_t field, Py_ssize_t count, unsigned char[::1] bitmap)

@cython.locals(written=Py_ssize_t, row=Py_ssize_t, start=Py_ssize_t, length=Py_ssize_t, index=Py_ssize_t)
cpdef Py_ssize_t gather(
    const unsigned char[::1] region, const int[::1] spans, Py_ssize_t width, Py_ssize_t field, Py_ssize_t first_row,
    Py_ssize_t stop_row, unsigned char[::1] out, int[::1] out_offsets)

@cython.locals(value=cython.ulonglong, shift=cython.int, byte=cython.ulonglong)
cdef (long long, Py_ssize_t) _varint(
    const unsigned char[::1] region, Py_ssize_t position, Py_ssize_t end) noexcept

cdef bint _is_sum_int64(long long base, long long delta) noexcept

@cython.locals(value=cython.int)
cdef int _int16(const unsigned char[::1] buffer, Py_ssize_t position) noexcept

@cython.locals(value=cython.longlong)
cdef long long _int32(const unsigned char[::1] buffer, Py_ssize_t position) noexcept

@cython.locals(high=cython.longlong, low=cython.longlong)
cdef long long _uint32(const unsigned char[::1] buffer, Py_ssize_t position) noexcept

cdef long long _int64(const unsigned char[::1] buffer, Py_ssize_t position) noexcept
