"""Record batches: headers, codecs, columns, and the kernels that read and write records, compiled where possible.

Floors: columns, scan and building over batch and sparse, over the kernels (choice), over header, layout and
compression. Everything that touches records imports this room. Begin with `header`, `batch`, `columns`.
"""
