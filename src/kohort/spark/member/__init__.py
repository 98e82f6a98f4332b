"""A query as a member of its group: `core` decides, `thread` carries out, `ownership` is what the stream sees of it.

`lineage` and `batch_notes` are what a query commits beside its offsets. Begin with `ownership`, `core`, `lineage`.
"""
