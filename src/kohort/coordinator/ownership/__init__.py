"""Ownership of partitions as the leaders enforce it: who may read, and what a decision changes of that."""
