"""The group coordinator as a pure function: commands and the time go in; records, timers and replies come out.

Layers, top first: shard; commandtable; offsets, consumer (KIP-848) and classic; static_membership and liveness; model
(the state), records and commands. The broker's `groups/runtime` runs it, the simulation tests it. Nothing here imports
a clock, an event loop, randomness or storage. Begin with `shard`, `model`, `consumer/heartbeat`.
"""
