"""Record batches: headers, codecs, columns, and the kernels that read and write records, compiled where possible.

Layers, the highest first: columns, scan and building; batch and sparse; the kernels (choice); header, layout and
compression. All code that handles records imports this package. Read `header`, `batch` and `columns` first.
"""
