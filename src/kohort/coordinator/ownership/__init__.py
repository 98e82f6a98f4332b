"""Ownership of partitions as the leaders enforce it: the fences and openings of each decision."""
