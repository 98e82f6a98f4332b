"""Committed offsets: `commit` decides commits of both protocols and their fencing, `delete` removes and expires."""
