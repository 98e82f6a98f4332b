"""Journal of group events: rows, a ring of the latest ones in memory, and explanations for `kohort group why`.

Layers, top first: explain; ring and words; rows. The coordinator writes rows through `coordinator/journal_events`.
Begin with `rows`, `ring`, `explain`.
"""
