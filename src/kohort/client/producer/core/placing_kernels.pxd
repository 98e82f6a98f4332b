# C types for placing_kernels.py. Nothing here has a body: the .py is the whole source and runs without this file.
cimport cython

from kohort.records.build_kernels cimport murmur2

@cython.locals(stop=Py_ssize_t, size=Py_ssize_t, number=Py_ssize_t, before=Py_ssize_t, placed=list, key=bytes)
cpdef tuple place(
    list records, Py_ssize_t start, str topic, list filling, Py_ssize_t count, Py_ssize_t turn, Py_ssize_t turn_bytes,
    Py_ssize_t batch_bytes, Py_ssize_t limit_bytes)
