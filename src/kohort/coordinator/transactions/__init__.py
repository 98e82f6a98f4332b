"""The transaction coordinator as a pure function, of the shape of the group coordinator beside it.

Layers, top first: shard; transitions (the decisions); states (their table), decision, records, commands, settings. The
broker's `transactions` runs it, the tests simulate it. Begin with `states`, `transitions`.
"""
