"""The group coordinator, a function of its input: commands and the time in, records, timers and replies out.

Floors: shard over commandtable, over offsets, consumer (KIP-848) and classic, over static_membership and liveness, over
model (the state), records and commands. The broker's `groups/runtime` runs it, the simulation tests it. It imports no
clock, loop, chance or storage. Begin with `shard`, `model`, `consumer/heartbeat`.
"""
