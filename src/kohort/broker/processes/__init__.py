"""The broker's child processes: user-defined assignors and log compaction."""
