"""Ownership of partitions as their leaders enforce it: fences and openings that follow from decisions."""
