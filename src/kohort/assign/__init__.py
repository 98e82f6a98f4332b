"""Assignors: the choice of an owner for each partition, as pure functions over arrays."""
