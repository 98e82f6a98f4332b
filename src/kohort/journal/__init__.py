"""Journal of group events: rows, the ring with the latest of them, and `why` with explanations.

Floors: explain over ring and words, over rows. The coordinator writes rows by `coordinator/journal_events`. Begin with
`rows`, `ring`, `explain`.
"""
