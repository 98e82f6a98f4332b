"""The producer's decisions: a machine without clock, loop or thread."""
