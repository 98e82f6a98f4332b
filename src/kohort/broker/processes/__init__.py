"""The broker's own processes: assignors of the user's own, and compaction."""
