"""Logs on disk: partitions, their segments and files, recovery, compaction, the catalogue of topics.

Floors: tools and store over topics, compaction and scrubbing, over recovery, over partitions, over segments, over
catalog, over files. It has no loop and no sockets. The broker imports this room. Begin with `store`,
`partitions/partition`, `recovery`.
"""
