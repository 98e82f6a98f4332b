"""A query as a member of its group: `core` decides, `thread` carries out, `ownership` is the interface to the stream.

`lineage` and `batch_notes` build the metadata that a query commits. Read `ownership`, `core` and `lineage` first.
"""
