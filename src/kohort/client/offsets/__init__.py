"""Offsets of a group and of partitions: committed, asked for, looked up."""
