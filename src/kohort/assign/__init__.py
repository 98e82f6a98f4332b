"""Assignors: who shall own which partition, as pure functions over arrays."""
