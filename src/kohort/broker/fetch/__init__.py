"""Fetch requests: the requested partitions, fetch sessions, the purgatory, and ownership fences."""
